//! Clusters of an audience, and what their names mean.

mod support;

use model::proxy::ProxyKind;
use support::*;
use traffic::clusters::ClusterCatalogue;

const PLAIN: [&str; 3] = ["BlackHoleCluster", "InboundPassthroughCluster", "PassthroughCluster"];

fn outbound(world: &mut World, namespace: &str, kind: ProxyKind) -> Vec<String> {
    let mut names = world.clusters(&clusters_of(&scope(namespace, None), kind));
    names.retain(|name| name.starts_with("outbound"));
    names
}

#[test]
fn a_cluster_for_each_port_and_subset_but_not_for_datagrams() {
    let rule = "{host: x.com, subsets: [{name: v1}, {name: v2}]}";
    let objects = [
        entry("b", "x", "x.com", &["http:80:HTTP", "dns:53:UDP", "db:90:TCP"]),
        istio("DestinationRule", "b", "dr", rule),
    ];
    let mut world = World::new(&objects.concat());
    let want = [
        "outbound|80|v1|x.com",
        "outbound|80|v2|x.com",
        "outbound|80||x.com",
        "outbound|90|v1|x.com",
        "outbound|90|v2|x.com",
        "outbound|90||x.com",
    ];
    assert_eq!(outbound(&mut world, "a", ProxyKind::Sidecar), want);
    assert_eq!(outbound(&mut world, "a", ProxyKind::Router), want);
    let all = world.clusters(&clusters_of(&scope("a", None), ProxyKind::Sidecar));
    assert!(PLAIN.iter().all(|name| all.iter().any(|n| n == name)));
    let gateway = world.clusters(&clusters_of(&scope("a", None), ProxyKind::Router));
    assert!(gateway.iter().any(|n| n == PLAIN[0]) && !gateway.iter().any(|n| n == PLAIN[2]));
}

#[test]
fn a_new_service_re_runs_each_catalogue_once_and_nothing_of_other_services() {
    let mut world = World::new(&[service("b", "x", 1), service("b", "y", 2)].concat());
    for namespace in ["a", "b", "c"] {
        outbound(&mut world, namespace, ProxyKind::Sidecar);
    }
    let delta = world.apply(&service("b", "z", 3));
    assert_eq!(delta.runs_of::<ClusterCatalogue>().runs, 3);
    assert_eq!(delta.runs_of::<traffic::clusters::ServiceClusters>().runs, 1);
    assert_eq!(outbound(&mut world, "a", ProxyKind::Sidecar).len(), 3);
}

#[test]
fn a_changed_limit_reaches_no_catalogue() {
    let rule = |limit: u32| {
        let text = format!(
            "{{host: x.com, subsets: [{{name: v1}}], \
             trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {limit}}}}}}}}}"
        );
        istio("DestinationRule", "b", "dr", &text)
    };
    let mut world = World::new(&[entry("b", "x", "x.com", &["http:80:HTTP"]), rule(1)].concat());
    outbound(&mut world, "a", ProxyKind::Sidecar);
    let delta = world.apply(&rule(2));
    assert_eq!(delta.runs_of::<traffic::policy::DestinationPolicies>().runs, 1);
    assert_eq!(delta.runs_of::<traffic::policy::PolicyCandidates>().runs, 0);
    assert_eq!(delta.runs_of::<ClusterCatalogue>().runs, 0);
}

#[test]
fn rules_of_a_namespace_merge_and_the_closest_namespace_wins() {
    let rule = |subset: &str| format!("{{host: x.com, subsets: [{{name: {subset}}}]}}");
    let objects = [
        entry("b", "x", "x.com", &["http:80:HTTP"]),
        istio("DestinationRule", "b", "one", &rule("b1")),
        istio("DestinationRule", "b", "two", &rule("b2")),
        istio("DestinationRule", "a", "own", &rule("a")),
        istio("DestinationRule", "istio-system", "root", &rule("root")),
    ];
    let mut world = World::new(&objects.concat());
    let subsets = |world: &mut World, namespace| {
        let names = outbound(world, namespace, ProxyKind::Sidecar);
        names
            .iter()
            .filter_map(|n| n.split('|').nth(2).map(str::to_owned))
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(subsets(&mut world, "a"), ["a"]);
    assert_eq!(subsets(&mut world, "c"), ["b1", "b2"]);
    assert_eq!(subsets(&mut world, "istio-system"), ["b1", "b2"]);
    let mut batch = flow::Batch::new();
    registry::objects::remove(&mut batch, &config::ObjectKey::new(config::Kind::DestinationRule, "b", "one"));
    registry::objects::remove(&mut batch, &config::ObjectKey::new(config::Kind::DestinationRule, "b", "two"));
    world.engine.commit(batch);
    assert_eq!(subsets(&mut world, "c"), ["root"]);
}
