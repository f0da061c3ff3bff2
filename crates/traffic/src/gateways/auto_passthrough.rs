//! Gateways between networks (`AUTO_PASSTHROUGH`): the client's sidecar sends the cluster's name as SNI, and the
//! gateway forwards the connection to this cluster without terminating TLS.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::Scope;
use model::listener::{ChainKind, TcpChain};
use names::Hostname;
use registry::Services;

use super::server::{Server, ServerTls};
use crate::clusters::{ServiceClusters, ServiceClustersKey};
use crate::listeners::chain::Chain;
use crate::listeners::l4::to_cluster;
use crate::policy::policy_for;
use crate::{scope, stats};

/// ALPN that only sidecars offer, for mutual TLS. The gateway does not decrypt connections; this condition, and
/// clusters with mutual TLS endpoints only, ensure that clients are authenticated.
const MESH_ALPN: &[&str] = &["istio", "istio-peer-exchange", "istio-http/1.0", "istio-http/1.1", "istio-h2"];

/// A filter chain for each cluster of the mesh's services that the servers' hosts admit.
pub(super) fn chains(cx: &Reads<'_>, scope: &Arc<Scope>, servers: &[Server]) -> Vec<Chain> {
    let servers: Vec<&Server> = servers.iter().filter(|s| s.tls == ServerTls::AutoPassthrough).collect();
    if servers.is_empty() {
        return Vec::new();
    }
    let admits = |host: &Hostname| {
        let mut hosts = servers.iter().flat_map(|server| &server.hosts);
        hosts.any(|wanted| wanted.host.is_everything() || wanted.host == *host || host.subset_of(&wanted.host))
    };
    let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut chains = Vec::new();
    for service in scope::all_seen(cx, scope).iter().filter(|s| admits(&s.key.hostname)) {
        if cx.with::<Services, _>(&service.key, |s| s.is_none_or(|s| s.external)) {
            continue;
        }
        let policy = policy_for(cx, scope, &service.key);
        let key =
            ServiceClustersKey { service: service.key.clone(), policy: policy.clone(), gateway: true, agent: false };
        let clusters = cx.get::<ServiceClusters>(&key);
        for (_, cluster) in clusters.iter().flat_map(|clusters| clusters.iter()) {
            let mut cluster = cluster.clone();
            cluster.sni_passthrough = true;
            cluster.client = Default::default();
            let name: Arc<str> = cluster.cluster_name().into();
            if known.insert(name.clone()) {
                let all = to_cluster(cx, &name, policy.as_ref(), &cluster.subset);
                let named = stats::outbound(cx, &cluster.service, cluster.port, &cluster.subset);
                let tcp = TcpChain {
                    stat_prefix: named.unwrap_or(all.stat_prefix),
                    // Traffic from another network is for workloads of the mesh only.
                    tunnel: None,
                    between_networks: true,
                    ..all
                };
                chains.push(Chain { sni: vec![name], alpn: MESH_ALPN, ..Chain::any(ChainKind::Tcp(tcp)) });
            }
        }
    }
    chains
}
