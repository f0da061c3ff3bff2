//! Connections and datagrams: the proxies of TLSRoutes, TCPRoutes and UDPRoutes, at listeners of Gateways and of services.

use std::sync::Arc;

use flow::Reads;
use gateway_api::attach::HostsOfListener;
use gateway_api::backends::{Target, UNKNOWN_SERVICE};
use gateway_api::connections::{FirstRoutes, Share, Shares};
use model::kube::{ListenerId, RouteId};
use model::listener::{TcpChain, UdpProxy};
use model::service::ServiceKey;
use names::{ClusterName, Hostname};

use crate::listeners::chain::{self, Chain};
use crate::listeners::l4::Router;
use crate::scope;

/// The TCP proxies of a listener, each with its server name.
pub(super) fn tcp(cx: &Reads<'_>, router: &Router<'_>, listener: &ListenerId) -> Vec<(Hostname, TcpChain)> {
    let routes = routes(cx, listener);
    routes
        .into_iter()
        .filter_map(|(host, route)| Some((host, proxy(router, &route, &cx.get::<Shares>(&route)?))))
        .collect()
}

/// The UDP proxy of a listener; none without a route.
pub(super) fn udp(cx: &Reads<'_>, router: &Router<'_>, listener: &ListenerId) -> Option<UdpProxy> {
    let (_, route) = routes(cx, listener).into_iter().next()?;
    let tcp = proxy(router, &route, &cx.get::<Shares>(&route)?);
    Some(UdpProxy {
        stat_prefix: tcp.stat_prefix,
        clusters: tcp.clusters,
        idle_timeout_ms: tcp.idle_timeout_ms,
        hash_source_ip: tcp.hash_source_ip,
    })
}

/// A filter chain that closes the connections with a server name.
pub(super) fn refused(host: &Hostname) -> Chain {
    Chain { sni: vec![host.as_arc().clone()], ..Chain::any(chain::to_cluster(UNKNOWN_SERVICE)) }
}

/// The hosts of a listener with their routes.
fn routes(cx: &Reads<'_>, listener: &ListenerId) -> Vec<(Hostname, RouteId)> {
    let hosts = cx.get::<HostsOfListener>(listener);
    let hosts = hosts.iter().flat_map(|members| members.iter());
    hosts.filter_map(|key| Some((key.1.clone(), (*cx.get::<FirstRoutes>(key)?).clone()))).collect()
}

/// The TCP proxy of a route.
pub(crate) fn proxy(router: &Router<'_>, route: &RouteId, shares: &[Share]) -> TcpChain {
    Backends::of(router, shares).tcp(route)
}

/// The backends of a route as a proxy resolves them.
struct Backends<'a> {
    router: &'a Router<'a>,
    /// With the services that they mean: of an alias its target.
    all: Vec<(Share, Option<ServiceKey>)>,
}

impl<'a> Backends<'a> {
    fn of(router: &'a Router<'a>, shares: &[Share]) -> Backends<'a> {
        let meant = |share: &Share| {
            let target = share.target.as_ref();
            (share.clone(), target.map(|target| scope::meant(router.cx, router.scope, &target.service)))
        };
        Backends { router, all: shares.iter().map(meant).collect() }
    }

    /// A proxy with the policy of the first service. Envoy closes connections to an unknown cluster.
    fn tcp(&self, route: &RouteId) -> TcpChain {
        let first = self.all.iter().find_map(|(_, service)| service.as_ref());
        if let [(Share { target: Some(target), .. }, Some(service))] = &self.all[..] {
            return self.router.to_service(&cluster(target, service), Some(service));
        }
        let clusters = self.all.iter().map(|(share, service)| {
            let cluster = share.target.as_ref().zip(service.as_ref());
            let name = cluster.map(|(target, service)| cluster_name(target, service));
            (name.unwrap_or_else(|| UNKNOWN_SERVICE.into()), share.weight)
        });
        let mut clusters: Vec<(Arc<str>, u32)> = clusters.collect();
        if clusters.is_empty() {
            clusters.push((UNKNOWN_SERVICE.into(), 1));
        }
        self.router.to_clusters(&route.id, clusters, first)
    }
}

fn cluster(target: &Target, service: &ServiceKey) -> ClusterName {
    ClusterName::outbound(target.port, "", service.hostname.as_arc().clone())
}

fn cluster_name(target: &Target, service: &ServiceKey) -> Arc<str> {
    cluster(target, service).to_string().into()
}
