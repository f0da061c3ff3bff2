//! Statuses of the Gateway API's objects: their form, and the conditions that follow from acknowledgements.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::sync::Arc;
use std::time::Duration;

use config::gateway_api::reference::ParentReference;
use config::{Diagnostic, FieldPath, Kind, ObjectKey, Observed, Severity, Timestamp};
use model::kube::RouteKind;
use model::standing::{
    CONTROLLERS, Fact, ListenerStanding, MESH_CONTROLLERS, ParentStanding, Standing, StandingBody, StatusAddress,
};
use serde_json::{Value, json};
use status::{Counts, Elapsed, Nack, Now, Planner, ProxyActivity, Settings, Status};

const TIME: &str = "2027-01-15T08:00:00Z";
const CONTROLLER: &str = "istio.io/gateway-controller";

fn key(kind: Kind) -> ObjectKey {
    let namespace = if matches!(kind, Kind::GatewayClass | Kind::XMesh) { "" } else { "default" };
    ObjectKey::new(kind, namespace, "a")
}

fn observed(kind: Kind, generation: i64, status: Option<Value>) -> Observed {
    let (diagnostics, parents) = (Vec::new(), Vec::new());
    Observed {
        key: key(kind),
        uid: "u1".into(),
        generation,
        diagnostics,
        assigned: false,
        parents,
        status,
        original: None,
    }
}

fn counts(running: usize, rejected: usize, pending: usize) -> Counts {
    let nack = (rejected > 0).then(|| Nack {
        proxy: "edge.default".into(),
        kind: "LDS".into(),
        resource: "0.0.0.0_80".into(),
        message: "no such filter".into(),
    });
    Counts { total: running + rejected + pending, running, rejected, pending, nack, unmade: Vec::new() }
}

fn gateway(own: Option<Fact>, attached: usize) -> Arc<Standing> {
    let listener = |name: &str, conditions| ListenerStanding {
        name: name.into(),
        kinds: vec![RouteKind::Http],
        attached,
        conditions,
    };
    let bad = Fact::no("Programmed", "Invalid", "Bad TLS configuration");
    let accepted = Fact::yes("Accepted", "Accepted", "Resource accepted");
    Arc::new(Standing {
        conditions: [accepted].into_iter().chain(own).collect(),
        body: StandingBody::Gateway {
            addresses: vec![StatusAddress {
                kind: "Hostname".into(),
                value: "a-istio.default.svc.cluster.local".into(),
            }],
            services: vec!["a-istio.default.svc.cluster.local:80".into()],
            listeners: vec![listener("http", Vec::new()), listener("https", vec![bad])],
            sets: None,
        },
    })
}

/// A policy whose ancestors are a Gateway and its target.
fn policy() -> Arc<Standing> {
    let ancestor = |parent, [controller, _]: [&'static str; 2]| {
        let conditions = vec![Fact::no("Accepted", "TargetNotFound", "Service default/web not found")];
        ParentStanding { parent, controller, conditions }
    };
    let gateway = ParentReference { name: "edge".into(), ..ParentReference::default() };
    let target = ParentReference { group: "".into(), kind: "Service".into(), name: "web".into(), ..gateway.clone() };
    let ancestors = vec![ancestor(gateway, CONTROLLERS), ancestor(target, MESH_CONTROLLERS)];
    Arc::new(Standing { conditions: Vec::new(), body: StandingBody::Policy { ancestors } })
}

/// A Gateway with accepted ListenerSets.
fn with_sets(count: usize) -> Arc<Standing> {
    let mut standing = (*gateway(None, 1)).clone();
    if let StandingBody::Gateway { sets, .. } = &mut standing.body {
        *sets = Some(count);
    }
    Arc::new(standing)
}

fn listener_set() -> Arc<Standing> {
    let kinds = vec![RouteKind::Http];
    let listener = ListenerStanding { name: "http".into(), kinds, attached: 1, conditions: Vec::new() };
    Arc::new(Standing {
        conditions: vec![Fact::yes("Accepted", "Accepted", "Resource accepted")],
        body: StandingBody::ListenerSet { listeners: vec![listener] },
    })
}

fn route(accepted: bool) -> Arc<Standing> {
    let accepted = match accepted {
        true => Fact::yes("Accepted", "Accepted", "Route was valid"),
        false => Fact::no("Accepted", "NotAllowedByListeners", "no"),
    };
    let parent = |name: &str, accepted: Fact| ParentStanding {
        parent: ParentReference { name: name.into(), ..ParentReference::default() },
        controller: CONTROLLER,
        conditions: vec![accepted, Fact::yes("ResolvedRefs", "ResolvedRefs", "All references resolved")],
    };
    let parents = vec![parent("a", accepted), parent("b", Fact::yes("Accepted", "Accepted", "Route was valid"))];
    Arc::new(Standing { conditions: Vec::new(), body: StandingBody::Route { parents } })
}

fn no_parents() -> Arc<Standing> {
    Arc::new(Standing { conditions: Vec::new(), body: StandingBody::Route { parents: Vec::new() } })
}

/// A planner that leads, and its time.
struct Bench {
    planner: Planner,
    now: Elapsed,
}

impl Bench {
    fn new() -> Bench {
        let mut planner = Planner::new(Settings::default());
        planner.lead(true, Elapsed::ZERO);
        Bench { planner, now: Elapsed::from_secs(100) }
    }

    fn saw(&mut self, observed: Observed, standing: Option<Arc<Standing>>) {
        let key = observed.key.clone();
        self.planner.saw(observed, 7, self.now);
        self.planner.stand(&key, standing, self.now);
    }

    /// The last status that is written for an object with these counts within 20 seconds.
    fn written(&mut self, kind: Kind, counts: &Counts) -> Option<Value> {
        let end = self.now + Duration::from_secs(20);
        let mut last = None;
        self.planner.again(&key(kind), self.now);
        while let Some(at) = self.planner.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let due = self.planner.due(self.now);
            let counted = due.into_iter().map(|ask| {
                let counts = ask.since.map_or_else(Counts::default, |_| counts.clone());
                (ask.key, counts)
            });
            let now = Now { elapsed: self.now, wall: Timestamp::parse(TIME).unwrap() };
            let intents = self.planner.plan(counted.collect::<Vec<_>>(), now);
            last = intents.last().map(|intent| intent.status.to_json()).or(last);
        }
        self.now = end;
        last
    }
}

/// `STATUS REASON — MESSAGE` of a condition.
fn condition(owner: &Value, kind: &str) -> String {
    let found = owner["conditions"].as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap();
    let text = |field: &str| found[field].as_str().unwrap();
    format!("{} {} — {}", text("status"), text("reason"), text("message"))
}

#[test]
fn a_gateway_is_programmed_when_proxies_have_acknowledged_it() {
    let mut bench = Bench::new();
    let kind = Kind::KubeGateway;
    bench.saw(observed(kind, 3, None), Some(gateway(None, 2)));
    let status = bench.written(kind, &counts(0, 0, 0)).unwrap();
    assert_eq!(condition(&status, "Programmed"), "False NoResources — no connected proxy serves it");
    let status = bench.written(kind, &counts(1, 0, 1)).unwrap();
    assert_eq!(condition(&status, "Programmed"), "Unknown Pending — 1 of 2 proxies has not answered yet");
    assert_eq!(condition(&status["listeners"][0], "Programmed"), condition(&status, "Programmed"));
    let status = bench.written(kind, &counts(2, 0, 0)).unwrap();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": if message.starts_with("Bad") { "False" } else { "True" }, "reason": reason,
            "message": message, "observedGeneration": 3, "lastTransitionTime": TIME,
        })
    };
    let programmed = "Resource programmed, assigned to service(s) a-istio.default.svc.cluster.local:80";
    let kinds = json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]);
    assert_eq!(
        status,
        json!({
            "conditions": [
                condition("Accepted", "Accepted", "Resource accepted"),
                condition("Programmed", "Programmed", programmed),
            ],
            "addresses": [{"type": "Hostname", "value": "a-istio.default.svc.cluster.local"}],
            "listeners": [
                {
                    "name": "http", "supportedKinds": kinds, "attachedRoutes": 2,
                    "conditions": [condition("Programmed", "Programmed", "No errors found")],
                },
                {
                    "name": "https", "supportedKinds": kinds, "attachedRoutes": 2,
                    "conditions": [condition("Programmed", "Invalid", "Bad TLS configuration")],
                },
            ],
        })
    );
    assert_eq!(bench.written(kind, &counts(3, 0, 0)), None, "the number of proxies is no part of it");
    bench.planner.stand(&key(kind), Some(gateway(None, 3)), bench.now);
    let status = bench.written(kind, &counts(3, 0, 0)).unwrap();
    assert_eq!(status["listeners"][1]["attachedRoutes"], 3);
}

#[test]
fn the_first_proxy_of_a_gateway_is_counted_without_waiting_for_a_sweep() {
    let mut bench = Bench::new();
    for kind in [Kind::KubeGateway, Kind::HttpRoute] {
        bench.saw(observed(kind, 1, None), Some(if kind == Kind::HttpRoute { route(true) } else { gateway(None, 0) }));
        bench.written(kind, &counts(0, 0, 0));
    }
    let connected = ProxyActivity { members: true, ..ProxyActivity::default() };
    // The first sweep is at once, the next one after a while.
    bench.planner.proxies_changed(connected, bench.now);
    bench.written(Kind::KubeGateway, &counts(0, 0, 0));
    let begin = bench.now - Duration::from_secs(15);
    bench.planner.proxies_changed(connected, begin);
    let due = |bench: &mut Bench| -> Vec<Kind> {
        let at = bench.planner.deadline().unwrap();
        assert_eq!(at, begin + Settings::default().interval);
        bench.planner.due(at).into_iter().map(|ask| ask.key.kind).collect()
    };
    assert_eq!(due(&mut bench), [Kind::KubeGateway]);
}

#[test]
fn a_gateway_counts_its_listener_sets() {
    let mut bench = Bench::new();
    let kind = Kind::KubeGateway;
    bench.saw(observed(kind, 1, None), Some(with_sets(2)));
    assert_eq!(bench.written(kind, &counts(1, 0, 0)).unwrap()["attachedListenerSets"], 2);
    bench.planner.stand(&key(kind), Some(with_sets(0)), bench.now);
    assert_eq!(bench.written(kind, &counts(1, 0, 0)).unwrap()["attachedListenerSets"], 0);
}

#[test]
fn a_listener_set_is_programmed_with_its_listeners() {
    let mut bench = Bench::new();
    let kind = Kind::ListenerSet;
    bench.saw(observed(kind, 1, None), Some(listener_set()));
    let status = bench.written(kind, &counts(1, 0, 0)).unwrap();
    assert_eq!(condition(&status, "Accepted"), "True Accepted — Resource accepted");
    assert_eq!(condition(&status, "Programmed"), "True Programmed — Resource programmed");
    assert_eq!(condition(&status["listeners"][0], "Programmed"), "True Programmed — No errors found");
    assert!(status.get("addresses").is_none() && status.get("attachedListenerSets").is_none());
    let status = bench.written(kind, &counts(0, 0, 0)).unwrap();
    assert_eq!(condition(&status, "Programmed"), "False NoResources — no connected proxy serves it");
}

#[test]
fn a_rejected_gateway_says_so() {
    let mut bench = Bench::new();
    let kind = Kind::KubeGateway;
    let pending = Fact::no("Programmed", "AddressNotAssigned", "address pending");
    bench.saw(observed(kind, 1, None), Some(gateway(Some(pending), 0)));
    let status = bench.written(kind, &counts(1, 0, 0)).unwrap();
    assert_eq!(condition(&status, "Programmed"), "False AddressNotAssigned — address pending");
    assert_eq!(condition(&status["listeners"][0], "Programmed"), "True Programmed — No errors found");
    let status = bench.written(kind, &counts(1, 1, 0)).unwrap();
    let rejected = "False Invalid — 1 of 2 proxies rejects it; edge.default: no such filter";
    assert_eq!(condition(&status, "Programmed"), rejected);
    assert_eq!(condition(&status["listeners"][0], "Programmed"), rejected);
}

#[test]
fn each_parent_of_a_route_has_conditions() {
    let mut bench = Bench::new();
    let kind = Kind::HttpRoute;
    bench.saw(observed(kind, 1, None), Some(route(false)));
    let status = bench.written(kind, &counts(1, 0, 0)).unwrap();
    assert_eq!(status.as_object().unwrap().len(), 1, "only parents: {status}");
    let [one, other] = [&status["parents"][0], &status["parents"][1]];
    assert_eq!(one["parentRef"], json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "a"}));
    assert_eq!(one["controllerName"], CONTROLLER);
    assert_eq!(condition(one, "Accepted"), "False NotAllowedByListeners — no");
    assert_eq!(condition(one, "Programmed"), "False Invalid — the route is not accepted");
    assert_eq!(condition(other, "Programmed"), "True Programmed — all proxies that need it run it");
    let status = bench.written(kind, &counts(0, 1, 0)).unwrap();
    let rejected = "False Invalid — 1 of 1 proxies rejects it; edge.default: no such filter";
    assert_eq!(condition(&status["parents"][1], "Programmed"), rejected);

    // Without parents of ours, those of the stored status are removed once.
    bench.planner.stand(&key(kind), Some(no_parents()), bench.now);
    assert_eq!(bench.written(kind, &counts(0, 0, 0)), Some(json!({"parents": []})));
    assert_eq!(bench.written(kind, &counts(0, 0, 0)), None);
}

#[test]
fn a_status_that_another_client_removed_is_written_again() {
    let mut bench = Bench::new();
    let kind = Kind::HttpRoute;
    bench.saw(observed(kind, 1, None), Some(route(true)));
    let written = bench.written(kind, &counts(1, 0, 0));
    assert!(written.is_some());
    bench.planner.saw(observed(kind, 1, Some(json!({"parents": []}))), 7, bench.now);
    assert_eq!(bench.written(kind, &counts(1, 0, 0)), written);
}

#[test]
fn objects_of_others_are_not_written() {
    let mut bench = Bench::new();
    bench.saw(observed(Kind::KubeGateway, 1, None), None);
    bench.saw(observed(Kind::HttpRoute, 1, None), Some(no_parents()));
    let theirs = json!({"parents": [{"controllerName": "example.com/gateways", "parentRef": {"name": "a"},
        "conditions": [{"type": "Accepted", "status": "True", "lastTransitionTime": TIME}]}]});
    assert_eq!(bench.written(Kind::KubeGateway, &counts(1, 0, 0)), None);
    assert_eq!(bench.written(Kind::HttpRoute, &counts(0, 0, 0)), None);
    assert_eq!(Status::from_json(Kind::HttpRoute, &theirs), None);
}

fn diagnostic(severity: Severity, field: &'static str, message: &str) -> Diagnostic {
    Diagnostic {
        file: None,
        line: 0,
        column: 0,
        object: None,
        path: FieldPath::spec().field(field),
        severity,
        code: "bad-value",
        message: message.into(),
        hint: None,
    }
}

#[test]
fn what_is_left_out_is_reported() {
    let mut bench = Bench::new();
    let warning = |field, message| vec![diagnostic(Severity::Warning, field, message)];
    let of_route = warning("rules", "unknown; spec.rules[1] is left out");
    bench.saw(Observed { diagnostics: of_route, ..observed(Kind::HttpRoute, 1, None) }, Some(route(true)));
    let status = bench.written(Kind::HttpRoute, &counts(1, 0, 0)).unwrap();
    assert!(condition(&status["parents"][0], "Accepted").starts_with("True Accepted"), "{status}");
    assert_eq!(
        condition(&status["parents"][0], "PartiallyInvalid"),
        "True UnsupportedValue — Dropped Rule(s) or fields: spec.rules: unknown; spec.rules[1] is left out"
    );
    let mut bench = Bench::new();
    let of_gateway = warning("listeners", "unknown; spec.listeners[1] is left out");
    bench.saw(Observed { diagnostics: of_gateway, ..observed(Kind::KubeGateway, 1, None) }, Some(gateway(None, 1)));
    let status = bench.written(Kind::KubeGateway, &counts(1, 0, 0)).unwrap();
    assert_eq!(
        condition(&status, "Accepted"),
        "True ListenersNotValid — spec.listeners: unknown; spec.listeners[1] is left out"
    );
}

#[test]
fn a_refused_object_is_not_accepted() {
    let mut bench = Bench::new();
    let kind = Kind::HttpRoute;
    let error = diagnostic(Severity::Error, "rules", "too many");
    bench.saw(observed(kind, 1, None), Some(route(true)));
    bench.written(kind, &counts(1, 0, 0)).unwrap();
    bench.planner.saw(Observed { diagnostics: vec![error], ..observed(kind, 2, None) }, 8, bench.now);
    let status = bench.written(kind, &counts(1, 0, 0)).unwrap();
    assert_eq!(condition(&status["parents"][0], "Accepted"), "False UnsupportedValue — spec.rules: too many");
    assert_eq!(condition(&status["parents"][0], "Programmed"), "False Invalid — generation 1 is still in effect");
}

#[test]
fn a_route_that_was_never_valid_is_refused_at_its_parents() {
    let mut bench = Bench::new();
    let kind = Kind::HttpRoute;
    let diagnostics = vec![diagnostic(Severity::Error, "rules", "too many")];
    let refused = Fact::no("Accepted", "UnsupportedValue", "validation refuses the route");
    let parent = ParentReference { name: "edge".into(), ..ParentReference::default() };
    let parents = vec![ParentStanding { parent, controller: CONTROLLER, conditions: vec![refused] }];
    let standing = Standing { conditions: Vec::new(), body: StandingBody::Route { parents } };
    bench.saw(Observed { diagnostics, ..observed(kind, 1, None) }, Some(Arc::new(standing)));
    let status = bench.written(kind, &counts(0, 0, 0)).unwrap();
    assert_eq!(condition(&status["parents"][0], "Accepted"), "False UnsupportedValue — spec.rules: too many");
    assert_eq!(condition(&status["parents"][0], "Programmed"), "False Invalid — nothing of the object is in effect");
}

#[test]
fn gateways_and_policies_that_were_never_valid_are_invalid() {
    let no = |kind: &'static str| Fact::no(kind, "Invalid", "validation refuses it");
    let seen = |kind| {
        let diagnostics = vec![diagnostic(Severity::Error, "tls", "unknown mode")];
        Observed { diagnostics, ..observed(kind, 1, None) }
    };
    let body = StandingBody::Gateway { addresses: Vec::new(), services: Vec::new(), listeners: Vec::new(), sets: None };
    let mut bench = Bench::new();
    let standing = Standing { conditions: vec![no("Accepted"), no("Programmed")], body };
    bench.saw(seen(Kind::KubeGateway), Some(Arc::new(standing)));
    let status = bench.written(Kind::KubeGateway, &counts(0, 0, 0)).unwrap();
    assert_eq!(condition(&status, "Accepted"), "False Invalid — spec.tls: unknown mode");
    assert_eq!(condition(&status, "Programmed"), "False Invalid — nothing of the object is in effect");

    let parent = ParentReference { name: "edge".into(), ..ParentReference::default() };
    let ancestors = vec![ParentStanding { parent, controller: CONTROLLER, conditions: vec![no("Accepted")] }];
    let standing = Standing { conditions: Vec::new(), body: StandingBody::Policy { ancestors } };
    let mut bench = Bench::new();
    bench.saw(seen(Kind::BackendTlsPolicy), Some(Arc::new(standing)));
    let status = bench.written(Kind::BackendTlsPolicy, &counts(0, 0, 0)).unwrap();
    assert_eq!(condition(&status["ancestors"][0], "Accepted"), "False Invalid — spec.tls: unknown mode");
}

#[test]
fn remarks_follow_the_message_of_each_parent_that_accepts() {
    let (kind, path) = (Kind::HttpRoute, || FieldPath::spec().field("rules").index(0));
    let mut bench = Bench::new();
    let warning = Diagnostic::warning(key(kind), "no-effect", path(), "it has no effect".into(), "remove it");
    bench.saw(Observed { diagnostics: vec![warning], ..observed(kind, 1, None) }, Some(route(false)));
    let conflict = Diagnostic::warning(key(kind), Diagnostic::CONFLICT, path(), "b precedes it".into(), "remove b");
    bench.planner.conflicted(&key(kind), &[conflict], bench.now);
    let status = bench.written(kind, &counts(1, 0, 0)).unwrap();
    assert_eq!(condition(&status["parents"][0], "Accepted"), "False NotAllowedByListeners — no");
    assert_eq!(
        condition(&status["parents"][1], "Accepted"),
        "True Accepted — Route was valid; spec.rules[0]: b precedes it (hint: remove b); spec.rules[0]: it has no effect (hint: remove it)"
    );
}

#[test]
fn statuses_survive_a_round_trip_and_keep_their_times() {
    let class = Arc::new(Standing {
        conditions: vec![Fact::yes("Accepted", "Accepted", "Handled by Istio controller")],
        body: StandingBody::Class { features: &["Gateway", "HTTPRoute"] },
    });
    let all = [
        (Kind::GatewayClass, class.clone()),
        (Kind::XMesh, class),
        (Kind::KubeGateway, gateway(None, 1)),
        (Kind::KubeGateway, with_sets(3)),
        (Kind::ListenerSet, listener_set()),
        (Kind::HttpRoute, route(true)),
        (Kind::BackendTlsPolicy, policy()),
    ];
    for (kind, standing) in all {
        let mut bench = Bench::new();
        bench.saw(observed(kind, 1, None), Some(standing.clone()));
        let written = bench.written(kind, &counts(1, 0, 0)).unwrap();
        let read = Status::from_json(kind, &written).unwrap();
        assert_eq!(read.to_json(), written, "{kind}");

        // Another replica finds nothing to write, and keeps the times of what another writes next.
        let mut other = Bench::new();
        let old = written.to_string().replace(TIME, "2026-01-01T00:00:00Z");
        other.saw(observed(kind, 1, Some(serde_json::from_str(&old).unwrap())), Some(standing.clone()));
        assert_eq!(other.written(kind, &counts(1, 0, 0)), None, "{kind}");
        other.saw(observed(kind, 2, None), Some(standing));
        let next = other.written(kind, &counts(1, 0, 0)).unwrap().to_string();
        assert!(!next.contains(TIME) && next.contains("2026-01-01T00:00:00Z"), "{kind}: {next}");
    }
}
