//! Upstream TLS, and the PROXY protocol.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use config::istio::{ClientTlsMode, ClientTlsSettings, ProxyProtocol, ProxyProtocolVersion};
use model::audience::OutboundKey;
use model::service::{Registry, Resolution, Service};
use model::tls::{Authorities, CONFIG_MAP, Certificate};
use names::cluster::LONGEST_SNI;
use names::{ClusterName, Identity};
use protos::envoy::config::cluster::v3::cluster::{DiscoveryType, TransportSocketMatch};
use protos::envoy::config::core::v3::proxy_protocol_config::Version;
use protos::envoy::config::core::v3::{ProxyProtocolConfig, TransportSocket};
use protos::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use protos::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use protos::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use protos::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use protos::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SubjectAltNameMatcher, TlsParameters, UpstreamTlsContext,
};
use registry::Identities;

use super::draft::Draft;
use crate::assignment::{MUTUAL_TLS, TLS_MODE};
use crate::parts::{file, object, text, transport_socket};
use crate::tls::{add_defaults, any_sort, named, set_certificates, validation};

/// The facts that decide the TLS of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Towards<'a> {
    pub(crate) key: &'a OutboundKey,
    pub(crate) service: &'a Service,
    pub(crate) mesh: &'a MeshConfig,
    /// Whether endpoints that support the mesh's mutual TLS use it without a rule (auto mTLS).
    pub(crate) automatic: bool,
    /// The identities of the endpoints, if [`asks_for_identities`] or `automatic`.
    pub(crate) identities: Option<&'a Identities>,
}

/// Whether these settings define TLS of their own, rather than the mesh's.
pub(crate) fn is_custom(tls: Option<&ClientTlsSettings>) -> bool {
    tls.is_some_and(|tls| matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual))
}

/// Whether the identities of the endpoints are needed: the rule does not say which names the certificate may have, and
/// the service does.
pub(crate) fn asks_for_identities(tls: Option<&ClientTlsSettings>, registry: Registry) -> bool {
    tls.filter(|tls| tls.subject_alt_names.is_empty()).is_some_and(|tls| match tls.mode {
        ClientTlsMode::Disable => false,
        ClientTlsMode::IstioMutual => true,
        ClientTlsMode::Simple | ClientTlsMode::Mutual => registry == Registry::ServiceEntry,
    })
}

/// Sets the transport socket.
pub(crate) fn apply(
    draft: &mut Draft,
    towards: Towards<'_>,
    tls: Option<&ClientTlsSettings>,
    proxy_protocol: Option<&ProxyProtocol>,
) {
    match tls.map(|tls| (tls.mode, tls)) {
        None if towards.automatic => choose_by_endpoint(draft, towards),
        None | Some((ClientTlsMode::Disable, _)) => {}
        Some((ClientTlsMode::IstioMutual, tls)) if towards.key.client.agent => {
            draft.cluster.transport_socket = Some(of_mesh(draft, towards, tls));
        }
        // The client has no mesh certificate, and plain text was not requested.
        Some((ClientTlsMode::IstioMutual, _)) => close(draft),
        Some((ClientTlsMode::Simple | ClientTlsMode::Mutual, tls)) if may_use_credential(towards.key, tls) => {
            let server = Server {
                names: match towards.service.registry {
                    Registry::ServiceEntry => names_of(towards.service, towards.identities, towards.mesh),
                    _ => Vec::new(),
                },
                mesh: towards.mesh,
                agent: towards.key.client.agent,
                client_certificate: towards.key.client_certificate.as_ref(),
            };
            draft.cluster.transport_socket = Some(of_rule(draft, server, tls));
        }
        // As in Istio, only gateways, and sidecars that a rule selects, may use a credential.
        Some((ClientTlsMode::Simple | ClientTlsMode::Mutual, _)) => {}
    }
    let Some(proxy_protocol) = proxy_protocol else { return };
    for one in &mut draft.cluster.transport_socket_matches {
        let inner = one.transport_socket.take();
        one.transport_socket = Some(with_proxy_protocol(inner, proxy_protocol));
    }
    if draft.cluster.transport_socket_matches.is_empty() {
        let inner = draft.cluster.transport_socket.take();
        draft.cluster.transport_socket = Some(with_proxy_protocol(inner, proxy_protocol));
    }
}

/// Uses the mesh's TLS for endpoints that support it, and plain text for others. Envoy decides by the metadata of each
/// endpoint. A cluster without endpoints, which keeps the original destination, uses the mesh's TLS for all.
fn choose_by_endpoint(draft: &mut Draft, towards: Towards<'_>) {
    let secure = Some(of_mesh(draft, towards, &ClientTlsSettings::default()));
    if draft.discovery() == DiscoveryType::OriginalDst {
        draft.cluster.transport_socket = secure;
        return;
    }
    let one = |name: &str, metadata, transport_socket| TransportSocketMatch {
        name: name.to_owned(),
        r#match: Some(metadata),
        transport_socket,
    };
    draft.cluster.transport_socket_matches = vec![
        one("tlsMode-istio", object([(TLS_MODE, text(MUTUAL_TLS))]), secure),
        one("tlsMode-disabled", object([]), Some(plain_text())),
    ];
}

/// Whether a client may use the credential that a rule names, if any.
fn may_use_credential(key: &OutboundKey, tls: &ClientTlsSettings) -> bool {
    let selected = key.policy.as_ref().is_some_and(|policy| policy.selected.is_some());
    let public = model::tls::parts(&tls.credential_name).all(|part| part.starts_with(CONFIG_MAP));
    tls.credential_name.is_empty() || public || selected || key.client.gateway
}

/// Removes all endpoints: the cluster responds with 503.
pub(super) fn close(draft: &mut Draft) {
    draft.set_discovery(DiscoveryType::Static);
    draft.cluster.lb_policy = Default::default();
    draft.cluster.lb_config = None;
    draft.cluster.load_assignment = None;
}

/// The mesh's TLS: both sides have mesh certificates, and the server has an identity of the service's endpoints.
fn of_mesh(draft: &mut Draft, towards: Towards<'_>, tls: &ClientTlsSettings) -> TransportSocket {
    let names = match &tls.subject_alt_names[..] {
        [] => matchers(names_of(towards.service, towards.identities, towards.mesh)),
        names => any_sort(names),
    };
    let check = CertificateValidationContext { match_typed_subject_alt_names: names, ..Default::default() };
    let alpn: &[&str] = if draft.http2().is_some() { &["istio", "h2"] } else { &["istio"] };
    let mut context = CommonTlsContext {
        tls_params: Some(versions()),
        alpn_protocols: alpn.iter().map(|name| (*name).to_owned()).collect(),
        validation_context_type: Some(validation(&Authorities::of_mesh(), check)),
        ..Default::default()
    };
    set_certificates(&mut context, &[Certificate::of_workload()]);
    let by_name = towards.service.resolution == Resolution::DynamicDns;
    let sni = match &*tls.sni {
        // A dynamic forward proxy uses the requested name.
        "" if by_name => {
            go_by_requested_name(draft, tls);
            String::new()
        }
        "" => {
            let OutboundKey { port, subset, service, .. } = towards.key;
            ClusterName::outbound(*port, subset.clone(), service.hostname.as_arc().clone()).to_sni()
        }
        sni => sni.to_owned(),
    };
    socket(context, sni)
}

/// The identities of a service's endpoints and the service's own alternative names, sorted and without duplicates.
/// Identities of the mesh's trust domain are accepted in its aliases too.
pub(crate) fn names_of(service: &Service, identities: Option<&Identities>, mesh: &MeshConfig) -> Vec<String> {
    let mut out = BTreeSet::new();
    let mut add = |namespace: &str, account: &str, domain: &str| {
        out.insert(format!("spiffe://{domain}/ns/{namespace}/sa/{account}"));
    };
    for (namespace, account) in identities.into_iter().flatten() {
        mesh.trust_domains().for_each(|domain| add(namespace, account, domain));
    }
    for name in &service.subject_alt_names {
        if let Ok(identity) = Identity::parse(name) {
            let aliases = mesh.trust_domain_aliases.iter();
            aliases.for_each(|domain| add(&identity.namespace, &identity.service_account, domain));
        }
    }
    out.extend(service.subject_alt_names.iter().map(ToString::to_string));
    out.into_iter().collect()
}

/// Matchers for names. SPIFFE identities are matched as URIs.
fn matchers(names: Vec<String>) -> Vec<SubjectAltNameMatcher> {
    let one = |name: String| match name.starts_with("spiffe://") {
        true => vec![named(SanType::Uri, &name)],
        false => any_sort([&name.into()]),
    };
    names.into_iter().flat_map(one).collect()
}

/// Sets TLS for servers without a service. The proxy reads the files itself.
pub(crate) fn apply_to_anything(draft: &mut Draft, mesh: &MeshConfig, tls: &ClientTlsSettings) {
    if is_custom(Some(tls)) && tls.credential_name.is_empty() {
        let server = Server { names: Vec::new(), mesh, agent: false, client_certificate: None };
        draft.cluster.transport_socket = Some(of_rule(draft, server, tls));
    }
}

/// Further facts that decide the TLS of a rule.
struct Server<'a> {
    /// The names that the certificate may have, if the rule has none.
    names: Vec<String>,
    mesh: &'a MeshConfig,
    /// Whether an agent runs beside the client.
    agent: bool,
    /// The certificate of a Gateway, in place of that of the rule.
    client_certificate: Option<&'a Arc<str>>,
}

/// The TLS that a rule defines.
fn of_rule(draft: &mut Draft, server: Server<'_>, tls: &ClientTlsSettings) -> TransportSocket {
    let skip_verify = tls.insecure_skip_verify.unwrap_or(false);
    // Unless the rule has an SNI, it is taken from each request, and the certificate must match it unless the rule has
    // other names.
    if tls.sni.is_empty() {
        go_by_requested_name(draft, tls);
    }
    let names = match &tls.subject_alt_names[..] {
        [] => matchers(server.names),
        names => any_sort(names),
    };
    let mut parameters = versions();
    add_defaults(&mut parameters, server.mesh);
    let mut context = CommonTlsContext {
        tls_params: Some(parameters),
        alpn_protocols: if draft.http2().is_some() { vec!["h2".to_owned()] } else { Vec::new() },
        ..Default::default()
    };
    let (certificate, authorities) = sources(tls, server.agent);
    match server.client_certificate {
        Some(name) => set_certificates(&mut context, &[Certificate::Served(name.clone())]),
        None if tls.mode == ClientTlsMode::Mutual => set_certificates(&mut context, &[certificate]),
        None => {}
    }
    let check = CertificateValidationContext {
        match_typed_subject_alt_names: names,
        crl: Some(&tls.ca_crl).filter(|path| !path.is_empty()).map(|path| file(path)),
        ..Default::default()
    };
    context.validation_context_type = Some(match skip_verify {
        true => ValidationContextType::ValidationContext(CertificateValidationContext::default()),
        false => validation(&authorities, check),
    });
    socket(context, tls.sni.to_string())
}

/// Takes the SNI from each request. The certificate must match it, unless the rule has other names.
fn go_by_requested_name(draft: &mut Draft, tls: &ClientTlsSettings) {
    let options = draft.http().upstream_http_protocol_options.get_or_insert_default();
    options.auto_sni = true;
    options.auto_san_validation = tls.subject_alt_names.is_empty() && !tls.insecure_skip_verify.unwrap_or(false);
}

/// The sources of the client's certificate and of the CA certificates.
fn sources(tls: &ClientTlsSettings, agent: bool) -> (Certificate, Authorities) {
    if !tls.credential_name.is_empty() {
        return (Certificate::named(&tls.credential_name), Authorities::named(&tls.credential_name));
    }
    let roots = match &*tls.ca_certificates {
        "" => "system",
        path => path,
    };
    (Certificate::files(&tls.client_certificate, &tls.private_key, agent), Authorities::file(roots, agent))
}

fn versions() -> TlsParameters {
    TlsParameters {
        tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
        tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
        ..Default::default()
    }
}

fn socket(context: CommonTlsContext, sni: String) -> TransportSocket {
    // The name derived from a long host may exceed the limit. It is needed only for routing by SNI.
    let sni = if sni.len() > LONGEST_SNI { String::new() } else { sni };
    let context = UpstreamTlsContext { common_tls_context: Some(context), sni, ..Default::default() };
    transport_socket("envoy.transport_sockets.tls", &context)
}

fn plain_text() -> TransportSocket {
    transport_socket("envoy.transport_sockets.raw_buffer", &RawBuffer {})
}

fn with_proxy_protocol(inner: Option<TransportSocket>, settings: &ProxyProtocol) -> TransportSocket {
    let version = match settings.version {
        ProxyProtocolVersion::V1 => Version::V1,
        ProxyProtocolVersion::V2 => Version::V2,
    };
    let inner = inner.unwrap_or_else(plain_text);
    let config = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig { version: version.into(), ..Default::default() }),
        transport_socket: Some(inner),
        ..Default::default()
    };
    transport_socket("envoy.transport_sockets.upstream_proxy_protocol", &config)
}
