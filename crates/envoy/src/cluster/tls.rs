//! Upstream TLS, and the PROXY protocol.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use config::istio::{ClientTlsMode, ClientTlsSettings, ProxyProtocol, ProxyProtocolVersion};
use model::audience::OutboundKey;
use model::service::{Registry, Resolution, Service};
use model::tls::{Authorities, CONFIG_MAP, Certificate};
use names::Identity;
use names::cluster::LONGEST_SNI;
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
    /// The mesh's own TLS is spoken to those that take it, where no rule says anything.
    pub(crate) automatic: bool,
    /// The identities of the endpoints; only for `ISTIO_MUTUAL`.
    pub(crate) identities: Option<&'a Identities>,
}

/// Whether these settings lead to TLS that the rule describes itself (as opposed to the mesh's own).
pub(crate) fn is_custom(tls: Option<&ClientTlsSettings>) -> bool {
    tls.is_some_and(|tls| matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual))
}

/// Whether the endpoints' identities are asked for.
pub(crate) fn asks_for_identities(tls: Option<&ClientTlsSettings>) -> bool {
    tls.is_some_and(|tls| tls.mode == ClientTlsMode::IstioMutual && tls.subject_alt_names.is_empty())
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
        // Nobody has certificates for this client, and plain text was not asked for.
        Some((ClientTlsMode::IstioMutual, _)) => close(draft),
        Some((ClientTlsMode::Simple | ClientTlsMode::Mutual, tls)) if may_use_credential(towards.key, tls) => {
            let server = Server {
                names: match towards.service.registry {
                    Registry::ServiceEntry => &towards.service.subject_alt_names,
                    _ => &[],
                },
                mesh: towards.mesh,
                agent: towards.key.client.agent,
            };
            draft.cluster.transport_socket = Some(of_rule(draft, server, tls));
        }
        // As with Istio: a credential is for gateways, and for the sidecars that a rule selects.
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

/// The mesh's own TLS to endpoints that take it, and plain text to the others. Envoy knows it of each by its metadata; where it
/// has no endpoints, for connections go to where the application meant to, all of them take it.
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

/// Whether a client may use the credential that a rule names, if it does.
fn may_use_credential(key: &OutboundKey, tls: &ClientTlsSettings) -> bool {
    let selected = key.policy.as_ref().is_some_and(|policy| policy.selected.is_some());
    let public = tls.credential_name.starts_with(CONFIG_MAP);
    tls.credential_name.is_empty() || public || selected || key.client.gateway
}

/// A cluster without endpoints: it answers with 503.
fn close(draft: &mut Draft) {
    draft.set_discovery(DiscoveryType::Static);
    draft.cluster.lb_policy = Default::default();
    draft.cluster.lb_config = None;
    draft.cluster.load_assignment = None;
}

/// The mesh's own TLS: both sides have certificates of the mesh, and the server is one of the service's endpoints.
fn of_mesh(draft: &mut Draft, towards: Towards<'_>, tls: &ClientTlsSettings) -> TransportSocket {
    let names = match &tls.subject_alt_names[..] {
        [] => matchers(names_of(towards.service, towards.identities, towards.mesh)),
        names => any_sort(names),
    };
    let check = CertificateValidationContext {
        match_typed_subject_alt_names: names,
        ..Default::default()
    };
    let alpn: &[&str] = if draft.http2().is_some() {
        &["istio", "h2"]
    } else {
        &["istio"]
    };
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
            let OutboundKey {
                port, subset, service, ..
            } = towards.key;
            format!("outbound_.{port}_.{subset}_.{}", service.hostname)
        }
        sni => sni.to_owned(),
    };
    socket(context, sni)
}

/// Who the endpoints of a service are, and what it says itself that they are called; ascending, each once. Identities of the
/// mesh's trust domain hold in those that it goes by, too.
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

/// Matchers for names, of which identities are known to be URIs.
fn matchers(names: Vec<String>) -> Vec<SubjectAltNameMatcher> {
    let one = |name: String| match name.starts_with("spiffe://") {
        true => vec![named(SanType::Uri, &name)],
        false => any_sort([&name.into()]),
    };
    names.into_iter().flat_map(one).collect()
}

/// TLS towards servers that no service stands for. Files are read by the proxy itself.
pub(crate) fn apply_to_anything(draft: &mut Draft, mesh: &MeshConfig, tls: &ClientTlsSettings) {
    if is_custom(Some(tls)) && tls.credential_name.is_empty() {
        let server = Server {
            names: &[],
            mesh,
            agent: false,
        };
        draft.cluster.transport_socket = Some(of_rule(draft, server, tls));
    }
}

/// The other facts that the TLS of a rule depends on.
#[derive(Clone, Copy)]
struct Server<'a> {
    /// Names that its certificate may have, where the rule has none.
    names: &'a [Arc<str>],
    mesh: &'a MeshConfig,
    /// An agent runs beside the client.
    agent: bool,
}

/// TLS that a rule describes.
fn of_rule(draft: &mut Draft, server: Server<'_>, tls: &ClientTlsSettings) -> TransportSocket {
    let skip_verify = tls.insecure_skip_verify.unwrap_or(false);
    // The server name is that of each request unless the rule has one, and its certificate must be for that name
    // unless the rule has others.
    if tls.sni.is_empty() {
        go_by_requested_name(draft, tls);
    }
    let names = match &tls.subject_alt_names[..] {
        [] => server.names,
        names => names,
    };
    let mut parameters = versions();
    add_defaults(&mut parameters, server.mesh);
    let mut context = CommonTlsContext {
        tls_params: Some(parameters),
        alpn_protocols: if draft.http2().is_some() {
            vec!["h2".to_owned()]
        } else {
            Vec::new()
        },
        ..Default::default()
    };
    let (certificate, authorities) = sources(tls, server.agent);
    if tls.mode == ClientTlsMode::Mutual {
        set_certificates(&mut context, &[certificate]);
    }
    let check = CertificateValidationContext {
        match_typed_subject_alt_names: any_sort(names),
        crl: Some(&tls.ca_crl).filter(|path| !path.is_empty()).map(|path| file(path)),
        ..Default::default()
    };
    context.validation_context_type = Some(match skip_verify {
        true => ValidationContextType::ValidationContext(CertificateValidationContext::default()),
        false => validation(&authorities, check),
    });
    socket(context, tls.sni.to_string())
}

/// The server is asked for by the name of each request, and its certificate must be for that name unless there are others.
fn go_by_requested_name(draft: &mut Draft, tls: &ClientTlsSettings) {
    let options = draft.http().upstream_http_protocol_options.get_or_insert_default();
    options.auto_sni = true;
    options.auto_san_validation = tls.subject_alt_names.is_empty() && !tls.insecure_skip_verify.unwrap_or(false);
}

/// Where the client's certificate and the authorities for the server's come from.
fn sources(tls: &ClientTlsSettings, agent: bool) -> (Certificate, Authorities) {
    if !tls.credential_name.is_empty() {
        return (
            Certificate::named(&tls.credential_name),
            Authorities::named(&tls.credential_name),
        );
    }
    let roots = match &*tls.ca_certificates {
        "" => "system",
        path => path,
    };
    (
        Certificate::files(&tls.client_certificate, &tls.private_key, agent),
        Authorities::file(roots, agent),
    )
}

fn versions() -> TlsParameters {
    TlsParameters {
        tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
        tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
        ..Default::default()
    }
}

fn socket(context: CommonTlsContext, sni: String) -> TransportSocket {
    // A name that is made of a long host's may be longer. Only who passes connections on by it needs it.
    let sni = if sni.len() > LONGEST_SNI { String::new() } else { sni };
    let context = UpstreamTlsContext {
        common_tls_context: Some(context),
        sni,
        ..Default::default()
    };
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
        config: Some(ProxyProtocolConfig {
            version: version.into(),
            ..Default::default()
        }),
        transport_socket: Some(inner),
        ..Default::default()
    };
    transport_socket("envoy.transport_sockets.upstream_proxy_protocol", &config)
}
