//! Captured traffic: a Sidecar that restricts the mesh, names that are resolved per request, and the instances of a
//! headless service, each at its own address.

use std::net::IpAddr;

use e2e::objects::{networking, service};
use e2e::{Namespace, PATIENCE, Pod};
use test_harness::run::{Backend, Dns, Protocol, Result, free_port, wait_for};

/// Addresses that exist only in the configuration.
const NEAR: &str = "198.19.0.10";
const FAR: &str = "198.19.0.12";

/// A Sidecar with the hosts that the application may call, and the policy for unknown hosts.
fn scope(hosts: &str, mode: &str) -> String {
    networking(
        "Sidecar",
        "default",
        &format!("egress: [{{ hosts: {hosts} }}], outboundTrafficPolicy: {{ mode: {mode} }}"),
    )
}

/// Waits until a page is answered like this.
async fn wait_for_page(pod: &Pod, url: &str, wanted: &str) -> Result<()> {
    let reached = || async { pod.fetch(url).ok().filter(|answer| answer == wanted).map(drop) };
    wait_for(&format!("{wanted:?} from {url}"), PATIENCE, reached).await
}

async fn scopes(pod: &Pod, near: &Backend, far: &Backend) -> Result<()> {
    let [near_page, far_page] = [NEAR, FAR].map(|address| format!("http://{address}/"));
    // At an address without a service: the instance's own address.
    let unknown = format!("http://{}/", far.address());
    for page in [&near_page, &far_page] {
        assert!(pod.fetch(page)?.starts_with("200 "), "without a Sidecar, all services are reachable");
    }
    let only_near = "['./near.test.svc.cluster.local']";
    let put = |hosts: &str, mode: &str| pod.mesh.config.put("scope.yaml", &scope(hosts, mode));
    put(only_near, "REGISTRY_ONLY")?;
    wait_for_page(pod, &far_page, "502 None envoy").await?;
    wait_for_page(pod, &unknown, "nothing").await?;
    assert_eq!(pod.fetch(&near_page)?, "200 near envoy");
    let before = far.requests();
    put(only_near, "ALLOW_ANY")?;
    // Passed through as TCP: no proxy adds a header.
    wait_for_page(pod, &unknown, "200 far None").await?;
    assert_eq!(far.requests(), before + 1, "no request arrived while it was excluded");
    assert!(pod.envoy.stat("^cluster.PassthroughCluster.*upstream_cx_total$").await? > 0);
    put("['test/*']", "REGISTRY_ONLY")?;
    wait_for_page(pod, &far_page, "200 far envoy").await?;
    assert_eq!((pod.fetch(&near_page)?.as_str(), pod.fetch(&unknown)?.as_str()), ("200 near envoy", "nothing"));
    assert!(near.requests() >= 3);
    Ok(())
}

/// Instances of a headless service: a connection to an address reaches exactly that instance, as a replica set needs.
async fn databases(pod: &Pod, port: u16, databases: &[Backend; 2]) -> Result<()> {
    let [one, two] = databases.each_ref().map(|database| format!("http://{}/", database.address()));
    for _ in 0..3 {
        assert_eq!(pod.fetch(&one)?, "200 db-0 None");
        assert_eq!(pod.fetch(&two)?, "200 db-1 None");
    }
    let cluster = format!("^cluster.outbound.{port}..databases.*upstream_cx_total$");
    assert_eq!(pod.envoy.stat(&cluster).await?, 6, "as the service, not as an unknown destination");
    // One instance is removed: its address becomes unknown and is blocked. The other one stays.
    let left = service("databases", "None", ("tcp", port, port), &[databases[0].address().ip()]);
    pod.mesh.config.put("databases.yaml", &left)?;
    wait_for_page(pod, &two, "nothing").await?;
    assert_eq!(pod.fetch(&one)?, "200 db-0 None");
    Ok(())
}

/// A service with a wildcard host: the host of the request decides, whatever address the application dials.
async fn names(pod: &Pod, dns: &Dns, named: &[Backend; 2]) -> Result<()> {
    let port = named[0].address().port();
    let [one, two] = named.each_ref().map(|backend| backend.address().ip());
    let (IpAddr::V4(one), IpAddr::V4(two)) = (one, two) else {
        return Err("the addresses are of IPv4".into());
    };
    dns.set("a.example.com", &[one]);
    dns.set("b.example.com", &[two]);
    dns.set("example.org", &[two]);
    let dialled = format!("http://{one}:{port}/");
    let host = |name: &str| format!("{name}:{port}");
    let page = |name: &str| format!("http://{}/", host(name));
    assert_eq!(pod.fetch(&page("a.example.com"))?, "200 one envoy");
    assert_eq!(pod.fetch(&page("b.example.com"))?, "200 two envoy");
    assert_eq!(pod.fetch_as(&dialled, &host("b.example.com"))?, "200 two envoy");
    assert_eq!(pod.fetch_as(&dialled, &host("c.example.com"))?, "503 None envoy", "the name does not exist");
    assert!(dns.asked("c.example.com") > 0);
    // Another name does not match the service and is blocked.
    assert_eq!(pod.fetch_as(&dialled, &host("example.org"))?, "502 None envoy");
    assert_eq!(dns.asked("example.org"), 0);
    assert_eq!(named.each_ref().map(Backend::requests), [1, 2]);
    Ok(())
}

async fn run(protocol: Protocol) -> Result<()> {
    let Some(namespace) = Namespace::or_skip("scopes, names and headless services were not tested")? else {
        return Ok(());
    };
    let near = Backend::start_on(namespace.host.into(), "near", "near-0").await?;
    let far = Backend::start_on(namespace.host.into(), "far", "far-0").await?;
    // All instances use one port, each at its own address.
    let (port, named_port) = (free_port(), free_port());
    let [one, two] = [namespace.more_host(0)?, namespace.more_host(1)?];
    let db = [
        Backend::start_at((one, port).into(), "db-0", "db-0").await?,
        Backend::start_at((two, port).into(), "db-1", "db-1").await?,
    ];
    let named = [
        Backend::start_at((one, named_port).into(), "one", "named-0").await?,
        Backend::start_at((two, named_port).into(), "two", "named-1").await?,
    ];
    // Resolvers use port 53; the address belongs to the namespace.
    let dns = Dns::start_at((namespace.host, 53).into()).await?;
    namespace.ask_for_names(namespace.host)?;
    let wildcard = format!(
        "hosts: ['*.example.com'], resolution: DYNAMIC_DNS, ports: [{{ number: {named_port}, name: http, protocol: HTTP }}]"
    );
    let at = |address: &str, name: &str, backend: &Backend| {
        service(name, address, ("http", 80, backend.address().port()), &[backend.address().ip()])
    };
    let ips = db.each_ref().map(|database| database.address().ip());
    let pod = Pod::start(
        namespace,
        protocol,
        &[
            ("named.yaml", &networking("ServiceEntry", "named", &wildcard)),
            ("near.yaml", &at(NEAR, "near", &near)),
            ("far.yaml", &at(FAR, "far", &far)),
            ("databases.yaml", &service("databases", "None", ("tcp", port, port), &ips)),
        ],
    )
    .await?;
    scopes(&pod, &near, &far).await?;
    names(&pod, &dns, &named).await?;
    databases(&pod, port, &db).await
}

/// Sequentially, because both use the machine's network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scopes_hold_names_are_looked_up_and_databases_are_reached_one_by_one() {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        run(protocol).await.unwrap_or_else(|error| panic!("{protocol:?}: {error}"));
    }
}
