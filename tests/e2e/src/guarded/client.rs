//! A client that sends requests as they are written, without normalizing anything, over plain text or mutual TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use agent_core::tls::{Possession, any_certificate};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use test_harness::run::{Result, wait_for};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::HOST;
use crate::PATIENCE;
use crate::tls::{Identity, chain};

/// The ALPN of sidecars, by which a permissive sidecar recognizes the mesh's mutual TLS.
const MESH: &str = "istio";

/// A request.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// Method and path as sent.
    pub line: &'a str,
    /// Headers as sent; without `host`, the workload's host is sent.
    pub headers: &'a [(&'a str, &'a str)],
    /// The client's certificate; plain text without one.
    pub own: Option<&'a Identity>,
    /// The SNI.
    pub sni: &'a str,
    /// The ALPN; none if it is empty.
    pub alpn: &'a str,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code; 0 if the connection was closed without a response.
    pub status: u16,
    /// Head and body.
    pub text: String,
}

impl<'a> Ask<'a> {
    /// A request in plain text, such as `GET /a`.
    pub fn new(line: &'a str) -> Ask<'a> {
        Ask { line, headers: &[], own: None, sni: HOST, alpn: MESH }
    }

    /// With these headers.
    pub fn with(self, headers: &'a [(&'a str, &'a str)]) -> Ask<'a> {
        Ask { headers, ..self }
    }

    /// Over mutual TLS.
    pub fn by(self, own: &'a Identity) -> Ask<'a> {
        Ask { own: Some(own), ..self }
    }

    /// With this SNI.
    pub fn to(self, sni: &'a str) -> Ask<'a> {
        Ask { sni, ..self }
    }

    /// Sends it.
    pub async fn send(&self, to: SocketAddr) -> Result<Answer> {
        let exchange = async {
            let socket = TcpStream::connect(to).await?;
            match self.own {
                None => self.exchange(socket).await,
                Some(own) => {
                    let name = ServerName::try_from(self.sni.to_owned())?;
                    match TlsConnector::from(Arc::new(config(own, self.alpn)?)).connect(name, socket).await {
                        Ok(stream) => self.exchange(stream).await,
                        Err(error) => Ok(Answer { status: 0, text: error.to_string() }),
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, exchange).await?
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> Result<Answer> {
        let mut request = format!("{} HTTP/1.1\r\nconnection: close\r\n", self.line);
        let named = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = (!named).then_some(("host", HOST));
        for (name, value) in host.iter().chain(self.headers) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        // A connection that is refused may be closed before the request is written, or without a response.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut bytes = Vec::new();
        // After a response of its own, Envoy waits a second before it closes the connection.
        while !is_complete(&bytes) {
            match stream.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        Ok(Answer { status: status.unwrap_or(0), text })
    }

    /// Whether it is answered by the application.
    pub async fn passes(&self, to: SocketAddr) -> Result<bool> {
        let answer = self.send(to).await?;
        match answer.status {
            200 => Ok(true),
            0 | 403 => Ok(false),
            _ => Err(format!("{self:?}: {}", answer.text).into()),
        }
    }

    /// Waits until it has this status.
    pub async fn gets(&self, to: SocketAddr, status: u16) -> Result<Answer> {
        let reached = || async { self.send(to).await.ok().filter(|answer| answer.status == status) };
        let result = wait_for(&format!("{status} for {self:?}"), PATIENCE, reached).await;
        match result {
            Ok(answer) => Ok(answer),
            Err(error) => Err(format!("{error}; the last answer: {:?}", self.send(to).await).into()),
        }
    }
}

/// Whether this is a whole response, as far as its headers tell.
fn is_complete(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    match length {
        Some(length) => body.len() >= length,
        None => head.contains("transfer-encoding: chunked") && body.ends_with("0\r\n\r\n"),
    }
}

fn config(own: &Identity, alpn: &str) -> Result<ClientConfig> {
    let provider = Arc::new(default_provider());
    let (certificate, key) = own;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        // These tests are about clients.
        .with_custom_certificate_verifier(any_certificate(Possession::Ignored))
        .with_client_auth_cert(chain(certificate)?, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
    config.alpn_protocols = Some(alpn).filter(|alpn| !alpn.is_empty()).map(|alpn| alpn.into()).into_iter().collect();
    Ok(config)
}
