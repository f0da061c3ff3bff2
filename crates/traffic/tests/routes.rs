//! Route tables of sidecars.

mod support;

use support::*;
use traffic::routes::RouteTables;

const ALLOW_ANY: &str = "allow_any [*] AllowAny(\"PassthroughCluster\")";

fn client(namespace: &str) -> std::sync::Arc<model::audience::RouteAudience> {
    routes_of(&scope(namespace, None), &[])
}

#[test]
fn a_service_has_its_names_and_addresses() {
    let mut world = World::new(&[service("a", "x", 1), entry("b", "e", "api.com", &["http:80:HTTP"])].concat());
    let api = "api.com:80 [api.com api.com.] default";
    let local =
        "x.a.svc.cluster.local:80 [x.a.svc.cluster.local x.a.svc.cluster.local. x x.a.svc x.a 10.0.0.1] default";
    let remote = "x.a.svc.cluster.local:80 [x.a.svc.cluster.local x.a.svc.cluster.local. x.a x.a.svc 10.0.0.1] default";
    assert_eq!(world.table(&client("a"), "80"), [api, local, ALLOW_ANY]);
    assert_eq!(world.table(&client("b"), "80"), [api, remote, ALLOW_ANY]);
    assert_eq!(world.table(&client("a"), "81"), [ALLOW_ANY]);
    assert_eq!(world.table(&client("a"), "nonsense"), [""; 0]);
}

#[test]
fn only_ports_that_may_speak_http_have_virtual_hosts() {
    let ports = ["tcp:80:TCP"];
    let mut world = World::new(&entry("b", "e", "api.com", &ports));
    assert_eq!(world.table(&client("a"), "80"), [ALLOW_ANY]);
}

#[test]
fn a_virtual_service_takes_the_place_of_the_default() {
    let route = "{hosts: [x], http: [{route: [{destination: {host: y}}]}]}";
    let objects = [service("a", "x", 1), service("a", "y", 2), istio("VirtualService", "a", "vs", route)];
    let mut world = World::new(&objects.concat());
    let table = world.table(&client("b"), "80");
    assert!(table[0].ends_with("10.0.0.1] a/vs -> y.a.svc.cluster.local@a"), "{table:?}");
    assert!(table[1].ends_with("10.0.0.2] default"), "{table:?}");
    world.remove_virtual_service("a", "vs");
    assert!(world.table(&client("b"), "80")[0].ends_with("10.0.0.1] default"));
}

#[test]
fn the_exact_host_wins_then_the_longest_wildcard_then_the_oldest() {
    let route = |hosts: &str| format!("{{hosts: [{hosts}], http: [{{route: [{{destination: {{host: d.com}}}}]}}]}}");
    let objects = [
        entry("b", "one", "one.b.com", &["http:80:HTTP"]),
        entry("b", "two", "two.b.com", &["http:80:HTTP"]),
        entry("b", "three", "three.com", &["http:80:HTTP"]),
        istio("VirtualService", "b", "wide", &route("'*.com'")),
        istio("VirtualService", "b", "close", &route("'*.b.com'")),
        istio("VirtualService", "b", "exact", &route("one.b.com")),
        istio("VirtualService", "b", "later", &route("one.b.com")),
    ];
    let mut world = World::new(&objects.concat());
    let table = world.table(&client("a"), "80");
    let by = |line: &str| line.split("] ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let routes: Vec<String> = table.iter().map(|line| by(line)).collect();
    assert_eq!(routes, ["b/exact", "b/wide", "b/close", "AllowAny(\"PassthroughCluster\")"]);
    let private = route("one.b.com").replace("hosts", "exportTo: ['.'], hosts");
    world.apply(&istio("VirtualService", "a", "private", &private));
    assert_eq!(by(&world.table(&client("a"), "80")[0]), "a/private");
    assert_eq!(by(&world.table(&client("c"), "80")[0]), "b/exact");
}

#[test]
fn hosts_without_a_service_are_at_port_80_or_beside_their_service() {
    let route = "{hosts: [books.com, x.com], http: [{route: [{destination: {host: x.com}}]}]}";
    let objects = [entry("b", "x", "x.com", &["alt:9080:HTTP"]), istio("VirtualService", "b", "vs", route)];
    let mut world = World::new(&objects.concat());
    let to_x = "b/vs -> x.com@b";
    let want = [format!("books.com:80 [books.com] {to_x}"), "x.com:80 [x.com] b/vs".into(), ALLOW_ANY.into()];
    assert_eq!(world.table(&client("a"), "80"), want);
    let want =
        [format!("books.com:9080 [books.com] {to_x}"), "x.com:9080 [x.com x.com.] b/vs".into(), ALLOW_ANY.into()];
    assert_eq!(world.table(&client("a"), "9080"), want);
    world.apply(&entry("b", "z", "z.com", &["http:70:HTTP"]));
    assert_eq!(world.table(&client("a"), "70"), ["z.com:70 [z.com z.com.] default", ALLOW_ANY]);
}

#[test]
fn a_sniffed_table_has_one_service_under_any_name() {
    let mut world = World::new(&entry("b", "e", "api.com", &["x:8080:HTTP", "tcp:90:TCP"]));
    assert_eq!(world.table(&client("a"), "api.com:8080"), ["api.com:8080 [*] default"]);
    assert_eq!(world.table(&client("a"), "api.com:90"), [""; 0]);
    assert_eq!(world.table(&client("a"), "other.com:8080"), [""; 0]);
}

#[test]
fn a_proxy_table_has_all_ports() {
    let mut world = World::new(&entry("b", "e", "api.com", &["http:80:HTTP", "alt:8080:HTTP"]));
    let want = [
        "api.com:80 [api.com api.com. api.com:80 api.com.:80] default",
        "api.com:8080 [api.com:8080 api.com.:8080] default",
        ALLOW_ANY,
    ];
    assert_eq!(world.table(&client("a"), "http_proxy"), want);
}

#[test]
fn what_is_asked_of_the_client_is_in_the_key_and_nothing_else() {
    let route = "{hosts: [x.com], http: [{match: [{sourceLabels: {v: '1'}}], route: [{destination: {host: x.com}}]}]}";
    let objects = [entry("b", "x", "x.com", &["http:80:HTTP"]), istio("VirtualService", "b", "vs", route)];
    let mut world = World::new(&objects.concat());
    let labelled = |v| routes_of(&scope("a", None), &[("v", v), ("app", "q")]);
    assert_eq!(world.table(&labelled("1"), "80")[0], "x.com:80 [x.com x.com.] b/vs for {\"v\": \"1\"}");
    assert_eq!(world.table(&labelled("2"), "80")[0], "x.com:80 [x.com x.com.] default");
}

#[test]
fn unknown_destinations_pass_are_refused_or_go_through_a_proxy() {
    let policy = |text: &str| istio("Sidecar", "a", "s", &format!("{{outboundTrafficPolicy: {text}}}"));
    let mut world = World::new(&policy("{mode: REGISTRY_ONLY}"));
    let audience = routes_of(&scope("a", Some("s")), &[]);
    assert_eq!(world.table(&audience, "80"), ["block_all [*] BlockAll"]);
    let through = "{mode: ALLOW_ANY, egressProxy: {host: out.com, port: {number: 8080}}}";
    world.apply(&[policy(through), entry("b", "out", "out.com", &["http:8080:HTTP"])].concat());
    assert_eq!(world.table(&audience, "80"), ["allow_any [*] AllowAny(\"outbound|8080||out.com\")"]);
}

#[test]
fn a_change_of_routes_reaches_no_table() {
    let route = |weight: u32| {
        let rest = 100 - weight;
        format!(
            "{{hosts: [x.com], http: [{{route: [{{destination: {{host: x.com, subset: a}}, weight: {weight}}}, \
             {{destination: {{host: x.com, subset: b}}, weight: {rest}}}]}}]}}"
        )
    };
    let objects = [entry("b", "x", "x.com", &["http:80:HTTP"]), istio("VirtualService", "b", "vs", &route(90))];
    let mut world = World::new(&objects.concat());
    world.table(&client("a"), "80");
    let delta = world.apply(&istio("VirtualService", "b", "vs", &route(50)));
    assert_eq!(delta.runs_of::<RouteTables>().runs, 0);
    assert_eq!(delta.runs_of::<traffic::virtual_service::EffectiveVirtualServices>().runs, 1);
    assert_eq!(delta.runs_of::<traffic::virtual_service::MeshHosts>().runs, 0);
    let rule = "{host: x.com, subsets: [{name: a}, {name: b}]}";
    let delta = world.apply(&istio("DestinationRule", "b", "dr", rule));
    assert_eq!(delta.runs_of::<RouteTables>().runs, 1);
    assert!(world.table(&client("a"), "80")[0].ends_with("b/vs by b/x.com"));
    let rule = "{host: x.com, subsets: [{name: a}, {name: c}]}";
    let delta = world.apply(&istio("DestinationRule", "b", "dr", rule));
    assert_eq!(delta.runs_of::<RouteTables>().runs, 0);
}

#[test]
fn endpoints_reach_no_table_and_no_catalogue() {
    let mut world = World::new(&entry("b", "x", "x.com", &["http:80:HTTP"]));
    world.table(&client("a"), "80");
    world.clusters(&clusters_of(&scope("a", None), model::proxy::ProxyKind::Sidecar));
    let with = entry("b", "x", "x.com", &["http:80:HTTP"])
        .replace("resolution:", "endpoints: [{address: 10.1.1.1}], resolution:");
    let delta = world.apply(&with);
    let runs: Vec<_> = delta.runs().filter(|(_, runs)| runs.runs > 0).map(|(name, _)| name).collect();
    assert!(runs.contains(&<registry::ServiceEndpoints as flow::Relation>::NAME), "{runs:?}");
    for name in ["route tables", "cluster catalogue", "scope services", "service hosts", "service clusters"] {
        assert!(!runs.contains(&name), "{name}: {runs:?}");
    }
}

#[test]
fn delegates_stand_in_for_their_routes() {
    let root = "{hosts: [x.com], http: [{match: [{uri: {prefix: /a}}], delegate: {name: leaf, namespace: c}}, \
                {match: [{uri: {prefix: /b}}], delegate: {name: missing}}, {route: [{destination: {host: x.com}}]}]}";
    let leaf = "{http: [{match: [{uri: {prefix: /a/1}}], route: [{destination: {host: y}}]}, \
                {match: [{uri: {prefix: /z}}], route: [{destination: {host: z}}]}]}";
    let objects = [
        entry("b", "x", "x.com", &["http:80:HTTP"]),
        service("c", "y", 2),
        istio("VirtualService", "b", "vs", root),
        istio("VirtualService", "c", "leaf", leaf),
    ];
    let mut world = World::new(&objects.concat());
    assert!(world.table(&client("a"), "80")[0].ends_with("b/vs -> y.c.svc.cluster.local@c"));
    let id = id("b", "vs");
    let effective = world.engine.get::<traffic::virtual_service::EffectiveVirtualServices>(&id).unwrap();
    assert_eq!(effective.spec.http.len(), 2);
    let hidden = leaf.replace("{http", "{exportTo: ['.'], http");
    world.apply(&istio("VirtualService", "c", "leaf", &hidden));
    assert!(world.table(&client("a"), "80")[0].ends_with(" b/vs"));
}
