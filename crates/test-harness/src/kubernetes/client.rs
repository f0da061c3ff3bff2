//! A minimal client with which a cluster checks its own readiness and cleans up, as administrator. Tests use a client
//! of their own or `kubectl`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::run::Result;
use crate::run::http::{Response, ask};

/// The maximum size of a response.
const BODY_LIMIT: usize = 64 << 20;
/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one API server.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    token: String,
    tls: TlsConnector,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client that trusts this CA (PEM) and sends this token.
    pub(super) fn new(address: SocketAddr, authority: &str, token: &str) -> Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Client { address, token: token.to_owned(), tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Opens a connection to the server.
    pub(super) async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        Ok(self.tls.connect(ServerName::from(self.address.ip()), stream).await?)
    }

    /// Sends one request on a new connection. `content` is the content type of the body.
    pub(super) async fn send(&self, method: Method, path: &str, content: &str, body: Bytes) -> Result<Response> {
        let exchange = async {
            let stream = self.connect().await?;
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", self.address.to_string())
                .header("authorization", format!("Bearer {}", self.token))
                .header("content-type", content)
                .header("accept", "application/json")
                .body(Full::new(body))?;
            ask(stream, request, BODY_LIMIT).await
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .map_err(|_| format!("{path} was not answered in {PATIENCE:?}"))?
    }
}
