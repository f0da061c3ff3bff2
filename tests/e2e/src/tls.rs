//! Certificates, and a client that trusts them.

use std::path::Path;
use std::sync::Arc;

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use test_harness::run::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::mesh::PATIENCE;

/// A certificate and its key, both as PEM.
pub type Identity = (String, String);

/// Somebody who signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The own certificate.
    pub pem: String,
    /// The private key in PEM.
    pub key: String,
}

impl Authority {
    /// A new one.
    pub fn new(name: &str) -> Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let (pem, private) = (params.self_signed(&key)?.pem(), key.serialize_pem());
        Ok(Authority { issuer: Issuer::new(params, key), pem, key: private })
    }

    /// An identity for a host.
    pub fn sign(&self, host: &str) -> Result<Identity> {
        self.sign_all(&[host])
    }

    fn sign_all(&self, hosts: &[&str]) -> Result<Identity> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.identity(CertificateParams::new(hosts)?)
    }

    /// The identity of a service account of the namespace `test`.
    pub fn account(&self, name: &str) -> Result<Identity> {
        self.workload(&format!("spiffe://cluster.local/ns/test/sa/{name}"))
    }

    /// The identity of a workload, a SPIFFE id.
    pub fn workload(&self, id: &str) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(id)?)];
        self.identity(params)
    }

    /// The certificate and key of a server of these hosts.
    pub fn server(&self, hosts: &[&str]) -> Result<Arc<ServerConfig>> {
        let (certificate, key) = self.sign_all(hosts)?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain(&certificate)?, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
        Ok(Arc::new(config))
    }

    /// A certificate with these alternative names and this common name.
    pub fn named(&self, names: Vec<SanType>, common: &str) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        self.identity(params)
    }

    /// Whether a certificate is of this authority.
    pub fn signed(&self, (certificate, _): &Identity) -> Result<bool> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes())?)?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider())).build()?;
        let chain = chain(certificate)?;
        let (leaf, rest) = chain.split_first().ok_or("no certificate")?;
        Ok(verifier.verify_client_cert(leaf, rest, UnixTime::now()).is_ok())
    }

    /// Writes the files of an authority that is plugged into Rutter, with these roots.
    pub fn plug_into(&self, directory: &Path, roots: &[&Authority]) -> Result<()> {
        let roots: String = roots.iter().map(|root| root.pem.as_str()).collect();
        let files = [("ca-cert.pem", self.pem.as_str()), ("ca-key.pem", &self.key), ("cert-chain.pem", "")];
        for (name, text) in files.into_iter().chain([("root-cert.pem", roots.as_str())]) {
            std::fs::write(directory.join(name), text)?;
        }
        Ok(())
    }

    fn identity(&self, params: CertificateParams) -> Result<Identity> {
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

/// Asks for `/` of a host over TLS at this port of the machine, believing one authority. The answer's head and body.
pub async fn get(port: u16, host: &str, roots: &str, own: Option<&Identity>) -> Result<String> {
    get_over(port, (host, host), roots, own).await
}

/// As [`get`], over a connection with this SNI, for another host.
pub async fn get_over(port: u16, (sni, host): (&str, &str), roots: &str, own: Option<&Identity>) -> Result<String> {
    let mut store = RootCertStore::empty();
    for root in chain(roots)? {
        store.add(root)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store);
    let config = match own {
        Some((certificate, key)) => {
            builder.with_client_auth_cert(chain(certificate)?, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
        None => builder.with_no_client_auth(),
    };
    let socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(sni.to_owned())?;
    let exchange = async {
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // After the response, it does not matter how the server closes the connection.
        match stream.read_to_end(&mut answer).await {
            Err(error) if answer.is_empty() => Err(error.into()),
            _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    };
    tokio::time::timeout(PATIENCE, exchange).await?
}

pub(crate) fn chain(certificate: &str) -> Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<std::result::Result<_, _>>()?)
}
