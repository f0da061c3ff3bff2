//! TLS towards endpoints, and the PROXY protocol.

use model::service::{Registry, Service};
use protos::envoy::config::core::v3::proxy_protocol_config::Version;
use protos::envoy::config::core::v3::{ProxyProtocolConfig, TransportSocket, WatchedDirectory};
use protos::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use protos::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use protos::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use protos::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use protos::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SubjectAltNameMatcher, TlsCertificate, TlsParameters,
    UpstreamTlsContext,
};
use resources::istio::{ClientTlsMode, ClientTlsSettings, ProxyProtocol, ProxyProtocolVersion};

use super::draft::Draft;
use crate::parts::{exact, file, transport_socket};

/// Where the images that Envoy comes in keep the system's root certificates.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Whether these settings lead to TLS that the rule describes itself (as opposed to the mesh's own).
pub(crate) fn is_custom(tls: Option<&ClientTlsSettings>) -> bool {
    tls.is_some_and(|tls| matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual))
}

/// Sets the transport socket.
///
/// `ISTIO_MUTUAL` needs certificates of the mesh, and `credentialName` secrets: both are not served yet, and leave the
/// cluster as it is.
pub(crate) fn apply(
    draft: &mut Draft,
    service: &Service,
    tls: Option<&ClientTlsSettings>,
    proxy_protocol: Option<&ProxyProtocol>,
) {
    if let Some(tls) = tls.filter(|tls| is_custom(Some(tls)) && tls.credential_name.is_empty()) {
        apply_tls(draft, service, tls);
    }
    if let Some(proxy_protocol) = proxy_protocol {
        let inner = draft.cluster.transport_socket.take();
        draft.cluster.transport_socket = Some(with_proxy_protocol(inner, proxy_protocol));
    }
}

fn apply_tls(draft: &mut Draft, service: &Service, tls: &ClientTlsSettings) {
    let skip_verify = tls.insecure_skip_verify.unwrap_or(false);
    // The server name is that of each request unless the rule has one, and its certificate must be for that name
    // unless the rule has others.
    if tls.sni.is_empty() {
        let options = draft.http().upstream_http_protocol_options.get_or_insert_default();
        options.auto_sni = true;
        options.auto_san_validation = tls.subject_alt_names.is_empty() && !skip_verify;
    }
    let names = match (&tls.subject_alt_names[..], service.registry) {
        ([], Registry::ServiceEntry) => &service.subject_alt_names[..],
        (names, _) => names,
    };
    let certificate = TlsCertificate {
        certificate_chain: Some(file(&tls.client_certificate)),
        private_key: Some(file(&tls.private_key)),
        watched_directory: folder(&tls.client_certificate),
        ..Default::default()
    };
    let http2 = draft.http2().is_some();
    let context = CommonTlsContext {
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..Default::default()
        }),
        tls_certificates: if tls.mode == ClientTlsMode::Mutual {
            vec![certificate]
        } else {
            Vec::new()
        },
        alpn_protocols: if http2 { vec!["h2".to_owned()] } else { Vec::new() },
        validation_context_type: Some(ValidationContextType::ValidationContext(match skip_verify {
            true => CertificateValidationContext::default(),
            false => validation(tls, names),
        })),
        ..Default::default()
    };
    let context = UpstreamTlsContext {
        common_tls_context: Some(context),
        sni: tls.sni.to_string(),
        ..Default::default()
    };
    draft.cluster.transport_socket = Some(transport_socket("envoy.transport_sockets.tls", &context));
}

/// What the server's certificate must fulfil.
fn validation(tls: &ClientTlsSettings, names: &[std::sync::Arc<str>]) -> CertificateValidationContext {
    let roots = if tls.ca_certificates.is_empty() {
        SYSTEM_ROOTS
    } else {
        &*tls.ca_certificates
    };
    let matchers = names.iter().flat_map(|name| {
        // A name in a rule does not say of which sort it is.
        [SanType::Dns, SanType::Uri, SanType::Email, SanType::IpAddress].map(|san| SubjectAltNameMatcher {
            san_type: san.into(),
            matcher: Some(exact(name)),
            ..Default::default()
        })
    });
    CertificateValidationContext {
        trusted_ca: Some(file(roots)),
        watched_directory: folder(roots),
        match_typed_subject_alt_names: matchers.collect(),
        crl: (!tls.ca_crl.is_empty()).then(|| file(&tls.ca_crl)),
        ..Default::default()
    }
}

/// The folder to watch for new versions of a file.
fn folder(path: &str) -> Option<WatchedDirectory> {
    let (folder, _) = path.rsplit_once('/').filter(|(folder, _)| !folder.is_empty())?;
    Some(WatchedDirectory {
        path: folder.to_owned(),
        ..Default::default()
    })
}

fn with_proxy_protocol(inner: Option<TransportSocket>, settings: &ProxyProtocol) -> TransportSocket {
    let version = match settings.version {
        ProxyProtocolVersion::V1 => Version::V1,
        ProxyProtocolVersion::V2 => Version::V2,
    };
    let inner = inner.unwrap_or_else(|| transport_socket("envoy.transport_sockets.raw_buffer", &RawBuffer {}));
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
