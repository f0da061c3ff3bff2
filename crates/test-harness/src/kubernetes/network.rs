//! The network of a cluster with a node: the node's network namespace, and a link to it.
//!
//! Everything that the node changes (interfaces, routes, nftables) is in its namespace and is removed with it. This
//! machine gets one interface and routes to the cluster's pods and Services over it, which are removed too. The
//! namespace has no other uplink, so the cluster cannot reach other networks.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;

use crate::run::Result;

/// The maximum number of clusters with a node on this machine.
const MOST: u8 = 15;

/// The network of one cluster. Its number determines its addresses, which differ from those of other clusters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    number: u8,
}

impl Network {
    /// Creates the first free network. The watcher of `dir` removes it.
    pub(super) fn make(dir: &Path) -> Result<Network> {
        let network = Network::claim()?;
        fs::write(dir.join("netns"), network.name())?;
        network.set_up()?;
        Ok(network)
    }

    /// The name of the namespace, and of the interface on this machine.
    pub(super) fn name(&self) -> String {
        format!("rutter-node-{}", self.number)
    }

    /// This machine's address on the link, on which the API listens.
    pub(super) fn host(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 245, self.number, 1)
    }

    /// The node's address.
    pub(super) fn node(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 245, self.number, 2)
    }

    /// The address range of pods.
    pub(super) fn pods(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// The address range of Services.
    pub(super) fn services(&self) -> String {
        format!("10.{}.0.0/16", 96 + self.number)
    }

    /// The address of the Service `kubernetes`.
    pub(super) fn first_service(&self) -> IpAddr {
        Ipv4Addr::new(10, 96 + self.number, 0, 1).into()
    }

    /// The address of the DNS server's Service.
    pub(super) fn dns(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 96 + self.number, 0, 10)
    }

    fn claim() -> Result<Network> {
        let mut refused = String::new();
        for number in 1..=MOST {
            let network = Network { number };
            // Creating a namespace is atomic, so two processes never share one.
            match run(&format!("ip netns add {}", network.name())) {
                Ok(()) => return Ok(network),
                Err(error) if error.to_string().contains("File exists") => refused = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        Err(format!("all of the {MOST} networks for nodes are in use ({refused}); `ip netns` lists them").into())
    }

    fn set_up(&self) -> Result<()> {
        let (name, host, node) = (self.name(), self.host(), self.node());
        let (pods, services) = (self.pods(), self.services());
        let inside = |command: &str| run(&format!("ip netns exec {name} {command}"));
        run(&format!("ip link add {name} type veth peer name uplink netns {name}"))?;
        run(&format!("ip addr add {host}/30 dev {name}"))?;
        run(&format!("ip link set {name} up"))?;
        inside("ip link set lo up")?;
        inside(&format!("ip addr add {node}/30 dev uplink"))?;
        inside("ip link set uplink up")?;
        inside("sysctl -qw net.ipv4.ip_forward=1")?;
        // A program on the node needs a route to Service addresses before they are translated. Untranslated packets end
        // on the link, where no host has the address.
        inside(&format!("ip route add {services} dev uplink"))?;
        run(&format!("ip route add {pods} via {node}"))?;
        run(&format!("ip route add {services} via {node}"))
    }
}

/// Runs a command. The error contains its error output.
pub(super) fn run(command: &str) -> Result<()> {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output()
        .map_err(|error| format!("`{command}`: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
