//! Names of Envoy clusters: `DIRECTION|PORT|SUBSET|HOST`. `istioctl` and dashboards parse them.

use std::fmt;
use std::sync::Arc;

use crate::NameError;

/// The maximum length of the TLS server name (SNI) in `UpstreamTlsContext.sni`, in bytes.
pub const LONGEST_SNI: usize = 255;

/// The direction of a cluster's traffic, seen from the workload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// To other services.
    Outbound,
    /// To the application next to the proxy.
    Inbound,
}

impl Direction {
    /// `outbound` or `inbound`.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Outbound => "outbound",
            Direction::Inbound => "inbound",
        }
    }
}

/// A parsed cluster name. Inbound clusters have neither subset nor host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClusterName {
    /// Outbound or inbound.
    pub direction: Direction,
    /// The service port; for inbound clusters, the application's port.
    pub port: u16,
    /// The subset of a DestinationRule; empty for all endpoints.
    pub subset: Arc<str>,
    /// The service's hostname.
    pub host: Arc<str>,
}

impl ClusterName {
    /// `outbound|PORT|SUBSET|HOST`.
    pub fn outbound(port: u16, subset: impl Into<Arc<str>>, host: impl Into<Arc<str>>) -> ClusterName {
        ClusterName { direction: Direction::Outbound, port, subset: subset.into(), host: host.into() }
    }

    /// `inbound|PORT||`.
    pub fn inbound(port: u16) -> ClusterName {
        ClusterName { direction: Direction::Inbound, port, subset: "".into(), host: "".into() }
    }

    /// Parses both forms: `outbound|80|v1|a.b`, and `outbound_.80_.v1_.a.b`, which gateways with TLS passthrough use as
    /// SNI.
    pub fn parse(text: &str) -> Result<ClusterName, NameError> {
        let separator = if text.contains('|') { "|" } else { "_." };
        let error = || NameError::new(text, "is not a cluster name: DIRECTION|PORT|SUBSET|HOST");
        let mut parts = text.split(separator);
        let (direction, port, subset, host) = (parts.next(), parts.next(), parts.next(), parts.next());
        let direction = match direction {
            Some("outbound") => Direction::Outbound,
            Some("inbound") => Direction::Inbound,
            _ => return Err(error()),
        };
        let (Some(port), Some(subset), Some(host), None) = (port, subset, host, parts.next()) else {
            return Err(error());
        };
        let port = port.parse().map_err(|_| error())?;
        Ok(ClusterName { direction, port, subset: subset.into(), host: host.into() })
    }

    /// The DNS form, `outbound_.PORT_.SUBSET_.HOST`, which is also the SNI of mutual TLS between sidecars.
    pub fn to_sni(&self) -> String {
        format!("{}_.{}_.{}_.{}", self.direction.name(), self.port, self.subset, self.host)
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}|{}|{}", self.direction.name(), self.port, self.subset, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_round_trip() {
        let name = ClusterName::outbound(80, "v1", "reviews.default.svc.cluster.local");
        assert_eq!(name.to_string(), "outbound|80|v1|reviews.default.svc.cluster.local");
        assert_eq!(name.to_sni(), "outbound_.80_.v1_.reviews.default.svc.cluster.local");
        assert_eq!(ClusterName::parse(&name.to_string()), Ok(name.clone()));
        assert_eq!(ClusterName::parse(&name.to_sni()), Ok(name));
        assert_eq!(ClusterName::inbound(8080).to_string(), "inbound|8080||");
        assert_eq!(ClusterName::parse("inbound|8080||"), Ok(ClusterName::inbound(8080)));
    }

    #[test]
    fn rejects_malformed_text() {
        for bad in
            ["", "outbound", "outbound|80|v1", "outbound|x|v1|h", "outbound|80|v1|h|", "up|80||h", "outbound|99999||h"]
        {
            assert!(ClusterName::parse(bad).is_err(), "{bad}");
        }
    }
}
