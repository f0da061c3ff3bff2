//! The network of a cluster that has a node: a network namespace that is the node's, and a link to it.
//!
//! Everything that the node changes — interfaces, routes, tables of nftables — it changes in its namespace, and it goes with
//! that. This machine gets one interface, and routes to the cluster's pods and Services over it, which go with it as well.
//! The namespace has no way out: what has no place in the cluster is not sent anywhere else.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;

use crate::run::Result;

/// How many clusters with a node this machine can have at once.
const MOST: u8 = 15;

/// The network of one cluster; its number tells its addresses from those of the others on this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    number: u8,
}

impl Network {
    /// Makes the first that is free. `dir`'s watcher takes it away.
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

    /// The range of pods.
    pub(super) fn pods(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// The range of Services.
    pub(super) fn services(&self) -> String {
        format!("10.{}.0.0/16", 96 + self.number)
    }

    /// The address of the Service `kubernetes`.
    pub(super) fn first_service(&self) -> IpAddr {
        Ipv4Addr::new(10, 96 + self.number, 0, 1).into()
    }

    fn claim() -> Result<Network> {
        let mut refused = String::new();
        for number in 1..=MOST {
            let network = Network { number };
            // To make a namespace is to own its name: two processes that try get one.
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
        // A program of the node that asks for a Service needs some route before the address is translated. What is not
        // translated ends on the link: nobody there has the address.
        inside(&format!("ip route add {services} dev uplink"))?;
        run(&format!("ip route add {pods} via {node}"))?;
        run(&format!("ip route add {services} via {node}"))
    }
}

/// Runs a command; an error is what it says.
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
