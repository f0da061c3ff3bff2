//! Gateway and ListenerSet.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::diagnostic::FieldPath;
use crate::gateway_api::gateway::{FromListenerNamespaces, Gateway};
use crate::gateway_api::listener::{FromNamespaces, Listener, ListenerSet, TlsMode};
use crate::object::StringMap;
use crate::validate::{Report, common, hosts};

/// Protocols that the API defines, which end in themselves.
const PROTOCOLS: [&str; 5] = ["HTTP", "HTTPS", "TLS", "TCP", "UDP"];

pub(crate) fn check_gateway(r: &mut Report, spec: &Gateway) {
    let path = FieldPath::spec();
    listeners(r, &path.field("listeners"), &spec.listeners);
    addresses(r, &path.field("addresses"), spec);
    if let Some(infrastructure) = &spec.infrastructure {
        let at = path.field("infrastructure");
        keys(r, &at.field("labels"), &infrastructure.labels);
        keys(r, &at.field("annotations"), &infrastructure.annotations);
    }
    if let Some(allowed) = &spec.allowed_listeners {
        let at = path.field("allowedListeners").field("namespaces");
        let wants = allowed.namespaces.from == FromListenerNamespaces::Selector;
        selector(r, &at, wants, allowed.namespaces.selector.is_some());
    }
}

pub(crate) fn check_listener_set(r: &mut Report, spec: &ListenerSet) {
    listeners(r, &FieldPath::spec().field("listeners"), &spec.listeners);
}

fn listeners(r: &mut Report, path: &FieldPath, listeners: &[Listener]) {
    let mut seen = BTreeSet::new();
    for (index, listener) in listeners.iter().enumerate() {
        let at = path.index(index);
        self::listener(r, &at, listener);
        let hostname = listener.hostname.as_deref();
        if listener.port != 0 && !seen.insert((listener.port, &*listener.protocol, hostname)) {
            let message = format!(
                "there is another listener for {} on port {}, {}",
                listener.protocol,
                listener.port,
                hostname.map_or("for all hosts".to_owned(), |host| format!("for the host {host}"))
            );
            r.error(&at, "duplicate", message);
        }
    }
}

fn listener(r: &mut Report, path: &FieldPath, listener: &Listener) {
    let protocol = &*listener.protocol;
    if let Some(known) = PROTOCOLS
        .iter()
        .find(|p| p.eq_ignore_ascii_case(protocol) && **p != protocol)
    {
        let message = format!("{protocol:?} is none of the API's protocols, and no gateway may know it");
        r.warning_with(
            &path.field("protocol"),
            "bad-value",
            message,
            format!("did you mean {known}?"),
        );
    }
    match (&listener.tls, protocol) {
        (Some(_), "HTTP" | "TCP" | "UDP") => {
            let message = format!("a listener for {protocol} has no tls");
            r.error(&path.field("tls"), "exclusive-fields", message);
        }
        (Some(tls), "HTTPS") if tls.mode != TlsMode::Terminate => {
            let message = "HTTPS is terminated; to pass it on, the protocol is TLS";
            r.error(&path.field("tls").field("mode"), "exclusive-fields", message);
        }
        (None, "TLS") => r.error(
            &path.field("tls"),
            "missing-field",
            "a listener for TLS needs tls with a mode",
        ),
        _ => {}
    }
    if let Some(tls) = &listener.tls
        && tls.mode == TlsMode::Terminate
        && tls.certificate_refs.is_empty()
        && tls.options.is_empty()
    {
        let message = "with the mode Terminate certificateRefs or options are needed";
        r.error(&path.field("tls"), "missing-field", message);
    }
    if listener.hostname.is_some() && matches!(protocol, "TCP" | "UDP") {
        let message = format!("a listener for {protocol} has no hostname");
        r.error(&path.field("hostname"), "exclusive-fields", message);
    }
    let namespaces = &listener.allowed_routes.namespaces;
    let at = path.field("allowedRoutes").field("namespaces");
    selector(
        r,
        &at,
        namespaces.from == FromNamespaces::Selector,
        namespaces.selector.is_some(),
    );
}

/// Labels of namespaces count if they are asked for. The API does not refuse the rest.
fn selector(r: &mut Report, path: &FieldPath, wanted: bool, is_there: bool) {
    match (wanted, is_there) {
        (true, false) => r.warning(path, "no-effect", "Selector without a selector selects no namespaces"),
        (false, true) => {
            let message = "a selector has an effect with from: Selector only";
            r.warning(&path.field("selector"), "no-effect", message);
        }
        _ => {}
    }
}

fn addresses(r: &mut Report, path: &FieldPath, spec: &Gateway) {
    let mut seen = BTreeSet::new();
    for (index, address) in spec.addresses.iter().enumerate() {
        let Some(value) = address.value.as_deref() else {
            continue;
        };
        let at = path.index(index).field("value");
        match &*address.kind {
            "IPAddress" if value.parse::<IpAddr>().is_err() => {
                r.error(&at, "bad-value", format!("{value:?} is not an IP address"));
            }
            "Hostname" if !is_hostname(value) => {
                r.error(&at, "bad-host", format!("{value:?} is not a host name in lower case"));
            }
            "IPAddress" | "Hostname" if !seen.insert((&*address.kind, value)) => {
                r.error(&at, "duplicate", format!("the address {value:?} is there twice"));
            }
            _ => {}
        }
    }
}

/// A DNS name in lower case, perhaps after `*.`.
fn is_hostname(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let lower = !name.bytes().any(|b| b.is_ascii_uppercase());
    lower && !name.is_empty() && name.split('.').all(hosts::is_label)
}

/// Keys of labels and annotations.
fn keys(r: &mut Report, path: &FieldPath, map: &StringMap) {
    for key in map.keys().filter(|key| !common::is_label_key(key)) {
        r.error(
            &path.key(key.clone()),
            "bad-value",
            format!("{key:?} is not the key of a label or annotation"),
        );
    }
}
