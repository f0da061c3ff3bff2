//! Connections to the control plane: address, trust roots, client certificate and token.
//!
//! Files are read for each connection, so that replaced roots, certificates and tokens take effect with the next one.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use tonic::metadata::{Ascii, AsciiMetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

pub use names::JOIN_TOKEN;

use crate::environment::Environment;

/// The time in which a connection must be established.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval of keep-alive pings of an idle connection, and the time for the answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// The default file of the token of the pod's service account, relative to the agent's directory.
pub const TOKEN_FILE: &str = "./var/run/secrets/tokens/istio-token";
/// The name in the certificate of a control plane whose address is `localhost`.
const FORWARDED_NAME: &str = "istiod.istio-system.svc";
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The trust roots of a server's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Roots {
    /// The connection is not encrypted.
    PlainText,
    /// The roots of the operating system.
    System,
    /// A file of PEM certificates.
    File(PathBuf),
}

/// The certificate chain and key of the client, as PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificate {
    /// The file of the chain, leaf first.
    pub chain: PathBuf,
    /// The file of the private key.
    pub key: PathBuf,
}

/// A control plane, and how the agent proves who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    /// Host and port.
    pub address: String,
    /// The roots that the server's certificate must chain to.
    pub roots: Roots,
    /// The name that the server's certificate must have; none for the host of `address`, or for `localhost` the usual name of
    /// istiod.
    pub server_name: Option<String>,
    /// The certificate with which the agent connects; it is used if both files exist.
    pub certificate: Option<ClientCertificate>,
    /// The file of the bearer token that is sent with each call; none, or a file that does not exist, sends no token.
    pub token: Option<PathBuf>,
    /// The ID of the cluster (`ISTIO_META_CLUSTER_ID`), sent as `clusterid`.
    pub cluster: String,
    /// Further headers: `XDS_HEADER_NAME=VALUE` in the environment.
    pub headers: Vec<(String, String)>,
}

/// The reason why there is no connection.
#[derive(thiserror::Error, Debug)]
pub enum UpstreamError {
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The address, or a header, is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The server did not answer, or its certificate is not accepted.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The address of the control plane.
        address: String,
        /// The causes, outermost first.
        reason: String,
    },
}

impl ClientCertificate {
    /// The usual names in a folder: `cert-chain.pem` and `key.pem`.
    #[must_use]
    pub fn of_folder(folder: &Path) -> ClientCertificate {
        ClientCertificate { chain: folder.join("cert-chain.pem"), key: folder.join("key.pem") }
    }
}

impl Upstream {
    /// A connection, which is not used by other callers.
    ///
    /// # Errors
    /// A file cannot be read, the address is not valid, or the connection cannot be established within [`CONNECT_TIMEOUT`].
    pub async fn connect(&self) -> Result<Channel, UpstreamError> {
        let endpoint = self.endpoint()?;
        endpoint
            .connect()
            .await
            .map_err(|error| UpstreamError::Connect { address: self.address.clone(), reason: causes(&error) })
    }

    fn endpoint(&self) -> Result<Endpoint, UpstreamError> {
        let scheme = if self.roots == Roots::PlainText { "http" } else { "https" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address))
            .map_err(|_| UpstreamError::Invalid(format!("{:?} is not an address: give HOST:PORT", self.address)))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .keep_alive_while_idle(true);
        match self.tls()? {
            None => Ok(endpoint),
            Some(tls) => endpoint.tls_config(tls).map_err(|error| UpstreamError::Invalid(causes(&error))),
        }
    }

    fn tls(&self) -> Result<Option<ClientTlsConfig>, UpstreamError> {
        let mut tls = match &self.roots {
            Roots::PlainText => return Ok(None),
            Roots::System => ClientTlsConfig::new().with_native_roots(),
            Roots::File(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
        };
        if let Some(name) = self.server_name.as_deref().or_else(|| self.forwarded_name()) {
            tls = tls.domain_name(name);
        }
        if let Some(ClientCertificate { chain, key }) = &self.certificate
            && chain.exists()
            && key.exists()
        {
            tls = tls.identity(Identity::from_pem(read(chain)?, read(key)?));
        }
        Ok(Some(tls))
    }

    /// The name of a control plane that is reached through a forwarded port.
    fn forwarded_name(&self) -> Option<&'static str> {
        self.address.starts_with("localhost:").then_some(FORWARDED_NAME)
    }

    /// The bearer token in the file, if there is one. It is read for each call, because the kubelet replaces it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn bearer_token(&self) -> Result<Option<String>, UpstreamError> {
        let Some(path) = self.token.as_ref().filter(|path| path.exists()) else { return Ok(None) };
        let token = read(path)?.trim().to_owned();
        Ok(Some(token).filter(|token| !token.is_empty()))
    }

    /// Adds token, cluster and headers to the metadata of a call. Join tokens are left out: only a request for a certificate sends
    /// them, once.
    ///
    /// # Errors
    /// The token cannot be read, or a value cannot be sent in a header.
    pub fn authorize(&self, metadata: &mut MetadataMap) -> Result<(), UpstreamError> {
        let token = self.bearer_token()?.filter(|token| !token.starts_with(JOIN_TOKEN));
        self.authorize_with(token.as_deref(), metadata)
    }

    /// Does the same with this token.
    ///
    /// # Errors
    /// A value cannot be sent in a header.
    pub fn authorize_with(&self, token: Option<&str>, metadata: &mut MetadataMap) -> Result<(), UpstreamError> {
        if let Some(token) = token {
            let mut value = header("authorization", &format!("Bearer {token}"))?;
            value.set_sensitive(true);
            metadata.insert("authorization", value);
        }
        if !self.cluster.is_empty() {
            metadata.insert("clusterid", header("clusterid", &self.cluster)?);
        }
        for (name, text) in &self.headers {
            let key: AsciiMetadataKey = name
                .to_ascii_lowercase()
                .parse()
                .map_err(|_| UpstreamError::Invalid(format!("XDS_HEADER_{name} does not name a header")))?;
            metadata.insert(key, header(name, text)?);
        }
        Ok(())
    }
}

/// The headers of the variables with a prefix, such as `XDS_HEADER_`, which are sent with each call.
#[must_use]
pub fn headers(environment: &Environment, prefix: &str) -> Vec<(String, String)> {
    environment.with_prefix(prefix).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn header(name: &str, value: &str) -> Result<MetadataValue<Ascii>, UpstreamError> {
    value
        .parse()
        .map_err(|_| UpstreamError::Invalid(format!("the value of {name} has characters that headers must not have")))
}

/// The text of a file, which may be a key or a token: errors never show it.
fn read(path: &Path) -> Result<String, UpstreamError> {
    let failed = |error| UpstreamError::File { path: path.to_owned(), error };
    if fs::metadata(path).map_err(failed)?.len() > MAX_FILE {
        return Err(failed(io::Error::other("the file is larger than 1 MiB")));
    }
    fs::read_to_string(path).map_err(failed)
}

/// An error and its causes, as one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream() -> Upstream {
        Upstream {
            address: "127.0.0.1:1".to_owned(),
            roots: Roots::PlainText,
            server_name: None,
            certificate: None,
            token: None,
            cluster: "Kubernetes".to_owned(),
            headers: vec![("X-Team".to_owned(), "a".to_owned())],
        }
    }

    #[test]
    fn a_replaced_token_is_sent_with_the_next_call() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let upstream = Upstream { token: Some(file.clone()), ..upstream() };
        for (content, sent) in [
            (None, None),
            (Some("one\n"), Some("Bearer one")),
            (Some("two"), Some("Bearer two")),
            (Some("rutter-join.a.b"), None),
            (Some("\n"), None),
        ] {
            if let Some(content) = content {
                fs::write(&file, content).unwrap();
            }
            let mut metadata = MetadataMap::new();
            upstream.authorize(&mut metadata).unwrap();
            assert_eq!(metadata.get("authorization").map(|value| value.to_str().unwrap()), sent);
            assert_eq!(metadata.get("clusterid").unwrap(), "Kubernetes");
            assert_eq!(metadata.get("x-team").unwrap(), "a");
            assert!(!format!("{metadata:?}").contains("two"));
        }
    }

    #[tokio::test]
    async fn errors_name_the_file_or_the_address() {
        let missing = Upstream { roots: Roots::File("/does/not/exist.pem".into()), ..upstream() };
        let error = missing.connect().await.unwrap_err().to_string();
        assert!(error.starts_with("cannot read /does/not/exist.pem: "), "{error}");
        let refused = upstream().connect().await.unwrap_err().to_string();
        assert!(refused.starts_with("cannot connect to 127.0.0.1:1: "), "{refused}");
        let nonsense = Upstream { address: "a b".to_owned(), ..upstream() };
        assert_eq!(nonsense.connect().await.unwrap_err().to_string(), "\"a b\" is not an address: give HOST:PORT");
    }
}
