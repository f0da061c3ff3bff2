//! The class of a proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use config::istio::OutboundMode;
use model::audience::{GatewayFacts, GatewaySet, InboundPort, ProxyClass};
use model::proxy::ProxyKind;

use super::facts::Facts;
use super::{inbound, kube, select};

/// Facts that matter to several audiences of sidecars.
pub(super) struct SidecarFacts {
    /// Ports of the workload that accept traffic.
    pub(super) inbound: Arc<[InboundPort]>,
    /// The agent's DNS resolver; only if the mesh resolves names of unknown destinations.
    pub(super) resolver: Option<SocketAddr>,
}

/// The class of a proxy with its facts.
pub(super) type Class = ProxyClass<SidecarFacts, Arc<GatewayFacts>>;

impl Facts<'_> {
    /// The class of the proxy.
    pub(super) fn class(&self) -> Class {
        match self.proxy.kind {
            ProxyKind::Sidecar => {
                let by_name = self.mesh.config.outbound_traffic_policy.mode == OutboundMode::AllowAnyDynamicDns;
                ProxyClass::Sidecar(SidecarFacts {
                    inbound: inbound::ports(self),
                    resolver: self.proxy.resolver.filter(|_| by_name),
                })
            }
            ProxyKind::Router => ProxyClass::Gateway(Arc::new(self.gateway())),
            ProxyKind::Grpc => ProxyClass::Grpc,
        }
    }

    fn gateway(&self) -> GatewayFacts {
        let gateways = select::gateways(self.cx, self.labels);
        let kube = kube::gateways(self);
        if gateways.is_empty() && kube.is_empty() {
            return GatewayFacts::default();
        }
        GatewayFacts {
            set: GatewaySet { gateways: gateways.into(), kube: kube.into(), ports: inbound::translated(self) },
            udp_ports: match self.mesh.features.http3 {
                true => inbound::udp(self),
                false => Arc::default(),
            },
        }
    }
}
