//! The mesh's mutual TLS with certificates that the gRPC library reads itself.

use protos::envoy::config::core::v3::TransportSocket;
use protos::envoy::extensions::transport_sockets::tls::v3::common_tls_context::{
    CertificateProviderInstance, CombinedCertificateValidationContext, ValidationContextType,
};
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext, DownstreamTlsContext,
    UpstreamTlsContext,
};

use crate::parts::{exact, transport_socket};

/// The name that gRPC requires for the transport socket.
const TRANSPORT_SOCKET: &str = "envoy.transport_sockets.tls";
/// The certificate provider of the bootstrap.
const PROVIDER: &str = "default";
/// The names of the provider's certificates: the workload's own, and the mesh's roots.
const OWN: &str = "default";
const ROOTS: &str = "ROOTCA";

/// TLS to a server with one of these identities, or any identity of the mesh if there are none.
pub(super) fn to_server(identities: &[String]) -> TransportSocket {
    let context = UpstreamTlsContext { common_tls_context: Some(common(identities)), ..Default::default() };
    transport_socket(TRANSPORT_SOCKET, &context)
}

/// TLS from clients, which must present a certificate.
pub(super) fn to_clients() -> TransportSocket {
    let context = DownstreamTlsContext {
        common_tls_context: Some(common(&[])),
        require_client_certificate: Some(true),
        ..Default::default()
    };
    transport_socket(TRANSPORT_SOCKET, &context)
}

/// Each provider is named in two fields: libraries before 1.66 support only the older ones.
#[allow(deprecated)]
fn common(identities: &[String]) -> CommonTlsContext {
    let plugin = |certificate: &str| CertificateProviderPluginInstance {
        instance_name: PROVIDER.to_owned(),
        certificate_name: certificate.to_owned(),
    };
    let instance = |certificate: &str| CertificateProviderInstance {
        instance_name: PROVIDER.to_owned(),
        certificate_name: certificate.to_owned(),
    };
    let validation = CertificateValidationContext {
        match_subject_alt_names: identities.iter().map(|identity| exact(identity)).collect(),
        ca_certificate_provider_instance: Some(plugin(ROOTS)),
        ..Default::default()
    };
    CommonTlsContext {
        tls_certificate_provider_instance: Some(plugin(OWN)),
        tls_certificate_certificate_provider_instance: Some(instance(OWN)),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(
            CombinedCertificateValidationContext {
                default_validation_context: Some(validation),
                validation_context_certificate_provider_instance: Some(instance(ROOTS)),
                ..Default::default()
            },
        )),
        ..Default::default()
    }
}
