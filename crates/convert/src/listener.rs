//! Listeners of new Gateways, and their TLS settings.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::listener::{AllowedRoutes, FromNamespaces, Listener, ListenerTls, RouteNamespaces, TlsMode};
use config::gateway_api::reference::SecretObjectReference;
use config::istio::{ServerTlsMode, ServerTlsSettings, TlsProtocol};
use config::mesh::{LabelSelector, LabelSelectorRequirement};
use config::{FieldPath, Kind, ObjectKey, StringMap};
use model::service::ObjectId;

use crate::context::Context;

/// The label that each namespace has.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// The option that selects the TLS mode.
const MODE: &str = "gateway.istio.io/tls-terminate-mode";
/// The option with cipher suites.
const CIPHER_SUITES: &str = "gateway.istio.io/tls-cipher-suites";
/// The most listeners of a Gateway.
const MAX_LISTENERS: usize = 64;

/// The traffic of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carries {
    /// HTTP requests.
    Requests,
    /// TLS connections that it does not terminate.
    Passthrough,
    /// Other connections.
    Connections,
}

/// The facts about a listener that routes need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Port {
    pub(crate) name: Arc<str>,
    pub(crate) number: u16,
    pub(crate) secure: bool,
    /// It only redirects to HTTPS.
    pub(crate) redirects: bool,
    pub(crate) carries: Carries,
    /// The hosts of the server, without namespaces.
    pub(crate) hosts: Vec<Arc<str>>,
}

/// The hosts of a server.
pub(crate) struct Hosts<'a> {
    pub(crate) number: u16,
    pub(crate) name: &'a str,
    pub(crate) tls: Option<&'a ListenerTls>,
    pub(crate) redirects: bool,
    pub(crate) carries: Carries,
}

/// A listener in progress.
struct Entry {
    port: Port,
    hostname: Option<Arc<str>>,
    tls: Option<ListenerTls>,
    /// The namespaces of routes; none for all.
    namespaces: Option<BTreeSet<Arc<str>>>,
}

/// The listeners of a Gateway in progress.
pub(crate) struct Listeners {
    /// The namespace of the original.
    source: Arc<str>,
    /// The namespace of the new Gateway.
    own: Arc<str>,
    entries: Vec<Entry>,
}

impl Listeners {
    pub(crate) fn new(source: Arc<str>, own: Arc<str>) -> Listeners {
        Listeners { source, own, entries: Vec::new() }
    }

    /// The namespace of the new Gateway.
    pub(crate) fn namespace(&self) -> &Arc<str> {
        &self.own
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn ports(&self) -> Vec<Port> {
        self.entries.iter().map(|entry| entry.port.clone()).collect()
    }

    /// Adds a host, as `host`, `namespace/host`, `./host` or `*/host`. Returns false if no listener can have it.
    pub(crate) fn add(&mut self, of: &Hosts<'_>, host: &str) -> bool {
        let (namespace, host) = match host.split_once('/') {
            None | Some(("*", _)) => (None, host.rsplit('/').next().unwrap_or(host)),
            Some((".", host)) => (Some(self.source.clone()), host),
            Some((namespace, host)) => (Some(namespace.into()), host),
        };
        let secure = of.tls.is_some();
        let hostname: Option<Arc<str>> = match host {
            "*" => None,
            // The listener has all connections to the port.
            _ if !secure && of.carries == Carries::Connections => None,
            host if is_hostname(host) => Some(host.to_ascii_lowercase().into()),
            _ => return false,
        };
        let same = |entry: &&mut Entry| {
            let port = &entry.port;
            let of_port = (port.number, port.secure, port.carries) == (of.number, secure, of.carries);
            of_port && entry.hostname == hostname
        };
        if let Some(entry) = self.entries.iter_mut().find(same) {
            entry.port.hosts.push(host.into());
            entry.namespaces = match (entry.namespaces.take(), namespace) {
                (Some(mut some), Some(namespace)) => {
                    some.insert(namespace);
                    Some(some)
                }
                _ => None,
            };
            return true;
        }
        let port = Port {
            name: self.free_name(of.name),
            number: of.number,
            secure,
            redirects: of.redirects,
            carries: of.carries,
            hosts: vec![host.into()],
        };
        let namespaces = namespace.map(|namespace| BTreeSet::from([namespace]));
        self.entries.push(Entry { port, hostname, tls: of.tls.cloned(), namespaces });
        true
    }

    /// The name of a port as that of a listener, with a number if it is used already.
    fn free_name(&self, name: &str) -> Arc<str> {
        let base = dns_label(name);
        let is_free = |name: &str| self.entries.iter().all(|entry| *entry.port.name != *name);
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        std::iter::once(base.clone()).chain(numbered).find(|name| is_free(name)).unwrap_or(base).into()
    }

    /// The listeners.
    pub(crate) fn finish(self, cx: &mut Context<'_>, source: &ObjectKey, id: &ObjectId) -> Vec<Listener> {
        if self.entries.len() > MAX_LISTENERS {
            let message = format!("Gateway {id} has {} listeners, more than {MAX_LISTENERS}", self.entries.len());
            let at = FieldPath::spec().field("servers");
            cx.lost(source, at, message, "Use wildcards, or divide the Gateway");
        }
        let own = self.own.clone();
        let listener = |entry: Entry| Listener {
            name: entry.port.name,
            hostname: entry.hostname,
            port: entry.port.number,
            protocol: match (entry.port.carries, entry.port.secure) {
                (Carries::Requests, false) => "HTTP",
                (Carries::Requests, true) => "HTTPS",
                (Carries::Connections, false) => "TCP",
                (Carries::Connections, true) | (Carries::Passthrough, _) => "TLS",
            }
            .into(),
            tls: entry.tls,
            allowed_routes: match entry.port.redirects {
                // The route that redirects is beside the Gateway, and there is no other one.
                true => AllowedRoutes::default(),
                false => allowed(entry.namespaces, &own),
            },
        };
        self.entries.into_iter().map(listener).collect()
    }
}

/// The routes of these namespaces; none for all.
fn allowed(namespaces: Option<BTreeSet<Arc<str>>>, own: &Arc<str>) -> AllowedRoutes {
    let namespaces = match namespaces {
        None => RouteNamespaces { from: FromNamespaces::All, selector: None },
        Some(only) if only.len() == 1 && only.contains(own) => RouteNamespaces::default(),
        Some(some) => {
            let one = LabelSelectorRequirement {
                key: NAMESPACE_LABEL.into(),
                operator: "In".into(),
                values: some.into_iter().collect(),
            };
            let selector = LabelSelector { match_expressions: vec![one], ..LabelSelector::default() };
            RouteNamespaces { from: FromNamespaces::Selector, selector: Some(selector) }
        }
    };
    AllowedRoutes { namespaces, kinds: Vec::new() }
}

/// Whether a listener or a route can have the host: a DNS name, or `*.` and a DNS name.
pub(crate) fn is_hostname(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    let label = |label: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    !is_address && name.len() <= 253 && name.split('.').all(label)
}

/// A text as a DNS label.
pub(crate) fn dns_label(text: &str) -> String {
    let dashed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = text.chars().map(dashed).collect();
    match label.trim_matches('-') {
        "" => "listener".to_owned(),
        label => label.to_owned(),
    }
}

/// The TLS settings of a listener. None, with a remark, if it cannot be served as the original.
pub(crate) fn tls(
    cx: &mut Context<'_>,
    key: &ObjectKey,
    at: &FieldPath,
    settings: &ServerTlsSettings,
    proxies: &Arc<str>,
    own: &Arc<str>,
) -> Option<ListenerTls> {
    let keep = "Keep the Istio Gateway for this server";
    let mode = match settings.mode {
        ServerTlsMode::Simple => None,
        ServerTlsMode::Mutual => Some("MUTUAL"),
        ServerTlsMode::OptionalMutual => Some("OPTIONAL_MUTUAL"),
        ServerTlsMode::IstioMutual => Some("ISTIO_MUTUAL"),
        ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough => {
            cx.lost(
                key,
                at.field("mode"),
                "a listener cannot pass connections to the service that the server name encodes",
                keep,
            );
            return None;
        }
    };
    settings_without_place(cx, key, at, settings);
    let mut options = StringMap::new();
    options.extend(mode.map(|mode| (MODE.into(), mode.into())));
    if !settings.cipher_suites.is_empty() {
        options.insert(CIPHER_SUITES.into(), settings.cipher_suites.join(",").into());
    }
    if settings.mode == ServerTlsMode::IstioMutual {
        return Some(ListenerTls { mode: TlsMode::Terminate, certificate_refs: Vec::new(), options });
    }
    let names: Vec<&Arc<str>> = match settings.credential_name.is_empty() {
        false => vec![&settings.credential_name],
        true => settings.credential_names.iter().collect(),
    };
    if names.is_empty() || names.iter().any(|name| name.contains("://")) {
        let message = "the certificate of a listener is a Secret, and can be no file";
        cx.lost(key, at.field("credentialName"), message, "Store the certificate in a Secret, and name it here");
        return None;
    }
    let reference = |name: &Arc<str>| {
        // Istio's Gateways use the Secrets of the namespace of the proxies.
        let secret = ObjectId { namespace: proxies.clone(), name: name.clone() };
        cx.refer(Kind::KubeGateway, own, Kind::Secret, &secret);
        let namespace = (secret.namespace != *own).then_some(secret.namespace);
        SecretObjectReference { name: secret.name, namespace, ..SecretObjectReference::default() }
    };
    let certificate_refs = names.into_iter().map(reference).collect();
    Some(ListenerTls { mode: TlsMode::Terminate, certificate_refs, options })
}

/// Reports settings that a listener does not have.
fn settings_without_place(cx: &mut Context<'_>, key: &ObjectKey, at: &FieldPath, settings: &ServerTlsSettings) {
    let set = [
        ("caCertificates", !settings.ca_certificates.is_empty()),
        ("caCrl", !settings.ca_crl.is_empty()),
        ("caCertCredentialName", !settings.ca_cert_credential_name.is_empty()),
        ("subjectAltNames", !settings.subject_alt_names.is_empty()),
        ("verifyCertificateSpki", !settings.verify_certificate_spki.is_empty()),
        ("verifyCertificateHash", !settings.verify_certificate_hash.is_empty()),
        ("minProtocolVersion", settings.min_protocol_version != TlsProtocol::Auto),
        ("maxProtocolVersion", settings.max_protocol_version != TlsProtocol::Auto),
        ("ecdhCurves", !settings.ecdh_curves.is_empty()),
        ("insecureSkipVerify", settings.insecure_skip_verify == Some(true)),
    ];
    for (field, _) in set.iter().filter(|(_, is_set)| *is_set) {
        let hint = match *field {
            "caCertCredentialName" | "caCertificates" => {
                "Store the CA certificates in the Secret NAME-cacert beside that of the certificate"
            }
            "ecdhCurves" | "minProtocolVersion" | "maxProtocolVersion" => {
                "Set it for all gateways in the mesh configuration (tlsDefaults), or keep the Istio Gateway"
            }
            _ => "Keep the Istio Gateway for this server",
        };
        cx.lost(key, at.field(*field), format!("a listener has no setting for {field}"), hint);
    }
}
