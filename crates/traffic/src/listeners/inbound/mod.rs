//! Inbound listeners of a sidecar: the virtual inbound listener for captured connections, with filter chains for each
//! port of the workload, and a listener for each port that a `Sidecar` binds explicitly.

mod chains;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::MeshConfig;
use flow::Reads;
use model::audience::{ALL_ADDRESSES, InboundPort, IpFamilies, ListenerAudience, SidecarListenerFacts};
use model::listener::{Bind, ChainMatch, ChainSpec, Direction, ListenerSpec, Transport};
use model::mtls::Mode;
use model::proxy::InterceptionMode;
use model::tls::ServerContext;
use names::{ClusterName, Protocol};
use registry::inputs::{Mesh, Sidecars};

use super::chain::{BLACK_HOLE, INBOUND_PASSTHROUGH, TLS, to_cluster};
use super::l4;
use crate::{stats, terminate};
use chains::{Opening, Port};

/// Name of the virtual inbound listener and of its filter chain for undeclared ports.
pub(crate) const VIRTUAL_INBOUND: &str = "virtualInbound";

flow::rule! {
    /// The inbound listeners of sidecars.
    pub InboundListeners: Arc<ListenerAudience> => Vec<Arc<ListenerSpec>> = "inbound listeners", derive_inbound_listeners;
}

fn derive_inbound_listeners(cx: &Reads<'_>, audience: &Arc<ListenerAudience>) -> Option<Vec<Arc<ListenerSpec>>> {
    let facts = audience.class.sidecar()?;
    let mesh = cx.get::<Mesh>(&())?;
    let of_mesh = || Arc::new(terminate::of_workload(&audience.own_files));
    let inbound = Inbound {
        cx,
        audience,
        facts,
        of_mesh: audience.agent.then(of_mesh),
        tls: terminated(cx, audience, &facts.inbound),
        detection_timeout_ms: l4::detection_timeout_ms(cx),
    };
    let bound = facts.inbound.iter().filter(|p| !p.captured).filter_map(|p| inbound.bound(p));
    Some(inbound.captured(&mesh.config).into_iter().chain(bound).map(Arc::new).collect())
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<InboundListeners>();
}

struct Inbound<'a> {
    cx: &'a Reads<'a>,
    audience: &'a ListenerAudience,
    facts: &'a SidecarListenerFacts,
    /// The mesh's mutual TLS; none if the proxy has no certificate.
    of_mesh: Option<Arc<ServerContext>>,
    /// TLS contexts of ports whose `Sidecar` configures TLS; none if the proxy cannot have the certificate.
    tls: BTreeMap<u16, Option<Arc<ServerContext>>>,
    detection_timeout_ms: u64,
}

/// TLS contexts of the ports whose `Sidecar` terminates TLS.
fn terminated(
    cx: &Reads<'_>,
    audience: &ListenerAudience,
    inbound: &[InboundPort],
) -> BTreeMap<u16, Option<Arc<ServerContext>>> {
    let sidecar = match inbound.iter().any(|port| port.tls) {
        true => audience.scope.sidecar.as_ref().and_then(|id| cx.get::<Sidecars>(id)),
        false => None,
    };
    let Some(sidecar) = sidecar else {
        return BTreeMap::new();
    };
    let settings = |port: u16| {
        let mut listeners = sidecar.spec.ingress.iter();
        let listener = listeners.find(|l| l.port.as_ref().is_some_and(|p| p.number == u32::from(port)));
        listener.and_then(|listener| listener.tls.as_ref())
    };
    let ports = inbound.iter().filter(|port| port.tls);
    let context = |port: u16| {
        let context = terminate::context(settings(port)?, audience.agent, &audience.own_files)?;
        Some(Arc::new(context))
    };
    ports.map(|port| (port.port, context(port.port))).collect()
}

impl Inbound<'_> {
    /// The virtual inbound listener; none without traffic capture.
    fn captured(&self, mesh: &MeshConfig) -> Option<ListenerSpec> {
        let interception = self.facts.interception;
        if interception == InterceptionMode::None {
            return None;
        }
        let port = u16::try_from(mesh.proxy_inbound_listen_port).ok().filter(|p| *p != 0)?;
        let mut chains = vec![blackhole(port)];
        chains.extend(self.undeclared(port));
        let captured = self.facts.inbound.iter().filter(|p| p.captured);
        chains.extend(captured.flat_map(|p| self.declared(p).chains()));
        let spec = self.listener(VIRTUAL_INBOUND.into(), self.everywhere(port), chains);
        Some(ListenerSpec { original_dst_filter: true, transparent: interception == InterceptionMode::Tproxy, ..spec })
    }

    /// The listener of an explicitly bound port; none if it accepts nothing.
    fn bound(&self, port: &InboundPort) -> Option<ListenerSpec> {
        let bind = match &**port.bind.as_ref()? {
            ALL_ADDRESSES => self.everywhere(port.port),
            address => Bind::Socket { address: address.parse().ok()?, additional: Vec::new(), port: port.port },
        };
        let declared = self.declared(port);
        let closed = matches!(declared.opening, Opening::Closed);
        (!closed).then(|| self.listener(self.name(port), bind, declared.chains()))
    }

    /// All addresses of the workload.
    fn everywhere(&self, port: u16) -> Bind {
        let ip = self.audience.ip;
        Bind::Socket {
            address: ip.wildcard(),
            additional: (ip == IpFamilies::Dual).then(|| [0u16; 8].into()).into_iter().collect(),
            port,
        }
    }

    fn listener(&self, name: Arc<str>, bind: Bind, chains: Vec<ChainSpec>) -> ListenerSpec {
        let declared = declared_ports(&chains);
        let is_tls = |chain: &ChainSpec| chain.matches.transport_protocol == Some(TLS);
        ListenerSpec {
            name,
            bind,
            bind_to_port: true,
            transport: Transport::Tcp,
            direction: Direction::Inbound,
            use_original_dst: false,
            transparent: false,
            original_dst_filter: false,
            tls_inspector: chains.iter().any(is_tls),
            http_inspector: declared.is_some(),
            server_first_ports: declared.unwrap_or_default(),
            inspection_timeout_ms: Some(self.detection_timeout_ms),
            chains: chains.into(),
            default_chain: None,
            idle_timeout_ms: self.audience.options.idle_timeout_ms,
            exact_balance: self.facts.exact_balance_inbound,
            exclusive: false,
            policies: self.audience.policies.clone(),
            internal: [].into(),
            capabilities: self.audience.capabilities,
            overrides: None,
            trace_identity: Arc::default(),
        }
    }

    /// Filter chains of undeclared ports, and of those undeclared ports that a PeerAuthentication names.
    fn undeclared(&self, listens: u16) -> Vec<ChainSpec> {
        let modes = &self.facts.mtls;
        let declared = |number: u16| self.facts.inbound.iter().any(|port| port.port == number);
        let named = modes
            .exceptions()
            .filter(|(port, _)| *port != listens && !declared(*port))
            .map(|(port, mode)| (Some(port), mode));
        let all = [(None, modes.default_mode())].into_iter().chain(named);
        let port = |(destination, mode)| Port {
            names: ["virtualInbound-catchall-http".into(), VIRTUAL_INBOUND.into()],
            destination,
            protocol: Protocol::Unsupported,
            cluster: INBOUND_PASSTHROUGH.into(),
            opening: self.opening(mode),
            stat_prefix: format!("{INBOUND_PASSTHROUGH};").into(),
            tcp_name: None,
            service_port: 0,
            host: "".into(),
            accepts_http10: self.audience.accepts_http10,
        };
        all.flat_map(|named| port(named).chains()).collect()
    }

    fn declared(&self, port: &InboundPort) -> Port {
        let name = self.name(port);
        let service = port.service.as_ref().filter(|_| !port.by_sidecar);
        let (host, service_port) = match service {
            Some((service, number)) => (service.hostname.as_arc().clone(), *number),
            // Without a service, spans have the `Sidecar`'s name.
            None => (self.sidecar_host(), port.port),
        };
        let mode = self.facts.mtls.at(port.port);
        Port {
            names: [name.clone(), name.clone()],
            destination: Some(port.port),
            protocol: port.protocol,
            cluster: ClusterName::inbound(port.port).to_string().into(),
            // As in Istio, the mesh's mutual TLS overrides the Sidecar's TLS.
            opening: match self.tls.get(&port.port).filter(|_| mode == Mode::Disable) {
                Some(Some(context)) => Opening::Own(context.clone()),
                Some(None) => Opening::Closed,
                None => self.opening(mode),
            },
            stat_prefix: format!("inbound_{name};").into(),
            tcp_name: service.and_then(|(key, number)| stats::inbound(self.cx, key, *number, port.port)),
            service_port,
            host,
            accepts_http10: self.audience.accepts_http10,
        }
    }

    /// The accepted connections of a mode, with this proxy's certificates.
    fn opening(&self, mode: Mode) -> Opening {
        match (mode, &self.of_mesh) {
            (Mode::Disable, _) | (Mode::Permissive, None) => Opening::Plain,
            (Mode::Permissive, Some(context)) => Opening::Both(context.clone()),
            (Mode::Strict, Some(context)) => Opening::Mesh(context.clone()),
            (Mode::Strict, None) => Opening::Closed,
        }
    }

    fn name(&self, port: &InboundPort) -> Arc<str> {
        match &port.bind {
            Some(bind) if **bind != *ALL_ADDRESSES => format!("{bind}_{}", port.port).into(),
            _ => format!("{}_{}", self.audience.ip.wildcard(), port.port).into(),
        }
    }

    fn sidecar_host(&self) -> Arc<str> {
        let scope = &self.audience.scope;
        // A Sidecar of the root namespace counts as one of the workload's namespace.
        scope.sidecar.as_ref().map_or_else(|| "".into(), |s| format!("{}.{}", s.name, scope.namespace).into())
    }
}

/// Connections to the listener's own port would loop.
fn blackhole(port: u16) -> ChainSpec {
    ChainSpec {
        name: format!("{VIRTUAL_INBOUND}-blackhole").into(),
        matches: ChainMatch { destination_port: Some(port), ..ChainMatch::default() },
        tls: None,
        kind: to_cluster(BLACK_HOLE),
    }
}

/// The ports without HTTP detection; none if no port needs detection.
fn declared_ports(chains: &[ChainSpec]) -> Option<Vec<u16>> {
    let mut detected: BTreeMap<Option<u16>, bool> = BTreeMap::new();
    for chain in chains {
        // ALPN is the TLS inspector's.
        let looks = chain.matches.transport_protocol != Some(TLS) && !chain.matches.application_protocols.is_empty();
        *detected.entry(chain.matches.destination_port).or_default() |= looks;
    }
    let declared = detected.iter().filter(|(_, detected)| !**detected).filter_map(|(port, _)| *port).collect();
    detected.values().any(|detected| *detected).then_some(declared)
}
