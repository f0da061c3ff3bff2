//! Random edits of EnvoyFilters and of the objects that they change. After each edit, the incremental state equals a
//! recomputation, and every listed resource exists.
#![allow(clippy::unwrap_used)]

mod support;

use envoy::types;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Kind, ObjectKey, ParseOptions, parse_documents};
use envoy_filter::{PatchedClusterCatalogue, SelectivelyPatchedClusters};
use model::audience::{ResourceKey, Section};
use model::proxy::{Proxy, ProxyKind};
use protos::Message;
use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use registry::inputs::{ProxyToken, Sharing};
use support::{Edit, Random};
use traffic::Catalogue;
use traffic::audience::Audiences;
use world::{Batch, World};

/// Patches of every kind.
const PATCHES: [&str; 23] = [
    "{applyTo: CLUSTER, patch: {operation: MERGE, value: {connectTimeout: 3s}}}",
    "{applyTo: CLUSTER, match: {cluster: {service: a.shop.svc.cluster.local}}, patch: {operation: REMOVE}}",
    "{applyTo: CLUSTER, patch: {operation: ADD, value: {name: mine, connectTimeout: 1s}}}",
    "{applyTo: LISTENER, match: {listener: {portNumber: 80}}, patch: {operation: MERGE, value: {perConnectionBufferLimitBytes: 9}}}",
    "{applyTo: LISTENER, match: {listener: {name: virtualInbound}}, patch: {operation: REMOVE}}",
    "{applyTo: LISTENER, patch: {operation: ADD, value: {name: mine, address: {socketAddress: {address: 127.0.0.1, portValue: 7}}}}}",
    "{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: INSERT_FIRST, value: {name: mine, typedConfig: {\"@type\": t/envoy.extensions.filters.http.cors.v3.Cors}}}}",
    "{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: INSERT_FIRST, value: {name: found, configDiscovery: {configSource: {ads: {}}, typeUrls: [t/x]}}}}",
    "{applyTo: FILTER_CHAIN, match: {listener: {name: virtualOutbound}}, patch: {operation: MERGE, value: {name: other}}}",
    "{applyTo: HTTP_ROUTE, patch: {operation: MERGE, value: {requestHeadersToRemove: [x]}}}",
    "{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {name: \"a.shop.svc.cluster.local:80\"}}}, patch: {operation: REMOVE}}",
    "{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: mine, domains: [mine.example.com]}}}",
    "{applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {maxDirectResponseBodySizeBytes: 5}}}",
    "{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {domains: [more.example.com]}}}",
    "{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {name: \"b.shop.svc.cluster.local:80\"}}}, patch: {operation: REPLACE, value: {name: mine, domains: [b.example.com]}}}",
    "{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {name: \"80\"}}, patch: {operation: REMOVE}}",
    "{applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {virtualHosts: [{name: merged, domains: [more.example.com]}]}}}",
    "{applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE_AND_REPLACE_LIST, value: {virtualHosts: [{name: mine, domains: [a]}]}}}",
    "{applyTo: EXTENSION_CONFIG, patch: {operation: ADD, value: {name: found, typedConfig: {\"@type\": t/envoy.extensions.filters.http.cors.v3.Cors}}}}",
    "{applyTo: CLUSTER, match: {cluster: {service: b.shop.svc.cluster.local}}, patch: {operation: MERGE, value: {connectTimeout: 4s}}}",
    "{applyTo: CLUSTER, patch: {operation: ADD, value: {name: \"outbound|80||b.shop.svc.cluster.local\", connectTimeout: 1s}}}",
    "{applyTo: CLUSTER, match: {context: SIDECAR_INBOUND}, patch: {operation: ADD, value: {name: \"inbound|8080||\", connectTimeout: 1s}}}",
    "{applyTo: CLUSTER, match: {context: SIDECAR_INBOUND, cluster: {portNumber: 8080}}, patch: {operation: MERGE, value: {connectTimeout: 5s}}}",
];

fn edit(r: &mut Random) -> Edit {
    let (kind, namespace, name, text) = match r.below(6) {
        0 => {
            let name = r.one(&["a", "b"]);
            let ip = r.one(&["10.96.0.1", "10.96.0.2"]);
            let text = format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{clusterIP: {ip}, \
                 selector: {{app: a}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}}}"
            );
            (Kind::Service, "shop", name, text)
        }
        1 => {
            let timeout = r.below(9) + 1;
            let text = format!(
                "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: a, namespace: shop}}, spec: \
                 {{hosts: [a], http: [{{timeout: {timeout}s, route: [{{destination: {{host: a}}}}]}}]}}}}"
            );
            (Kind::VirtualService, "shop", "a", text)
        }
        2 => {
            let host = r.one(&["a", "b"]);
            let text = format!(
                "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: x, namespace: shop}}, spec: \
                 {{host: {host}, exportTo: [.], subsets: [{{name: v1}}]}}}}"
            );
            (Kind::DestinationRule, "shop", "x", text)
        }
        _ => {
            let (namespace, name) = (r.one(&["shop", "istio-system"]), r.one(&["x", "y"]));
            let priority = r.below(3);
            let selector = r.one(&["", "workloadSelector: {labels: {app: a}},"]);
            let patches: Vec<&str> = (0..r.below(4)).map(|_| r.one(&PATCHES)).collect();
            let text = format!(
                "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: {name}, namespace: {namespace}}}, \
                 spec: {{priority: {priority}, {selector} configPatches: [{}]}}}}",
                patches.join(", ")
            );
            (Kind::EnvoyFilter, namespace, name, text)
        }
    };
    let there = r.below(3) > 0;
    (there.then_some(text), ObjectKey::new(kind, namespace, name))
}

fn proxy(name: &str, kind: ProxyKind, app: &str) -> Arc<Proxy> {
    Arc::new(Proxy { labels: [("app".into(), app.into())].into(), ..support::proxy(name, "shop", kind) })
}

/// Subscribes to all resources of the proxies.
fn open(world: &mut World, proxies: &[ProxyToken]) -> Vec<flow::CellId> {
    let mut cells = Vec::new();
    for token in proxies {
        cells.extend(support::open_listed(world, *token).0);
        open_hosts(world, *token, &mut cells);
        let audience = world.audience(*token, types::EXTENSION).unwrap();
        let key = world.resolve(&audience, &"found".into()).unwrap();
        cells.push(world.open(&key).0);
    }
    cells
}

/// Subscribes to the route table `80`. Returns its fields, and its virtual hosts by domains.
fn open_hosts(
    world: &mut World,
    token: ProxyToken,
    cells: &mut Vec<flow::CellId>,
) -> (RouteConfiguration, BTreeMap<Vec<String>, VirtualHost>) {
    let audience = world.audience(token, types::ROUTE).unwrap();
    let key = world.resolve(&audience, &"80".into()).unwrap();
    let (cell, table) = world.open(&key);
    cells.push(cell);
    let mut table = RouteConfiguration::decode(table.map(|table| table.body()).unwrap_or_default()).unwrap();
    let mut hosts = std::mem::take(&mut table.virtual_hosts);
    if world.audience(token, types::VIRTUAL_HOST).is_some() {
        assert!(hosts.is_empty());
        for resource in support::open_list(world, token, (types::VIRTUAL_HOST, &"80".into()), cells) {
            let host = VirtualHost::decode(resource.body()).unwrap();
            assert_eq!(host.name, **resource.name(), "Envoy removes virtual hosts by these names");
            hosts.push(host);
        }
        assert_eq!(table.vhds.take().is_some(), !hosts.is_empty(), "Envoy waits for the first virtual host");
    }
    let mut by_domains = BTreeMap::new();
    for mut host in hosts {
        host.name.clear();
        let twice = by_domains.insert(host.domains.clone(), host);
        assert_eq!(twice, None, "domains are unique");
    }
    (table, by_domains)
}

#[test]
fn incremental_state_equals_recomputation() {
    let mut checked = 0;
    for seed in 1..=3u64 {
        let mut r = Random::new(seed);
        let mut world = World::new(support::settings(Sharing::All), 1);
        let proxies = [
            world.connect(proxy("a", ProxyKind::Sidecar, "a")).0,
            world.connect(proxy("b", ProxyKind::Sidecar, "b")).0,
            world.connect(proxy("gw", ProxyKind::Router, "a")).0,
            world.connect(discovering("shop", "a")).0,
        ];
        support::step_by_step(&mut world, &mut r, (2, edit), |world| {
            checked += proxies[..2].iter().filter(|proxy| check_clusters(world, **proxy)).count();
            open(world, &proxies)
        });
    }
    assert!(checked > 0);
}

/// Checks that a proxy whose own list replaces shared clusters has the clusters that it would have without sharing.
fn check_clusters(world: &mut World, token: ProxyToken) -> bool {
    let engine = &mut world.engine().fork();
    let audience = engine.get::<Audiences>(&token).unwrap().cluster.clone();
    let without_ports = Arc::new(audience.shared(&audience.filters).unwrap());
    let cell = engine.subscribe::<SelectivelyPatchedClusters>(without_ports);
    if engine.row::<SelectivelyPatchedClusters>(cell).is_none() {
        return false;
    }
    let cell = engine.subscribe::<PatchedClusterCatalogue>((Section::All, audience));
    let all = engine.row::<PatchedClusterCatalogue>(cell).unwrap().catalogue.clone();
    let audiences = [world.own_audience(token, types::CLUSTER), world.audience(token, types::CLUSTER)];
    let [own, shared] = audiences.map(|audience| world.open_catalogue(&audience.unwrap(), &Arc::default()).unwrap().1);
    let both = own.over(&shared).into_iter().cloned().collect();
    assert_eq!(Catalogue::new(both), *all);
    true
}

/// A patch for all proxies, which the lists of clusters add themselves, has the same effect as with a condition that all proxies meet,
/// with which it is part of their audiences.
#[test]
fn patches_for_all_proxies_change_what_those_of_audiences_change() {
    let mut added = 0;
    for seed in 1..=3u64 {
        let mut r = Random::new(seed);
        let proxies = ["a", "b"].map(|app| proxy(app, ProxyKind::Sidecar, app));
        let far = Arc::new(support::proxy("far", "far", ProxyKind::Sidecar));
        let proxies: Vec<_> = proxies.into_iter().chain([far, proxy("gw", ProxyKind::Router, "a")]).collect();
        let mut worlds = [0, 1].map(|_| {
            let mut world = World::new(support::settings(Sharing::All), 1);
            let proxies = proxies.iter().map(|proxy| Proxy { version: "1.30".into(), ..(**proxy).clone() });
            let tokens: Vec<ProxyToken> = proxies.map(|proxy| world.connect(Arc::new(proxy)).0).collect();
            (world, tokens)
        });
        for step in 0..100 {
            let (text, key) = edit(&mut r);
            let conditional = text.as_deref().map(with_a_version);
            let mut clusters = Vec::new();
            for ((world, tokens), text) in worlds.iter_mut().zip([text, conditional]) {
                world.commit(support::batch_of(vec![(text, key.clone())]));
                for token in tokens {
                    let mut of_one =
                        support::open_list(world, *token, (types::CLUSTER, &Arc::default()), &mut Vec::new());
                    of_one.sort_by(|a, b| a.name().cmp(b.name()));
                    clusters.push(of_one);
                }
            }
            let (plain, conditional) = clusters.split_at(proxies.len());
            assert_eq!(plain, conditional, "seed {seed}, step {step}");
            let [plain, conditional] = worlds.each_ref().map(|(world, tokens)| {
                let audiences = world.engine().get::<Audiences>(&tokens[2]).unwrap();
                audiences.shared_cluster.as_ref().unwrap().filters.len()
            });
            added += usize::from(plain < conditional);
        }
    }
    assert!(added > 20, "{added}");
}

/// The EnvoyFilter with the condition that a proxy has a version, in each patch.
fn with_a_version(text: &str) -> String {
    let condition = "match: {proxy: {proxyVersion: \".*\"}";
    text.replace("match: {", &format!("{condition}, "))
        .replace("CLUSTER, patch:", &format!("CLUSTER, {condition}}}, patch:"))
}

/// A sidecar that receives virtual hosts over VHDS.
fn discovering(namespace: &str, app: &str) -> Arc<Proxy> {
    let labels = [("app".into(), app.into())].into();
    Arc::new(Proxy { labels, vhds: true, ..support::proxy("vhds", namespace, ProxyKind::Sidecar) })
}

/// The virtual hosts of VHDS are those of the whole table, and all other fields of the table are equal.
#[test]
fn patched_tables_are_equal_with_vhds_and_whole() {
    for seed in 1..=3u64 {
        let mut r = Random::new(seed);
        let mut world = World::new(support::settings(Sharing::All), 1);
        let pairs = [("shop", "a"), ("shop", "b"), ("far", "a")].map(|(namespace, app)| {
            let vhds = discovering(namespace, app);
            let whole = Arc::new(Proxy { vhds: false, ..(*vhds).clone() });
            [vhds, whole].map(|proxy| world.connect(proxy).0)
        });
        let mut sizes = BTreeSet::new();
        support::step_by_step(&mut world, &mut r, (2, edit), |world| {
            let mut cells = Vec::new();
            for pair in pairs {
                let [vhds, whole] = pair.map(|token| open_hosts(world, token, &mut cells));
                sizes.insert(whole.1.len());
                assert_eq!(vhds, whole);
            }
            cells
        });
        assert!(sizes.len() > 3, "{sizes:?}");
    }
}

/// A patch that may match all virtual hosts is in the list that namespaces share. A patch of one virtual host, or one that adds
/// one, is in the own list of those that it is for.
#[test]
fn own_lists_of_virtual_hosts_do_not_grow_with_the_mesh() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let service = |n: usize| {
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{n:02}, namespace: shop}}, spec: {{clusterIP: 10.96.0.{n}, \
             ports: [{{name: http, port: 80}}]}}}}\n"
        )
    };
    apply(&mut world, &(1..=20).map(service).collect::<String>());
    let filter = |namespace: &str, patches: &str| {
        format!(
            "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: x, namespace: {namespace}}}, \
             spec: {{configPatches: [{patches}]}}}}"
        )
    };
    apply(&mut world, &filter("istio-system", PATCHES[9]));
    let one = PATCHES[10].replace("\"a.", "\"s07.");
    apply(&mut world, &filter("far", &format!("{one}, {}", PATCHES[11])));
    let [far, other] = ["far", "other"].map(|namespace| world.connect(discovering(namespace, "a")).0);
    let kind = types::VIRTUAL_HOST;
    assert_eq!(world.audience(far, kind), world.audience(other, kind), "the list is shared");
    let mut rows = |token| {
        let own = world.own_audience(token, kind).unwrap();
        let (_, own) = world.open_catalogue(&own, &"80".into()).unwrap();
        let rows = own.entries.iter();
        rows.map(|(name, key)| (name.to_string(), *key == ResourceKey::Hidden)).collect::<Vec<_>>()
    };
    let row = |name: &str, hidden: bool| (name.to_owned(), hidden);
    let removed = row("80/s07.shop.svc.cluster.local:80", true);
    assert_eq!(rows(far), [row("80/allow_any", false), row("80/mine", false), removed]);
    assert_eq!(rows(other), [row("80/allow_any", false)]);
}

/// Commits an object.
fn apply(world: &mut World, text: &str) -> world::Changes {
    let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
    assert!(!parsed.objects.is_empty(), "{:?}", parsed.diagnostics);
    let mut batch = Batch::new();
    parsed.objects.into_iter().for_each(|object| batch.put(object));
    world.commit(batch)
}

#[test]
fn an_envoy_filter_that_adds_too_much_is_left_out_of_the_rest() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let proxies = [world.connect(proxy("a", ProxyKind::Sidecar, "a")).0];
    let service = |n: usize| {
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{n:03}, namespace: shop}}, spec: {{clusterIP: 10.96.0.{n}, \
             ports: [{{name: http, port: 80}}]}}}}\n"
        )
    };
    apply(&mut world, &(1..=140).map(service).collect::<String>());
    let filter = |kib: usize| {
        format!(
            "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: x, namespace: shop}}, spec: \
             {{configPatches: [{{applyTo: CLUSTER, match: {{context: SIDECAR_OUTBOUND, cluster: {{portNumber: 80}}}}, patch: \
             {{operation: MERGE, value: {{altStatName: {}}}}}}}]}}}}",
            "x".repeat(kib << 10)
        )
    };
    // 128 MiB are enough for 127 clusters.
    apply(&mut world, &filter(1024));
    let cells = open(&mut world, &proxies);
    let key = ObjectKey::new(Kind::EnvoyFilter, "shop", "x");
    let report = |world: &World| -> Vec<(usize, Arc<str>)> {
        world.reach(&key).unmade.into_iter().map(|one| (one.resources, one.resource)).collect()
    };
    let expected = (13, Arc::from("outbound|80||s128.shop.svc.cluster.local"));
    assert_eq!(report(&world), [expected]);
    let changes = apply(&mut world, &filter(512));
    assert_eq!(changes.patching, std::slice::from_ref(&key));
    assert_eq!(report(&world), []);
    cells.into_iter().for_each(|cell| world.close(cell));
}

#[test]
fn patches_that_are_left_out_are_reported_with_reasons() {
    check_reasons(proxy("a", ProxyKind::Sidecar, "a"));
}

#[test]
fn patches_that_are_left_out_are_reported_with_vhds() {
    check_reasons(discovering("shop", "a"));
}

fn check_reasons(proxy: Arc<Proxy>) {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let proxies = [world.connect(proxy).0];
    let service = |port: u16| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: a, namespace: shop}}, spec: {{clusterIP: 10.96.0.1, \
             selector: {{app: a}}, ports: [{{name: http, port: {port}, targetPort: 8080}}]}}}}"
        )
    };
    apply(&mut world, &service(80));
    let patches = [
        // Applied.
        "{applyTo: CLUSTER, patch: {operation: MERGE, value: {connectTimeout: 3s}}}",
        // The result would be invalid.
        "{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: a.shop.svc.cluster.local}}, patch: {operation: \
         MERGE, value: {loadAssignment: {policy: {weightedPriorityHealth: true}}}}}",
        // There is no such filter to insert before.
        "{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, \
         subFilter: {name: nobody}}}}}, patch: {operation: INSERT_BEFORE, value: {name: mine, typedConfig: {\"@type\": \
         t/envoy.extensions.filters.http.cors.v3.Cors}}}}",
        // The value has another type.
        "{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND, listener: {portNumber: 80, filterChain: {filter: {name: \
         envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}, patch: {operation: \
         MERGE, value: {typedConfig: {\"@type\": t/envoy.extensions.filters.http.cors.v3.Cors}}}}",
        // There is no cluster of this name to remove.
        "{applyTo: CLUSTER, match: {cluster: {service: nobody}}, patch: {operation: REMOVE}}",
        // Removed.
        "{applyTo: CLUSTER, match: {cluster: {name: BlackHoleCluster}}, patch: {operation: REMOVE}}",
        // The domain belongs to another virtual host.
        "{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {name: \"80\"}}, patch: {operation: ADD, \
         value: {name: mine, domains: [a]}}}",
        // There is no route of this name.
        "{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: {route: {name: nobody}}}}, patch: \
         {operation: MERGE, value: {requestHeadersToRemove: [x]}}}",
        // For a gateway, so that it is not reported for a sidecar.
        "{applyTo: CLUSTER, match: {context: GATEWAY}, patch: {operation: MERGE, value: {connectTimeout: 3s}}}",
        // There is already a cluster of this name.
        "{applyTo: CLUSTER, patch: {operation: ADD, value: {name: PassthroughCluster, connectTimeout: 1s}}}",
    ];
    apply(
        &mut world,
        &format!(
            "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: x, namespace: shop}}, spec: \
             {{configPatches: [{}]}}}}",
            patches.join(", ")
        ),
    );
    let cells = open(&mut world, &proxies);
    let key = ObjectKey::new(Kind::EnvoyFilter, "shop", "x");
    let report = |world: &World| -> Vec<String> {
        let unmade = world.reach(&key).unmade.into_iter();
        unmade.map(|one| format!("{} {} {} {}", one.index, one.resources, one.resource, one.why)).collect()
    };
    let cluster = "outbound|80||a.shop.svc.cluster.local";
    let before = report(&world);
    let starts = [
        format!("1 1 {cluster} the result would not be valid: "),
        "2 0  ".to_owned(),
        "3 1 0.0.0.0_80 the value's typed_config is a envoy.extensions.filters.http.cors.v3.Cors, and what is there is"
            .to_owned(),
        "4 0  ".to_owned(),
        "6 1 80 one of the domains is another virtual host's".to_owned(),
        "7 0  ".to_owned(),
        "9 1 PassthroughCluster another resource has this name".to_owned(),
    ];
    assert_eq!(before.len(), starts.len(), "{before:#?}");
    for (line, start) in before.iter().zip(&starts) {
        assert!(line.starts_with(start), "{before:#?}");
    }
    // Without the virtual host, the new one is added, and the commit reports the EnvoyFilter.
    let changes = apply(&mut world, &service(90));
    assert_eq!(changes.patching, std::slice::from_ref(&key));
    assert!(!report(&world).iter().any(|line| line.starts_with('6')), "{:#?}", report(&world));
    cells.into_iter().for_each(|cell| world.close(cell));
    assert_eq!(report(&world), Vec::<String>::new(), "no resources are subscribed to");
}

const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: b, namespace: shop}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: c, namespace: shop}
spec: {clusterIP: 10.96.0.3, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: everywhere, namespace: istio-system}
spec:
  configPatches:
  - {applyTo: CLUSTER, patch: {operation: MERGE, value: {connectTimeout: 3s}}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: selective, namespace: shop}
spec:
  workloadSelector: {labels: {app: selected}}
  configPatches:
  - applyTo: CLUSTER
    match: {cluster: {service: a.shop.svc.cluster.local}}
    patch: {operation: REMOVE}
  - applyTo: CLUSTER
    match: {cluster: {service: b.shop.svc.cluster.local}}
    patch: {operation: MERGE, value: {connectTimeout: 4s}}
  - {applyTo: CLUSTER, patch: {operation: ADD, value: {name: mine, connectTimeout: 1s}}}
";

/// Workloads whose clusters an EnvoyFilter changes share the list of the others, and have the clusters that they would have
/// without sharing.
#[test]
fn patches_of_single_clusters_are_in_the_own_list() {
    let selector = "  workloadSelector: {labels: {app: selected}}\n";
    for (text, other) in [(SHOP.to_owned(), "shop"), (SHOP.replace(selector, ""), "market")] {
        let mut world = World::new(support::settings(Sharing::All), 1);
        let mut batch = Batch::new();
        let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
        assert!(parsed.is_whole(), "{:#?}", parsed.diagnostics);
        parsed.objects.into_iter().for_each(|object| batch.put(object));
        world.commit(batch);
        let selected = world.connect(proxy("selected", ProxyKind::Sidecar, "selected")).0;
        let other = world.connect(Arc::new(support::proxy("other", other, ProxyKind::Sidecar))).0;
        assert_eq!(world.audience(selected, types::CLUSTER), world.audience(other, types::CLUSTER));

        let own = world.own_audience(selected, types::CLUSTER).unwrap();
        let own = world.open_catalogue(&own, &Arc::default()).unwrap().1;
        let outbound: Vec<(&str, bool)> = own
            .entries
            .iter()
            .filter(|(name, _)| !name.contains("nbound") || name.starts_with("outbound"))
            .map(|(name, key)| (&**name, *key == ResourceKey::Hidden))
            .collect();
        let [a, b] = ["a", "b"].map(|name| format!("outbound|80||{name}.shop.svc.cluster.local"));
        assert_eq!(outbound, [("mine", false), (&*a, true), (&*b, false)]);
        assert!(check_clusters(&mut world, selected));
    }
}
