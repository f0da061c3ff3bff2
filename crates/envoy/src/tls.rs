//! TLS contexts: sources of certificates and CA certificates, and TLS termination.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use config::mesh::{MeshTlsProtocol, TlsConfig};
use model::tls::{Authorities, Certificate, ClientCheck, ServerContext, TlsDefaults, Version};
use protos::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use protos::envoy::config::core::v3::{
    ApiConfigSource, ApiVersion, ConfigSource, TransportSocket, WatchedDirectory, api_config_source,
};
use protos::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use protos::envoy::extensions::transport_sockets::tls::v3::certificate_validation_context::TrustChainVerification;
use protos::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CombinedCertificateValidationContext, ValidationContextType,
};
use protos::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use protos::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, SubjectAltNameMatcher,
    TlsCertificate, TlsParameters,
};
use protos::envoy::r#type::matcher::v3::StringMatcher;
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use crate::parts::{aggregated_discovery, envoy_grpc, exact, file, seconds, transport_socket};

/// The static cluster of the agent beside a proxy.
const AGENT_CLUSTER: &str = "sds-grpc";
/// The secrets that a mesh proxy cannot work without: it waits for them without a timeout.
const OF_MESH: [&str; 2] = ["default", "ROOTCA"];
/// The default TLS 1.2 cipher suites between workloads.
const WORKLOAD_SUITES: [&str; 6] = [
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
];

/// Adds certificates to a context.
pub(crate) fn set_certificates(context: &mut CommonTlsContext, certificates: &[Certificate]) {
    for certificate in certificates {
        match certificate {
            Certificate::Served(name) => context.tls_certificate_sds_secret_configs.push(served(name)),
            Certificate::Agent(name) => context.tls_certificate_sds_secret_configs.push(from_agent(name)),
            Certificate::Files { certificate, key } => context.tls_certificates.push(TlsCertificate {
                certificate_chain: Some(file(certificate)),
                private_key: Some(file(key)),
                watched_directory: folder(certificate),
                ..Default::default()
            }),
        }
    }
}

/// The conditions on a peer's certificate, in addition to a signature by these authorities.
pub(crate) fn validation(authorities: &Authorities, check: CertificateValidationContext) -> ValidationContextType {
    let config = match authorities {
        Authorities::Served(name) => served(name),
        Authorities::Agent(name) => from_agent(name),
        Authorities::File(path) => {
            return ValidationContextType::ValidationContext(CertificateValidationContext {
                trusted_ca: Some(file(path)),
                watched_directory: folder(path),
                ..check
            });
        }
    };
    ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
        default_validation_context: Some(check),
        validation_context_sds_secret_config: Some(config),
        ..Default::default()
    })
}

/// Matchers for names of an unknown SAN type.
pub(crate) fn any_sort<'a>(names: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<SubjectAltNameMatcher> {
    let sorts = [SanType::Dns, SanType::Uri, SanType::Email, SanType::IpAddress];
    let matchers = names.into_iter().flat_map(|name| sorts.map(|sort| named(sort, name)));
    matchers.collect()
}

pub(crate) fn named(sort: SanType, name: &str) -> SubjectAltNameMatcher {
    SubjectAltNameMatcher { san_type: sort.into(), matcher: Some(exact(name)), ..Default::default() }
}

/// Adds the mesh's cipher suites and curves to parameters that have none.
pub(crate) fn add_defaults(parameters: &mut TlsParameters, mesh: &MeshConfig) {
    let Some(defaults) = &mesh.tls_defaults else { return };
    if parameters.cipher_suites.is_empty() {
        let suites = model::tls::known_cipher_suites(&defaults.cipher_suites);
        parameters.cipher_suites = suites.iter().map(ToString::to_string).collect();
    }
    if parameters.ecdh_curves.is_empty() {
        let curves = model::tls::known_curves(&defaults.ecdh_curves);
        parameters.ecdh_curves = curves.iter().map(ToString::to_string).collect();
    }
}

/// The transport socket of a chain that terminates TLS.
pub(crate) fn server(context: &ServerContext, mesh: &MeshConfig, quic: bool) -> TransportSocket {
    let mut common = CommonTlsContext {
        alpn_protocols: context.alpn.iter().map(|name| (*name).to_owned()).collect(),
        tls_params: parameters(context, mesh),
        ..Default::default()
    };
    set_certificates(&mut common, &context.certificates);
    let client = context.client.as_ref();
    common.validation_context_type = client.map(|check| validation(&check.authorities, of_client(check, mesh)));
    let downstream = DownstreamTlsContext {
        common_tls_context: Some(common),
        // Envoy's QUIC does not support client certificates.
        require_client_certificate: Some(!quic && client.is_some_and(|check| check.required)),
        ..Default::default()
    };
    if quic {
        let quic = QuicDownstreamTransport { downstream_tls_context: Some(downstream), ..Default::default() };
        return transport_socket("envoy.transport_sockets.quic", &quic);
    }
    transport_socket("envoy.transport_sockets.tls", &downstream)
}

fn of_client(check: &ClientCheck, mesh: &MeshConfig) -> CertificateValidationContext {
    let texts = |list: &[Arc<str>]| list.iter().map(ToString::to_string).collect();
    let mut names = any_sort(&check.names);
    if check.of_mesh {
        names.extend(known_domains(mesh).map(of_domain));
    }
    let mut out = CertificateValidationContext {
        match_typed_subject_alt_names: names,
        verify_certificate_spki: texts(&check.keys),
        verify_certificate_hash: texts(&check.hashes),
        crl: check.revoked.as_ref().map(|path| file(path)),
        ..Default::default()
    };
    if check.untrusted {
        out.trust_chain_verification = TrustChainVerification::AcceptUntrusted.into();
    }
    out
}

fn parameters(context: &ServerContext, mesh: &MeshConfig) -> Option<TlsParameters> {
    let mut out = TlsParameters {
        cipher_suites: context.cipher_suites.iter().map(ToString::to_string).collect(),
        ecdh_curves: context.curves.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    match context.defaults {
        TlsDefaults::Envoy => {}
        TlsDefaults::Mesh => {
            add_defaults(&mut out, mesh);
            let least = mesh.tls_defaults.as_ref().and_then(least_version);
            out.tls_minimum_protocol_version = least.unwrap_or_default().into();
        }
        TlsDefaults::Workloads => add_between_workloads(&mut out, mesh),
    }
    if let Some(version) = context.min_version {
        out.tls_minimum_protocol_version = protocol(version).into();
    }
    if let Some(version) = context.max_version {
        out.tls_maximum_protocol_version = protocol(version).into();
    }
    (out != TlsParameters::default()).then_some(out)
}

/// The TLS parameters of mutual TLS between workloads.
fn add_between_workloads(parameters: &mut TlsParameters, mesh: &MeshConfig) {
    let settings = mesh.mesh_mtls.as_ref();
    let least = settings.and_then(least_version).unwrap_or(TlsProtocol::TlSv12);
    parameters.tls_minimum_protocol_version = least.into();
    parameters.tls_maximum_protocol_version = TlsProtocol::TlSv13.into();
    let written = settings.map(|settings| model::tls::known_cipher_suites(&settings.cipher_suites));
    parameters.cipher_suites = match written {
        Some(suites) if !suites.is_empty() => suites.iter().map(ToString::to_string).collect(),
        _ => WORKLOAD_SUITES.map(str::to_owned).to_vec(),
    };
}

/// The mesh's trust domain, its aliases, and those with CA certificates in the mesh settings, without duplicates.
fn known_domains(mesh: &MeshConfig) -> impl Iterator<Item = &Arc<str>> {
    let known = mesh.ca_certificates.iter().flat_map(|roots| &roots.trust_domains);
    let mut seen = BTreeSet::new();
    let domains = mesh.trust_domains().chain(known);
    domains.filter(move |domain| !domain.is_empty() && seen.insert(*domain))
}

/// A matcher for the identities of a trust domain.
fn of_domain(domain: &Arc<str>) -> SubjectAltNameMatcher {
    SubjectAltNameMatcher {
        san_type: SanType::Uri.into(),
        matcher: Some(StringMatcher {
            match_pattern: Some(MatchPattern::Prefix(format!("spiffe://{domain}/"))),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn least_version(settings: &TlsConfig) -> Option<TlsProtocol> {
    match settings.min_protocol_version {
        MeshTlsProtocol::Auto => None,
        MeshTlsProtocol::V1_2 => Some(TlsProtocol::TlSv12),
        MeshTlsProtocol::V1_3 => Some(TlsProtocol::TlSv13),
    }
}

fn protocol(version: Version) -> TlsProtocol {
    match version {
        Version::V1_0 => TlsProtocol::TlSv10,
        Version::V1_1 => TlsProtocol::TlSv11,
        Version::V1_2 => TlsProtocol::TlSv12,
        Version::V1_3 => TlsProtocol::TlSv13,
    }
}

/// A secret served by the control plane. Envoy waits for it only for its default timeout, because a missing secret must
/// not block a listener or cluster whose other parts work.
fn served(name: &str) -> SdsSecretConfig {
    SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(ConfigSource { initial_fetch_timeout: None, ..aggregated_discovery() }),
    }
}

/// A secret served by the agent beside the proxy.
fn from_agent(name: &str) -> SdsSecretConfig {
    let source = ApiConfigSource {
        api_type: api_config_source::ApiType::Grpc.into(),
        transport_api_version: ApiVersion::V3.into(),
        grpc_services: vec![envoy_grpc(AGENT_CLUSTER, "")],
        set_node_on_first_message_only: true,
        ..Default::default()
    };
    SdsSecretConfig {
        name: name.to_owned(),
        sds_config: Some(ConfigSource {
            config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(source)),
            initial_fetch_timeout: OF_MESH.contains(&name).then(|| seconds(0)),
            resource_api_version: ApiVersion::V3.into(),
            ..Default::default()
        }),
    }
}

/// The folder that Envoy watches for new versions of a file.
fn folder(path: &str) -> Option<WatchedDirectory> {
    let (folder, _) = path.rsplit_once('/').filter(|(folder, _)| !folder.is_empty())?;
    Some(WatchedDirectory { path: folder.to_owned(), ..Default::default() })
}
