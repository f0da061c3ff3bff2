//! Gateway: listeners of the proxies at the edge of the mesh.

use std::sync::Arc;

use names::Protocol;

use crate::object::StringMap;

message! {
    /// Configures servers on the selected gateway proxies.
    pub struct Gateway {
        /// Servers. At least one is required.
        pub servers: Vec<Server> where [needed, unique "port.name"],
        /// Labels of the gateway proxies, in any namespace. If empty, all proxies are selected.
        pub selector: StringMap,
    }
}

message! {
    /// Port of a gateway and the hosts that it exposes.
    pub struct Server: Relations {
        /// Port to listen on.
        pub port: Option<Port> where [required, needed],
        /// Address to bind to. If empty, the server listens on all addresses.
        pub bind: Arc<str> where [is bind],
        /// Hosts to expose, as `host`, `namespace/host`, `./host` or `*/host`. Wildcards are allowed. At least one is
        /// required.
        pub hosts: Vec<Arc<str>> where [required, needed, is gateway_host],
        /// TLS settings for client connections. Required for the protocols HTTPS and TLS.
        pub tls: Option<ServerTlsSettings>,
        /// Not used, as in Istio.
        pub default_endpoint: Arc<str>,
        /// Name of the server for diagnostics, unique within the gateway.
        pub name: Arc<str>,
    }
}

message! {
    /// Port of a gateway.
    pub struct Port {
        /// Port number, 1 to 65535.
        pub number: u32 where [required, to 65535],
        /// Protocol of the port, such as `HTTP`, `HTTPS`, `GRPC`, `TLS` or `TCP`.
        pub protocol: Arc<str> where [required, needed, is protocol],
        /// Name of the port, unique within the gateway.
        pub name: Arc<str> where [required, needed],
        /// Deprecated. Has no effect.
        pub target_port: u32 where [refuse "no-effect" "targetPort has no effect on Gateways"],
    }
}

impl Port {
    /// Parses the protocol of the port.
    pub fn kind(&self) -> Protocol {
        Protocol::parse(&self.protocol)
    }
}

message! {
    /// TLS settings for client connections.
    pub struct ServerTlsSettings: Relations where [
        exclusive(credentialName, credentialNames, tlsCertificates),
        rule "!(has(self.tlsCertificates) && has(self.credentialNames))" "credentialNames and tlsCertificates are mutually exclusive",
        rule "!(has(self.credentialName) && has(self.credentialNames))" "credentialName and credentialNames are mutually exclusive",
        rule "!(has(self.credentialName) && has(self.tlsCertificates))" "credentialName and tlsCertificates are mutually exclusive",
    ] {
        /// Whether HTTP requests are redirected to HTTPS.
        pub https_redirect: bool,
        /// TLS mode.
        pub mode: ServerTlsMode,
        /// Path of the server certificate.
        pub server_certificate: Arc<str>,
        /// Path of the private key of the server certificate.
        pub private_key: Arc<str>,
        /// Path of the CA certificates that verify client certificates.
        pub ca_certificates: Arc<str>,
        /// Path of the certificate revocation list (CRL) for client certificates.
        pub ca_crl: Arc<str>,
        /// Name of the Secret that holds the server certificate and its key.
        pub credential_name: Arc<str>,
        /// Names of Secrets that hold server certificates and their keys. At most two.
        pub credential_names: Vec<Arc<str>> where [min 1, max 2],
        /// Name of the Secret that holds the CA certificates.
        pub ca_cert_credential_name: Arc<str>,
        /// Paths of server certificates and their keys. At most two.
        pub tls_certificates: Vec<TlsCertificate> where [min 1, max 2],
        /// Subject alternative names, of which the client certificate must contain one.
        pub subject_alt_names: Vec<Arc<str>>,
        /// Base64-encoded SHA-256 hashes of public keys (SPKI), one of which the client certificate must match.
        pub verify_certificate_spki: Vec<Arc<str>> where [is key_hash],
        /// Hexadecimal SHA-256 hashes, one of which the client certificate must match.
        pub verify_certificate_hash: Vec<Arc<str>> where [is certificate_hash],
        /// Minimum TLS version.
        pub min_protocol_version: TlsProtocol,
        /// Maximum TLS version.
        pub max_protocol_version: TlsProtocol,
        /// Cipher suites, with Envoy's names. If empty, Envoy's defaults are used.
        pub cipher_suites: Vec<Arc<str>> where [is cipher],
        /// Curves for the ECDH key exchange, with Envoy's names. If empty, those of the mesh configuration are used.
        pub ecdh_curves: Vec<Arc<str>> where [is curve],
        /// Whether clients with an unverifiable certificate are accepted. Applies to the mode `OPTIONAL_MUTUAL`.
        pub insecure_skip_verify: Option<bool> where [nullable],
    }
}

message! {
    /// Paths of a certificate and its key.
    pub struct TlsCertificate {
        /// Path of the server certificate.
        pub server_certificate: Arc<str>,
        /// Path of the private key.
        pub private_key: Arc<str>,
        /// Path of the CA certificates. Can be set for one certificate only.
        pub ca_certificates: Arc<str>,
    }
}

enumeration! {
    /// TLS mode of client connections.
    pub enum ServerTlsMode {
        /// Does not terminate TLS. Connections are routed by SNI.
        #[default]
        Passthrough = "PASSTHROUGH" 0,
        /// Terminates TLS; does not request a client certificate.
        Simple = "SIMPLE" 1,
        /// Terminates TLS and requires a client certificate.
        Mutual = "MUTUAL" 2,
        /// Does not terminate TLS. The SNI selects the cluster; used for traffic from other networks of the mesh.
        AutoPassthrough = "AUTO_PASSTHROUGH" 3,
        /// Terminates mutual TLS with the workload certificates of the mesh.
        IstioMutual = "ISTIO_MUTUAL" 4,
        /// Terminates TLS and requests a client certificate, but does not require one.
        OptionalMutual = "OPTIONAL_MUTUAL" 5,
    }
}

enumeration! {
    /// TLS version.
    pub enum TlsProtocol {
        /// Envoy's default.
        #[default]
        Auto = "TLS_AUTO" 0,
        /// TLS 1.0.
        V1_0 = "TLSV1_0" 1,
        /// TLS 1.1.
        V1_1 = "TLSV1_1" 2,
        /// TLS 1.2.
        V1_2 = "TLSV1_2" 3,
        /// TLS 1.3.
        V1_3 = "TLSV1_3" 4,
    }
}
