//! TCP connections: routing by TLS server name, tunnels, and the PROXY protocol.

use std::net::SocketAddr;

use e2e::objects::{networking, static_entry, to};
use e2e::tls::{self, Authority};
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{Backend, Envoy, Node, Preamble, Protocol, Relay, Result, free_port, http, wait_for};

async fn client(mesh: &Mesh, protocol: Protocol, ports: &[u16]) -> Result<Envoy> {
    let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
    let client = mesh.envoy(&node, protocol).await?;
    for port in ports {
        client.wait_for_listener(([127, 0, 0, 1], *port).into()).await?;
    }
    Ok(client)
}

both_protocols! {
    async fn the_server_name_chooses_where_a_connection_goes_and_nobody_opens_it(protocol) {
        let authority = Authority::new("ours")?;
        let (one, two) = (Backend::start("one", "one-0").await?, Backend::start("two", "two-0").await?);
        // Each presents a certificate for its own hostnames.
        let behind = [
            Relay::start(Preamble::Tls(authority.server(&["a.example.com", "c.example.com"])?), one.address()).await?,
            Relay::start(Preamble::Tls(authority.server(&["b.example.com", "c.example.com"])?), two.address()).await?,
        ];
        let (port, ports) = (free_port(), [free_port(), free_port()]);
        let shop = networking("ServiceEntry", "shop", &format!(
            "hosts: [a.example.com, b.example.com, c.example.com], resolution: STATIC, \
             ports: [{{ number: {port}, name: tls, protocol: TLS }}], \
             endpoints: [{{ address: 127.0.0.1, ports: {{ tls: {} }} }}]", behind[0].address().port()
        ));
        let routes = |third: usize| {
            let rule = |name: &str, number: usize| format!(
                "{{ match: [{{ port: {port}, sniHosts: [{name}.example.com] }}], {} }}",
                to(["one.test", "two.test"][number], ports[number])
            );
            networking("VirtualService", "shop", &format!(
                "hosts: [a.example.com, b.example.com, c.example.com], tls: [{}, {}, {}]",
                rule("a", 0), rule("b", 1), rule("c", third)
            ))
        };
        let mesh = Mesh::start(&[
            ("shop.yaml", &shop),
            ("one.yaml", &static_entry("one", "one.test", (ports[0], "TLS"), behind[0].address())),
            ("two.yaml", &static_entry("two", "two.test", (ports[1], "TLS"), behind[1].address())),
            ("routes.yaml", &routes(0)),
        ]).await?;
        let _client = client(&mesh, protocol, &[port]).await?;
        let answered = async |host: &str, by: &str| {
            let answer = tls::get(port, host, &authority.pem, None).await;
            answer.is_ok_and(|answer| answer.contains(&format!("x-version: {by}")))
        };
        for (host, by) in [("a.example.com", "one"), ("b.example.com", "two"), ("c.example.com", "one")] {
            assert!(answered(host, by).await, "{host}");
        }
        assert!(tls::get(port, "d.example.com", &authority.pem, None).await.is_err(), "a name that nobody has");
        mesh.config.put("routes.yaml", &routes(1))?;
        let moved = || async { answered("c.example.com", "two").await.then_some(()) };
        wait_for("the third name at the second server", PATIENCE, moved).await?;
        assert!(answered("a.example.com", "one").await);
        assert_eq!(behind[0].received()[..2], ["a.example.com", "c.example.com"]);
    }

    async fn connections_are_tunnelled_and_announced(protocol) {
        let backend = Backend::start("v1", "db-0").await?;
        let forward = Relay::start(Preamble::Connect, backend.address()).await?;
        let announced = Relay::start(Preamble::ProxyProtocol, backend.address()).await?;
        let ports = [free_port(), free_port(), free_port()];
        let [database, proxy, shy] = ports;
        let tunnel = |target: &str| networking("DestinationRule", "proxy", &format!(
            "host: proxy.test, trafficPolicy: {{ tls: {{ mode: DISABLE }}, \
             tunnel: {{ protocol: CONNECT, targetHost: {target}, targetPort: 5432 }} }}"
        ));
        let announce = |version: &str| networking("DestinationRule", "shy", &format!(
            "host: shy.test, trafficPolicy: {{ tls: {{ mode: DISABLE }}, proxyProtocol: {{ version: {version} }} }}"
        ));
        let through = format!("hosts: [db.example.com], tcp: [{{ match: [{{ port: {database} }}], {} }}]", to("proxy.test", proxy));
        let nowhere: SocketAddr = ([127, 0, 0, 1], 1).into();
        let mesh = Mesh::start(&[
            ("database.yaml", &static_entry("database", "db.example.com", (database, "TCP"), nowhere)),
            ("proxy.yaml", &static_entry("proxy", "proxy.test", (proxy, "TCP"), forward.address())),
            ("shy.yaml", &static_entry("shy", "shy.test", (shy, "TCP"), announced.address())),
            ("through.yaml", &networking("VirtualService", "through", &through)),
            ("tunnel.yaml", &tunnel("db.example.com")),
            ("announce.yaml", &announce("V2")),
        ]).await?;
        let _client = client(&mesh, protocol, &ports).await?;
        let ask = async |port: u16| http::get(([127, 0, 0, 1], port).into(), "/", &[]).await;
        for (port, relay, told) in [(database, &forward, "db.example.com:5432"), (shy, &announced, "v2 127.0.0.1")] {
            assert_eq!(ask(port).await?.header("x-version"), "v1", "{told}");
            assert_eq!(relay.received(), [told]);
        }
        mesh.config.put("tunnel.yaml", &tunnel("other.example.com"))?;
        mesh.config.put("announce.yaml", &announce("V1"))?;
        for (port, relay, told) in [(database, &forward, "other.example.com:5432"), (shy, &announced, "v1 127.0.0.1")] {
            let changed = || async {
                let answer = ask(port).await.ok()?;
                (answer.status == 200 && relay.received().last()? == told).then_some(())
            };
            wait_for(told, PATIENCE, changed).await?;
        }
    }
}
