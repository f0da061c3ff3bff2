//! A network namespace that stands for a pod: traffic is captured in it as Istio's init container does.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use test_harness::run::Result;

/// Counts the namespaces of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The user as whom an application in the pod runs; what it sends is captured. (The proxy runs as another.)
const APPLICATION: u32 = 1000;

/// A network namespace with an address of its own, connected to this machine, with iptables' redirection in place.
#[derive(Debug)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Tells it from the others of this process.
    serial: u32,
    /// Its address.
    pub ip: Ipv4Addr,
    /// This machine's address at the other end.
    pub host: Ipv4Addr,
}

impl Namespace {
    /// A new one; or, in words, what this machine lacks for it.
    pub fn new() -> Result<std::result::Result<Namespace, String>> {
        if let Some(missing) = missing() {
            return Ok(Err(missing));
        }
        // Addresses of a range that is set aside for tests of networks; the process id keeps runs apart.
        // The kernel takes away the interfaces of a namespace some time after the namespace: a next one has other names.
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = (std::process::id().wrapping_add(serial.wrapping_mul(97)) % 250) as u8;
        let namespace = Namespace {
            name: format!("rutter-{}-{serial}", std::process::id()),
            serial,
            ip: Ipv4Addr::new(198, 18, number, 2),
            host: Ipv4Addr::new(198, 18, number, 1),
        };
        namespace.set_up()?;
        Ok(Ok(namespace))
    }

    /// The same for a test that is passed over, and says so, where there can be none.
    pub fn or_skip(what: &str) -> Result<Option<Namespace>> {
        let namespace = Namespace::new()?;
        if let Err(missing) = &namespace {
            eprintln!("SKIPPED: {what}: {missing}");
        }
        Ok(namespace.ok())
    }

    /// Where what is started in the namespace from now on asks for names: port 53 of this address.
    pub fn ask_for_names(&self, server: Ipv4Addr) -> Result<()> {
        std::fs::create_dir_all(self.files())?;
        Ok(std::fs::write(
            self.files().join("resolv.conf"),
            format!("nameserver {server}\n"),
        )?)
    }

    /// One more address of this machine, which the namespace reaches: up to nine.
    pub fn more_host(&self, number: u8) -> Result<Ipv4Addr> {
        let [a, b, c, _] = self.host.octets();
        let address = Ipv4Addr::new(a, b, c, 10 + number);
        run(&format!("ip addr add {address}/32 dev {}", self.outer()))?;
        Ok(address)
    }

    /// Runs a Python program in it as the application, and returns what it prints.
    pub fn python(&self, program: &str) -> Result<String> {
        let output = self.application(program).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A command that runs a Python program in it as the application.
    pub fn application(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        // Imported first: the interpreter's library need not be readable to that user.
        let imports = "import os, http.server, urllib.request, urllib.error, encodings.idna";
        let as_user = format!("{imports}\nos.setuid({APPLICATION})\n{program}");
        command.args(["netns", "exec", &self.name, "python3", "-c", &as_user]);
        command
    }

    /// What `ip netns exec` puts in the place of files of `/etc`.
    fn files(&self) -> PathBuf {
        Path::new("/etc/netns").join(&self.name)
    }

    /// The name of this machine's end of the cable.
    fn outer(&self) -> String {
        format!("rt{}a{}", std::process::id(), self.serial)
    }

    fn set_up(&self) -> Result<()> {
        let Namespace { name, serial, ip, host } = self;
        let (outer, inner) = (self.outer(), format!("rt{}b{serial}", std::process::id()));
        run(&format!("ip netns add {name}"))?;
        run(&format!("ip link add {outer} type veth peer name {inner} netns {name}"))?;
        run(&format!("ip addr add {host}/30 dev {outer}"))?;
        run(&format!("ip link set {outer} up"))?;
        let inside = |command: &str| run(&format!("ip netns exec {name} {command}"));
        inside("ip link set lo up")?;
        inside(&format!("ip addr add {ip}/30 dev {inner}"))?;
        inside(&format!("ip link set {inner} up"))?;
        inside(&format!("ip route add default via {host}"))?;
        inside(&format!(
            "iptables -t nat -A OUTPUT -p tcp -m owner --uid-owner {APPLICATION} -j REDIRECT --to-ports 15001"
        ))?;
        inside("iptables -t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 15006")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.files());
        // The pair of interfaces goes with it.
        let _ = run(&format!("ip netns del {}", self.name));
    }
}

/// What is not there: root, `ip`, `iptables`, or the right to make namespaces.
fn missing() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        return Some("it needs root".into());
    }
    let lacking = |program: &str| Command::new(program).arg("-V").output().is_err();
    if let Some(program) = ["ip", "iptables"].into_iter().find(|program| lacking(program)) {
        return Some(format!("`{program}` is not installed"));
    }
    let probe = format!("rutter-probe-{}", std::process::id());
    if let Err(error) = run(&format!("ip netns add {probe}")) {
        return Some(format!("network namespaces cannot be made here: {error}"));
    }
    let table = run(&format!("ip netns exec {probe} iptables -t nat -L -n"));
    let _ = run(&format!("ip netns del {probe}"));
    table.err().map(|error| format!("iptables does not work here: {error}"))
}

fn run(command: &str) -> Result<()> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap_or_default()).args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
