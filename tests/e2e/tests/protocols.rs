//! Protocols through a proxy: HTTP/2, gRPC with its statuses, and connection upgrades.

use std::time::{Duration, Instant};

use e2e::{HOST, PATIENCE, Shop, both_protocols};
use test_harness::run::{Http2, Result, wait_for};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

fn to(version: &str, rest: &str) -> String {
    format!("{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}]{rest} }}")
}

/// The protocol in which the service is called, when the client uses HTTP/1.1 and HTTP/2.
async fn spoken(shop: &Shop) -> Result<(String, String)> {
    let seen = [shop.get("/", &[]).await?, Http2::connect(shop.address()).await?.get(HOST, "/", &[]).await?];
    let [one, two] =
        seen.map(|answer| answer.json().map(|seen| seen["protocol"].as_str().unwrap_or_default().to_owned()));
    Ok((one?, two?))
}

async fn wait_for_spoken(shop: &Shop, one: &str, two: &str) -> Result<()> {
    let reached = || async { spoken(shop).await.ok().filter(|seen| (&*seen.0, &*seen.1) == (one, two)) };
    wait_for(&format!("{one} and {two}"), PATIENCE, reached).await.map(drop)
}

/// Requests an upgrade. Returns the connection and the response head.
async fn upgrade(shop: &Shop, headers: &str) -> Result<(TcpStream, String)> {
    let mut stream = TcpStream::connect(shop.address()).await?;
    let request = format!(
        "GET /chat HTTP/1.1\r\nhost: {HOST}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok((stream, String::from_utf8(head)?))
}

/// Sends these bytes and reads as many.
async fn echoed(stream: &mut TcpStream, sent: &[u8]) -> Result<Vec<u8>> {
    let (mut reader, mut writer) = stream.split();
    let mut read = vec![0; sent.len()];
    let exchange = async { tokio::try_join!(writer.write_all(sent), reader.read_exact(&mut read)) };
    tokio::time::timeout(PATIENCE, exchange).await??;
    Ok(read)
}

both_protocols! {
    async fn a_websocket_goes_where_its_request_is_routed_and_stays_there(protocol) {
        let chat = to("v2", ", match: [{ headers: { x-room: { exact: two } } }]");
        let shop = Shop::start(protocol, &["v1", "v2"], &format!("[{chat}, {}]", to("v1", ""))).await?;
        let (mut one, head) = upgrade(&shop, "").await?;
        assert!(head.starts_with("HTTP/1.1 101") && head.contains("x-version: v1"), "{head}");
        assert_eq!(echoed(&mut one, b"\x81\x05hello").await?, b"\x81\x05hello");
        let (mut two, head) = upgrade(&shop, "x-room: two\r\n").await?;
        assert!(head.starts_with("HTTP/1.1 101") && head.contains("x-version: v2"), "{head}");
        let long: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
        assert!(echoed(&mut two, &long).await? == long, "data that exceeds all buffers is echoed completely");
        // A change of routes does not affect upgraded connections.
        shop.route(&format!("[{}]", to("v1", ""))).await?;
        assert_eq!(echoed(&mut two, b"still here").await?, b"still here");
        assert_eq!(shop.get("/", &[]).await?.status, 200);
    }

    async fn what_is_spoken_to_a_service_is_as_its_port_and_its_policy_say(protocol) {
        let route = format!("[{{ route: [{{ destination: {{ host: {HOST} }} }}] }}]");
        let shop = Shop::start(protocol, &["v1"], &route).await?;
        wait_for_spoken(&shop, "HTTP/1.1", "HTTP/1.1").await?;
        let pool = |http: &str| format!("{{ tls: {{ mode: DISABLE }}, connectionPool: {{ http: {{ {http} }} }} }}");
        shop.policy(&pool("h2UpgradePolicy: UPGRADE"))?;
        wait_for_spoken(&shop, "HTTP/2.0", "HTTP/2.0").await?;
        shop.policy(&pool("useClientProtocol: true"))?;
        wait_for_spoken(&shop, "HTTP/1.1", "HTTP/2.0").await?;
        let shop = Shop::speaking("HTTP2", protocol, &["v1"], &route, "{ tls: { mode: DISABLE } }").await?;
        wait_for_spoken(&shop, "HTTP/2.0", "HTTP/2.0").await?;
    }

    async fn grpc_calls_are_routed_retried_and_ended_by_their_statuses(protocol) {
        let cart = to("v2", ", match: [{ uri: { prefix: /shop.Cart/ } }], retries: { attempts: 2, retryOn: unavailable }");
        let slow = to("v1", ", match: [{ uri: { exact: /shop.Slow/Get } }], timeout: 0.3s");
        let full = to("v1", ", match: [{ headers: { x-user: { exact: eve } } }], \
            fault: { abort: { grpcStatus: RESOURCE_EXHAUSTED, percentage: { value: 100 } } }");
        let rest = to("v1", ", retries: { attempts: 0 }");
        let routes = format!("[{cart}, {slow}, {full}, {rest}]");
        let shop = Shop::speaking("GRPC", protocol, &["v1", "v2"], &routes, "{ tls: { mode: DISABLE } }").await?;
        let client = Http2::connect(shop.address()).await?;
        let [one, two] = &shop.instances[..] else { panic!("two instances") };

        let answer = client.call(HOST, "/shop.Stock/Get", &[], b"how many?").await?;
        assert_eq!((answer.header("x-version"), answer.grpc_status()), ("v1", Some(0)));
        assert_eq!(answer.grpc_message(), b"how many?");
        assert_eq!(answer.trailers.get("x-last").map(|value| value.as_bytes()), Some(&b"yes"[..]), "trailers arrive");
        assert_eq!(client.call(HOST, "/shop.Cart/Get", &[], b"").await?.header("x-version"), "v2");

        // The gRPC status is not the HTTP status, which is 200.
        two.fail_next(2);
        let before = two.requests();
        let answer = client.call(HOST, "/shop.Cart/Get", &[], b"again").await?;
        assert_eq!((answer.grpc_status(), answer.grpc_message(), two.requests()), (Some(0), &b"again"[..], before + 3));
        one.fail_next(1);
        let answer = client.call(HOST, "/shop.Stock/Get", &[], b"").await?;
        assert_eq!((answer.status.as_u16(), answer.grpc_status()), (200, Some(14)), "not retried without a rule");
        // Statuses that the rule does not list are not retried.
        let before = two.requests();
        let answer = client.call(HOST, "/shop.Cart/Get", &[("x-ask-grpc-status", "5")], b"").await?;
        assert_eq!((answer.grpc_status(), two.requests()), (Some(5), before + 1));

        let begin = Instant::now();
        let answer = client.call(HOST, "/shop.Slow/Get", &[("x-ask-delay-ms", "20000")], b"").await?;
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(290) && took < Duration::from_secs(5), "{took:?}");
        assert_eq!((answer.status.as_u16(), answer.grpc_status()), (200, Some(14)), "{answer:?}");
        assert_eq!(answer.header("grpc-message"), "upstream request timeout");
        let before = one.requests();
        let answer = client.call(HOST, "/shop.Stock/Get", &[("x-user", "eve")], b"").await?;
        assert_eq!((answer.grpc_status(), one.requests()), (Some(8), before));
    }
}
