//! UDP proxies.
//!
//! Envoy's UDP proxy has no weighted clusters, but it can choose the cluster by conditions on a session. A condition on a
//! share of the hashes of clients' ports selects sessions by weight. All datagrams of a session have the same port, so that
//! they have the same cluster.

use model::listener::UdpProxy;
use protos::envoy::config::listener::v3::ListenerFilter;
use protos::envoy::config::listener::v3::listener_filter::ConfigType;
use protos::envoy::extensions::filters::udp::udp_proxy::v3::udp_proxy_config::hash_policy::PolicySpecifier;
use protos::envoy::extensions::filters::udp::udp_proxy::v3::udp_proxy_config::{HashPolicy, RouteSpecifier};
use protos::envoy::extensions::filters::udp::udp_proxy::v3::{Route, UdpProxyConfig};
use protos::envoy::extensions::matching::common_inputs::network::v3::SourcePortInput;
use protos::envoy::extensions::matching::input_matchers::runtime_fraction::v3::RuntimeFraction;
use protos::envoy::r#type::v3::FractionalPercent;
use protos::envoy::r#type::v3::fractional_percent::DenominatorType;
use protos::xds::core::v3::TypedExtensionConfig;
use protos::xds::r#type::matcher::v3::Matcher;
use protos::xds::r#type::matcher::v3::matcher::matcher_list::predicate::single_predicate;
use protos::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{MatchType, SinglePredicate};
use protos::xds::r#type::matcher::v3::matcher::matcher_list::{FieldMatcher, Predicate};
use protos::xds::r#type::matcher::v3::matcher::{MatcherList, MatcherType, OnMatch, on_match};
use protos::{Message, Name};

use crate::parts::{any, duration, fraction};

const MILLION: u64 = 1_000_000;

/// The listener filter that forwards datagrams.
pub(super) fn filter(proxy: &UdpProxy) -> ListenerFilter {
    let by_source = HashPolicy { policy_specifier: Some(PolicySpecifier::SourceIp(true)) };
    let config = UdpProxyConfig {
        stat_prefix: proxy.stat_prefix.to_string(),
        route_specifier: clusters(proxy).map(RouteSpecifier::Matcher),
        idle_timeout: proxy.idle_timeout_ms.map(|time| duration(std::time::Duration::from_millis(time))),
        hash_policies: proxy.hash_source_ip.then_some(by_source).into_iter().collect(),
        ..Default::default()
    };
    ListenerFilter {
        name: "envoy.filters.udp_listener.udp_proxy".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&config))),
        ..Default::default()
    }
}

/// Chooses a cluster: each but the last one for its share of the sessions that those before it left.
fn clusters(proxy: &UdpProxy) -> Option<Matcher> {
    let (last, others) = proxy.clusters.split_last()?;
    let mut left: u64 = proxy.clusters.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut matchers = Vec::new();
    for (seed, (cluster, weight)) in (0..).zip(others) {
        matchers.push(FieldMatcher {
            predicate: Some(of_sessions(u64::from(*weight), left, seed)),
            on_match: Some(to(cluster)),
        });
        left -= u64::from(*weight);
    }
    let list = MatcherType::MatcherList(MatcherList { matchers });
    Some(Matcher { matcher_type: (!others.is_empty()).then_some(list), on_no_match: Some(Box::new(to(&last.0))) })
}

fn to(cluster: &str) -> OnMatch {
    let route = extension("route", &Route { cluster: cluster.to_owned() });
    OnMatch { on_match: Some(on_match::OnMatch::Action(route)), ..Default::default() }
}

/// A condition on a share of all sessions. Shares with different seeds are independent.
fn of_sessions(share: u64, of: u64, seed: u64) -> Predicate {
    let numerator = u32::try_from(share * MILLION / of.max(1)).unwrap_or(u32::MAX);
    let share = FractionalPercent { numerator, denominator: DenominatorType::Million.into() };
    let hashed = RuntimeFraction { runtime_fraction: Some(fraction(share)), seed };
    let condition = SinglePredicate {
        input: Some(extension("envoy.matching.inputs.source_port", &SourcePortInput {})),
        matcher: Some(single_predicate::Matcher::CustomMatch(extension(
            "envoy.matching.matchers.runtime_fraction",
            &hashed,
        ))),
    };
    Predicate { match_type: Some(MatchType::SinglePredicate(condition)) }
}

fn extension<M: Message + Name>(name: &str, config: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any(config)) }
}
