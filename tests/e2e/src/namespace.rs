//! A network namespace in place of a pod: traffic is captured in it as by Istio's init container.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use test_harness::run::Result;

/// The number of namespaces of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The user of an application in the pod, whose traffic is captured. The proxy runs as another user.
const APPLICATION: u32 = 1000;

/// A network namespace with its own address, connected to this machine, with iptables rules that capture traffic.
#[derive(Debug)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Distinguishes it from other namespaces of this process.
    serial: u32,
    /// Its address.
    pub ip: Ipv4Addr,
    /// This machine's address at the other end of the link.
    pub host: Ipv4Addr,
}

impl Namespace {
    /// Creates a namespace. The error names what this machine lacks for it.
    pub fn new() -> Result<std::result::Result<Namespace, String>> {
        let namespace = Namespace::uncaptured()?;
        if let Ok(namespace) = &namespace {
            namespace.capture()?;
        }
        Ok(namespace)
    }

    /// As above, without the rules that capture traffic.
    pub fn uncaptured() -> Result<std::result::Result<Namespace, String>> {
        if let Some(missing) = missing() {
            return Ok(Err(missing));
        }
        // Addresses of a range that is reserved for network tests; the process id keeps runs apart.
        // The kernel removes the interfaces of a namespace some time after the namespace, so the next one needs other
        // names.
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

    /// As above; prints a message that the test is skipped if this machine cannot have namespaces.
    pub fn or_skip(what: &str) -> Result<Option<Namespace>> {
        let namespace = Namespace::new()?;
        if let Err(missing) = &namespace {
            eprintln!("SKIPPED: {what}: {missing}");
        }
        Ok(namespace.ok())
    }

    /// The DNS server (port 53 at this address) of programs that are started in the namespace from now on.
    pub fn ask_for_names(&self, server: Ipv4Addr) -> Result<()> {
        std::fs::create_dir_all(self.files())?;
        Ok(std::fs::write(self.files().join("resolv.conf"), format!("nameserver {server}\n"))?)
    }

    /// Another address of this machine that the namespace reaches; at most nine.
    pub fn more_host(&self, number: u8) -> Result<Ipv4Addr> {
        let [a, b, c, _] = self.host.octets();
        let address = Ipv4Addr::new(a, b, c, 10 + number);
        run(&format!("ip addr add {address}/32 dev {}", self.outer()))?;
        Ok(address)
    }

    /// Runs a Python program in it as the application, and returns its output.
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

    /// The directory with the files by which `ip netns exec` replaces those of `/etc`.
    fn files(&self) -> PathBuf {
        Path::new("/etc/netns").join(&self.name)
    }

    /// The name of this machine's end of the link.
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
        inside(&format!("ip route add default via {host}"))
    }

    /// Links it with another namespace, so that each reaches the other's address.
    pub fn link(&self, other: &Namespace) -> Result<()> {
        let name = |end: char| format!("rt{}{end}{}", std::process::id(), self.serial);
        let (near, far) = (name('c'), name('d'));
        run(&format!("ip link add {near} netns {} type veth peer name {far} netns {}", self.name, other.name))?;
        for (from, interface, to) in [(self, &near, other), (other, &far, self)] {
            let inside = |command: &str| run(&format!("ip netns exec {} {command}", from.name));
            // The rules that redirect inbound traffic need an address on the interface.
            inside(&format!("ip addr add {}/32 dev {interface}", from.ip))?;
            inside(&format!("ip link set {interface} up"))?;
            inside(&format!("ip route add {} dev {interface} src {}", to.ip, from.ip))?;
        }
        Ok(())
    }

    fn capture(&self) -> Result<()> {
        let inside = |command: &str| run(&format!("ip netns exec {} {command}", self.name));
        inside(&format!(
            "iptables -t nat -A OUTPUT -p tcp -m owner --uid-owner {APPLICATION} -j REDIRECT --to-ports 15001"
        ))?;
        inside("iptables -t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 15006")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.files());
        // The pair of interfaces is removed with it.
        let _ = run(&format!("ip netns del {}", self.name));
    }
}

/// The missing requirement: root, `ip`, `iptables`, or the permission to create namespaces.
fn missing() -> Option<String> {
    // Two tests of one process that look at once would take the namespace of each other for a failure.
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(find_missing).clone()
}

fn find_missing() -> Option<String> {
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
