//! Clients without an identity that try to crash or to exhaust the control plane: CVE-2022-23635, CVE-2022-24726 and
//! CVE-2022-39278 were such attacks on istiod. After each, a workload is served.

use std::time::Duration;

use bytes::Bytes;
use listeners::Limits;
use protos::istio::v1::auth::IstioCertificateRequest;
use server::ConnectionLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{CREATE, Plane, SOTW, Setup, framed, node, request};

/// Asserts that a workload gets a stream and a certificate.
async fn serves(plane: &Plane) {
    let client = plane.client(None).await.unwrap();
    let mut stream = client.subscribe(Some("shop/cart"), &node("shop", "cart")).await.unwrap();
    stream.next().await.unwrap();
    let csr = request(&rcgen::KeyPair::generate().unwrap(), &[]);
    let answer = client.create(Some("shop/cart"), &IstioCertificateRequest { csr, ..Default::default() }).await;
    assert_eq!(answer.chain().len(), 2);
}

/// Limits of a small server.
fn small(connections: usize) -> Setup {
    let short = Limits {
        connections,
        shared: None,
        first_request: Duration::from_millis(500),
        idle: Duration::from_millis(500),
    };
    Setup { connections: ConnectionLimits { grpc: short, ..ConnectionLimits::default() }, ..Setup::default() }
}

/// Waits until the server closes a connection.
async fn closed(mut socket: impl tokio::io::AsyncRead + Unpin) {
    let mut received = Vec::new();
    let reading = socket.read_to_end(&mut received);
    let _ = tokio::time::timeout(Duration::from_secs(20), reading).await.expect("the connection is closed");
}

/// Bytes that look random, the same in each run.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

/// CVE-2022-23635: a crafted message of an unauthenticated client crashed istiod.
#[tokio::test]
async fn cve_2022_23635_no_bytes_of_a_client_without_identity_crash() {
    let plane = Plane::start().await;
    for seed in 0..50 {
        let mut socket = TcpStream::connect(plane.address()).await.unwrap();
        // The start of a handshake record, to reach more than the first byte.
        let start: &[u8] = if seed % 2 == 0 { &[0x16, 3, 1] } else { &[] };
        let _ = socket.write_all(&[start, &noise(seed, 2000)].concat()).await;
        drop(socket);
    }
    // The same within TLS.
    for seed in 0..50 {
        let mut socket = plane.connect(None).await.unwrap();
        let start: &[u8] = if seed % 2 == 0 { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" } else { &[] };
        let _ = socket.write_all(&[start, &noise(seed, 2000)].concat()).await;
        let _ = socket.flush().await;
        closed(socket).await;
    }
    // And within the messages and credentials of calls.
    let client = plane.client(None).await.unwrap();
    for path in [SOTW, CREATE] {
        for token in ["", "Bearer", "Bearer ", "Bearer a.b.c", "Bearer ..", "Basic Og=="] {
            for body in [Bytes::new(), Bytes::from_static(b"\xff"), framed(&noise(7, 500)), framed(b"")] {
                let forwarded = "x".repeat(5000);
                let headers = [("authorization", token), ("x-forwarded-client-cert", &*forwarded), ("clusterid", "?")];
                let answer = client.call(path, &headers, body).await;
                assert_eq!(answer.code, 16, "{path} {token}: {answer:?}");
            }
        }
        // An authenticated client's garbage is refused as well.
        for body in [framed(&noise(9, 5000)), framed(&[0x0a; 3000]), Bytes::from_static(b"\x01\0\0\0\x01a")] {
            let answer = client.call(path, &[("authorization", "Bearer shop/cart")], body).await;
            assert!([3, 12, 13].contains(&answer.code), "{path}: {answer:?}");
        }
    }
    serves(&plane).await;
}

/// CVE-2022-24726: a message that is nested deeply exhausted the stack.
#[tokio::test]
async fn cve_2022_24726_deep_messages_do_not_exhaust_the_stack() {
    let plane = Plane::start().await;
    let client = plane.client(None).await.unwrap();
    // A list in a list, and so on, as deep as the message may be long: `metadata.fields["a"]` is a list value.
    let mut value: Vec<u8> = Vec::new();
    while value.len() < 40_000 {
        let mut list = vec![0x0a];
        list.extend(varint(value.len()));
        list.extend(&value);
        let mut outer = vec![0x32];
        outer.extend(varint(list.len()));
        outer.extend(list);
        value = outer;
    }
    let mut entry = vec![0x0a, 1, b'a', 0x12];
    entry.extend(varint(value.len()));
    entry.extend(value);
    let wrapped = |tag: u8, inner: &[u8]| [&[tag][..], &varint(inner.len()), inner].concat();
    let message = wrapped(0x22, &wrapped(0x0a, &entry));
    let answer = client.call(CREATE, &[("authorization", "Bearer shop/cart")], framed(&message)).await;
    assert_eq!(answer.code, 3, "{answer:?}");
    serves(&plane).await;
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
    out
}

/// CVE-2022-39278: oversized messages of unauthenticated clients exhausted istiod.
#[tokio::test]
async fn cve_2022_39278_oversized_requests_are_refused_before_they_are_held() {
    let plane = Plane::start().await;
    // 64 MiB are announced; the server does not wait for them.
    let mut announced = vec![0];
    announced.extend_from_slice(&(64u32 << 20).to_be_bytes());
    for (token, code) in [("", 16), ("Bearer shop/cart", 8)] {
        for path in [SOTW, CREATE] {
            let client = plane.client(None).await.unwrap();
            let mut stream =
                client.open(path, &[("authorization", token)], Bytes::from(announced.clone())).await.unwrap();
            let answer = stream.end().await;
            assert_eq!(answer.code, code, "{path}: {answer:?}");
        }
    }
    // Headers beyond the limit end the call or the connection.
    let client = plane.client(None).await.unwrap();
    let huge = format!("Bearer {}", "a".repeat(100_000));
    let refused = client.open(SOTW, &[("authorization", &huge)], Bytes::new()).await;
    assert!(match refused {
        Err(_) => true,
        Ok(mut stream) => stream.end().await.code != 0,
    });
    serves(&plane).await;
}

#[tokio::test]
async fn connections_without_an_end_of_the_handshake_are_closed_and_lock_nobody_out() {
    let plane = Plane::start_with(small(8)).await;
    let mut silent = Vec::new();
    for number in 0..40 {
        let mut socket = TcpStream::connect(plane.address()).await.unwrap();
        if number % 2 == 0 {
            // The header of a handshake record whose content never comes.
            let _ = socket.write_all(&[0x16, 3, 1, 2, 0]).await;
        }
        silent.push(socket);
    }
    serves(&plane).await;
    for socket in silent {
        closed(socket).await;
    }
    // After the handshake, too.
    let idle = plane.connect(None).await.unwrap();
    closed(idle).await;
    serves(&plane).await;
}

#[tokio::test]
async fn an_authenticated_client_that_sends_no_request_does_not_keep_its_place() {
    let plane = Plane::start_with(small(4)).await;
    let client = plane.client(None).await.unwrap();
    let mut stream = client.open(SOTW, &[("authorization", "Bearer shop/cart")], Bytes::new()).await.unwrap();
    assert_eq!(stream.end().await.code, 4);
    serves(&plane).await;
}
