//! Merges the metrics of the agent, of Envoy and of the application.
//!
//! The sources are read while the response is written, so that no source is held in memory. A source that fails does not affect
//! the others. Its part ends with its last complete line, so that no value is cut.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt as _;
use futures::future::{join, join_all};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry, TextEncoder};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use crate::client::{Exchange, Get, GetError};
use crate::server::{Body, text};
use crate::settings::Settings;

/// The header with the time that Prometheus waits, in seconds.
const TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");
/// The time for a scrape without this header, and the longest one.
const MAX_TIME: Duration = Duration::from_secs(60);
/// The number of scrapes at a time. Further ones get status 503, so that clients that do not read keep nobody else out.
const MAX_SCRAPES: usize = 16;
/// The most bytes of a source.
const MAX_SOURCE: usize = 256 << 20;
/// The longest line of a source.
const MAX_LINE: usize = 1 << 20;
/// The most content types of a request that are considered.
const MAX_TYPES: usize = 9;
/// The number of pieces that wait for the client.
const QUEUE: usize = 8;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text";
/// The last line of metrics in OpenMetrics format.
const EOF: &[u8] = b"# EOF";

/// The metrics about scrapes, with Istio's names.
#[derive(Debug)]
pub(crate) struct Scrapes {
    total: IntCounter,
    failures: IntCounterVec,
    places: Arc<Semaphore>,
}

impl Scrapes {
    pub(crate) fn new(registry: &Registry) -> Result<Scrapes, prometheus::Error> {
        let total = IntCounter::new("scrapes_total", "The total number of scrapes.")?;
        let failures = Opts::new("scrape_failures_total", "The total number of failed scrapes.");
        let failures = IntCounterVec::new(failures, &["type"])?;
        registry.register(Box::new(total.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        Ok(Scrapes { total, failures, places: Arc::new(Semaphore::new(MAX_SCRAPES)) })
    }

    fn failed(&self, source: &Source, reason: &dyn std::fmt::Display) {
        self.failures.with_label_values(&[source.kind]).inc();
        tracing::error!(url = source.url, %reason, "cannot scrape the metrics");
    }
}

/// A source of metrics.
struct Source {
    kind: &'static str,
    url: String,
    accept: String,
}

/// Serves a scrape.
pub(crate) async fn scrape(
    settings: &Settings,
    scrapes: Arc<Scrapes>,
    registry: &Registry,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Response<Body> {
    scrapes.total.inc();
    let Ok(place) = scrapes.places.clone().try_acquire_owned() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at a time\n");
    };
    let deadline = Instant::now() + time(headers);
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).collect();
    let accept = accept.join(",");
    let envoy = settings.envoy_metrics.map(|port| Source {
        kind: "envoy",
        url: format!(
            "http://localhost:{port}/stats/prometheus{}{}",
            query.map_or("", |_| "?"),
            query.unwrap_or_default()
        ),
        accept: accepted(&accept, false),
    });
    let applications = settings.targets.iter().map(|target| Source {
        kind: "application",
        url: format!("http://localhost:{}{}", target.port, target.path),
        accept: accepted(&accept, true),
    });
    let open = |source: Source| async {
        let opened = timeout_at(deadline, source.open(headers)).await.map_err(GetError::from);
        match opened.unwrap_or_else(Err) {
            Ok(exchange) if exchange.0.status() == StatusCode::OK => return Some((source, exchange)),
            Ok((response, _)) => scrapes.failed(&source, &format_args!("status {}", response.status())),
            Err(error) => scrapes.failed(&source, &error),
        }
        None
    };
    let (envoy, applications) = join(join_all(envoy.map(open)), join_all(applications.map(open))).await;
    let applications: Vec<_> = applications.into_iter().flatten().collect();
    let format = format(applications.iter().map(|(_, (response, _))| response.headers()));
    let own = TextEncoder::new().encode_to_string(&registry.gather()).unwrap_or_default();

    let gzip = headers.get(ACCEPT_ENCODING).and_then(|accept| accept.to_str().ok()).is_some_and(accepts_gzip);
    let (sender, mut receiver) = mpsc::channel::<Bytes>(QUEUE);
    let mut sink = Sink { sender, gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())) };
    let written = async move {
        sink.write(own.into()).await?;
        for (source, exchange) in envoy.into_iter().flatten().chain(applications) {
            if let Err(reason) = copy(&mut sink, exchange, deadline).await? {
                scrapes.failed(&source, &reason);
            }
        }
        if format.starts_with(OPEN_METRICS) {
            sink.write(Bytes::from_static(b"# EOF\n")).await?;
        }
        sink.finish().await
    };
    tokio::spawn(async move {
        // A client that does not read has as long as the sources have.
        let _ = timeout_at(deadline, written).await;
        drop(place);
    });
    let body = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx)).map(|bytes| Ok(Frame::data(bytes)));
    let mut response = Response::new(http_body_util::StreamBody::new(body).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format));
    if gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

impl Source {
    async fn open(&self, headers: &HeaderMap) -> Result<Exchange, GetError> {
        let mut get = Get::new(&self.url)?;
        for name in [USER_AGENT, TIMEOUT] {
            if let Some(value) = headers.get(&name) {
                get.headers.insert(name, value.clone());
            }
        }
        if let Ok(accept) = HeaderValue::from_str(&self.accept) {
            get.headers.insert(ACCEPT, accept);
        }
        get.send().await
    }
}

/// The client of the scrape is gone.
struct Gone;

/// Writes the response, compressed if the client accepts it.
struct Sink {
    sender: mpsc::Sender<Bytes>,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl Sink {
    async fn write(&mut self, bytes: Bytes) -> Result<(), Gone> {
        let Some(gzip) = &mut self.gzip else { return self.send(bytes).await };
        // Writing to memory does not fail.
        gzip.write_all(&bytes).map_err(|_| Gone)?;
        let compressed = std::mem::take(gzip.get_mut());
        self.send(compressed.into()).await
    }

    async fn finish(mut self) -> Result<(), Gone> {
        let Some(gzip) = self.gzip.take() else { return Ok(()) };
        let rest = gzip.finish().map_err(|_| Gone)?;
        self.send(rest.into()).await
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        if bytes.is_empty() { Ok(()) } else { self.sender.send(bytes).await.map_err(|_| Gone) }
    }
}

/// Copies a source without its end marker. The inner error is the reason why it is not complete.
async fn copy(sink: &mut Sink, exchange: Exchange, deadline: Instant) -> Result<Result<(), String>, Gone> {
    let (response, _connection) = exchange;
    let (mut body, mut lines, mut size) = (response.into_body(), Lines::default(), 0);
    let result = loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) => break Err("the time is over".to_owned()),
            Ok(None) => break Ok(()),
            Ok(Some(Err(error))) => break Err(error.to_string()),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size > MAX_SOURCE {
            break Err(format!("more than {MAX_SOURCE} bytes"));
        }
        let Some(complete) = lines.push(data) else { break Err(format!("a line has more than {MAX_LINE} bytes")) };
        sink.write(complete).await?;
    };
    sink.write(lines.finish(result.is_ok())).await?;
    Ok(result)
}

/// Holds the last line of a source back: it may be incomplete, or the end marker.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Adds a piece, and returns the lines before the last one that is not blank; none if a line is too long.
    fn push(&mut self, piece: Bytes) -> Option<Bytes> {
        let Some(end) = last_line(&piece) else {
            self.0.extend_from_slice(&piece);
            return (self.0.len() <= MAX_LINE).then(Bytes::new);
        };
        let mut complete = std::mem::take(&mut self.0);
        self.0.extend_from_slice(&piece[end..]);
        if complete.is_empty() {
            return (self.0.len() <= MAX_LINE).then(|| piece.slice(..end));
        }
        complete.extend_from_slice(&piece[..end]);
        (self.0.len() <= MAX_LINE).then_some(complete.into())
    }

    /// The last line, unless it is the end marker or incomplete.
    fn finish(self, complete: bool) -> Bytes {
        let mut rest = self.0;
        let start = last_line(&rest).unwrap_or(0);
        if rest[start..].trim_ascii() == EOF || (!complete && !rest.ends_with(b"\n")) {
            rest.truncate(start);
        }
        if !rest.is_empty() && !rest.ends_with(b"\n") {
            rest.push(b'\n');
        }
        rest.into()
    }
}

/// The start of the last line that is not blank, if another line is before it.
fn last_line(bytes: &[u8]) -> Option<usize> {
    bytes.trim_ascii_end().iter().rposition(|byte| *byte == b'\n').map(|end| end + 1)
}

/// The time for a scrape.
fn time(headers: &HeaderMap) -> Duration {
    let seconds =
        headers.get(TIMEOUT).and_then(|seconds| seconds.to_str().ok()).and_then(|seconds| seconds.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map_or(MAX_TIME, |time| time.min(MAX_TIME))
}

/// The content type of the response: the one on which all applications agree, otherwise text.
fn format<'a>(mut applications: impl Iterator<Item = &'a HeaderMap>) -> &'static str {
    let format = |headers: &HeaderMap| {
        let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (media, parameters) = media_type(text).unwrap_or_default();
        let version = parameters.iter().find_map(|(name, value)| (*name == "version").then_some(*value));
        match version {
            _ if media != OPEN_METRICS => TEXT,
            Some("1.0.0") => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            None | Some("0.0.1") => "application/openmetrics-text; version=0.0.1; charset=utf-8",
            Some(_) => TEXT,
        }
    };
    let Some(first) = applications.next().map(format) else { return TEXT };
    if applications.all(|headers| format(headers) == first) { first } else { TEXT }
}

/// The content types of a scrape that a source may answer with: only text for Envoy, because its part cannot end with an end
/// marker; text and OpenMetrics for applications.
fn accepted(accept: &str, application: bool) -> String {
    const DEFAULT: &str = "text/plain;version=0.0.4";
    let types: Option<Vec<_>> = accept.split(',').map(media_type).collect();
    let mut accepted: Vec<(String, Vec<(&str, &str)>)> = Vec::new();
    for (media, parameters) in types.unwrap_or_default() {
        let range = match &*media {
            "*/*" | "*" => ("text/plain".to_owned(), vec![("version", "0.0.4")]),
            "application/*" if application => (OPEN_METRICS.to_owned(), vec![("version", "0.0.1")]),
            "text/*" | "text/plain" => (media, parameters),
            OPEN_METRICS if application => (media, parameters),
            _ => continue,
        };
        if !accepted.contains(&range) {
            accepted.push(range);
        }
    }
    accepted.truncate(MAX_TYPES);
    let count = accepted.len();
    let shown = accepted.iter().enumerate().map(|(i, (media, parameters))| {
        let parameters: String = parameters.iter().map(|(name, value)| format!("; {name}={value}")).collect();
        format!("{media}{parameters}; q=0.{}", count - i)
    });
    if count == 0 { DEFAULT.to_owned() } else { shown.collect::<Vec<_>>().join(",") }
}

/// A media type in lower case with its parameters except `q`; none if it is not valid.
fn media_type(text: &str) -> Option<(String, Vec<(&str, &str)>)> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&byte);
    let token = |text: &str| !text.is_empty() && text.bytes().all(legal);
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|media| token(media))?.to_ascii_lowercase();
    let mut parameters = Vec::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').map(|(name, value)| (name, value.trim_matches('"')))?;
        if !token(name) || !token(value) {
            return None;
        }
        if !name.eq_ignore_ascii_case("q") {
            parameters.push((name, value));
        }
    }
    Some((media, parameters))
}

/// Whether a client accepts gzip.
fn accepts_gzip(accept: &str) -> bool {
    accept.split(',').any(|part| {
        let mut words = part.split(';').map(str::trim);
        words.next() == Some("gzip")
            && !words.any(|word| matches!(word.strip_prefix("q="), Some("0" | "0.0" | "0.00" | "0.000")))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROMETHEUS: &str = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                              text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn content_types_are_negotiated() {
        for (accept, application, expected) in [
            (PROMETHEUS, false, "text/plain; version=0.0.4; q=0.1"),
            (
                PROMETHEUS,
                true,
                "application/openmetrics-text; version=1.0.0; q=0.3,application/openmetrics-text; version=0.0.1; q=0.2,\
                 text/plain; version=0.0.4; q=0.1",
            ),
            ("application/vnd.google.protobuf;proto=io.prometheus.client", true, "text/plain;version=0.0.4"),
            ("application/*", true, "application/openmetrics-text; version=0.0.1; q=0.1"),
            ("application/*, text/html", false, "text/plain;version=0.0.4"),
            ("text/*;q=1", false, "text/*; q=0.1"),
            ("", true, "text/plain;version=0.0.4"),
            ("text/plain, a b", true, "text/plain;version=0.0.4"),
        ] {
            assert_eq!(accepted(accept, application), expected, "{accept}");
        }
        let headers = |text: &str| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(text).unwrap())]);
        for (types, expected) in [
            (&[][..], TEXT),
            (&["text/html"], TEXT),
            (&["application/openmetrics-text"], "application/openmetrics-text; version=0.0.1; charset=utf-8"),
            (&["application/openmetrics-text; version=2.0.0"], TEXT),
            (
                &[
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    "application/openmetrics-text;version=\"1.0.0\"",
                ],
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ),
            (&["application/openmetrics-text; version=1.0.0", "text/plain"], TEXT),
        ] {
            let types: Vec<_> = types.iter().map(|text| headers(text)).collect();
            assert_eq!(format(types.iter()), expected, "{types:?}");
        }
    }

    #[test]
    fn gzip_and_time_come_from_the_request() {
        for (accept, expected) in
            [("gzip", true), ("deflate, gzip;q=0.5", true), ("gzip;q=0", false), ("identity", false)]
        {
            assert_eq!(accepts_gzip(accept), expected, "{accept}");
        }
        for (text, expected) in
            [("1.5", 1500), ("1e9", 60_000), ("-1", 60_000), ("nan", 60_000), ("x", 60_000), ("0.01", 10)]
        {
            let headers = HeaderMap::from_iter([(TIMEOUT, HeaderValue::from_str(text).unwrap())]);
            assert_eq!(time(&headers), Duration::from_millis(expected), "{text}");
        }
    }

    /// The text that remains of pieces.
    fn lines(pieces: &[&[u8]], complete: bool) -> String {
        let mut lines = Lines::default();
        let mut text = Vec::new();
        for piece in pieces {
            text.extend(lines.push(Bytes::copy_from_slice(piece)).unwrap());
        }
        text.extend(lines.finish(complete));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn end_markers_and_incomplete_lines_are_removed() {
        for (text, complete, expected) in [
            ("a 1\nb 2\n", true, "a 1\nb 2\n"),
            ("a 1\nb 2", true, "a 1\nb 2\n"),
            ("a 1\nb 2", false, "a 1\n"),
            ("a 1\nb 2\n", false, "a 1\nb 2\n"),
            ("a 1\n# EOF\n", true, "a 1\n"),
            ("a 1\n# EOF\r\n \n", true, "a 1\n"),
            ("# EOF", true, ""),
            ("a 1 # EOF\n", true, "a 1 # EOF\n"),
            ("", true, ""),
        ] {
            for cut in 0..=text.len() {
                let (first, second) = text.as_bytes().split_at(cut);
                assert_eq!(lines(&[first, second], complete), expected, "{text:?} at {cut}");
            }
        }
        let long = Bytes::from(vec![b'x'; MAX_LINE + 1]);
        assert_eq!(Lines::default().push(long), None);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "([a-z# \r]{0,3}(EOF)?\n?){0,12}", cuts in prop::collection::vec(0..40_usize, 0..6), complete in any::<bool>()) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(lines(&pieces, complete), lines(&[text.as_bytes()], complete));
        }

        #[test]
        fn any_header_is_read(text in "[a-z*/;=,. \"0-9]{0,60}") {
            for application in [false, true] {
                prop_assert!(HeaderValue::from_str(&accepted(&text, application)).is_ok());
            }
            let _ = (media_type(&text), accepts_gzip(&text));
        }
    }
}
