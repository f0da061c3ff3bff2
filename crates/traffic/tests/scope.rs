//! The services that are visible to clients.

mod support;

use support::*;

#[test]
fn everything_that_is_exported_is_seen_once() {
    let private =
        entry("b", "private", "private.com", &["http:80:HTTP"]).replace("spec: {", "spec: {exportTo: ['.'], ");
    let mut world = World::new(
        &[
            service("a", "x", 1),
            entry("b", "same", "same.com", &["http:80:HTTP"]),
            entry("a", "same", "same.com", &["http:80:HTTP"]),
            private,
        ]
        .concat(),
    );
    let x = "x.a.svc.cluster.local@a";
    assert_eq!(world.services(&scope("a", None)), ["same.com@a", x]);
    assert_eq!(world.services(&scope("b", None)), ["private.com@b", "same.com@b", x]);
    assert_eq!(world.services(&scope("c", None)), ["same.com@a", x]);
}

#[test]
fn kubernetes_goes_before_other_definitions_but_not_before_the_clients_own() {
    let squatter = entry("b", "squat", "x.a.svc.cluster.local", &["http:80:HTTP"]);
    let mut world = World::new(&[service("a", "x", 1), squatter].concat());
    assert_eq!(world.services(&scope("c", None)), ["x.a.svc.cluster.local@a"]);
    assert_eq!(world.services(&scope("b", None)), ["x.a.svc.cluster.local@b"]);
}

#[test]
fn a_sidecar_lets_in_what_it_names() {
    let objects = [
        service("a", "own", 1),
        service("b", "wanted", 2),
        service("b", "unwanted", 3),
        entry("c", "ext", "api.ext.com", &["http:80:HTTP", "tls:443:TLS"]),
        entry("c", "excluded", "no.ext.com", &["http:80:HTTP"]),
        istio(
            "Sidecar",
            "a",
            "one",
            "{egress: [{hosts: ['./*', 'b/wanted.b.svc.cluster.local', '*/*.ext.com', '~*/no.ext.com']}]}",
        ),
        istio("Sidecar", "a", "none", "{egress: [{hosts: ['~/*']}]}"),
    ];
    let mut world = World::new(&objects.concat());
    let want = ["api.ext.com@c", "own.a.svc.cluster.local@a", "wanted.b.svc.cluster.local@b"];
    assert_eq!(world.services(&scope("a", Some("one"))), want);
    assert_eq!(world.services(&scope("a", Some("none"))), [""; 0]);
}

#[test]
fn an_egress_listener_with_a_port_has_that_port_only() {
    let objects = [
        entry("b", "both", "both.com", &["http:80:HTTP", "alt:8080:HTTP"]),
        entry("b", "other", "other.com", &["http:80:HTTP"]),
        istio(
            "Sidecar",
            "a",
            "ports",
            "{egress: [{port: {number: 8080, protocol: HTTP, name: p}, hosts: ['*/*']}, {hosts: ['b/other.com']}]}",
        ),
    ];
    let mut world = World::new(&objects.concat());
    let scope = scope("a", Some("ports"));
    assert_eq!(world.services(&scope), ["both.com@b [8080]", "other.com@b"]);
    let visible = world.visible(&scope);
    assert_eq!(visible.listener(8080, "8080").unwrap().services.len(), 1);
    assert!(visible.listener(80, "80").unwrap().port.is_none());
}

#[test]
fn routes_bring_their_destinations_with_the_ports_in_use() {
    let route = "{hosts: [front.com], http: [{route: [{destination: {host: back.com, port: {number: 8080}}}]}]}";
    let objects = [
        entry("b", "front", "front.com", &["http:80:HTTP"]),
        entry("b", "back", "back.com", &["http:80:HTTP", "alt:8080:HTTP"]),
        istio("VirtualService", "b", "route", route),
        istio("Sidecar", "a", "one", "{egress: [{hosts: ['b/front.com']}]}"),
        istio("Sidecar", "a", "other", "{egress: [{hosts: ['c/front.com']}]}"),
    ];
    let mut world = World::new(&objects.concat());
    assert_eq!(world.services(&scope("a", Some("one"))), ["back.com@b [8080]", "front.com@b"]);
    assert_eq!(world.services(&scope("a", Some("other"))), [""; 0]);
}

#[test]
fn a_service_elsewhere_is_no_concern_of_a_narrow_scope() {
    let objects = [
        service("a", "own", 1),
        istio("Sidecar", "a", "own", "{egress: [{hosts: ['./*']}]}"),
        istio("Sidecar", "a", "exact", "{egress: [{hosts: ['a/own.a.svc.cluster.local', '*/api.com']}]}"),
    ];
    let mut world = World::new(&objects.concat());
    world.visible(&scope("a", Some("own")));
    world.visible(&scope("a", Some("exact")));
    let delta = world.apply(&service("b", "new", 2));
    assert_eq!(delta.runs_of::<traffic::scope::ScopeServices>().runs, 0);
    let delta = world.apply(&service("a", "new", 3));
    assert_eq!(delta.runs_of::<traffic::scope::ScopeServices>().runs, 1);
    let delta = world.apply(&entry("c", "api", "api.com", &["http:80:HTTP"]));
    assert_eq!(delta.runs_of::<traffic::scope::ScopeServices>().runs, 1);
    assert_eq!(world.services(&scope("a", Some("exact"))), ["api.com@c", "own.a.svc.cluster.local@a"]);
}
