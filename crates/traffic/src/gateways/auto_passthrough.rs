//! Gateways between networks (`AUTO_PASSTHROUGH`): the client's sidecar writes the cluster that it means into the server
//! name of its TLS, and the gateway passes the connection on to that cluster without opening it.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::Scope;
use model::listener::{ChainKind, TcpChain};
use names::Hostname;
use registry::Services;

use super::merge::{Server, ServerTls};
use crate::clusters::{ServiceClusters, ServiceClustersKey};
use crate::listeners::chain::Chain;
use crate::listeners::l4::to_cluster;
use crate::policy::policy_for;
use crate::{scope, stats};

/// Application protocols that only sidecars offer, over mutual TLS. A gateway cannot tell what is inside a connection;
/// with these, and because the clusters have no other endpoints, what it lets in has to prove who it is.
const MESH_ALPN: &[&str] = &[
    "istio",
    "istio-peer-exchange",
    "istio-http/1.0",
    "istio-http/1.1",
    "istio-h2",
];

/// A chain for each cluster of the mesh's services that the servers' hosts admit.
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
        let key = ServiceClustersKey {
            service: service.key.clone(),
            policy: policy.clone(),
            gateway: true,
            agent: false,
        };
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
                    // What comes from another network is on its way to the mesh's own workloads.
                    tunnel: None,
                    ..all
                };
                chains.push(Chain {
                    sni: vec![name],
                    alpn: MESH_ALPN,
                    ..Chain::any(ChainKind::Tcp(tcp))
                });
            }
        }
    }
    chains
}
