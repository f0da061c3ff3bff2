//! A pod in a network namespace, and another namespace as the network outside.

use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use interception::{Config, FLAGS, Host, Kind};

static NEXT: AtomicU32 = AtomicU32::new(0);
const SERVE: &str = include_str!("serve.py");
const ASK: &str = include_str!("ask.py");
/// The addresses of the pod. The network outside has the same ones ending in 1, and answers for all others.
pub(crate) const POD: &str = "10.77.0.2";
/// The pod's IPv6 address.
pub(crate) const POD6: &str = "fd77::2";

/// The variable that is set in a pod.
pub(crate) const INSIDE: &str = "RUTTER_TEST_INSIDE";

/// Two namespaces that are connected.
pub(crate) struct Pod {
    name: String,
    servers: Vec<Child>,
}

impl Pod {
    /// Makes the namespaces. Prints that the test is skipped, and why, if this machine cannot have them.
    pub(crate) fn or_skip(test: &str) -> Option<Pod> {
        let pod = Pod {
            name: format!("rutcap-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
            servers: Vec::new(),
        };
        for program in ["ip", "nft", "iptables-nft", "iptables-legacy", "python3", "nsenter"] {
            if Command::new(program).arg("-V").output().is_err() {
                eprintln!("SKIPPED: {test}: `{program}` is not installed");
                return None;
            }
        }
        if let Err(error) = pod.set_up() {
            eprintln!("SKIPPED: {test}: network namespaces cannot be made here: {error}");
            return None;
        }
        Some(pod)
    }

    fn set_up(&self) -> Result<(), String> {
        let (pod, out) = (&self.name, self.outside());
        run(&format!("ip netns add {pod}"))?;
        run(&format!("ip netns add {out}"))?;
        run(&format!("ip -n {pod} link add eth0 type veth peer name eth0 netns {out}"))?;
        for (name, end) in [(pod, "2"), (&out, "1")] {
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} addr add 10.77.0.{end}/24 dev eth0"))?;
            run(&format!("ip -n {name} addr add fd77::{end}/64 dev eth0 nodad"))?;
            // Without a link-local address, which would appear in the state some time later.
            run(&format!("ip -n {name} link set eth0 addrgenmode none"))?;
            run(&format!("ip -n {name} link set eth0 up"))?;
        }
        run(&format!("ip -n {pod} route add default via 10.77.0.1"))?;
        run(&format!("ip -n {pod} -6 route add default via fd77::1"))?;
        run(&format!("ip -n {out} route add local 192.0.2.0/24 dev lo"))?;
        run(&format!("ip -n {out} -6 route add local 2001:db8::/32 dev lo"))?;
        let rules =
            "table inet t { chain c { type nat hook prerouting priority -100; meta l4proto tcp redirect to :7777; }; }";
        self.feed(&out, &["nft", "-f", "-"], rules).map(|_| ())
    }

    fn outside(&self) -> String {
        format!("{}o", self.name)
    }

    /// The path of the pod's namespace.
    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    /// The settings of flags, for this pod.
    pub(crate) fn config(&self, flags: &str) -> Config {
        let mut config = Config { network_namespace: self.path(), ..Config::default() };
        let mut words = flags.split_whitespace();
        while let Some(word) = words.next() {
            let flag = FLAGS.iter().find(|flag| match word.strip_prefix("--") {
                Some(long) => flag.name == Some(long),
                None => flag.short.is_some_and(|short| word == format!("-{short}")),
            });
            let flag = flag.unwrap_or_else(|| panic!("{word}"));
            let value = if flag.kind == Kind::Switch { "true" } else { words.next().unwrap() };
            config.set(flag.name.unwrap(), value).unwrap();
        }
        config
    }

    /// The facts of the pod.
    pub(crate) fn host(&self, config: &Config) -> Host {
        let nameservers: Vec<IpAddr> = vec!["192.0.2.53".parse().unwrap()];
        Host { nameservers, ..interception_exec::host(config, None).unwrap() }
    }

    /// Makes or removes the rules.
    pub(crate) fn apply(&self, config: &Config) -> Result<(), interception_exec::ExecError> {
        interception_exec::run(config, &self.host(config), &mut std::io::sink()).map(|_| ())
    }

    /// Starts the servers of the pod and of the network outside.
    pub(crate) fn serve(&mut self, mode: &str) {
        let outside = self.outside();
        for (name, arguments) in [(&outside, ["outside", "", ""]), (&self.name.clone(), ["pod", "1337", mode])] {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name, "python3", "-c", SERVE]).args(arguments);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "ready\n");
            self.servers.push(child);
        }
    }

    /// Connects from the pod: `user group protocol address port` for each, with the answers.
    pub(crate) fn ask(&self, questions: &[&str]) -> Vec<String> {
        let answers = self.feed(&self.name, &["python3", "-c", ASK], &questions.join("\n")).unwrap();
        answers.lines().map(str::to_owned).collect()
    }

    /// Connects from the network outside.
    pub(crate) fn ask_from_outside(&self, questions: &[&str]) -> Vec<String> {
        let answers = self.feed(&self.outside(), &["python3", "-c", ASK], &questions.join("\n")).unwrap();
        answers.lines().map(str::to_owned).collect()
    }

    /// Runs a test of this program in the pod.
    pub(crate) fn test(&self, name: &str) -> Result<String, String> {
        let program = std::env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        self.feed(&self.name, &["env", &format!("{INSIDE}=1"), program, "--exact", name, "--nocapture"], "")
    }

    /// Runs a command in the pod and returns its output.
    pub(crate) fn shell(&self, command: &str) -> String {
        self.feed(&self.name, &command.split(' ').collect::<Vec<_>>(), "").unwrap()
    }

    /// All rules, routes and addresses, without counters and comments.
    pub(crate) fn state(&self) -> String {
        let mut state = String::new();
        let commands = [
            "iptables-nft-save",
            "ip6tables-nft-save",
            "iptables-legacy-save",
            "ip6tables-legacy-save",
            "ip rule",
            "ip -6 rule",
            "ip route show table all",
            "ip -6 route show table all",
            "ip -o addr show dev lo",
        ];
        for command in commands {
            state.push_str(&self.shell(command));
        }
        // nft shows the rules of iptables-nft as comments that depend on its version.
        state.push_str(&self.shell("nft -s list tables inet"));
        for table in ["mangle", "nat", "raw"] {
            let list = format!("nft -s list table inet istio-proxy-{table}");
            state.push_str(&self.feed(&self.name, &list.split(' ').collect::<Vec<_>>(), "").unwrap_or_default());
        }
        // Tables of iptables without rules have no effect. The state of the link is not ours.
        let has_effect = |line: &&str| {
            (line.starts_with(":ISTIO") || !line.starts_with(['#', '*', ':']))
                && *line != "COMMIT"
                && !line.contains("dev eth0")
        };
        let chain = |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
        state.lines().filter(has_effect).map(|line| chain(line) + "\n").collect()
    }

    /// Runs a command with input in the namespace.
    fn feed(&self, name: &str, command: &[&str], input: &str) -> Result<String, String> {
        let mut process = Command::new("ip");
        process.args(["netns", "exec", name]).args(command).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process.stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        child.stdin.take().unwrap().write_all(input.as_bytes()).map_err(|error| error.to_string())?;
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for server in &mut self.servers {
            drop(server.stdin.take());
            let _ = server.wait();
        }
        for name in [&self.name, &self.outside()] {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}

fn run(command: &str) -> Result<(), String> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
