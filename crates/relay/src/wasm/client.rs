//! The HTTP client for modules: one request per connection, with limits of size and time, and no connections to addresses that only
//! this machine should reach.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::error::FetchError;
use super::settings::Settings;
use super::tls;

/// The maximum number of redirects.
const REDIRECTS: usize = 10;
/// The maximum size of a manifest or a token, in bytes.
const MAX_DOCUMENT: u64 = 4 << 20;
const AGENT: &str = concat!("rutter-agent/", env!("CARGO_PKG_VERSION"));

/// A request.
#[derive(Clone)]
pub(super) struct Ask<'a> {
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a [(HeaderName, HeaderValue)],
    /// The body of a POST request; none for GET.
    pub(super) form: Option<String>,
}

/// An answer without its body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

/// The receiver of a body.
pub(super) enum Sink<'a> {
    Memory(Vec<u8>),
    File(&'a File),
}

impl Sink<'_> {
    /// Starts anew.
    fn clear(&mut self) -> std::io::Result<()> {
        match self {
            Sink::Memory(bytes) => bytes.clear(),
            Sink::File(file) => {
                file.set_len(0)?;
                std::io::Seek::rewind(file)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, part: &[u8]) -> std::io::Result<()> {
        match self {
            Sink::Memory(bytes) => bytes.extend_from_slice(part),
            Sink::File(file) => file.write_all(part)?,
        }
        Ok(())
    }
}

/// Fetches files.
pub(super) struct Client {
    settings: Settings,
}

impl Client {
    pub(super) fn new(settings: &Settings) -> Client {
        Client { settings: settings.clone() }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Writes the content of a URL to a file. Answers that are not successful are errors.
    pub(super) async fn download(
        &self,
        uri: &Uri,
        headers: &[(HeaderName, HeaderValue)],
        file: &File,
    ) -> Result<(), FetchError> {
        let answer = self.send(&Ask { uri, headers, form: None }, &mut Sink::File(file)).await?;
        if answer.status.is_success() { Ok(()) } else { Err(failed(uri, answer.status)) }
    }

    /// Sends a request, and repeats it after errors that may pass.
    pub(super) async fn send(&self, ask: &Ask<'_>, sink: &mut Sink<'_>) -> Result<Answer, FetchError> {
        let mut pause = self.settings.backoff;
        for _ in 1..self.settings.attempts {
            match self.attempt(ask, sink).await {
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "a request for a Wasm module is repeated")
                }
                answered => return answered,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.attempt(ask, sink).await
    }

    async fn attempt(&self, ask: &Ask<'_>, sink: &mut Sink<'_>) -> Result<Answer, FetchError> {
        let limit = self.settings.request_timeout;
        timeout(limit, self.follow(ask, sink)).await.unwrap_or(Err(FetchError::Timeout(limit)))
    }

    /// Follows redirects. Other hosts do not get the credentials.
    async fn follow(&self, ask: &Ask<'_>, sink: &mut Sink<'_>) -> Result<Answer, FetchError> {
        let (mut uri, mut headers) = (ask.uri.clone(), ask.headers.to_vec());
        for _ in 0..=REDIRECTS {
            sink.clear()?;
            let request = Ask { uri: &uri, headers: &headers, form: ask.form.clone() };
            let answer = self.request(&request, sink).await?;
            if !matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                let is_transient = failed(&uri, answer.status).is_transient();
                return if is_transient { Err(failed(&uri, answer.status)) } else { Ok(answer) };
            }
            let next = redirected(&uri, &answer.headers).ok_or_else(|| FetchError::Redirect(authority(&uri)))?;
            if (next.authority(), next.scheme()) != (uri.authority(), uri.scheme()) {
                headers.retain(|(name, _)| name != AUTHORIZATION);
                // A form has a token of the registry.
                if ask.form.is_some() {
                    return Err(FetchError::Redirect(authority(&uri)));
                }
            }
            uri = next;
        }
        Err(FetchError::Redirect(authority(&uri)))
    }

    async fn request(&self, ask: &Ask<'_>, sink: &mut Sink<'_>) -> Result<Answer, FetchError> {
        let host = ask.uri.host().ok_or_else(|| FetchError::Url(shown(&ask.uri.to_string())))?;
        let is_tls = match ask.uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(FetchError::Url(shown(&ask.uri.to_string()))),
        };
        let stream = self.connect(host, ask.uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 })).await?;
        if !is_tls {
            return self.exchange(stream, ask, sink).await;
        }
        let unreachable = |reason: String| FetchError::Unreachable { host: host.to_owned(), reason };
        let name = ServerName::try_from(bare(host).to_owned()).map_err(|error| unreachable(error.to_string()))?;
        let insecure = self.settings.is_insecure(&authority(ask.uri));
        let config = tokio::task::spawn_blocking(move || tls::config(insecure)).await;
        let config =
            config.map_err(|error| unreachable(error.to_string()))?.map_err(|error| unreachable(error.to_string()))?;
        match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
            Ok(stream) => self.exchange(stream, ask, sink).await,
            Err(error) if tls::is_plain_text(&error) => Err(FetchError::PlainText(host.to_owned())),
            Err(error) => Err(unreachable(error.to_string())),
        }
    }

    /// Connects to the first address that answers. Addresses are checked after they were resolved, so that names cannot hide them.
    async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, FetchError> {
        let unreachable = |reason: String| FetchError::Unreachable { host: host.to_owned(), reason };
        let addresses =
            tokio::net::lookup_host((bare(host), port)).await.map_err(|error| unreachable(error.to_string()))?;
        let mut last = unreachable("the host has no address".to_owned());
        for address in addresses.take(8) {
            let ip = address.ip().to_canonical();
            if is_blocked(ip) || self.settings.blocked.iter().any(|network| network.contains(&ip)) {
                last = FetchError::Blocked(ip);
                continue;
            }
            match TcpStream::connect(SocketAddr::new(ip, port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = unreachable(format!("{ip}: {error}")),
            }
        }
        Err(last)
    }

    /// Sends the request and receives the answer. The connection ends with this function.
    async fn exchange<S>(&self, stream: S, ask: &Ask<'_>, sink: &mut Sink<'_>) -> Result<Answer, FetchError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let invalid = |reason: String| FetchError::Http { host: authority(ask.uri), reason };
        let request = ask.request().ok_or_else(|| FetchError::Url(shown(&ask.uri.to_string())))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| invalid(error.to_string()))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        let response = sender.send_request(request).await.map_err(|error| invalid(error.to_string()))?;
        let (parts, mut body) = response.into_parts();
        let limit = if matches!(sink, Sink::File(_)) { self.settings.max_bytes } else { MAX_DOCUMENT };
        let mut received = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| invalid(error.to_string()))?;
            if let Ok(data) = frame.into_data() {
                received += data.len() as u64;
                if received > limit {
                    return Err(FetchError::TooLarge(limit));
                }
                sink.write(&data)?;
            }
        }
        Ok(Answer { status: parts.status, headers: parts.headers })
    }
}

impl Ask<'_> {
    fn request(&self) -> Option<Request<Full<Bytes>>> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder().uri(path).header(HOST, authority(self.uri)).header(USER_AGENT, AGENT);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if self.form.is_some() {
            request =
                request.method(Method::POST).header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        request.body(Full::from(self.form.clone().unwrap_or_default())).ok()
    }
}

/// The error of an answer that is not successful.
pub(super) fn failed(uri: &Uri, status: StatusCode) -> FetchError {
    FetchError::Status(authority(uri), status.as_u16())
}

/// A URL for people: without credentials and query, which may be secret.
pub(super) fn shown(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = path.split_once("://").unwrap_or(("", path));
    let host = rest.find('/').unwrap_or(rest.len());
    let rest = rest[..host].rfind('@').map_or(rest, |at| &rest[at + 1..]);
    format!("{scheme}://{rest}").chars().take(300).collect()
}

/// The host and port of a URL, without credentials.
pub(super) fn authority(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    uri.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// An IPv6 address without its brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The target of a redirect: a URL, or a path on the same host.
fn redirected(uri: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let location = headers.get(LOCATION)?.to_str().ok()?;
    if location.starts_with('/') && !location.starts_with("//") {
        return format!("{}://{}{location}", uri.scheme_str()?, uri.authority()?).parse().ok();
    }
    // A connection does not become less safe.
    location.parse().ok().filter(|next: &Uri| next.scheme_str() == Some("https") || next.scheme() == uri.scheme())
}

/// Whether an address is link-local, or that of a metadata service.
fn is_blocked(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            ip.is_link_local() || ip.octets().starts_with(&[224, 0, 0]) || ip.octets() == [100, 100, 100, 200]
        }
        IpAddr::V6(ip) => {
            let [first, second, ..] = ip.segments();
            ip.is_unicast_link_local() || first & 0xff0f == 0xff02 || (first, second) == (0xfd00, 0x0ec2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_machine_and_the_cloud_are_blocked() {
        for (text, blocked) in [
            ("169.254.169.254", true),
            ("100.100.100.200", true),
            ("224.0.0.1", true),
            ("fe80::1", true),
            ("fd00:ec2::254", true),
            ("ff02::1", true),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("fd00::1", false),
        ] {
            assert_eq!(is_blocked(text.parse().unwrap()), blocked, "{text}");
        }
    }

    #[test]
    fn shown_urls_have_no_secrets() {
        for (url, text) in [
            ("https://a:1/b?token=c#d", "https://a:1/b"),
            ("https://user:password@a/b@c", "https://a/b@c"),
            ("oci://a/b@sha256:0", "oci://a/b@sha256:0"),
            ("?", "://"),
        ] {
            assert_eq!(shown(url), text);
        }
    }

    #[test]
    fn redirects_are_resolved() {
        for (from, location, to) in [
            ("https://a/b", "/c?d", Some("https://a/c?d")),
            ("http://a:1/b", "https://e/f", Some("https://e/f")),
            ("http://a/b", "http://e/f", Some("http://e/f")),
            ("https://a/b", "http://a/b", None),
            ("https://a/b", "//e", None),
            ("https://a/b", "file:///etc", None),
            ("https://a/b", "relative", None),
        ] {
            let headers = [(LOCATION, HeaderValue::from_static(location))].into_iter().collect();
            let found = redirected(&Uri::from_static(from), &headers).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), to, "{from} {location}");
        }
    }
}
