//! Converts Istio's Gateways.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::Gateway as KubeGateway;
use config::gateway_api::gateway::GatewaySpecAddress;
use config::gateway_api::listener::{ListenerTls, TlsMode};
use config::istio::{Gateway, Server, ServerTlsMode};
use config::{FieldPath, Kind, Object, ObjectKey, StringMap};
use model::service::ObjectId;
use names::Protocol;

use crate::context::Context;
use crate::listener::{self, Carries, Hosts, Listeners, Port};

/// A converted Gateway, with what its routes need.
pub(crate) struct Placed {
    /// The original Gateway.
    pub(crate) source: ObjectId,
    /// The new Gateway; none if no server could be converted.
    pub(crate) id: Option<ObjectId>,
    /// The labels of the proxies that serve the original.
    pub(crate) labels: StringMap,
    /// Their namespace.
    pub(crate) proxies: Arc<str>,
    /// The new listeners.
    pub(crate) listeners: Vec<Port>,
}

impl Placed {
    /// The ports that have HTTP routes.
    pub(crate) fn ports(&self) -> BTreeSet<u16> {
        self.serving().map(|one| one.number).collect()
    }

    /// The listeners that have HTTP routes.
    pub(crate) fn serving(&self) -> impl Iterator<Item = &Port> {
        self.listeners.iter().filter(|one| one.carries == Carries::Requests && !one.redirects)
    }

    /// Whether routes must name listeners, because some only redirect.
    pub(crate) fn redirects(&self) -> bool {
        self.listeners.iter().any(|one| one.redirects)
    }
}

/// Converts all of Istio's Gateways.
pub(crate) fn convert(cx: &mut Context<'_>) -> Vec<Placed> {
    let all: Vec<Arc<Object<Gateway>>> = cx.all::<Gateway>().cloned().collect();
    all.iter().map(|gateway| one(cx, gateway)).collect()
}

fn one(cx: &mut Context<'_>, gateway: &Object<Gateway>) -> Placed {
    let key = gateway.key();
    let source = ObjectId { namespace: gateway.meta.namespace.clone(), name: gateway.meta.name.clone() };
    let labels = gateway.spec.selector.clone();
    let proxies = cx.namespace_of_proxies(&labels).unwrap_or_else(|| source.namespace.clone());
    let id = id_for(cx, &source);
    let mut listeners = Listeners::new(source.namespace.clone(), id.namespace.clone());
    for (index, server) in gateway.spec.servers.iter().enumerate() {
        let at = FieldPath::spec().field("servers").index(index);
        add(cx, &key, &at, server, &proxies, &mut listeners);
    }
    let mut placed = Placed { source, id: None, labels, proxies, listeners: listeners.ports() };
    if listeners.is_empty() {
        cx.lost(
            &key,
            FieldPath::root(),
            "the Gateway has no server that can be converted",
            "Keep the Istio Gateway and its VirtualServices",
        );
        return placed;
    }
    finish(cx, &key, &id, &placed, listeners);
    cx.replaces(key);
    placed.id = Some(id);
    placed
}

/// Adds a new Gateway with these listeners.
pub(crate) fn finish(cx: &mut Context<'_>, source: &ObjectKey, id: &ObjectId, placed: &Placed, listeners: Listeners) {
    let address = cx.options.service.as_ref().map(|service| GatewaySpecAddress {
        kind: "Hostname".into(),
        value: Some(format!("{}.{}.svc.{}", service.name, service.namespace, cx.options.domain).into()),
    });
    let spec = KubeGateway {
        gateway_class_name: cx.options.gateway_class.clone(),
        addresses: address.into_iter().collect(),
        listeners: listeners.finish(cx, source, id),
        ..KubeGateway::default()
    };
    binding(cx, source, id, placed);
    cx.add(source, Object::new(id.namespace.clone(), id.name.clone(), spec));
    let sections: Vec<Arc<str>> =
        placed.listeners.iter().filter(|one| one.redirects).map(|one| one.name.clone()).collect();
    if !sections.is_empty() {
        crate::routes::redirect_to_https(cx, source, id, &sections);
    }
}

/// The namespace and name of the new Gateway. A Gateway is served by proxies of its own namespace.
fn id_for(cx: &Context<'_>, source: &ObjectId) -> ObjectId {
    let Some(service) = &cx.options.service else { return source.clone() };
    let plain = ObjectId { namespace: service.namespace.clone(), name: source.name.clone() };
    match cx.is_taken(Kind::KubeGateway, &plain) {
        true => ObjectId { name: format!("{}-{}", source.namespace, source.name).into(), ..plain },
        false => plain,
    }
}

/// Says which proxies serve the new Gateway.
fn binding(cx: &mut Context<'_>, source: &ObjectKey, id: &ObjectId, placed: &Placed) {
    let at = match source.kind {
        Kind::Gateway => FieldPath::spec().field("selector"),
        _ => FieldPath::root(),
    };
    let labels: Vec<String> = placed.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = if labels.is_empty() { "all gateway proxies".to_owned() } else { labels.join(",") };
    if let Some(service) = &cx.options.service {
        let message = format!(
            "the proxies of the Service {service} serve the new Gateway {id}, in place of those with the labels {labels}"
        );
        let ports = cx.service(service).map(|spec| spec.ports.iter().map(|port| port.port).collect::<BTreeSet<_>>());
        let service = service.to_string();
        cx.note(source, at.clone(), message, "");
        let missing = |port: &u16| ports.as_ref().is_some_and(|ports| !ports.contains(port));
        for port in placed.listeners.iter().map(|one| one.number).filter(missing).collect::<BTreeSet<_>>() {
            cx.lost(source, at.clone(), format!("the Service {service} has no port {port}"), "Add the port to it");
        }
        return;
    }
    let own = format!("{}-{}", id.name, cx.options.gateway_class);
    let message = format!(
        "the new Gateway {id} has proxies of its own, behind the Service {own}; those with the labels {labels} do not serve it"
    );
    let existing = cx.services_of(&placed.labels);
    let hint = match &existing[..] {
        [first, ..] => format!("Move DNS to the new Service, or keep the proxies with `--service {first}`"),
        [] => "Move DNS to the new Service, or keep the proxies with `--service NAMESPACE/NAME`".to_owned(),
    };
    cx.note(source, at, message, &hint);
}

/// Converts a server to one listener for each of its hosts.
fn add(
    cx: &mut Context<'_>,
    key: &ObjectKey,
    at: &FieldPath,
    server: &Server,
    proxies: &Arc<str>,
    listeners: &mut Listeners,
) {
    let Some(port) = &server.port else { return };
    let Some(number) = u16::try_from(port.number).ok().filter(|number| *number > 0) else { return };
    let kind = port.kind();
    let keep = "Keep the Istio Gateway for this server";
    let (carries, tls) = match (kind, &server.tls) {
        (kind, _) if kind.is_http() => (Carries::Requests, None),
        (kind, Some(settings)) if kind.is_tls() && settings.mode == ServerTlsMode::Passthrough => {
            (Carries::Passthrough, Some(ListenerTls { mode: TlsMode::Passthrough, ..ListenerTls::default() }))
        }
        (kind, Some(settings)) if kind.is_tls() => {
            let carries = if kind == Protocol::Https { Carries::Requests } else { Carries::Connections };
            match listener::tls(cx, key, &at.field("tls"), settings, proxies, listeners.namespace()) {
                Some(tls) => (carries, Some(tls)),
                None => return,
            }
        }
        (kind, None) if kind.is_tcp() && !kind.is_tls() => (Carries::Connections, None),
        _ => {
            let message = format!("a server of the protocol {} with these settings has no listener", port.protocol);
            return cx.lost(key, at.field("port").field("protocol"), message, keep);
        }
    };
    if !server.bind.is_empty() {
        cx.lost(key, at.field("bind"), "a listener is bound to all addresses", keep);
    }
    if !server.name.is_empty() {
        cx.note(key, at.field("name"), "statistics have the prefix of the listener instead of this name", "");
    }
    let redirects = kind.is_http() && server.tls.as_ref().is_some_and(|tls| tls.https_redirect);
    for (index, host) in server.hosts.iter().enumerate() {
        let hosts = Hosts { number, name: &port.name, tls: tls.as_ref(), redirects, carries };
        if !listeners.add(&hosts, host) {
            let at = at.field("hosts").index(index);
            cx.lost(key, at, format!("{host} is no hostname of a listener"), "Use a DNS name, or `*.` and a DNS name");
        }
    }
}
