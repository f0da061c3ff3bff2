//! Listener filters, which inspect a connection before a filter chain is selected.

use std::collections::BTreeMap;

use config::MeshConfig;
use model::listener::{Direction, ListenerSpec, Transport};
use protos::envoy::config::listener::v3::listener_filter::ConfigType;
use protos::envoy::config::listener::v3::listener_filter_chain_match_predicate::{MatchSet, Rule};
use protos::envoy::config::listener::v3::{ListenerFilter, ListenerFilterChainMatchPredicate as Predicate};
use protos::envoy::extensions::filters::listener::http_inspector::v3::HttpInspector;
use protos::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use protos::envoy::extensions::filters::listener::original_src::v3::OriginalSrc;
use protos::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use protos::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use protos::envoy::r#type::v3::Int32Range;
use protos::{Message, Name};

use crate::parts::{any, duration};

/// The mark of the proxy's packets, which iptables does not capture.
const SOURCE_MARK: u32 = 1337;
/// The initial read size: most client hellos are shorter than Envoy's 64 KiB.
const TLS_READ_BUFFER: u32 = 512;

/// The listener filters, in the required order: the PROXY protocol header precedes all other data, the original
/// destination decides on which ports the others are disabled, and TLS is detected before HTTP.
pub(crate) fn filters(spec: &ListenerSpec, mesh: &MeshConfig) -> Vec<ListenerFilter> {
    let mut filters = Vec::new();
    let topology = mesh.default_config.gateway_topology.as_ref();
    let behind_proxies = topology.is_some_and(|topology| topology.proxy_protocol.is_some());
    if behind_proxies && spec.direction == Direction::Gateway && spec.transport == Transport::Tcp {
        filters.push(filter("envoy.filters.listener.proxy_protocol", &ProxyProtocol::default()));
    }
    if spec.original_dst_filter {
        filters.push(filter("envoy.filters.listener.original_dst", &OriginalDst::default()));
    }
    if spec.transparent && spec.direction == Direction::Inbound {
        // The application must see the client's address.
        let config = OriginalSrc { mark: SOURCE_MARK, ..Default::default() };
        filters.push(filter("envoy.filters.listener.original_src", &config));
    }
    if spec.tls_inspector {
        let config = TlsInspector { initial_read_buffer_size: Some(TLS_READ_BUFFER), ..Default::default() };
        let mut inspector = filter("envoy.filters.listener.tls_inspector", &config);
        inspector.filter_disabled = indifferent_to_tls(spec);
        filters.push(inspector);
    }
    if spec.http_inspector {
        let mut inspector = filter("envoy.filters.listener.http_inspector", &HttpInspector::default());
        inspector.filter_disabled = any_port(&spec.server_first_ports);
        filters.push(inspector);
    }
    filters
}

/// The timeout of the filters; 0 means none.
pub(crate) fn timeout(milliseconds: u64) -> protos::Duration {
    duration(std::time::Duration::from_millis(milliseconds))
}

fn filter<M: Message + Name>(name: &str, config: &M) -> ListenerFilter {
    let config = ConfigType::TypedConfig(any(config));
    ListenerFilter { name: name.to_owned(), config_type: Some(config), filter_disabled: None }
}

/// Matches connections for which TLS makes no difference. They are forwarded uninspected, so that a server that speaks
/// first is not delayed.
fn indifferent_to_tls(spec: &ListenerSpec) -> Option<Predicate> {
    let mut ports: BTreeMap<u16, bool> = BTreeMap::new();
    let mut at_others = false;
    for chain in &*spec.chains {
        let looks = chain.tls.is_some() || chain.matches.transport_protocol == Some("tls");
        match chain.matches.destination_port {
            Some(port) => *ports.entry(port).or_default() |= looks,
            None => at_others |= looks,
        }
    }
    let excepted = ports.iter().filter(|(_, looks)| **looks != at_others);
    let excepted: Vec<u16> = excepted.map(|(port, _)| *port).collect();
    let excepted = any_port(&excepted)?;
    Some(match at_others {
        true => excepted,
        false => Predicate { rule: Some(Rule::NotMatch(Box::new(excepted))) },
    })
}

/// Matches connections to one of these ports.
fn any_port(ports: &[u16]) -> Option<Predicate> {
    let range = |port: &u16| {
        // The end is exclusive.
        let (start, end) = (i32::from(*port), i32::from(*port) + 1);
        Predicate { rule: Some(Rule::DestinationPortRange(Int32Range { start, end })) }
    };
    match ports {
        [] => None,
        [port] => Some(range(port)),
        // Envoy requires at least two rules in a set.
        ports => Some(Predicate { rule: Some(Rule::OrMatch(MatchSet { rules: ports.iter().map(range).collect() })) }),
    }
}
