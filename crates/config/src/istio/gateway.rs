//! Gateway: what the proxies at the edge of the mesh listen for.

use std::sync::Arc;

use names::Protocol;

use crate::object::StringMap;

message! {
    /// Servers on the gateway proxies that are selected.
    pub struct Gateway {
        /// The servers. At least one.
        pub servers: Vec<Server>,
        /// The labels of the proxies, in any namespace; empty selects all.
        pub selector: StringMap,
    }
}

message! {
    /// One port with the hosts that are served on it.
    pub struct Server {
        /// The port.
        pub port: Option<Port> where [required],
        /// The address to listen on; empty means all.
        pub bind: Arc<str>,
        /// Hosts, as `host`, `namespace/host`, `./host` or `*/host`; wildcards are allowed. At least one.
        pub hosts: Vec<Arc<str>> where [required],
        /// TLS towards clients; needed for HTTPS and TLS.
        pub tls: Option<ServerTlsSettings>,
        /// Unused, by Istio too.
        pub default_endpoint: Arc<str>,
        /// A name for diagnostics, unique among the gateway's servers.
        pub name: Arc<str>,
    }
}

message! {
    /// A port of a gateway.
    pub struct Port {
        /// The number, 1 to 65535.
        pub number: u32 where [required],
        /// What it speaks, by name ([`Port::kind`]).
        pub protocol: Arc<str> where [required],
        /// The name, unique among the gateway's ports.
        pub name: Arc<str> where [required],
        /// Deprecated and without effect.
        pub target_port: u32,
    }
}

impl Port {
    /// The port's protocol.
    pub fn kind(&self) -> Protocol {
        Protocol::parse(&self.protocol)
    }
}

message! {
    /// TLS towards clients.
    pub struct ServerTlsSettings where [
        rule "!(has(self.tlsCertificates) && has(self.credentialNames))" "credentialNames and tlsCertificates exclude each other",
        rule "!(has(self.credentialName) && has(self.credentialNames))" "credentialName and credentialNames exclude each other",
        rule "!(has(self.credentialName) && has(self.tlsCertificates))" "credentialName and tlsCertificates exclude each other",
    ] {
        /// Whether HTTP requests are redirected to HTTPS.
        pub https_redirect: bool,
        /// What sort of TLS.
        pub mode: ServerTlsMode,
        /// The path of the server's certificate.
        pub server_certificate: Arc<str>,
        /// The path of the server's private key.
        pub private_key: Arc<str>,
        /// The path of the CA certificates that vouch for clients.
        pub ca_certificates: Arc<str>,
        /// The path of the certificate revocation list.
        pub ca_crl: Arc<str>,
        /// A secret with certificate and key.
        pub credential_name: Arc<str>,
        /// Secrets with certificates and keys; two at most.
        pub credential_names: Vec<Arc<str>> where [min 1, max 2],
        /// A secret with the CA certificates.
        pub ca_cert_credential_name: Arc<str>,
        /// Paths of certificates and keys; two at most.
        pub tls_certificates: Vec<TlsCertificate> where [min 1, max 2],
        /// Names of which the client's certificate must have one.
        pub subject_alt_names: Vec<Arc<str>>,
        /// Hashes of public keys of which the client's certificate must have one, in base64.
        pub verify_certificate_spki: Vec<Arc<str>>,
        /// Hashes of which the client's certificate must have one, in hexadecimal.
        pub verify_certificate_hash: Vec<Arc<str>>,
        /// The least version.
        pub min_protocol_version: TlsProtocol,
        /// The highest version.
        pub max_protocol_version: TlsProtocol,
        /// The cipher suites, in Envoy's spelling; empty: Envoy's default.
        pub cipher_suites: Vec<Arc<str>>,
        /// With `OPTIONAL_MUTUAL`: whether clients with an unknown certificate are let in.
        pub insecure_skip_verify: Option<bool> where [nullable],
    }
}

message! {
    /// Paths of a certificate and its key.
    pub struct TlsCertificate {
        /// The certificate.
        pub server_certificate: Arc<str>,
        /// The private key.
        pub private_key: Arc<str>,
        /// The CA certificates; for one certificate only.
        pub ca_certificates: Arc<str>,
    }
}

enumeration! {
    /// The sorts of TLS towards clients.
    pub enum ServerTlsMode {
        /// Not terminated: routed by server name.
        #[default]
        Passthrough = "PASSTHROUGH" 0,
        /// The server proves who it is.
        Simple = "SIMPLE" 1,
        /// Both do.
        Mutual = "MUTUAL" 2,
        /// Not terminated, and the server name says the cluster; for other networks of the mesh.
        AutoPassthrough = "AUTO_PASSTHROUGH" 3,
        /// Both do, with the mesh's certificates.
        IstioMutual = "ISTIO_MUTUAL" 4,
        /// The client may.
        OptionalMutual = "OPTIONAL_MUTUAL" 5,
    }
}

enumeration! {
    /// A version of TLS.
    pub enum TlsProtocol {
        /// Envoy decides.
        #[default]
        Auto = "TLS_AUTO" 0,
        /// 1.0
        V1_0 = "TLSV1_0" 1,
        /// 1.1
        V1_1 = "TLSV1_1" 2,
        /// 1.2
        V1_2 = "TLSV1_2" 3,
        /// 1.3
        V1_3 = "TLSV1_3" 4,
    }
}
