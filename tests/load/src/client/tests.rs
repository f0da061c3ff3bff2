//! A proxy, and a server that sends it what a test says.

use h2::server;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::facts::TYPES;
use crate::parts::{Part, Parts};
use crate::samples::{cluster, listener, removed, resource, response, route_table};
use crate::wire;

/// A request of the proxy, without its node.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    kind: usize,
    names: Vec<String>,
    had: Vec<(String, String)>,
    version: String,
    nonce: String,
    error: String,
}

/// A subscription to these names.
fn asked(kind: usize, names: &[&str]) -> Asked {
    Asked { kind, names: names.iter().map(|name| (*name).to_owned()).collect(), ..Asked::default() }
}

/// An acknowledgement.
fn acknowledged(kind: usize) -> Asked {
    Asked { kind, nonce: "nonce".to_owned(), ..Asked::default() }
}

struct Server {
    protocol: Protocol,
    requests: RecvStream,
    responses: SendStream<Bytes>,
    parts: Parts,
    /// The fields of the request that is read, and the requests that were not expected yet.
    fields: Vec<(u64, Vec<u8>)>,
    read: Vec<Asked>,
    proxy: JoinHandle<Result<()>>,
}

impl Server {
    /// Starts a proxy, and accepts its stream.
    async fn of(protocol: Protocol, seen: &Arc<Seen>) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let place = Place { address: listener.local_addr()?, tls: None, window: window(1) };
        let (node, door) = (Bytes::from_static(b"node"), Arc::new(Semaphore::new(1)));
        let proxy = tokio::spawn(run(place, node, protocol, Arc::clone(seen), door));
        let mut connection = server::handshake(listener.accept().await?.0).await?;
        let (request, mut respond) = connection.accept().await.context("no stream")??;
        tokio::spawn(async move { while connection.accept().await.is_some() {} });
        let responses = respond.send_response(http::Response::new(()), false)?;
        let requests = request.into_body();
        Ok(Server {
            protocol,
            requests,
            responses,
            parts: Parts::default(),
            fields: Vec::new(),
            read: Vec::new(),
            proxy,
        })
    }

    /// Sends a response in small chunks.
    fn send(&mut self, kind: usize, resources: &[&[u8]]) -> Result<()> {
        for chunk in response(self.protocol, kind, &resources.concat()).chunks(7) {
            self.responses.send_data(Bytes::copy_from_slice(chunk), false)?;
        }
        Ok(())
    }

    /// Reads as many requests as are expected, and compares them.
    async fn expect(&mut self, expected: &[Asked]) -> Result<()> {
        while self.read.len() < expected.len() {
            let chunk = self.requests.data().await.context("the proxy ended the stream")??;
            self.requests.flow_control().release_capacity(chunk.len())?;
            self.parts.feed(&chunk, |part| {
                match part {
                    Part::Field(number, value) => self.fields.push((number, value.to_vec())),
                    Part::End => self.read.push(parsed(self.protocol, &std::mem::take(&mut self.fields))),
                }
                Ok(())
            })?;
        }
        assert_eq!(self.read.drain(..expected.len()).collect::<Vec<_>>(), expected);
        Ok(())
    }

    /// Ends the stream, and waits for the proxy's error.
    async fn end(mut self) -> Result<()> {
        self.responses.send_trailers(http::HeaderMap::new())?;
        let error = self.proxy.await?.expect_err("the stream ended");
        assert!(error.to_string().contains("ended the stream"), "{error}");
        Ok(())
    }
}

fn parsed(protocol: Protocol, fields: &[(u64, Vec<u8>)]) -> Asked {
    let mut asked = Asked::default();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    for (number, value) in fields {
        match (number, protocol) {
            (2, Protocol::Delta) | (4, Protocol::Sotw) => {
                asked.kind = TYPES.iter().position(|url| url.as_bytes() == value).expect("a known type");
            }
            (3, _) => asked.names.push(text(value)),
            (5, Protocol::Delta) => asked.had.push((text(wire::field(value, 1)), text(wire::field(value, 2)))),
            (1, Protocol::Sotw) => asked.version = text(value),
            (6, Protocol::Delta) | (5, Protocol::Sotw) => asked.nonce = text(value),
            (7, Protocol::Delta) => asked.error = text(wire::field(value, 2)),
            _ => {}
        }
    }
    asked
}

#[tokio::test]
async fn a_delta_proxy_subscribes_in_order_and_resumes() -> Result<()> {
    let (protocol, seen) = (Protocol::Delta, Arc::new(Seen::default()));
    seen.expect("delta-a");
    let mut server = Server::of(protocol, &seen).await?;
    server.expect(&[asked(CLUSTERS, &[]), asked(LISTENERS, &[])]).await?;
    let clusters = [("delta-a", true), ("delta-b", true), ("delta-c", false)].map(|(n, d)| cluster(protocol, n, d));
    server.send(CLUSTERS, &clusters.each_ref().map(|cluster| &cluster[..]))?;
    server.expect(&[acknowledged(CLUSTERS), asked(ENDPOINTS, &["delta-a", "delta-b"])]).await?;
    assert!(seen.expected().is_none());
    server.send(ENDPOINTS, &[&resource(protocol, ENDPOINTS, "delta-a", b"")])?;
    server.expect(&[acknowledged(ENDPOINTS)]).await?;
    assert!(seen.expected().is_some() && !seen.is_settled());
    server.send(LISTENERS, &[&listener(protocol, "delta-l", &["delta-80", "delta-81"])])?;
    server.expect(&[acknowledged(LISTENERS), asked(ROUTES, &["delta-80", "delta-81"])]).await?;
    let listeners = [&listener(protocol, "delta-m", &["delta-81"])[..], &removed("delta-l")];
    server.send(LISTENERS, &listeners)?;
    server.expect(&[acknowledged(LISTENERS), asked(ROUTES, &[])]).await?;
    // The second time, nothing changes.
    server.send(LISTENERS, &listeners)?;
    server.expect(&[acknowledged(LISTENERS)]).await?;
    server.send(ROUTES, &[&route_table(protocol, "delta-81", false)])?;
    server.expect(&[acknowledged(ROUTES)]).await?;
    server.send(ROUTES, &[&route_table(protocol, "delta-81", true)])?;
    server.expect(&[asked(VIRTUAL_HOSTS, &[]), acknowledged(ROUTES)]).await?;
    server.send(CLUSTERS, &[&removed("delta-a"), &cluster(protocol, "delta-d", true)])?;
    server.expect(&[acknowledged(CLUSTERS), asked(ENDPOINTS, &["delta-d"])]).await?;
    assert_eq!(seen.resources.load(Ordering::Relaxed), 10);
    server.end().await?;
    let mut server = Server::of(protocol, &seen).await?;
    let with = |kind, names: &[&str], had: &[&str]| {
        let had = had.iter().map(|name| ((*name).to_owned(), format!("v-{name}"))).collect();
        Asked { had, ..asked(kind, names) }
    };
    let resumed = [
        with(CLUSTERS, &[], &["delta-b", "delta-c", "delta-d"]),
        with(ENDPOINTS, &["delta-b", "delta-d"], &["delta-a"]),
        with(LISTENERS, &[], &["delta-m"]),
        with(ROUTES, &["delta-81"], &["delta-81"]),
        with(VIRTUAL_HOSTS, &[], &[]),
    ];
    server.expect(&resumed).await?;
    server.end().await
}

#[tokio::test]
async fn a_proxy_rejects_what_it_refuses() -> Result<()> {
    let (protocol, seen) = (Protocol::Delta, Arc::new(Seen::default()));
    seen.refuse("refused-b", "no");
    let mut server = Server::of(protocol, &seen).await?;
    server.expect(&[asked(CLUSTERS, &[]), asked(LISTENERS, &[])]).await?;
    let clusters = ["refused-a", "refused-b"].map(|name| cluster(protocol, name, true));
    server.send(CLUSTERS, &clusters.each_ref().map(|cluster| &cluster[..]))?;
    server.expect(&[acknowledged(CLUSTERS), asked(ENDPOINTS, &["refused-a", "refused-b"])]).await?;
    server.send(LISTENERS, &[])?;
    server.expect(&[acknowledged(LISTENERS)]).await?;
    let [a, b] = ["refused-a", "refused-b"].map(|name| resource(protocol, ENDPOINTS, name, b""));
    server.send(ENDPOINTS, &[&a, &b])?;
    server.expect(&[Asked { error: "no".to_owned(), ..acknowledged(ENDPOINTS) }]).await?;
    assert!(!seen.is_settled());
    server.send(ENDPOINTS, &[&a, &removed("refused-b")])?;
    server.expect(&[acknowledged(ENDPOINTS)]).await?;
    assert!(seen.is_settled());
    server.end().await
}

#[tokio::test]
async fn a_sotw_proxy_subscribes_in_order() -> Result<()> {
    let (protocol, seen) = (Protocol::Sotw, Arc::new(Seen::default()));
    let mut server = Server::of(protocol, &seen).await?;
    let version = || "version".to_owned();
    let acknowledged =
        |kind, names: &[&str]| Asked { version: version(), nonce: "nonce".to_owned(), ..asked(kind, names) };
    server.expect(&[asked(CLUSTERS, &[]), asked(LISTENERS, &[])]).await?;
    server.send(CLUSTERS, &[&cluster(protocol, "sotw-a", true), &cluster(protocol, "sotw-b", false)])?;
    server.expect(&[acknowledged(CLUSTERS, &[]), asked(ENDPOINTS, &["sotw-a"])]).await?;
    server.send(ENDPOINTS, &[&resource(protocol, ENDPOINTS, "sotw-a", b"")])?;
    server.expect(&[acknowledged(ENDPOINTS, &["sotw-a"])]).await?;
    server.send(LISTENERS, &[&listener(protocol, "sotw-l", &["sotw-80"])])?;
    server.expect(&[acknowledged(LISTENERS, &[]), asked(ROUTES, &["sotw-80"])]).await?;
    server.send(ROUTES, &[&route_table(protocol, "sotw-80", true)])?;
    server.expect(&[acknowledged(ROUTES, &["sotw-80"])]).await?;
    server.send(CLUSTERS, &[&cluster(protocol, "sotw-a", true), &cluster(protocol, "sotw-c", true)])?;
    let names = ["sotw-a", "sotw-c"];
    server.expect(&[acknowledged(CLUSTERS, &[]), Asked { version: version(), ..asked(ENDPOINTS, &names) }]).await?;
    assert_eq!((seen.is_settled(), seen.resources.load(Ordering::Relaxed)), (false, 7));
    server.end().await
}

#[tokio::test]
async fn an_invalid_response_ends_the_stream() -> Result<()> {
    let mut server = Server::of(Protocol::Delta, &Arc::new(Seen::default())).await?;
    server.responses.send_data(wire::frame(&[0x12, 0x09]), false)?;
    let error = server.proxy.await?.expect_err("the response is invalid");
    assert!(error.to_string().contains("ends after its message"), "{error}");
    Ok(())
}
