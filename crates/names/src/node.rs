//! Node ids of proxies: `TYPE~IP~ID~DOMAIN`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::NameError;

/// The maximum length of a node id, in bytes.
pub const MAX_NODE_ID: usize = 1024;

/// The type of a proxy, as in its node id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NodeType {
    /// The sidecar of an application.
    Sidecar,
    /// A gateway.
    Router,
    /// A waypoint of ambient mode.
    Waypoint,
    /// The node proxy of ambient mode.
    Ztunnel,
    /// The agent gateway.
    AgentGateway,
}

impl NodeType {
    /// All types.
    pub const ALL: [NodeType; 5] =
        [NodeType::Sidecar, NodeType::Router, NodeType::Waypoint, NodeType::Ztunnel, NodeType::AgentGateway];

    /// The text in a node id.
    pub const fn name(self) -> &'static str {
        match self {
            NodeType::Sidecar => "sidecar",
            NodeType::Router => "router",
            NodeType::Waypoint => "waypoint",
            NodeType::Ztunnel => "ztunnel",
            NodeType::AgentGateway => "agentgateway",
        }
    }
}

/// A parsed node id.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId {
    /// The type.
    pub kind: NodeType,
    /// The primary address; `None` if it is empty or invalid, in which case the metadata must have an address.
    pub ip: Option<IpAddr>,
    /// `POD.NAMESPACE`.
    pub id: Arc<str>,
    /// The DNS domain of the namespace, for example `NAMESPACE.svc.cluster.local`.
    pub domain: Arc<str>,
}

impl NodeId {
    /// Parses the four parts, which are separated by `~`.
    pub fn parse(text: &str) -> Result<NodeId, NameError> {
        if text.len() > MAX_NODE_ID {
            return Err(NameError::new(text, "is longer than a node id may be"));
        }
        let parts: Vec<&str> = text.splitn(5, '~').collect();
        let [kind, ip, id, domain] = parts[..] else {
            return Err(NameError::new(text, "is not a node id of four parts, TYPE~IP~ID~DOMAIN"));
        };
        let kind = NodeType::ALL.into_iter().find(|k| k.name() == kind);
        let kind = kind.ok_or_else(|| NameError::new(text, "is a node id of an unknown type"))?;
        Ok(NodeId { kind, ip: ip.parse().ok(), id: id.into(), domain: domain.into() })
    }

    /// The namespace at the start of the domain, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        self.domain.split('.').next().filter(|n| !n.is_empty())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = self.ip.map(|ip| ip.to_string()).unwrap_or_default();
        write!(f, "{}~{}~{}~{}", self.kind.name(), ip, self.id, self.domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_back() {
        let text = "sidecar~10.1.2.3~reviews-v1-abc.default~default.svc.cluster.local";
        let node = NodeId::parse(text).unwrap();
        assert_eq!(node.kind, NodeType::Sidecar);
        assert_eq!(node.ip, Some(IpAddr::from([10, 1, 2, 3])));
        assert_eq!(node.namespace(), Some("default"));
        assert_eq!(node.to_string(), text);
        assert_eq!(NodeId::parse("router~~a.b~").unwrap().ip, None);
        assert_eq!(NodeId::parse("router~~a.b~").unwrap().namespace(), None);
    }

    #[test]
    fn rejects_malformed_text() {
        let long = format!("sidecar~10.0.0.1~{}~x", "a".repeat(MAX_NODE_ID));
        for bad in ["", "sidecar", "sidecar~1.2.3.4~a.b", "sidecar~1.2.3.4~a.b~c~d", "car~1.2.3.4~a.b~c", &long] {
            assert!(NodeId::parse(bad).is_err(), "{bad}");
        }
    }
}
