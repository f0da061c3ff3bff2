//! Fields that definitions of all kinds share.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use model::service::{ExportTo, ServicePort};

/// The namespaces that an object is exported to: `values` as written (`*`, `.`, `~`, namespaces), or the mesh's default
/// if empty.
pub fn export_to<S: AsRef<str>>(values: &[S], default: &[Arc<str>], namespace: &Arc<str>) -> ExportTo {
    let chosen: Vec<&str> = match values {
        [] => default.iter().map(|v| &**v).collect(),
        _ => values.iter().map(AsRef::as_ref).collect(),
    };
    if chosen.is_empty() || chosen.contains(&"*") {
        return ExportTo::All;
    }
    let named = chosen.into_iter().filter(|v| *v != "~");
    ExportTo::Namespaces(named.map(|v| if v == "." { namespace.clone() } else { Arc::from(v) }).collect())
}

/// The ports ascending by number.
pub(super) fn sorted_ports(ports: impl Iterator<Item = ServicePort>) -> Vec<ServicePort> {
    let mut ports: Vec<ServicePort> = ports.collect();
    // The sort is stable: of two ports with one number the first written wins, as in lookups by number.
    ports.sort_by_key(|p| p.number);
    ports
}

/// An address or a CIDR block.
pub(super) fn parse_net(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}
