//! Services whose endpoints are hostnames: the proxy resolves them in advance or per request.

use std::net::{Ipv4Addr, SocketAddr};

use e2e::objects::{networking, static_entry};
use e2e::{Mesh, PATIENCE, both_protocols, rutter_binary};
use test_harness::run::{Backend, ConfigDir, Control, Dns, Envoy, Node, Protocol, Result, free_port, http, wait_for};

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 2);

/// A service with this host and DNS endpoints.
fn entry(host: &str, port: u16, rest: &str) -> String {
    let spec = format!("hosts: ['{host}'], ports: [{{ number: {port}, name: http, protocol: HTTP }}], {rest}");
    networking("ServiceEntry", "named", &spec)
}

/// An EnvoyFilter that makes the clusters of a service use this DNS server instead of the machine's.
fn resolver(dns: &Dns) -> String {
    let at = dns.address();
    format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{ name: resolver, namespace: test }}\n\
         spec: {{ configPatches: [{{ applyTo: CLUSTER, match: {{ context: SIDECAR_OUTBOUND, \
         cluster: {{ service: api.example.com }} }}, patch: {{ operation: MERGE, value: {{ typedDnsResolverConfig: {{ \
         name: envoy.network.dns_resolver.cares, typedConfig: {{ \
         \"@type\": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig, \
         resolvers: [{{ socketAddress: {{ address: {}, portValue: {} }} }}] }} }} }} }} }}] }}\n",
        at.ip(),
        at.port()
    )
}

/// A sidecar whose agent answers DNS; the agent is this server.
async fn client(mesh: &Mesh, protocol: Protocol, dns: &Dns) -> Result<Envoy> {
    let mut node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
    node.metadata["DNS_CAPTURE"] = "true".into();
    node.metadata["DNS_PROXY_ADDR"] = dns.address().to_string().into();
    mesh.envoy(&node, protocol).await
}

/// One backend at each of the two addresses, with the same port.
async fn backends(port: u16) -> Result<[Backend; 2]> {
    let one = Backend::start_at((ONE, port).into(), "one", "one-0").await?;
    Ok([one, Backend::start_at((TWO, port).into(), "two", "two-0").await?])
}

/// The version that answers for a host.
async fn version(address: SocketAddr, host: &str) -> Result<String> {
    Ok(http::get(address, "/", &[("host", host)]).await?.header("x-version").to_owned())
}

/// Waits until this many consecutive requests are answered by exactly these versions.
async fn wait_for_versions(address: SocketAddr, host: &str, wanted: &[&str]) -> Result<()> {
    let reached = || async {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..12 {
            seen.insert(version(address, host).await.ok()?);
        }
        seen.iter().eq(wanted).then_some(())
    };
    let result = wait_for(&format!("{wanted:?} for {host}"), PATIENCE, reached).await;
    if let Err(error) = result {
        let last = http::get(address, "/", &[("host", host)]).await?;
        return Err(format!("{error}; the answer was {}: {}", last.status, last.text()).into());
    }
    Ok(())
}

both_protocols! {
    async fn addresses_of_a_name_come_from_dns_and_change_there(protocol) {
        let (dns, port, target) = (Dns::start().await?, free_port(), free_port());
        let _backends = backends(target).await?;
        dns.set("api.example.com", &[ONE]);
        dns.set("backend.example.com", &[TWO]);
        let port_of = format!("ports: {{ http: {target} }}");
        let own = |resolution: &str, name: &str| {
            entry("api.example.com", port, &format!("resolution: {resolution}, endpoints: [{{ address: {name}, {port_of} }}]"))
        };
        let mesh = Mesh::start(&[
            ("entry.yaml", &own("DNS", "api.example.com")),
            ("resolver.yaml", &resolver(&dns)),
        ]).await?;
        let client = client(&mesh, protocol, &dns).await?;
        let address = ([127, 0, 0, 1], port).into();
        client.wait_for_listener(address).await?;
        wait_for_versions(address, "api.example.com", &["one"]).await?;
        // The mesh does not change: the proxy resolves the name again when its TTL expires.
        dns.set("api.example.com", &[TWO]);
        wait_for_versions(address, "api.example.com", &["two"]).await?;
        dns.set("api.example.com", &[ONE, TWO]);
        wait_for_versions(address, "api.example.com", &["one", "two"]).await?;
        // Now another name resolves to the endpoints, which are used one at a time.
        mesh.config.put("entry.yaml", &own("DNS_ROUND_ROBIN", "backend.example.com"))?;
        wait_for_versions(address, "api.example.com", &["two"]).await?;
        assert!(dns.asked("backend.example.com") > 0);
    }

    async fn names_that_nobody_knows_are_asked_from_the_agent(protocol) {
        let (dns, port) = (Dns::start().await?, free_port());
        let backends = backends(port).await?;
        let known = Backend::start("known", "known-0").await?;
        dns.set("a.example.com", &[ONE]);
        dns.set("b.example.com", &[TWO]);
        let config = ConfigDir::new()?;
        config.put("known.yaml", &static_entry("known", "known.test", (port, "HTTP"), known.address()))?;
        let settings = tempfile::NamedTempFile::new()?;
        std::fs::write(settings.path(), "outboundTrafficPolicy: { mode: ALLOW_ANY_DYNAMIC_DNS }\n")?;
        let flags = ["--mesh-config", &settings.path().display().to_string()];
        let control = Control::start(rutter_binary(), config.path(), &flags).await?;
        let mesh = Mesh { config, control };
        let client = client(&mesh, protocol, &dns).await?;
        let address = ([127, 0, 0, 1], port).into();
        client.wait_for_listener(address).await?;
        // As clients write a port that is not the default one.
        let host = |name: &str| format!("{name}:{port}");
        assert_eq!(version(address, &host("known.test")).await?, "known");
        assert_eq!(version(address, &host("a.example.com")).await?, "one");
        assert_eq!(version(address, &host("b.example.com")).await?, "two");
        assert_eq!((dns.asked("known.test"), dns.asked("c.example.com")), (0, 0));
        let answer = http::get(address, "/", &[("host", &host("c.example.com"))]).await?;
        assert_eq!((answer.status.as_u16(), answer.header("x-version")), (503, ""), "the name does not exist");
        assert!(dns.asked("c.example.com") > 0);
        assert_eq!(backends.each_ref().map(Backend::requests), [1, 1]);
    }
}
