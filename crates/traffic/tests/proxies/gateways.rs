//! Gateways' listeners and route tables, and what a change makes run again.

use std::sync::Arc;

use model::audience::VirtualHostContent;
use model::kube::GATEWAY_NAME;
use model::proxy::Proxy;
use registry::inputs::ProxyToken;
use traffic::gateways::{GatewayListeners, MergedGateways, UnservedReason};
use traffic::routes::RouteTables;

use crate::world::*;

fn http(name: &str, hosts: &str) -> String {
    let spec = format!(
        "{{selector: {{istio: gw}}, servers: [{{port: {{number: 80, protocol: HTTP, name: h}}, hosts: [{hosts}]}}]}}"
    );
    istio("Gateway", name, &spec)
}

fn routed(name: &str, hosts: &str, gateways: &str, timeout: u32) -> String {
    let spec = format!(
        "{{hosts: [{hosts}], gateways: [{gateways}], http: [{{timeout: {timeout}s, route: [{{destination: {{host: web}}}}]}}]}}"
    );
    istio("VirtualService", name, &spec)
}

/// Virtual hosts: `NAME [DOMAINS] VIRTUAL_SERVICES`.
fn table(world: &mut World, token: ProxyToken, name: &str) -> Vec<String> {
    let audience = world.audiences(token).route.clone();
    let cell = world.engine.subscribe::<RouteTables>((audience, Arc::from(name)));
    let table = world.engine.row::<RouteTables>(cell).expect("a table for every name");
    assert!(table.ignore_port);
    let describe = |host: &Arc<model::audience::VirtualHostSpec>| {
        let content = match &host.content {
            VirtualHostContent::Routes(keys) => {
                let names = keys.iter().filter_map(|k| k.virtual_service.as_ref()).map(|id| id.name.to_string());
                names.collect::<Vec<_>>().join("+")
            }
            other => format!("{other:?}"),
        };
        let tls = if host.require_tls { " tls" } else { "" };
        format!("{} [{}] {content}{tls}", host.name, host.domains.join(" "))
    };
    table.virtual_hosts.iter().map(describe).collect()
}

#[test]
fn virtual_hosts_of_several_gateways() {
    let objects = [
        service("web", 1, &["http:80"]),
        http("a", "'*.example.com', plain.org"),
        http("b", "default/x.org, elsewhere/y.org"),
        routed("one", "b.example.com, a.example.com, plain.org", "a", 1),
        routed("two", "a.example.com", "a, b", 1),
        routed("three", "'*'", "b", 1),
    ];
    let mut world = World::new(&objects.concat());
    let token = world.connect(gateway());
    let want = [
        "a.example.com:80 [a.example.com] one+two",
        "b.example.com:80 [b.example.com plain.org] one",
        "x.org:80 [x.org] three",
    ];
    assert_eq!(table(&mut world, token, "http.80"), want);
    assert_eq!(table(&mut world, token, "http.81"), [""; 0]);
}

#[test]
fn a_changed_route_runs_no_table_again() {
    let objects = [service("web", 1, &["http:80"]), http("gw", "'*'"), routed("vs", "a.com", "gw", 1)];
    let mut world = World::new(&objects.concat());
    let token = world.connect(gateway());
    table(&mut world, token, "http.80");
    let delta = world.apply(&routed("vs", "a.com", "gw", 2));
    assert_eq!((runs::<RouteTables>(&delta), runs::<GatewayListeners>(&delta)), (0, 0));
    let delta = world.apply(&routed("vs", "b.com", "gw", 2));
    assert_eq!((runs::<RouteTables>(&delta), runs::<GatewayListeners>(&delta)), (1, 0));
    assert_eq!(table(&mut world, token, "http.80"), ["b.com:80 [b.com] vs"]);
}

#[test]
fn a_server_that_cannot_be_served_says_why() {
    let spec = "{selector: {istio: gw}, servers: [\
        {port: {number: 443, protocol: HTTPS, name: s}, hosts: [a.com], tls: {mode: SIMPLE, credentialName: c}}, \
        {port: {number: 443, protocol: TLS, name: p}, hosts: [b.com], tls: {mode: PASSTHROUGH}}, \
        {port: {number: 443, protocol: TLS, name: q}, hosts: [b.com], tls: {mode: PASSTHROUGH}}, \
        {port: {number: 443, protocol: HTTP, name: h}, hosts: ['*']}]}";
    let mut world = World::new(&istio("Gateway", "gw", spec));
    let token = world.connect(gateway());
    let listener = world.audiences(token).listener.clone();
    let set = listener.class.gateway().expect("a gateway").set.clone();
    let cell = world.engine.subscribe::<MergedGateways>(set);
    let merged = world.engine.row::<MergedGateways>(cell).expect("merged");
    let unserved: Vec<_> = merged.unserved.iter().map(|u| (u.server, u.reason)).collect();
    let want = [(2, UnservedReason::DuplicateHost), (3, UnservedReason::Conflict)];
    assert_eq!(unserved, want);
    assert_eq!(world.names(token), ["0.0.0.0_443"]);
    let vs =
        "{hosts: [b.com], gateways: [gw], tls: [{match: [{sniHosts: [b.com]}], route: [{destination: {host: web}}]}]}";
    world.apply(&istio("VirtualService", "vs", vs));
    assert_eq!(world.names(token), ["0.0.0.0_443"]);
}

#[test]
fn redirects_reach_hosts_without_routes() {
    let spec = "{selector: {istio: gw}, servers: [{port: {number: 80, protocol: HTTP, name: h}, \
        hosts: [a.com, ./b.com], tls: {httpsRedirect: true}}]}";
    let objects = [service("web", 1, &["http:80"]), istio("Gateway", "gw", spec), routed("vs", "a.com", "gw", 1)];
    let mut world = World::new(&objects.concat());
    let token = world.connect(gateway());
    assert_eq!(table(&mut world, token, "http.80"), ["a.com:80 [a.com] vs tls", "b.com:80 [b.com] NotFound tls"]);
}

/// A Gateway with listeners for `*` and for `*.wide.com`.
const WIDE: &str = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: default}\n\
    spec: {gatewayClassName: istio, listeners: [{name: all, port: 80, protocol: HTTP}, \
    {name: wide, port: 80, protocol: HTTP, hostname: '*.wide.com'}]}\n";

/// A route of the Gateway with these hosts.
fn kube_route(name: &str, hosts: impl Iterator<Item = String>) -> String {
    let hosts = hosts.map(|host| format!("\"{host}\"")).collect::<Vec<_>>().join(", ");
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: default}}\n\
         spec: {{parentRefs: [{{name: edge}}], hostnames: [{hosts}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}\n"
    )
}

/// The virtual hosts of many hosts are derived in parts. They are the same as those of few, and a new host changes one part.
#[test]
fn very_many_hosts_are_listed_in_parts() {
    let hosts = |range: std::ops::Range<usize>, domain: &'static str| range.map(move |at| format!("h{at}.{domain}"));
    let mut objects = vec![service("web", 1, &["http:80"]), WIDE.to_owned()];
    let mut expected: Vec<String> = Vec::new();
    for (number, from) in (0..600).step_by(10).enumerate() {
        let domain = if number % 2 == 0 { "wide.com" } else { "a.org" };
        objects.push(kube_route(&format!("r{number}"), hosts(from..from + 10, domain)));
        expected.extend(hosts(from..from + 10, domain));
    }
    let mut world = World::new(&objects.concat());
    let token = world.connect(Proxy { labels: [(GATEWAY_NAME.into(), "edge".into())].into(), ..gateway() });
    let names = |world: &mut World| {
        let mut names: Vec<String> = table(world, token, "http.80");
        names.iter_mut().for_each(|host| host.truncate(host.find(":80 ").expect("a port")));
        names.sort();
        names
    };
    // The hostname of a listener that another one covers has an answer without routes.
    expected.push("*.wide.com".to_owned());
    expected.sort();
    assert_eq!(names(&mut world), expected);
    let delta = world.apply(&kube_route("more", hosts(600..601, "wide.com")));
    assert_eq!(
        delta.runs().find(|(name, _)| *name == "parts of virtual hosts of http routes").map(|(_, runs)| runs.runs),
        Some(1)
    );
    expected.push("h600.wide.com".to_owned());
    expected.sort();
    assert_eq!(names(&mut world), expected);
    // A route for the hostname of the listener replaces its answer.
    world.apply(&kube_route("more", ["*.wide.com".to_owned()].into_iter()));
    expected.retain(|host| host != "h600.wide.com");
    assert_eq!(names(&mut world), expected);
}
