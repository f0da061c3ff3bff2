//! Audiences: the least that decides what a proxy gets, made from the proxy once.
//!
//! The only rules of the crate that see a proxy. What they make of it is shared: two proxies with equal audiences are
//! one to everything that follows, and a change that leaves a proxy's audiences as they were stops here.

mod filters;
mod inbound;
mod peers;
mod place;
mod select;
mod settings;
mod traced;
mod tuning;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use config::istio::OutboundMode;
use flow::{Reads, Relation, Rule};
use model::audience::{
    ClusterAudience, EndpointsAudience, ExtensionAudience, GrpcAudience, IpFamilies, Leds, ListenerAudience,
    NameAudience, NameView, OwnWorkload, Place, RouteAudience, Scope, SecretAudience, Source,
};
use model::listener::Traced;
use model::mtls::PeerModes;
use model::proxy::{InterceptionMode, Labels, Proxy, ProxyKind};
use model::service::{ObjectId, Workload};
use registry::Workloads;
use registry::inputs::{Mesh, MeshSettings, Proxies, ProxyToken, WorkloadObjectKey};

pub use filters::{FilterScopes, FiltersByNamespace};
pub use place::{ClustersOfServices, RulesByFacet, ServicesByDns, ServicesByFacet, ServicesWithAssigned};
pub use select::{GatewaysBySelector, HttpSourceLabels, RulesWithSelector, SidecarsByNamespace, TcpSourceLabels};
pub(crate) use select::{gateways as gateways_for, sidecars};

/// Everything that a proxy's configuration is derived for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProxyAudiences {
    /// Decides its endpoints.
    pub endpoints: Arc<EndpointsAudience>,
    /// Decides its clusters.
    pub cluster: Arc<ClusterAudience>,
    /// Decides its listeners.
    pub listener: Arc<ListenerAudience>,
    /// Decides its route tables.
    pub route: Arc<RouteAudience>,
    /// It takes virtual hosts singly.
    pub vhds: bool,
    /// Decides its secrets; none where it may have none.
    pub secrets: Option<Arc<SecretAudience>>,
    /// Decides the listeners of a gRPC client, and (with its scope) its clusters, instead of the above.
    pub grpc: Option<Arc<GrpcAudience>>,
    /// Decides its extension configurations.
    pub extension: Arc<ExtensionAudience>,
    /// Its agent may be told of the addresses that services without any were assigned.
    pub told_assigned: bool,
}

impl ProxyAudiences {
    /// Decides the name table of its agent, which few ask for.
    pub fn names(&self) -> NameAudience {
        let EndpointsAudience { scope, place, .. } = &*self.endpoints;
        let view = NameView {
            cluster: scope.cluster.clone(),
            network: place.network.clone(),
            ip: self.listener.ip,
            assigned: self.told_assigned,
        };
        NameAudience {
            scope: scope.clone(),
            view: Arc::new(view),
        }
    }
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
        let mesh = cx.get::<Mesh>(&())?;
        let pod = pod_of(cx, &proxy, &mesh);
        // Those of the pod may change while the proxy runs.
        let labels = pod.as_ref().map_or(&proxy.labels, |pod| &pod.labels);
        let sidecar = match proxy.kind {
            ProxyKind::Sidecar | ProxyKind::Grpc => {
                select::sidecar(cx, &proxy.namespace, labels, &mesh.config.root_namespace)
            }
            // Gateways see whatever is exported to their namespace.
            ProxyKind::Router => None,
        };
        let dials_assigned = proxy.resolver.is_some() && !cx.keys::<ServicesWithAssigned>().is_empty();
        let scope = Arc::new(Scope {
            namespace: proxy.namespace.clone(),
            sidecar: sidecar.as_ref().map(|(id, _)| id.clone()),
            selected_rules: select::rules(cx, &proxy.namespace, labels),
            cluster: place::cluster(cx, &proxy, &mesh),
            assigned: dials_assigned && proxy.kind == ProxyKind::Sidecar,
        });
        let place = place::of(cx, &proxy, pod.as_deref(), &mesh);
        let place_of_clusters = place::of_clusters(cx, &place);
        let source = |labels| {
            Arc::new(Source {
                namespace: proxy.namespace.clone(),
                labels,
            })
        };
        let ip = families(&proxy.addresses);
        let filters = filters::selected(cx, &proxy, labels, &mesh.config.root_namespace);
        let settings = settings::of(cx, &proxy, &mesh.config, traced::uses(cx));
        let own_or_default = settings.all.as_deref().unwrap_or(&mesh.config.default_config);
        let traced = traced::of(cx, &proxy, labels, own_or_default);
        let key_provider = settings::key_provider(own_or_default, proxy.capabilities);
        let mut parts = Parts {
            scope,
            filters,
            place: Arc::new(place),
            http_source: source(select::asked::<HttpSourceLabels>(cx, labels)),
            tcp_source: source(Labels::new()),
            ip,
            inbound: [].into(),
            gateways: [].into(),
            gateway_ports: [].into(),
            udp_ports: [].into(),
            accepts_http10: proxy.accepts_http10 || mesh.features.http10,
            sni_passthrough: false,
            grpc: None,
            peers: Arc::default(),
            own: None,
            place_of_clusters: Arc::new(place_of_clusters),
            resolver: None,
            settings,
            traced,
        };
        let scope = parts.scope.clone();
        let instance = inbound::Instance {
            cluster: &scope.cluster,
            pod: pod.as_deref(),
            labels,
            mesh: &mesh,
        };
        parts.own = place::own(&proxy, pod.as_deref(), || inbound::first_service(cx, &proxy, &instance)).map(Arc::new);
        match proxy.kind {
            ProxyKind::Sidecar => {
                let sidecar = sidecar.as_ref().map(|(_, object)| &object.spec);
                if mesh.config.outbound_traffic_policy.mode == OutboundMode::AllowAnyDynamicDns {
                    parts.resolver = proxy.resolver;
                }
                parts.tcp_source = source(select::asked::<TcpSourceLabels>(cx, labels));
                parts.inbound = inbound::ports(cx, &proxy, &instance, (ip, sidecar));
                parts.peers = peers::modes(cx, &proxy, labels, &mesh.config.root_namespace);
            }
            ProxyKind::Grpc => {
                let served = inbound::served(cx, &proxy, &instance);
                let root = &mesh.config.root_namespace;
                parts.grpc = Some(Arc::new(GrpcAudience {
                    scope: parts.scope.clone(),
                    domain: proxy.dns_domain.clone(),
                    mutual_tls: peers::of_grpc(cx, &proxy, labels, root, &served),
                    inbound: served,
                }));
            }
            ProxyKind::Router => {
                parts.gateways = select::gateways(cx, labels).into();
                parts.sni_passthrough = select::pass_through(cx, &parts.gateways);
                if !parts.gateways.is_empty() {
                    parts.gateway_ports = inbound::translated(cx, &proxy, &instance);
                    if mesh.features.http3 {
                        parts.udp_ports = inbound::udp(cx, &proxy, &instance);
                    }
                }
            }
        }
        let secrets = proxy.trusted.then(|| SecretAudience {
            key_provider,
            namespace: proxy.namespace.clone(),
            cluster: mesh.cluster_of_id(&proxy.cluster_id),
        });
        Some(ProxyAudiences {
            secrets: secrets.map(Arc::new),
            told_assigned: dials_assigned,
            ..assemble(&proxy, parts)
        })
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    filters::register(b);
    select::register(b);
    place::register(b);
    b.world::<Audiences, Proxies>();
}

/// What the audiences of one proxy share.
struct Parts {
    scope: Arc<Scope>,
    filters: filters::Selected,
    place: Arc<Place>,
    /// What HTTP routes may ask of the proxy.
    http_source: Arc<Source>,
    /// What TCP and TLS routes may ask of it; at gateways they ask nothing.
    tcp_source: Arc<Source>,
    ip: IpFamilies,
    inbound: Arc<[model::audience::InboundPort]>,
    gateways: Arc<[ObjectId]>,
    gateway_ports: Arc<[(u16, u16)]>,
    udp_ports: Arc<[u16]>,
    accepts_http10: bool,
    sni_passthrough: bool,
    grpc: Option<Arc<GrpcAudience>>,
    peers: Arc<PeerModes>,
    own: Option<Arc<OwnWorkload>>,
    place_of_clusters: Arc<Place>,
    resolver: Option<SocketAddr>,
    settings: settings::Own,
    traced: Arc<Traced>,
}

fn assemble(proxy: &Proxy, parts: Parts) -> ProxyAudiences {
    let Parts {
        scope,
        filters,
        place,
        http_source,
        tcp_source,
        ip,
        inbound,
        gateways,
        gateway_ports,
        udp_ports,
        accepts_http10,
        sni_passthrough,
        grpc,
        peers,
        own,
        place_of_clusters,
        resolver,
        settings,
        traced,
    } = parts;
    let kind = proxy.kind;
    let plain = scope.without_assigned();
    let apart = proxy.leds.map(|from| Leds {
        from,
        generation: 0,
        weights: !filters.clusters.is_empty(),
    });
    let listener = ListenerAudience {
        scope: scope.clone(),
        kind,
        inbound: inbound.clone(),
        source: tcp_source,
        gateways: gateways.clone(),
        gateway_ports: gateway_ports.clone(),
        udp_ports: udp_ports.clone(),
        // A gateway captures nothing, whatever its metadata says; one value lets gateways share.
        interception: match kind {
            ProxyKind::Sidecar => proxy.interception,
            ProxyKind::Router | ProxyKind::Grpc => InterceptionMode::None,
        },
        capabilities: proxy.capabilities,
        agent: proxy.has_agent(),
        own_files: peers::files(proxy),
        peers,
        ip,
        network: match kind {
            ProxyKind::Sidecar => place.network.clone(),
            ProxyKind::Router | ProxyKind::Grpc => Arc::default(),
        },
        accepts_http10,
        unprivileged: proxy.unprivileged,
        tuning: tuning::of(proxy),
        resolver,
        filters: filters.listeners,
        settings: settings.listeners,
        traced,
    };
    ProxyAudiences {
        cluster: Arc::new(ClusterAudience {
            scope: plain.clone(),
            kind,
            sni_passthrough,
            agent: proxy.has_agent(),
            inbound,
            ip,
            place: place_of_clusters,
            resolver,
            filters: filters.clusters,
            settings: settings.clusters,
        }),
        listener: Arc::new(listener),
        route: Arc::new(RouteAudience {
            scope: scope.clone(),
            kind,
            source: http_source,
            gateways,
            gateway_ports,
            udp_ports,
            filters: filters.routes,
            settings: settings.routes,
        }),
        extension: Arc::new(ExtensionAudience {
            filters: filters.extensions,
        }),
        vhds: proxy.vhds,
        endpoints: Arc::new(EndpointsAudience {
            scope: plain,
            place,
            own,
            apart,
        }),
        secrets: None,
        grpc,
        told_assigned: false,
    }
}

/// The pod that a proxy says it runs in, by its id; none where that is not `POD.NAMESPACE`.
pub fn pod_key(proxy: &Proxy, mesh: &MeshSettings) -> Option<WorkloadObjectKey> {
    let pod = proxy.id.strip_suffix(&*proxy.namespace)?.strip_suffix('.')?;
    (!pod.is_empty()).then(|| WorkloadObjectKey {
        pod: true,
        cluster: mesh.cluster_of_id(&proxy.cluster_id),
        id: ObjectId {
            namespace: proxy.namespace.clone(),
            name: pod.into(),
        },
    })
}

/// The pod that a proxy runs in, where that is known.
fn pod_of(cx: &Reads<'_>, proxy: &Proxy, mesh: &MeshSettings) -> Option<Arc<Workload>> {
    let workload = cx.get::<Workloads>(&pod_key(proxy, mesh)?)?;
    // A proxy may call itself what it likes; the address has to agree.
    workload
        .ips()
        .any(|ip| proxy.addresses.contains(&ip))
        .then(|| (*workload).clone())
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
