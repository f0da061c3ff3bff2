//! Rules in a form that both back ends understand.

use std::ops::Not;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::values::{Owner, Ports};

/// A family of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A table. The order is the one in which tables are made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Table {
    Mangle,
    Nat,
    Raw,
}

impl Table {
    /// All tables, in their order.
    pub const ALL: [Table; 3] = [Table::Mangle, Table::Nat, Table::Raw];

    /// The name in iptables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Table::Mangle => "mangle",
            Table::Nat => "nat",
            Table::Raw => "raw",
        }
    }
}

/// A chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Chain {
    /// Packets from outside, and those that the loopback interface returns. The kernel's.
    Prerouting,
    /// Packets from this namespace. The kernel's.
    Output,
    /// Inbound packets.
    Inbound,
    /// Redirection to the outbound port of the proxy.
    Redirect,
    /// Redirection to the inbound port of the proxy.
    InRedirect,
    /// Outbound packets.
    Outbound,
    /// Outbound packets that may be DNS requests.
    OutputDns,
    /// Packets of an existing connection, which are marked.
    Divert,
    /// Packets of a new connection, which are given to the proxy.
    Tproxy,
    /// Packets that are dropped.
    Drop,
}

impl Chain {
    /// The name in iptables. In nftables, it is in lower case with `-` for `_`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Chain::Prerouting => "PREROUTING",
            Chain::Output => "OUTPUT",
            Chain::Inbound => "ISTIO_INBOUND",
            Chain::Redirect => "ISTIO_REDIRECT",
            Chain::InRedirect => "ISTIO_IN_REDIRECT",
            Chain::Outbound => "ISTIO_OUTPUT",
            Chain::OutputDns => "ISTIO_OUTPUT_DNS",
            Chain::Divert => "ISTIO_DIVERT",
            Chain::Tproxy => "ISTIO_TPROXY",
            Chain::Drop => "ISTIO_DROP",
        }
    }

    /// Whether the kernel has the chain.
    #[must_use]
    pub fn is_built_in(self) -> bool {
        matches!(self, Chain::Prerouting | Chain::Output)
    }
}

/// A protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }
}

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Net {
    /// A range of one family. The rule is for that family only.
    One(IpNet),
    /// A range for each family.
    Each(Ipv4Net, Ipv6Net),
}

impl Net {
    /// The range of a family.
    #[must_use]
    pub fn of(self, family: Family) -> Option<IpNet> {
        match (self, family) {
            (Net::One(net @ IpNet::V4(_)), Family::V4) | (Net::One(net @ IpNet::V6(_)), Family::V6) => Some(net),
            (Net::One(_), _) => None,
            (Net::Each(net, _), Family::V4) => Some(net.into()),
            (Net::Each(_, net), Family::V6) => Some(net.into()),
        }
    }
}

/// A property of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// The interface that it came from.
    In(String),
    /// The interface that it leaves by.
    Out(String),
    /// Its protocol.
    Protocol(Protocol),
    /// Its source address.
    Source(Net),
    /// Its destination address.
    Destination(Net),
    /// Its source port.
    SourcePort(Ports),
    /// Its destination port.
    DestinationPort(Ports),
    /// Its destination port is one of these.
    DestinationPorts(Vec<u16>),
    /// The user who owns its socket.
    User(Owner),
    /// The group that owns its socket.
    Group(Owner),
    /// The states of its connection, as iptables writes them.
    State(&'static str),
    /// Its mark.
    Mark(u32),
    /// The mark of its connection.
    ConnectionMark(u32),
}

/// A property that a packet has, or does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Match {
    /// Whether a packet matches that does not have the property.
    pub not: bool,
    /// The property.
    pub test: Test,
}

impl From<Test> for Match {
    fn from(test: Test) -> Match {
        Match { not: false, test }
    }
}

/// A packet that does not have the property.
impl Not for Test {
    type Output = Match;

    fn not(self) -> Match {
        Match { not: true, test: self }
    }
}

/// The effect of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The rest of the chain does not apply.
    Return,
    /// The packet passes this table.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Another chain applies.
    Jump(Chain),
    /// The connection goes to a port of this namespace.
    Redirect(u16),
    /// The packet is given to the socket at a port, and marked.
    Tproxy {
        /// The port.
        port: u16,
        /// The mark.
        mark: u32,
    },
    /// The packet is marked.
    SetMark(u32),
    /// The mark of the packet becomes that of its connection.
    SaveMark,
    /// The mark of the connection becomes that of the packet.
    RestoreMark,
    /// The connection is tracked in a zone of its own.
    Zone(u16),
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The table.
    pub table: Table,
    /// The chain.
    pub chain: Chain,
    /// The position in the chain, from 1. At its end if not given.
    pub at: Option<usize>,
    /// The only family that it is for.
    pub family: Option<Family>,
    /// The properties that a packet needs to have, all of them.
    pub matches: Vec<Match>,
    /// The effect.
    pub target: Target,
}

impl Rule {
    /// Whether the rule is for a family.
    #[must_use]
    pub fn is_for(&self, family: Family) -> bool {
        self.family.is_none_or(|only| only == family) && self.nets().all(|net| net.of(family).is_some())
    }

    /// Whether the two families need a rule each.
    #[must_use]
    pub fn differs_by_family(&self) -> bool {
        self.family.is_some() || self.nets().next().is_some()
    }

    fn nets(&self) -> impl Iterator<Item = Net> {
        self.matches.iter().filter_map(|of| match of.test {
            Test::Source(net) | Test::Destination(net) => Some(net),
            _ => None,
        })
    }
}
