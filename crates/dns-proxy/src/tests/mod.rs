//! Tests with real sockets on loopback.

pub(crate) mod values;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_core::exchange::Names;
use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Rtype};
use domain::rdata::{A, Aaaa, AllRecordData};
use prometheus::Registry;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;

use crate::forward::{read_message, write_message};
use crate::message::Transport::{self, Tcp, Udp};
use crate::tests::values::{names, query, settings};
use crate::{MAX_FORWARDED, Running, Settings, StartError, start};

type Answer = Message<Vec<u8>>;

struct Trial {
    running: Running,
    names: watch::Sender<Names>,
    registry: Registry,
    stop: watch::Sender<bool>,
}

impl Trial {
    async fn new(servers: &[SocketAddr], change: impl FnOnce(&mut Settings)) -> Trial {
        let mut settings = settings();
        settings.addresses = vec!["127.0.0.1:0".parse().unwrap()];
        settings.resolv.servers = servers.to_vec();
        change(&mut settings);
        let table = names([
            ("cart.shop.svc.cluster.local", "10.0.0.1,10.0.0.2,10.0.0.3"),
            ("mail.post.svc.cluster.local", "10.0.1.1,fd00::1"),
            ("*.example.com", "10.0.2.1"),
        ]);
        let (names, receiver) = watch::channel(Some(Arc::new(table)));
        let (stop, stopped) = watch::channel(false);
        let registry = Registry::new();
        let running = start(settings, receiver, &registry, stopped).await.unwrap();
        let trial = Trial { running, names, registry, stop };
        // The first query waits until the table is there.
        while trial.ask("cart.shop", Rtype::A).await.header().rcode() != Rcode::NOERROR {}
        trial
    }

    async fn ask(&self, name: &str, rtype: Rtype) -> Answer {
        self.send(&query(name, rtype, None), Udp).await
    }

    async fn send(&self, message: &[u8], transport: Transport) -> Answer {
        send(if transport == Udp { self.running.udp[0] } else { self.running.tcp[0] }, message, transport).await
    }

    fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let metric = &families.iter().find(|family| family.name() == name).unwrap().get_metric()[0];
        if name.ends_with("seconds") {
            metric.get_histogram().get_sample_count() as f64
        } else {
            metric.get_counter().get_value()
        }
    }
}

async fn send(address: SocketAddr, message: &[u8], transport: Transport) -> Answer {
    let exchange = async {
        if transport == Tcp {
            let mut stream = TcpStream::connect(address).await.unwrap();
            write_message(&mut stream, message).await.unwrap();
            return read_message(&mut stream).await.unwrap();
        }
        let socket = client(address).await;
        socket.send(message).await.unwrap();
        receive(&socket).await
    };
    let answer = tokio::time::timeout(Duration::from_secs(30), exchange).await.expect("no answer");
    let answer = Message::from_octets(answer).unwrap();
    assert!(answer.is_answer(Message::from_slice(message).unwrap()));
    answer
}

async fn client(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).await.unwrap();
    socket.connect(address).await.unwrap();
    socket
}

async fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_535];
    let size = socket.recv(&mut buffer).await.unwrap();
    buffer[..size].to_vec()
}

/// Shows the records of an answer.
fn shown(answer: &Answer) -> Vec<String> {
    let records = answer.answer().unwrap().limit_to::<AllRecordData<_, _>>();
    records
        .map(|record| record.unwrap())
        .map(|record| format!("{} {} {}", record.owner(), record.ttl().as_secs(), record.data()))
        .collect()
}

/// A name server that answers with what `answers` returns.
async fn upstream(answers: impl Fn(&[u8], Transport) -> Vec<Vec<u8>> + Send + Sync + 'static) -> SocketAddr {
    let (socket, listener) = loop {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        if let Ok(listener) = TcpListener::bind(socket.local_addr().unwrap()).await {
            break (socket, listener);
        }
    };
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_535];
        loop {
            tokio::select! {
                received = socket.recv_from(&mut buffer) => {
                    let (size, client) = received.unwrap();
                    for answer in answers(&buffer[..size], Udp) {
                        socket.send_to(&answer, client).await.unwrap();
                    }
                }
                accepted = listener.accept() => {
                    let (mut stream, _) = accepted.unwrap();
                    let message = read_message(&mut stream).await.unwrap();
                    for answer in answers(&message, Tcp) {
                        write_message(&mut stream, &answer).await.unwrap();
                    }
                }
            }
        }
    });
    address
}

/// An answer with as many addresses.
fn respond(query: &[u8], rcode: Rcode, addresses: u16, truncated: bool) -> Vec<u8> {
    let query = Message::from_slice(query).unwrap();
    let mut answer = MessageBuilder::new_vec().start_answer(query, rcode).unwrap();
    answer.header_mut().set_tc(truncated);
    for i in 0..addresses {
        let [high, low] = i.to_be_bytes();
        answer.push((query.first_question().unwrap().qname(), 60, A::from_octets(192, 0, high, low))).unwrap();
    }
    answer.finish()
}

/// A port on which nothing listens.
async fn closed() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn the_table_answers_over_both_transports() {
    let trial = Trial::new(&[], |_| {}).await;
    let expected: &[(&str, Rtype, &[&str])] = &[
        ("CART.Shop.svc.cluster.local.", Rtype::AAAA, &[]),
        ("mail.post", Rtype::A, &["mail.post 30 10.0.1.1"]),
        ("MAIL.post.svc", Rtype::AAAA, &["MAIL.post.svc 30 fd00::1"]),
        ("www.example.com", Rtype::A, &["www.example.com 30 10.0.2.1"]),
        (
            "mail.post.shop.svc.cluster.local",
            Rtype::A,
            &["mail.post.shop.svc.cluster.local 30 mail.post.", "mail.post 30 10.0.1.1"],
        ),
        ("www.example.com.shop.svc.cluster.local", Rtype::AAAA, &[]),
    ];
    for (name, rtype, records) in expected {
        for transport in [Udp, Tcp] {
            let answer = trial.send(&query(name, *rtype, Some(1232)), transport).await;
            assert_eq!((answer.header().rcode(), answer.header().aa()), (Rcode::NOERROR, true), "{name} {rtype}");
            assert_eq!(shown(&answer), *records, "{name} {rtype}");
        }
    }
    let mut firsts: Vec<String> = Vec::new();
    for _ in 0..3 {
        let answer = trial.ask("cart", Rtype::A).await;
        assert_eq!(shown(&answer).len(), 3);
        firsts.extend(shown(&answer).into_iter().take(1));
    }
    firsts.sort();
    assert_eq!(firsts, ["cart 30 10.0.0.1", "cart 30 10.0.0.2", "cart 30 10.0.0.3"]);
    assert_eq!(trial.metric("dns_upstream_requests_total"), 0.0);
}

#[tokio::test]
async fn a_new_table_replaces_the_old_one() {
    let trial = Trial::new(&[], |_| {}).await;
    trial.names.send_replace(Some(Arc::new(names([("cart.shop.svc.cluster.local", "10.9.9.9")]))));
    while shown(&trial.ask("cart", Rtype::A).await) != ["cart 30 10.9.9.9"] {}
    // Other names are forwarded, but there is no name server.
    assert_eq!(trial.ask("mail.post", Rtype::A).await.header().rcode(), Rcode::SERVFAIL);
    drop(trial.names.subscribe());
    assert_eq!(trial.metric("dns_upstream_failures_total"), 1.0);
}

#[tokio::test]
async fn other_queries_are_forwarded_unchanged() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let record = seen.clone();
    let server = upstream(move |query, transport| {
        record.lock().unwrap().push((query.to_vec(), transport));
        let good = respond(query, Rcode::NOERROR, 2, false);
        let (mut other_id, mut other_question) = (good.clone(), good.clone());
        other_id[0] ^= 1;
        other_question[13] ^= 1;
        // Forged and late answers are ignored; over TCP there are none.
        if transport == Udp { vec![vec![1, 2], other_id, other_question, good] } else { vec![good] }
    })
    .await;
    let trial = Trial::new(&[server], |_| {}).await;
    for (name, rtype) in [("elsewhere.org", Rtype::A), ("elsewhere.org", Rtype::HTTPS), ("cart", Rtype::MX)] {
        for transport in [Udp, Tcp] {
            let message = query(name, rtype, Some(1400));
            let answer = trial.send(&message, transport).await;
            assert_eq!(shown(&answer), [format!("{name} 60 192.0.0.0"), format!("{name} 60 192.0.0.1")]);
            let (forwarded, over) = seen.lock().unwrap().pop().unwrap();
            assert_eq!((&forwarded[2..], over), (&message[2..], transport));
        }
    }
    for name in ["dns_upstream_requests_total", "dns_upstream_request_duration_seconds"] {
        assert_eq!(trial.metric(name), 6.0);
    }
}

#[tokio::test]
async fn answers_are_cut_to_the_size_of_the_client() {
    let server = upstream(|query, transport| vec![respond(query, Rcode::NOERROR, 100, transport == Udp)]).await;
    let trial = Trial::new(&[server], |_| {}).await;
    for (edns, records, truncated) in [(None, 0, true), (Some(1232), 0, true), (Some(4096), 100, false)] {
        let answer = trial.send(&query("elsewhere.org", Rtype::A, edns), Udp).await;
        assert_eq!((shown(&answer).len(), answer.header().tc()), (records, truncated), "{edns:?}");
        assert_eq!(shown(&trial.send(&query("elsewhere.org", Rtype::A, edns), Tcp).await).len(), 100);
    }
    let only_tcp = upstream(|query, transport| match transport {
        Udp => vec![],
        Tcp => vec![respond(query, Rcode::NOERROR, 1, false)],
    });
    let trial = Trial::new(&[only_tcp.await], |settings| settings.resolv.tcp_only = true).await;
    assert_eq!(shown(&trial.ask("elsewhere.org", Rtype::A).await).len(), 1);
}

#[tokio::test]
async fn the_next_server_answers_for_a_failing_one() {
    let failing = upstream(|query, _| vec![respond(query, Rcode::SERVFAIL, 0, false)]).await;
    let unknown = upstream(|query, _| vec![respond(query, Rcode::NXDOMAIN, 0, false)]).await;
    let silent = upstream(|_, _| vec![]).await;
    for (servers, parallel, expected) in [
        (vec![closed().await, failing, unknown], false, Rcode::NXDOMAIN),
        (vec![failing, closed().await], false, Rcode::SERVFAIL),
        (vec![closed().await], false, Rcode::SERVFAIL),
        (vec![silent, failing, unknown], true, Rcode::NXDOMAIN),
    ] {
        let trial = Trial::new(&servers, |settings| settings.parallel = parallel).await;
        for _ in 0..4 {
            assert_eq!(trial.ask("elsewhere.org", Rtype::A).await.header().rcode(), expected, "{servers:?}");
        }
    }
    let trial = Trial::new(&[silent, silent], |settings| settings.timeout = Duration::from_millis(20)).await;
    assert_eq!(trial.ask("elsewhere.org", Rtype::A).await.header().rcode(), Rcode::SERVFAIL);
}

#[tokio::test]
async fn loops_end_at_once() {
    let back = Arc::new(std::sync::OnceLock::<SocketAddr>::new());
    let rounds = Arc::new(AtomicUsize::new(0));
    // A name server that asks the proxy.
    let (socket, target, count) = (UdpSocket::bind("127.0.0.1:0").await.unwrap(), back.clone(), rounds.clone());
    let server = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 512];
        loop {
            let (size, proxy) = socket.recv_from(&mut buffer).await.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let answer = send(*target.get().unwrap(), &buffer[..size], Udp).await;
            socket.send_to(answer.as_slice(), proxy).await.unwrap();
        }
    });
    let trial = Trial::new(&[server], |_| {}).await;
    back.set(trial.running.udp[0]).unwrap();
    assert_eq!(trial.ask("elsewhere.org", Rtype::A).await.header().rcode(), Rcode::SERVFAIL);
    assert_eq!(rounds.load(Ordering::Relaxed), 1);
    // The proxy's own address is no name server.
    let free = closed().await;
    let own = Trial::new(&[free], |settings| {
        settings.addresses = vec![SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), free.port())]
    })
    .await;
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free.port());
    assert_eq!(send(address, &query("elsewhere.org", Rtype::A, None), Udp).await.header().rcode(), Rcode::SERVFAIL);
    assert_eq!(own.metric("dns_upstream_request_duration_seconds"), 1.0);
    assert_eq!(own.metric("dns_upstream_requests_total"), 1.0, "the query did not come back");
}

#[tokio::test]
async fn a_flood_is_refused_and_the_table_still_answers() {
    let silent = upstream(|_, _| vec![]).await;
    let trial = Trial::new(&[silent], |_| {}).await;
    let socket = client(trial.running.udp[0]).await;
    let mut refused = 0;
    for i in 0..MAX_FORWARDED + 50 {
        socket.send(&query(&format!("name{i}.org"), Rtype::A, None)).await.unwrap();
        if i >= MAX_FORWARDED {
            let answer = Message::from_octets(receive(&socket).await).unwrap();
            assert_eq!(answer.header().rcode(), Rcode::SERVFAIL);
            refused += 1;
        } else if i % 50 == 0 {
            // Lets the proxy keep up, so that no datagram is lost.
            trial.ask("cart", Rtype::A).await;
        }
    }
    assert_eq!((refused, shown(&trial.ask("cart", Rtype::AAAA).await).len()), (50, 0));
    assert_eq!(trial.ask("cart", Rtype::A).await.answer().unwrap().limit_to::<A>().count(), 3);
    assert_eq!(trial.ask("mail.post", Rtype::AAAA).await.answer().unwrap().limit_to::<Aaaa>().count(), 1);
}

#[tokio::test]
async fn queries_before_the_first_table_fail_or_are_forwarded() {
    let server = upstream(|query, _| vec![respond(query, Rcode::NOERROR, 1, false)]).await;
    for (forward, expected) in [(false, Rcode::SERVFAIL), (true, Rcode::NOERROR)] {
        let mut settings = settings();
        settings.addresses = vec!["127.0.0.1:0".parse().unwrap()];
        settings.resolv.servers = vec![server];
        settings.forward_before_names = forward;
        let (_names, receiver) = watch::channel(None);
        let (_stop, stopped) = watch::channel(false);
        let running = start(settings, receiver, &Registry::new(), stopped).await.unwrap();
        let answer = send(running.udp[0], &query("cart", Rtype::A, None), Udp).await;
        assert_eq!(answer.header().rcode(), expected);
    }
}

#[tokio::test]
async fn connections_carry_many_queries_and_end_on_nonsense() {
    let trial = Trial::new(&[], |_| {}).await;
    let mut stream = TcpStream::connect(trial.running.tcp[0]).await.unwrap();
    for _ in 0..3 {
        write_message(&mut stream, &query("cart", Rtype::A, None)).await.unwrap();
    }
    for _ in 0..3 {
        read_message(&mut stream).await.unwrap();
    }
    stream.write_all(&[0, 3, 1, 2, 3]).await.unwrap();
    assert!(read_message(&mut stream).await.is_err(), "the connection is closed");
}

#[tokio::test]
async fn the_proxy_stops_and_frees_its_ports() {
    let trial = Trial::new(&[], |_| {}).await;
    let address = trial.running.udp[0];
    let mut settings = settings();
    settings.addresses = vec![address];
    let (_names, receiver) = watch::channel(None);
    let (_stop, stopped) = watch::channel(false);
    let again = start(settings.clone(), receiver.clone(), &Registry::new(), stopped.clone()).await;
    assert!(matches!(again, Err(StartError::Listen { address: used, .. }) if used == address));
    trial.stop.send_replace(true);
    trial.running.stopped().await;
    start(settings, receiver, &Registry::new(), stopped).await.unwrap();
}
