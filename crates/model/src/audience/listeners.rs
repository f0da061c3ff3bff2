//! Audiences of listeners.

use std::net::SocketAddr;
use std::sync::Arc;

use config::mesh::ProxyConfigOverride;

use super::{Filters, GatewayFacts, InboundPort, IpFamilies, Policies, PolicyIds, ProxyClass, Scope, Source};
use crate::listener::{ListenerOptions, TraceIdentity};
use crate::mtls::MtlsModes;
use crate::proxy::{Capabilities, InterceptionMode};
use crate::tls::OwnFiles;

/// Decides the listeners of an Envoy proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ListenerAudience {
    /// Which services the client sees.
    pub scope: Arc<Scope>,
    /// The class of the proxy, with the facts that matter to this class only.
    pub class: ProxyClass<SidecarListenerFacts, Arc<GatewayFacts>>,
    /// Optional filters that the proxy supports.
    pub capabilities: Capabilities,
    /// An agent provides the workload's certificates.
    pub agent: bool,
    /// Certificate files that replace the agent's.
    pub own_files: Arc<OwnFiles>,
    /// Security policies that select the workload or gateway.
    pub policies: Policies,
    /// Address families of the proxy.
    pub ip: IpFamilies,
    /// HTTP/1.0 is accepted.
    pub accepts_http10: bool,
    /// Ports below 1024 cannot be bound.
    pub unprivileged: bool,
    /// Listener options from the proxy's metadata.
    pub options: ListenerOptions,
    /// Patches of listeners and of the routes in them, in the order in which they are applied.
    pub filters: Filters,
    /// Settings of the proxy that override the mesh's.
    pub overrides: Option<Arc<ProxyConfigOverride>>,
    /// Identity of the proxy in traces; empty while tracing is off.
    pub trace_identity: Arc<TraceIdentity>,
}

/// Facts that decide listeners of sidecars only.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SidecarListenerFacts {
    /// Ports of the workload that services (or its `Sidecar`) lead to, ascending.
    pub inbound: Arc<[InboundPort]>,
    /// mTLS mode of the workload's ports.
    pub mtls: Arc<MtlsModes>,
    /// Inbound listeners balance connections exactly (`INBOUND_LISTENER_EXACT_BALANCE`).
    pub exact_balance_inbound: bool,
    /// The client, with the labels that a TCP or TLS route names in `sourceLabels`.
    pub source: Arc<Source>,
    /// How traffic is captured.
    pub interception: InterceptionMode,
    /// The proxy's network, whose instances of headless services it can reach; empty while no network has a gateway.
    pub network: Arc<str>,
    /// Port of the HTTP proxy listener instead of the mesh's (`HTTP_PROXY_PORT`); 0 for none.
    pub http_proxy_port: Option<u16>,
    /// DNS resolver instead of the system's; only if the mesh resolves names of unknown destinations.
    pub resolver: Option<SocketAddr>,
}

/// Decides the listeners of a proxyless gRPC client or server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GrpcAudience {
    /// Which services the client sees.
    pub scope: Arc<Scope>,
    /// The DNS domain of short hostnames, `NAMESPACE.svc.cluster.local`.
    pub domain: Arc<str>,
    /// Ports of the workload that services lead to, ascending: the ports it may serve.
    pub inbound: Arc<[u16]>,
    /// The inbound ports that require the mesh's mutual TLS, ascending.
    pub mutual_tls: Arc<[u16]>,
    /// AuthorizationPolicies that select the workload and that gRPC enforces.
    pub policies: PolicyIds,
}

impl ListenerAudience {
    /// The audience without patches.
    pub fn plain(self: &Arc<Self>) -> Arc<ListenerAudience> {
        match self.filters.is_empty() {
            true => self.clone(),
            false => Arc::new(ListenerAudience { filters: Filters::default(), ..(**self).clone() }),
        }
    }

    /// The audience without the facts that decide inbound listeners only; `None` for other classes than sidecars.
    pub fn without_inbound(&self) -> Option<ListenerAudience> {
        let facts = SidecarListenerFacts {
            inbound: Arc::default(),
            mtls: Arc::default(),
            exact_balance_inbound: false,
            ..self.class.sidecar()?.clone()
        };
        Some(ListenerAudience { class: ProxyClass::Sidecar(facts), policies: Policies::default(), ..self.clone() })
    }

    /// The audience without overrides and trace identity, which decide how listeners are encoded but not which listeners
    /// there are.
    pub fn unspecific(self: &Arc<Self>) -> Arc<ListenerAudience> {
        match self.is_unspecific() {
            true => self.clone(),
            false => Arc::new(ListenerAudience { overrides: None, trace_identity: Arc::default(), ..(**self).clone() }),
        }
    }

    /// Whether listeners have neither overrides nor a trace identity.
    pub fn is_unspecific(&self) -> bool {
        self.overrides.is_none() && *self.trace_identity == TraceIdentity::default()
    }
}
