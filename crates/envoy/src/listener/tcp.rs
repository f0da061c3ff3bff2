//! TCP proxy filters.

use model::listener::TcpChain;
use protos::envoy::config::listener::v3::Filter;
use protos::envoy::extensions::filters::network::mongo_proxy::v3::MongoProxy;
use protos::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use protos::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, TunnelingConfig, WeightedCluster, weighted_cluster::ClusterWeight,
};
use protos::envoy::r#type::v3::HashPolicy;
use protos::envoy::r#type::v3::hash_policy::{PolicySpecifier, SourceIp};
use security::telemetry::Telemetry;

use crate::access_log::{self, Subject};
use crate::parts::{duration, network_filter};

/// The filters of a TCP chain. `idle_timeout_ms` is the default idle timeout.
pub(crate) fn filters(chain: &TcpChain, idle_timeout_ms: Option<u64>, telemetry: &Telemetry) -> Vec<Filter> {
    let mongo = || {
        let stat_prefix = chain.stat_prefix.to_string();
        network_filter("envoy.filters.network.mongo_proxy", &MongoProxy { stat_prefix, ..Default::default() })
    };
    chain.mongo.then(mongo).into_iter().chain([proxy(chain, idle_timeout_ms, telemetry)]).collect()
}

fn proxy(chain: &TcpChain, idle_timeout_ms: Option<u64>, telemetry: &Telemetry) -> Filter {
    let milliseconds = |time: u64| duration(std::time::Duration::from_millis(time));
    let proxy = TcpProxy {
        stat_prefix: chain.stat_prefix.to_string(),
        cluster_specifier: Some(clusters(chain)),
        idle_timeout: chain.idle_timeout_ms.or(idle_timeout_ms).map(milliseconds),
        max_downstream_connection_duration: chain.max_connection_duration_ms.filter(|time| *time > 0).map(milliseconds),
        tunneling_config: chain.tunnel.as_ref().map(|tunnel| TunnelingConfig {
            hostname: tunnel.target.to_string(),
            use_post: tunnel.post,
            ..Default::default()
        }),
        hash_policy: chain.hash_source_ip.then(by_source).into_iter().collect(),
        access_log: access_log::of_traffic(telemetry, Subject::Connections),
        ..Default::default()
    };
    network_filter("envoy.filters.network.tcp_proxy", &proxy)
}

fn clusters(chain: &TcpChain) -> ClusterSpecifier {
    match &chain.clusters[..] {
        [(cluster, _)] => ClusterSpecifier::Cluster(cluster.to_string()),
        // Envoy rejects weights of zero.
        several => ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters: several
                .iter()
                .filter(|(_, weight)| *weight > 0)
                .map(|(name, weight)| ClusterWeight { name: name.to_string(), weight: *weight, ..Default::default() })
                .collect(),
        }),
    }
}

fn by_source() -> HashPolicy {
    HashPolicy { policy_specifier: Some(PolicySpecifier::SourceIp(SourceIp {})) }
}
