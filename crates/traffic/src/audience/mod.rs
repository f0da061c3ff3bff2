//! Audiences: the least that decides what a proxy gets, made from the proxy once.
//!
//! The only rules of the crate that see a proxy. What they make of it is shared: two proxies with equal audiences are
//! one to everything that follows, and a change that leaves a proxy's audiences as they were stops here.

mod inbound;
mod select;

use std::net::IpAddr;
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{ClusterAudience, IpFamilies, ListenerAudience, RouteAudience, Scope, Source};
use model::proxy::{InterceptionMode, Labels, Proxy, ProxyKind};
use model::service::{EndpointAddress, ObjectId};
use registry::Workloads;
use registry::inputs::{Mesh, Proxies, ProxyToken, WorkloadObjectKey};

pub use select::{GatewaysBySelector, HttpSourceLabels, RulesWithSelector, SidecarsByNamespace, TcpSourceLabels};

/// Ports that Envoy itself answers at in Istio's bootstrap: readiness and merged metrics.
pub(crate) const STATIC_PORTS: [u16; 2] = [15021, 15090];

/// Everything that a proxy's configuration is derived for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProxyAudiences {
    /// What it sees; its endpoints are derived for this.
    pub scope: Arc<Scope>,
    /// Decides its clusters.
    pub cluster: Arc<ClusterAudience>,
    /// Decides its listeners.
    pub listener: Arc<ListenerAudience>,
    /// Decides its route tables.
    pub route: Arc<RouteAudience>,
}

/// The audiences of each connected proxy.
pub struct Audiences;

impl Relation for Audiences {
    const NAME: &'static str = "audiences";
    type Key = ProxyToken;
    type Row = ProxyAudiences;
}

impl Rule for Audiences {
    fn derive(cx: &Reads<'_>, token: &ProxyToken) -> Option<ProxyAudiences> {
        let proxy = cx.get::<Proxies>(token)?;
        let labels = labels(cx, &proxy);
        let mesh = cx.get::<Mesh>(&())?;
        let sidecar = match proxy.kind {
            ProxyKind::Sidecar => select::sidecar(cx, &proxy.namespace, &labels, &mesh.config.root_namespace),
            // Gateways see whatever is exported to their namespace.
            ProxyKind::Router => None,
        };
        let scope = Arc::new(Scope {
            namespace: proxy.namespace.clone(),
            sidecar: sidecar.as_ref().map(|(id, _)| id.clone()),
            selected_rules: select::rules(cx, &proxy.namespace, &labels),
        });
        let source = |labels| {
            Arc::new(Source {
                namespace: proxy.namespace.clone(),
                labels,
            })
        };
        let ip = families(&proxy.addresses);
        let mut parts = Parts {
            scope,
            http_source: source(select::asked::<HttpSourceLabels>(cx, &labels)),
            tcp_source: source(Labels::new()),
            ip,
            inbound: [].into(),
            gateways: [].into(),
            gateway_ports: [].into(),
        };
        match proxy.kind {
            ProxyKind::Sidecar => {
                let sidecar = sidecar.as_ref().map(|(_, object)| &object.spec);
                parts.tcp_source = source(select::asked::<TcpSourceLabels>(cx, &labels));
                parts.inbound = inbound::ports(cx, &proxy, ip, sidecar, &mesh.config);
            }
            ProxyKind::Router => {
                parts.gateways = select::gateways(cx, &labels).into();
                if !parts.gateways.is_empty() {
                    parts.gateway_ports = inbound::translated(cx, &proxy);
                }
            }
        }
        Some(assemble(&proxy, parts))
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    select::register(b);
    b.world::<Audiences, Proxies>();
}

/// What the audiences of one proxy share.
struct Parts {
    scope: Arc<Scope>,
    /// What HTTP routes may ask of the proxy.
    http_source: Arc<Source>,
    /// What TCP and TLS routes may ask of it; at gateways they ask nothing.
    tcp_source: Arc<Source>,
    ip: IpFamilies,
    inbound: Arc<[model::audience::InboundPort]>,
    gateways: Arc<[ObjectId]>,
    gateway_ports: Arc<[(u16, u16)]>,
}

fn assemble(proxy: &Proxy, parts: Parts) -> ProxyAudiences {
    let Parts {
        scope,
        http_source,
        tcp_source,
        ip,
        inbound,
        gateways,
        gateway_ports,
    } = parts;
    let kind = proxy.kind;
    let listener = ListenerAudience {
        scope: scope.clone(),
        kind,
        inbound: inbound.clone(),
        source: tcp_source,
        gateways: gateways.clone(),
        gateway_ports: gateway_ports.clone(),
        // A gateway captures nothing, whatever its metadata says; one value lets gateways share.
        interception: if kind == ProxyKind::Router {
            InterceptionMode::None
        } else {
            proxy.interception
        },
        capabilities: proxy.capabilities,
        ip,
        accepts_http10: proxy.accepts_http10,
        unprivileged: proxy.unprivileged,
    };
    ProxyAudiences {
        cluster: Arc::new(ClusterAudience {
            scope: scope.clone(),
            kind,
            inbound,
            ip,
        }),
        listener: Arc::new(listener),
        route: Arc::new(RouteAudience {
            scope: scope.clone(),
            kind,
            source: http_source,
            gateways,
            gateway_ports,
        }),
        scope,
    }
}

/// A proxy's labels: those of its pod where that is known, because they may change while the proxy runs, else those of
/// its metadata.
fn labels(cx: &Reads<'_>, proxy: &Proxy) -> Labels {
    let pod = proxy
        .id
        .strip_suffix(&*proxy.namespace)
        .and_then(|rest| rest.strip_suffix('.'));
    let Some(name) = pod.filter(|name| !name.is_empty()) else {
        return proxy.labels.clone();
    };
    let id = ObjectId {
        namespace: proxy.namespace.clone(),
        name: name.into(),
    };
    let workload = cx.get::<Workloads>(&WorkloadObjectKey { pod: true, id });
    // A proxy may call itself what it likes; the address has to agree.
    let workload = workload.filter(|w| matches!(w.address, EndpointAddress::Ip(ip) if proxy.addresses.contains(&ip)));
    workload.map_or_else(|| proxy.labels.clone(), |w| (*w.labels).clone())
}

fn families(addresses: &[IpAddr]) -> IpFamilies {
    let v4 = addresses.iter().any(IpAddr::is_ipv4);
    let v6 = addresses.iter().any(IpAddr::is_ipv6);
    match (v4, v6) {
        (true, true) => IpFamilies::Dual,
        (false, true) => IpFamilies::V6,
        _ => IpFamilies::V4,
    }
}
