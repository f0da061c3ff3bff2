//! Servers of gateways.

use std::sync::Arc;

use config::istio::{ServerTlsMode, ServerTlsSettings, TlsProtocol};
use model::kube::{ListenerId, ListenerOwner};
use model::service::ObjectId;
use names::{Hostname, Protocol};

/// One server of a gateway.
#[derive(Clone, PartialEq, Debug)]
pub struct Server {
    /// The gateway.
    pub gateway: ObjectId,
    /// Its index.
    pub index: usize,
    /// The port as declared, which port conditions match.
    pub port: u16,
    /// The port's name.
    pub port_name: Arc<str>,
    /// The prefix of its statistics; empty for the listener's.
    pub name: Arc<str>,
    /// The bind address; none for all.
    pub bind: Option<Arc<str>>,
    /// The protocol.
    pub protocol: Protocol,
    /// The hosts.
    pub hosts: Vec<ServerHost>,
    /// Its TLS mode.
    pub tls: ServerTls,
    /// The listener of the Gateway API that it serves; none for servers of `Gateway`s.
    pub listener: Option<ListenerId>,
    /// The Gateway of this listener, also if a ListenerSet declares it.
    pub parent: Option<ObjectId>,
}

/// An object that declares servers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ServerOwner {
    /// Istio's `Gateway`.
    Istio(ObjectId),
    /// An object of the Gateway API.
    Kube(ListenerOwner),
}

/// A host of a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServerHost {
    /// The namespace of VirtualServices that may bind to it; none for any.
    pub namespace: Option<Arc<str>>,
    /// The host or wildcard.
    pub host: Hostname,
}

/// TLS mode of a server.
#[derive(Clone, PartialEq, Debug)]
pub enum ServerTls {
    /// Plain text.
    None,
    /// Plain text; requests are redirected to HTTPS.
    Redirect,
    /// SNI passthrough, by routes.
    Passthrough,
    /// SNI passthrough to the cluster that the SNI names (`AUTO_PASSTHROUGH`), between networks.
    AutoPassthrough,
    /// TLS is terminated.
    Terminated(Arc<ServerTlsSettings>),
}

impl Server {
    /// The object that declares it.
    pub(super) fn owner(&self) -> ServerOwner {
        match &self.listener {
            Some(listener) => ServerOwner::Kube(listener.owner.clone()),
            None => ServerOwner::Istio(self.gateway.clone()),
        }
    }

    /// The name of the route table of an HTTPS server: `https.PORT.NAME.GATEWAY.NAMESPACE`, with `.BIND` if it has a
    /// bind address. None for servers that do not terminate TLS, or of another protocol.
    pub fn route_table(&self) -> Option<String> {
        if self.protocol != Protocol::Https || !matches!(self.tls, ServerTls::Terminated(_)) {
            return None;
        }
        let ObjectId { namespace, name } = &self.gateway;
        let mut table = format!("https.{}.{}.{name}.{namespace}", self.port, self.port_name);
        if let Some(bind) = &self.bind {
            table.push('.');
            table.push_str(bind);
        }
        Some(table)
    }

    /// Whether it is a listener of the Gateway API for UDP. Servers of Istio's API cannot be.
    pub fn is_udp(&self) -> bool {
        self.listener.is_some() && self.protocol == Protocol::Udp
    }

    /// Whether it serves HTTP/3, too, at these UDP ports. Envoy's QUIC cannot request client certificates, so servers
    /// that require one are excluded.
    pub fn speaks_http3(&self, udp_ports: &[u16]) -> bool {
        let ServerTls::Terminated(settings) = &self.tls else {
            return false;
        };
        // QUIC requires TLS 1.3.
        let modern = matches!(settings.max_protocol_version, TlsProtocol::Auto | TlsProtocol::V1_3);
        let open = settings.mode == ServerTlsMode::Simple && modern;
        open && self.protocol == Protocol::Https && udp_ports.binary_search(&self.port).is_ok()
    }

    /// The server's hosts that VirtualServices of this namespace may serve.
    pub fn hosts_for<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Hostname> {
        self.hosts.iter().filter(move |h| h.namespace.as_deref().is_none_or(|n| n == namespace)).map(|h| &h.host)
    }
}
