//! Audiences are exact: proxies with equal audiences receive equal bytes, and every field of an audience changes some byte
//! in some case, so that no field separates proxies without need.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use config::mesh::{ConnectionSettings, ProxyConfig, ProxyConfigOverride, ProxyHeaders};
use config::{ParseOptions, parse_documents, parse_mesh_config};
use envoy::{
    Clusters, Endpoints, GrpcClusters, GrpcListeners, Listeners, NameTables, OwnInstances, RouteConfigs, Secrets,
};
use envoy_filter::{
    AddedResources, Extensions, PatchedClusterCatalogue, PatchedClusters, PatchedListenerCatalogue, PatchedListeners,
    PatchedRouteConfigs,
};
use flow::{Engine, Rule};
use model::audience::*;
use model::listener::{ListenerOptions, TraceIdentity};
use model::mtls::{Mode, MtlsModes};
use model::proxy::{Capabilities, InterceptionMode, Locality, Proxy, ProxyKind, SecretRight};
use model::service::{ObjectId, ServiceKey};
use model::tls::{KeyProvider, KeyProviderSort, OwnFiles};
use model::xds::Resource;
use names::{Hostname, Protocol};
use registry::inputs::{ProxyToken, Sharing};
use support::Random;
use traffic::audience::{Audiences, ProxyAudiences};
use traffic::clusters::ClusterCatalogue;
use traffic::listeners::ListenerCatalogue;
use traffic::routes::{SharedHostCatalogue, VirtualHostCatalogue};
use world::{Batch, Catalogue, World};

const MESH: &str = "
outboundTrafficPolicy: {mode: ALLOW_ANY_DYNAMIC_DNS}
extensionProviders: [{name: otel, opentelemetry: {service: otel.shop.svc.cluster.local, port: 4317}}]
defaultProviders: {tracing: [otel], metrics: [prometheus]}
serviceSettings: [{settings: {clusterLocal: true}, hosts: [secret.shop.svc.cluster.local]}]
";

const OBJECTS: &str = include_str!("audiences.yaml");

/// Resources that are requested by name.
const CLUSTERS: [&str; 5] = [
    "outbound|80||local.shop.svc.cluster.local",
    "outbound|80||web.shop.svc.cluster.local",
    "outbound|5432||db.shop.svc.cluster.local",
    "outbound|80||secret.shop.svc.cluster.local",
    "local_cluster",
];
const TABLES: [&str; 4] = ["80", "http.80", "http.8080", "https.443.https.edge.shop"];
const GRPC: [&str; 5] = [
    "web.shop.svc.cluster.local:80",
    "web:80",
    "secret.shop.svc.cluster.local:80",
    "xds.istio.io/grpc/lds/inbound/10.0.0.1:8080",
    "xds.istio.io/grpc/lds/inbound/10.0.0.1:9090",
];
const SECRETS: [&str; 2] = ["kubernetes://cert", "kubernetes-gateway://shop/cert"];
const EXTENSIONS: [&str; 1] = ["extension"];

fn world() -> World {
    let mut settings = support::settings(Sharing::All);
    let parsed = parse_mesh_config(MESH.as_bytes(), "mesh", &ParseOptions::default());
    settings.config = parsed.0.unwrap();
    let mut world = World::new(settings, 1);
    let mut batch = Batch::new();
    for (cluster, text) in OBJECTS.split("# cluster ").skip(1).map(|part| part.split_once('\n').unwrap()) {
        let parsed = parse_documents(text.as_bytes(), "audiences.yaml", &ParseOptions::default());
        assert!(parsed.is_whole(), "{:#?}", parsed.diagnostics);
        let cluster: Arc<str> = cluster.trim_matches('"').into();
        for object in parsed.objects {
            batch.put(object.in_cluster(&cluster));
        }
    }
    assert_eq!(world.commit(batch).panics, [""; 0]);
    world
}

fn proxy(kind: ProxyKind) -> Proxy {
    Proxy {
        secrets: SecretRight::Namespace,
        version: "1.28".into(),
        labels: [("app".into(), "web".into()), ("pod-template-hash".into(), "1".into())].into(),
        locality: Locality::parse("r1/z1"),
        ..support::proxy("web", "shop", kind)
    }
}

/// The audience of one resource type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Audience {
    Cluster(Arc<ClusterAudience>),
    Endpoints(Arc<AllEndpoints>),
    Listener(Arc<ListenerAudience>),
    Route(Arc<RouteAudience>),
    GrpcCluster(Arc<Scope>),
    GrpcListener(Arc<GrpcAudience>),
    Secret(Arc<SecretAudience>),
    Extension(Arc<ExtensionAudience>),
    NameTable(Arc<NameAudience>),
}

/// The facts of a proxy's two audiences of endpoints.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct AllEndpoints {
    scope: Arc<Scope>,
    location: Arc<ClientLocation>,
    own: Option<Arc<OwnWorkload>>,
}

/// The resource types of Envoy proxies and gRPC clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Cluster,
    Endpoints,
    Listener,
    Route,
    Secret,
    Extension,
    NameTable,
}

const TYPES: [Type; 7] =
    [Type::Cluster, Type::Endpoints, Type::Listener, Type::Route, Type::Secret, Type::Extension, Type::NameTable];

/// The audience of a proxy that connects.
fn audience(world: &mut World, proxy: Proxy, of: Type) -> Audience {
    let (token, _) = world.connect(Arc::new(proxy));
    audience_of(world, token, of).unwrap()
}

/// The audience of a connected proxy; `None` if it gets nothing of the type.
fn audience_of(world: &World, token: ProxyToken, of: Type) -> Option<Audience> {
    let all = world.engine().get::<Audiences>(&token)?;
    Some(match (of, &all.grpc) {
        (Type::Cluster, Some(grpc)) => Audience::GrpcCluster(grpc.scope.without_addresses()),
        (Type::Cluster, None) => Audience::Cluster(all.cluster.clone()),
        (Type::Listener, Some(grpc)) => Audience::GrpcListener(grpc.clone()),
        (Type::Listener, None) => Audience::Listener(all.listener.clone()),
        (Type::Endpoints, _) => Audience::Endpoints(Arc::new(all_endpoints(&all))),
        (Type::Route, _) => Audience::Route(all.route.clone()),
        (Type::Secret, _) => Audience::Secret(all.secrets.clone()?),
        (Type::Extension, _) => Audience::Extension(all.extension.clone()),
        (Type::NameTable, _) => Audience::NameTable(Arc::new(all.names())),
    })
}

fn all_endpoints(all: &ProxyAudiences) -> AllEndpoints {
    let own = all.own_endpoints.as_ref();
    let EndpointsAudience { scope, location } = (**own.map_or(&all.endpoints, |own| &own.audience)).clone();
    AllEndpoints { scope, location, own: own.and_then(|own| own.workload.clone()) }
}

fn row<R: Rule>(engine: &mut Engine, key: R::Key) -> Option<Arc<R::Row>> {
    let cell = engine.subscribe::<R>(key);
    engine.row::<R>(cell)
}

/// The resources that a proxy shares with others are those that it would have for itself: the two sections of its clusters
/// and listeners are all of them, and its endpoints do not depend on its namespace, nor on its location, if their audience
/// does not name it.
fn assert_sharing(world: &World, token: ProxyToken) {
    let engine = &mut world.engine().fork();
    let all = engine.get::<Audiences>(&token).unwrap();
    if let Some(shared) = &all.shared_cluster {
        let [all, shared, own] =
            [(Section::All, &all.cluster), (Section::Shared, shared), (Section::Own, &all.cluster)]
                .map(|(section, audience)| row::<ClusterCatalogue>(engine, (section, audience.clone())));
        assert_sections(all, [shared, own]);
    }
    if let Some(shared) = &all.shared_listener {
        let [all, shared, own] =
            [(Section::All, &all.listener), (Section::Shared, shared), (Section::Own, &all.listener)]
                .map(|(section, audience)| row::<ListenerCatalogue>(engine, (section, audience.clone())));
        assert_sections(all, [shared, own]);
    }
    for table in ["80", "9090", "http_proxy"].map(Arc::from).iter().filter(|_| all.shared_hosts.is_some()) {
        assert_shared_hosts(engine, &all.route, table);
    }
    let Scope { namespace, selected_rules, .. } = (*all.cluster.scope).clone();
    let scope = Scope { namespace, selected_rules, ..(*all.endpoints.scope).clone() };
    let AllEndpoints { location, .. } = all_endpoints(&all);
    let named = Arc::new(EndpointsAudience { scope: Arc::new(scope), location });
    let own = all.own_endpoints.clone().map(EndpointsSection::Own);
    let clusters = row::<ClusterCatalogue>(engine, (Section::All, all.cluster.clone()));
    for (name, _) in clusters.iter().flat_map(|catalogue| &catalogue.entries) {
        let audience = match own.as_ref().and_then(|own| own.resolve(name)) {
            Some(ResourceKey::Endpoints(audience, _)) => audience,
            Some(other) => panic!("{other:?}"),
            None => all.endpoints.clone(),
        };
        let shared = row::<Endpoints>(engine, (audience, name.clone()));
        assert_eq!(shared, row::<Endpoints>(engine, (named.clone(), name.clone())), "{name}");
    }
}

/// The virtual hosts of a table over VHDS are those of the table: the rows of the own list count instead of shared ones.
fn assert_shared_hosts(engine: &mut Engine, audience: &Arc<RouteAudience>, table: &Arc<str>) {
    let [all, own] = [Section::All, Section::Own].map(|section| {
        row::<VirtualHostCatalogue>(engine, (section, audience.clone(), table.clone())).unwrap_or_default()
    });
    let key = SharedHostsKey::of_table(&audience.scope.cluster, audience.scope.assigned, table);
    let shared = key.and_then(|key| row::<SharedHostCatalogue>(engine, key)).unwrap_or_default();
    assert_eq!(own.over(&shared), all.entries.iter().collect::<Vec<_>>(), "{table}");
}

fn assert_sections(all: Option<Arc<Catalogue>>, [shared, own]: [Option<Arc<Catalogue>>; 2]) {
    let [all, shared, own] = [all, shared, own].map(Option::unwrap_or_default);
    let together = Catalogue::new(own.over(&shared).into_iter().cloned().collect());
    let names: BTreeSet<_> = together.entries.iter().chain(&all.entries).map(|(name, _)| name).collect();
    let wrong = names.into_iter().find(|name| together.get(name) != all.get(name));
    assert_eq!(wrong.map(|name| (name, together.get(name), all.get(name))), None);
    let needless = own.entries.iter().find(|(name, key)| shared.get(name) == Some(key));
    assert_eq!(needless, None, "it is in both sections");
}

/// The world of these objects.
fn world_of(text: &str) -> World {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let parsed = parse_documents(text.as_bytes(), "mesh.yaml", &ParseOptions::default());
    assert!(parsed.is_whole(), "{:#?}", parsed.diagnostics);
    let mut batch = Batch::new();
    parsed.objects.into_iter().for_each(|object| batch.put(object));
    world.commit(batch);
    world
}

/// Connects a sidecar in this namespace, and compares what it shares.
fn assert_shared_in(world: &mut World, namespace: &str) -> Arc<ProxyAudiences> {
    let proxy = support::proxy("client", namespace, ProxyKind::Sidecar);
    let labels = [("app", "client")].into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let (selected, _) = world.connect(Arc::new(Proxy { labels, ..proxy.clone() }));
    assert_sharing(world, selected);
    let (token, _) = world.connect(Arc::new(proxy));
    assert_sharing(world, token);
    world.engine().get::<Audiences>(&token).unwrap()
}

/// A ServiceEntry with these fields, besides its endpoints and the resolution of most.
fn entry(name: &str, namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
         spec: {{ resolution: STATIC, endpoints: [{{ address: 192.0.2.1 }}], {spec} }}\n---\n"
    )
}

/// A DestinationRule with these fields, besides its policy.
fn destination_rule(name: &str, namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{ name: {name}, namespace: {namespace} }}\n\
         spec: {{ {spec}, trafficPolicy: {{ loadBalancer: {{ simple: RANDOM }}, connectionPool: {{ tcp: {{ idleTimeout: 9s }} }} }} }}\n---\n"
    )
}

/// A Sidecar with one egress listener.
fn sidecar(namespace: &str, egress: &str, more: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{ name: default, namespace: {namespace} }}\n\
         spec: {{ egress: [{{ {egress} }}]{more} }}\n---\n"
    )
}

/// Namespaces share what their clients see alike. Only those that differ in many services do not.
#[test]
fn namespaces_share_what_they_see_alike() {
    let service = |name: &str, namespace: &str, more: &str| {
        let fields = "ports: [{ number: 80, name: http, protocol: HTTP }]";
        entry(name, namespace, &format!("hosts: [{name}.{namespace}.test], {fields}{more}"))
    };
    let rule =
        |namespace: &str, host: &str, more: &str| destination_rule("rule", namespace, &format!("host: {host}{more}"));
    let text = [
        service("web", "plain", ""),
        // The rule of a service's own namespace is for all clients.
        service("api", "with-rule", ""),
        rule("with-rule", "api.with-rule.test", ""),
        service("hidden", "private", ", exportTo: [.]"),
        rule("of-others", "api.with-rule.test", ""),
        service("db", "wildcard", ""),
        rule("wildcard", "'*.wildcard.test'", ""),
        service("cache", "exporting", ""),
        rule("exporting", "cache.exporting.test", ", exportTo: [importing]"),
        rule("istio-system", "'*.test'", ""),
        entry("twice", "twice", "hosts: [web.plain.test], ports: [{ number: 80, name: http, protocol: HTTP }]"),
        (0..40).map(|n| service(&format!("hidden-{n}"), "secretive", ", exportTo: [.]")).collect(),
        sidecar("open", "hosts: ['*/*']", ""),
        sidecar("capturing", "captureMode: NONE, hosts: ['*/*']", ""),
        sidecar("narrow", "hosts: [./*]", ""),
    ]
    .concat();
    let mut world = world_of(&text);
    let alike = ["empty", "with-rule", "istio-system", "exporting", "open"];
    let in_part = ["plain", "private", "of-others", "importing", "twice"];
    let different = ["wildcard", "secretive", "capturing", "narrow"];
    let mut shared = BTreeSet::new();
    for namespace in alike.into_iter().chain(in_part).chain(different) {
        let all = assert_shared_in(&mut world, namespace);
        let (cluster, listener) = (all.shared_cluster.clone().unwrap(), all.shared_listener.clone().unwrap());
        let names = [&cluster.scope, &listener.scope, &all.endpoints.scope].map(|scope| scope.namespace.to_string());
        assert_eq!(names, [if different.contains(&namespace) { namespace } else { "" }; 3]);
        assert_eq!(all.own_endpoints.is_some(), in_part.contains(&namespace), "{namespace}");
        shared.insert((cluster, listener, all.endpoints.clone()));
    }
    assert_eq!(shared.len(), 1 + different.len());
}

#[test]
fn namespaces_share_what_a_sidecar_of_all_that_imports_everything_changes() {
    let fields = "hosts: [web.test], ports: [{ number: 80, name: http, protocol: HTTP }]";
    let closed = sidecar("istio-system", "hosts: ['*/*']", ", outboundTrafficPolicy: { mode: REGISTRY_ONLY }");
    let mut world =
        world_of(&(entry("web", "a", fields) + &entry("hidden", "b", &format!("{fields}, exportTo: [.]")) + &closed));
    let shared = ["a", "b", "c"].map(|namespace| {
        let all = assert_shared_in(&mut world, namespace);
        assert!(all.cluster.scope.sidecar.is_some());
        (all.shared_cluster.clone().unwrap(), all.shared_listener.clone().unwrap(), all.endpoints.clone())
    });
    assert!(shared.iter().all(|audiences| *audiences == shared[0]));
    assert!(shared[0].0.scope.sidecar.is_some(), "unknown destinations are refused");
}

/// Services and policies that only some namespaces see, at addresses and ports that others use, too.
#[test]
fn what_namespaces_have_themselves_is_what_they_would_have_alone() {
    let mut r = Random::new(11);
    let namespaces = ["a", "b", "c"];
    let exports = ["", "", ", exportTo: [.]", ", exportTo: [b]"];
    for _ in 0..150 {
        let mut text = String::new();
        for n in 0..2 + r.below(6) {
            let host = r.one(&["one.test", "two.test", "three.test", "four.test", "five.test"]);
            let ports = [
                "{ number: 80, name: http, protocol: HTTP }",
                "{ number: 80, name: grpc, protocol: GRPC }",
                "{ number: 80, name: tcp, protocol: TCP }",
                "{ number: 80, name: any }",
                "{ number: 443, name: tls, protocol: TLS }",
                "{ number: 443, name: mongo, protocol: MONGO }, { number: 80, name: http, protocol: HTTP }",
                "{ number: 80, name: proxy, protocol: HTTP_PROXY }",
            ];
            let addresses =
                ["", "", ", addresses: [10.9.0.1]", ", addresses: [10.9.0.2]", ", addresses: [10.9.0.0/24]"];
            let spec = format!("hosts: [{host}], ports: [{}]{}{}", r.one(&ports), r.one(&addresses), r.one(&exports));
            text += &entry(&format!("entry-{n}"), r.one(&namespaces), &spec);
        }
        for n in 0..r.below(4) {
            let host = r.one(&["one.test", "two.test", "three.test", "four.test"]);
            let subsets = ["", ", subsets: [{ name: v1, labels: { version: v1 } }]"];
            let clients =
                ["", ", exportTo: [.]", ", exportTo: [b]", ", workloadSelector: { matchLabels: { app: client } }"];
            let spec = format!("host: {host}{}{}", r.one(&subsets), r.one(&clients));
            text += &destination_rule(&format!("rule-{n}"), r.one(&namespaces), &spec);
        }
        for namespace in [["a", "istio-system"], ["a", "b"]][r.below(2)] {
            let egress = ["hosts: ['*/*']", "hosts: ['*/*']", "hosts: [./*]", "captureMode: NONE, hosts: ['*/*']"];
            let policies = [
                "",
                ", outboundTrafficPolicy: { mode: REGISTRY_ONLY }",
                ", outboundTrafficPolicy: { mode: ALLOW_ANY }",
                ", outboundTrafficPolicy: { mode: ALLOW_ANY, egressProxy: { host: one.test, port: { number: 80 } } }",
            ];
            if r.below(2) == 0 {
                text += &sidecar(namespace, r.one(&egress), r.one(&policies));
            }
        }
        let mut world = world_of(&text);
        for namespace in namespaces {
            assert_shared_in(&mut world, namespace);
        }
    }
}

/// The resources of an audience, by name.
fn bytes(world: &World, audience: &Audience) -> BTreeMap<Arc<str>, Vec<u8>> {
    let engine = &mut world.engine().fork();
    let named = |names: &[&str], find: &mut dyn FnMut(Arc<str>) -> Option<Resource>| -> Vec<Resource> {
        names.iter().filter_map(|name| find(Arc::from(*name))).collect()
    };
    let found: Vec<Resource> = match audience {
        Audience::Cluster(a) => {
            let catalogue = match a.filters.is_empty() {
                true => row::<ClusterCatalogue>(engine, (Section::All, a.clone())),
                false => {
                    row::<PatchedClusterCatalogue>(engine, (Section::All, a.clone())).map(|row| row.catalogue.clone())
                }
            };
            listed(engine, catalogue)
        }
        Audience::Listener(a) => {
            let catalogue = match a.filters.is_empty() {
                true => row::<ListenerCatalogue>(engine, (Section::All, a.clone())),
                false => {
                    row::<PatchedListenerCatalogue>(engine, (Section::All, a.clone())).map(|row| row.catalogue.clone())
                }
            };
            listed(engine, catalogue)
        }
        Audience::Route(a) => named(&TABLES, &mut |name| match a.filters.is_empty() {
            true => row::<RouteConfigs>(engine, (a.clone(), name)).map(|row| (*row).clone()),
            false => row::<PatchedRouteConfigs>(engine, (a.clone(), name)).map(|row| row.resource.clone()),
        }),
        Audience::Endpoints(a) => {
            let AllEndpoints { scope, location, own } = &**a;
            let audience = Arc::new(EndpointsAudience { scope: scope.clone(), location: location.clone() });
            named(&CLUSTERS, &mut |name| match &*name == LOCAL_CLUSTER {
                true => row::<OwnInstances>(engine, own.clone()?).map(|row| (*row).clone()),
                false => row::<Endpoints>(engine, (audience.clone(), name)).map(|row| (*row).clone()),
            })
        }
        Audience::GrpcCluster(scope) => {
            named(&CLUSTERS, &mut |name| row::<GrpcClusters>(engine, (scope.clone(), name)).map(|row| (*row).clone()))
        }
        Audience::GrpcListener(a) => {
            named(&GRPC, &mut |name| row::<GrpcListeners>(engine, (a.clone(), name)).map(|row| (*row).clone()))
        }
        Audience::Secret(a) => {
            named(&SECRETS, &mut |name| row::<Secrets>(engine, a.resolve(&name)?).map(|row| (*row).clone()))
        }
        Audience::Extension(a) => {
            named(&EXTENSIONS, &mut |name| row::<Extensions>(engine, (a.clone(), name)).map(|row| (*row).clone()))
        }
        Audience::NameTable(a) => row::<NameTables>(engine, a.clone()).map(|row| (*row).clone()).into_iter().collect(),
    };
    found.into_iter().map(|resource| (resource.name().clone(), resource.body().to_vec())).collect()
}

/// The resources of a catalogue.
fn listed(engine: &mut Engine, catalogue: Option<Arc<Catalogue>>) -> Vec<Resource> {
    let catalogue = catalogue.unwrap_or_default();
    let open = |(_, key): &(Arc<str>, ResourceKey)| match key {
        ResourceKey::Cluster(key) => row::<Clusters>(engine, key.clone()).map(|row| (*row).clone()),
        ResourceKey::PatchedCluster(key) => row::<PatchedClusters>(engine, key.clone()).map(|row| row.resource.clone()),
        ResourceKey::Listener(key) => row::<Listeners>(engine, key.clone()).map(|row| (*row).clone()),
        ResourceKey::PatchedListener(key) => {
            row::<PatchedListeners>(engine, key.clone()).map(|row| row.resource.clone())
        }
        ResourceKey::Added(id, patch) => row::<AddedResources>(engine, (id.clone(), *patch)).map(|row| (*row).clone()),
        other => panic!("{other:?}"),
    };
    catalogue.entries.iter().filter_map(open).collect()
}

#[test]
fn proxies_with_equal_audiences_receive_equal_bytes() {
    let world = world();
    let mut r = Random::new(7);
    let mut seen: BTreeMap<Audience, BTreeMap<Arc<str>, Vec<u8>>> = BTreeMap::new();
    let mut shared = 0;
    for step in 0..150 {
        // Worlds do not share rows that are derived for a proxy, so that each derives its answer itself.
        let mut own = world.fork();
        let (token, _) = own.connect(Arc::new(random(&mut r)));
        assert_sharing(&own, token);
        for kind in TYPES {
            let Some(audience) = audience_of(&own, token, kind) else {
                continue;
            };
            let answer = bytes(&own, &audience);
            if let Some(before) = seen.insert(audience.clone(), answer.clone()) {
                assert_eq!(before, answer, "step {step}: {audience:?}");
                shared += 1;
            }
        }
    }
    assert!(shared > 100, "only {shared} audiences were shared");
}

/// A proxy with random facts, most of which are equal among proxies.
fn random(r: &mut Random) -> Proxy {
    let kinds = [ProxyKind::Sidecar, ProxyKind::Sidecar, ProxyKind::Router, ProxyKind::Grpc];
    let mut proxy = proxy(kinds[r.below(4)]);
    for _ in 0..r.below(3) {
        match r.below(12) {
            0 => proxy.namespace = "other".into(),
            1 => drop(proxy.labels.insert("app".into(), r.one(&["web", "edge", "narrow"]).into())),
            2 => proxy.addresses = vec![r.one(&["10.0.0.7", "10.0.0.8", "::7"]).parse().unwrap()],
            3 => proxy.cluster_id = "west".into(),
            4 => proxy.network = "n2".into(),
            5 => proxy.node = "node2".into(),
            6 => proxy.id = format!("other.{}", proxy.namespace).into(),
            7 => proxy.interception = InterceptionMode::None,
            8 => proxy.capabilities.cryptomb = true,
            9 => drop(Arc::make_mut(&mut proxy.metadata).insert("IDLE_TIMEOUT".into(), "5s".into())),
            10 => proxy.locality = Locality::parse(r.one(&["r1/z1", "r2/z1"])),
            _ => proxy.settings = Some("{\"proxyHeaders\": {\"attemptCount\": {\"disabled\": true}}}".into()),
        }
    }
    proxy
}

#[test]
fn every_field_of_an_audience_matters() {
    let world = world();
    let mut problems: Vec<String> = Vec::new();
    let mut checked: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut known: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for case in cases() {
        let mut own = world.fork();
        let before = audience(&mut own, proxy(case.of), case.kind);
        let before = (case.base)(before);
        let after = (case.change)(before.clone());
        let (name, fields) = fields(&before);
        known.entry(name).or_default().extend(fields.iter().map(|(field, _)| *field));
        let fields_after: BTreeMap<&str, String> = self::fields(&after).1.into_iter().collect();
        let mut differ = fields.iter().filter(|(field, value)| fields_after.get(field) != Some(value));
        let changed: Vec<&str> = differ.by_ref().map(|(field, _)| *field).collect();
        let only = changed.iter().all(|field| field.starts_with(case.field)) || case.field == "class";
        if !changed.contains(&case.field) || !only {
            problems.push(format!("{name} {}: {changed:?} changed", case.field));
        } else if bytes(&own, &before) == bytes(&own, &after) {
            problems.push(format!("{name} {} changes no byte", case.field));
        }
        checked.entry(name).or_default().insert(case.field);
    }
    assert_eq!(problems, [""; 0]);
    assert_eq!(checked, known, "every field needs a case (left: cases, right: fields)");
}

/// A field, and a change of it that changes bytes.
struct Case {
    of: ProxyKind,
    kind: Type,
    field: &'static str,
    /// Makes the audience before the change.
    base: fn(Audience) -> Audience,
    change: fn(Audience) -> Audience,
}

/// A case for each field of each audience.
fn cases() -> Vec<Case> {
    use ProxyKind::{Grpc, Router, Sidecar};
    macro_rules! case {
        ($cases:ident, $of:ident $type:ident as $variant:ident, $field:literal, $change:expr) => {
            case!($cases, $of $type as $variant, $field, |_| {}, $change);
        };
        ($cases:ident, $of:ident $type:ident as $variant:ident, $field:literal, $base:expr, $change:expr) => {
            $cases.push(Case {
                of: $of,
                kind: Type::$type,
                field: $field,
                base: |audience| edit!(audience, $variant, $base),
                change: |audience| edit!(audience, $variant, $change),
            });
        };
    }
    macro_rules! edit {
        ($audience:ident, $variant:ident, $change:expr) => {
            match $audience {
                Audience::$variant(mut facts) => {
                    apply(&mut facts, $change);
                    Audience::$variant(facts)
                }
                other => panic!("{other:?}"),
            }
        };
    }
    let mut cases = Vec::new();
    macro_rules! scope {
        ($of:ident $type:ident as $variant:ident: $($field:literal $name:ident = $value:expr),*) => {
            $( case!(cases, $of $type as $variant, $field, |a| Arc::make_mut(&mut a.scope).$name = $value); )*
        };
    }

    scope!(Sidecar Cluster as Cluster: "scope.namespace" namespace = "other".into(), "scope.sidecar" sidecar = Some(id("narrow")),
        "scope.selected_rules" selected_rules = vec![id("selected"), id("selected-web")]);
    case!(cases, Sidecar Cluster as Cluster, "class", |a| {
        a.class = ProxyClass::Gateway(GatewayClusterFacts { sni_passthrough: false, client_certificate: None });
    });
    case!(cases, Sidecar Cluster as Cluster, "sidecar.inbound", |a| sidecar_clusters(a).inbound = [port(8081)].into());
    case!(cases, Sidecar Cluster as Cluster, "sidecar.resolver", |a| {
        sidecar_clusters(a).resolver = Some("127.0.0.1:53".parse().unwrap());
    });
    case!(cases, Router Cluster as Cluster, "gateway.sni_passthrough", |a| {
        a.class = ProxyClass::Gateway(GatewayClusterFacts { sni_passthrough: true, client_certificate: None });
    });
    case!(cases, Router Cluster as Cluster, "gateway.client_certificate", |a| {
        let client_certificate = Some("kubernetes-gateway://default/client".into());
        a.class = ProxyClass::Gateway(GatewayClusterFacts { sni_passthrough: false, client_certificate });
    });
    case!(cases, Sidecar Cluster as Cluster, "agent", |a| a.agent = false);
    case!(cases, Sidecar Cluster as Cluster, "ip", |a| a.ip = IpFamilies::Dual);
    case!(cases, Sidecar Cluster as Cluster, "location.locality", |a| {
        Arc::make_mut(&mut a.location).locality = Locality::parse("r2/z1");
    });
    case!(cases, Sidecar Cluster as Cluster, "location.labels", |a| {
        Arc::make_mut(&mut a.location).labels = [("zone".into(), "a".into())].into();
    });
    case!(cases, Sidecar Cluster as Cluster, "filters", |a| a.filters = filters(0));
    case!(cases, Sidecar Cluster as Cluster, "overrides", |a| a.overrides = overrides());

    scope!(Sidecar Listener as Listener: "scope.namespace" namespace = "other".into(), "scope.sidecar" sidecar = Some(id("narrow")),
        "scope.selected_rules" selected_rules = vec![id("selected"), id("selected-web")], "scope.cluster" cluster = "west".into(),
        "scope.assigned" assigned = true);
    case!(cases, Sidecar Listener as Listener, "class", |a| a.class = ProxyClass::Gateway(gateway("edge")));
    case!(cases, Sidecar Listener as Listener, "sidecar.inbound", |a| sidecar_listeners(a).inbound = [port(8081)].into());
    case!(cases, Sidecar Listener as Listener, "sidecar.mtls", |a| {
        sidecar_listeners(a).mtls = Arc::new(MtlsModes::new(Mode::Strict, []));
    });
    case!(cases, Sidecar Listener as Listener, "sidecar.exact_balance_inbound", |a| {
        sidecar_listeners(a).exact_balance_inbound = true;
    });
    case!(cases, Sidecar Listener as Listener, "sidecar.source.namespace", |a| {
        Arc::make_mut(&mut sidecar_listeners(a).source).namespace = "other".into();
    });
    case!(cases, Sidecar Listener as Listener, "sidecar.source.labels", |a| {
        Arc::make_mut(&mut sidecar_listeners(a).source).labels = [("app".into(), "tcp".into())].into();
    });
    case!(cases, Sidecar Listener as Listener, "sidecar.interception", |a| {
        sidecar_listeners(a).interception = InterceptionMode::Tproxy;
    });
    case!(cases, Sidecar Listener as Listener, "sidecar.network", |a| sidecar_listeners(a).network = "n2".into());
    case!(cases, Sidecar Listener as Listener, "sidecar.http_proxy_port", |a| {
        sidecar_listeners(a).http_proxy_port = Some(15007);
    });
    case!(cases, Sidecar Listener as Listener, "sidecar.resolver", |a| {
        sidecar_listeners(a).resolver = Some("127.0.0.1:53".parse().unwrap());
    });
    case!(cases, Router Listener as Listener, "gateway.gateways", |a| a.class = ProxyClass::Gateway(gateway("edge")));
    case!(cases, Router Listener as Listener, "gateway.kube", |a| gateway_facts(a).set.kube = [id("kube")].into());
    case!(cases, Router Listener as Listener, "gateway.ports", |a| a.class = ProxyClass::Gateway(gateway("edge")), |a| {
        gateway_facts(a).set.ports = [(80, 8080)].into();
    });
    case!(cases, Router Listener as Listener, "gateway.udp_ports", |a| a.class = ProxyClass::Gateway(gateway("edge")), |a| {
        gateway_facts(a).udp_ports = [443].into();
    });
    case!(cases, Sidecar Listener as Listener, "capabilities.istio_alpn", |a| a.capabilities.istio_alpn = true);
    case!(cases, Sidecar Listener as Listener, "capabilities.istio_stats", |a| a.capabilities.istio_stats = true);
    case!(cases, Sidecar Listener as Listener, "agent", |a| a.agent = false);
    case!(cases, Sidecar Listener as Listener, "own_files.pair", |a| {
        Arc::make_mut(&mut a.own_files).pair = Some(("cert".into(), "key".into()));
    });
    case!(cases, Sidecar Listener as Listener, "own_files.authorities", |a| {
        Arc::make_mut(&mut a.own_files).authorities = Some("roots".into());
    });
    case!(cases, Sidecar Listener as Listener, "policies.authorization", |a| {
        a.policies.authorization = [id("closed")].into();
    });
    case!(cases, Sidecar Listener as Listener, "ip", |a| a.ip = IpFamilies::Dual);
    case!(cases, Sidecar Listener as Listener, "accepts_http10", |a| a.accepts_http10 = true);
    case!(cases, Router Listener as Listener, "unprivileged", |a| a.class = ProxyClass::Gateway(gateway("edge")), |a| {
        a.unprivileged = true;
    });
    case!(cases, Sidecar Listener as Listener, "options.idle_timeout_ms", |a| a.options.idle_timeout_ms = Some(5000));
    case!(cases, Sidecar Listener as Listener, "options.exact_balance", |a| a.options.exact_balance = true);
    case!(cases, Sidecar Listener as Listener, "options.static_ports", |a| a.options.static_ports = [80, 15090]);
    case!(cases, Router Listener as Listener, "options.addresses", |a| a.class = ProxyClass::Gateway(gateway("edge")), |a| {
        a.options.addresses = vec![[127, 0, 0, 9].into()];
    });
    case!(cases, Router Listener as Listener, "options.exclusive", |a| a.class = ProxyClass::Gateway(gateway("edge")), |a| {
        a.options.exclusive = true;
    });
    case!(cases, Sidecar Listener as Listener, "filters", |a| a.filters = filters(1));
    case!(cases, Sidecar Listener as Listener, "overrides", |a| a.overrides = overrides());
    case!(cases, Sidecar Listener as Listener, "trace_identity.tags", |a| {
        Arc::make_mut(&mut a.trace_identity).tags = vec![("istio.mesh_id".into(), "other".into())];
    });
    case!(cases, Sidecar Listener as Listener, "trace_identity.service", |a| {
        Arc::make_mut(&mut a.trace_identity).service = "other".into();
    });

    scope!(Sidecar Route as Route: "scope.namespace" namespace = "other".into(), "scope.sidecar" sidecar = Some(id("narrow")),
        "scope.selected_rules" selected_rules = vec![id("selected"), id("selected-web")], "scope.cluster" cluster = "west".into(),
        "scope.assigned" assigned = true);
    case!(cases, Sidecar Route as Route, "class", |a| a.class = ProxyClass::Gateway(gateway("edge")));
    case!(cases, Router Route as Route, "gateway.gateways", |a| a.class = ProxyClass::Gateway(gateway("edge")));
    case!(cases, Router Route as Route, "gateway.kube", |a| gateway_routes(a).set.kube = [id("kube")].into());
    case!(cases, Router Route as Route, "gateway.ports", |a| a.class = ProxyClass::Gateway(gateway("edge")), |a| {
        gateway_routes(a).set.ports = [(80, 8080)].into();
    });
    case!(cases, Router Route as Route, "gateway.udp_ports", |a| a.class = ProxyClass::Gateway(gateway("edge")), |a| {
        gateway_routes(a).udp_ports = [443].into();
    });
    case!(cases, Sidecar Route as Route, "source.namespace", |a| Arc::make_mut(&mut a.source).namespace = "other".into());
    case!(cases, Sidecar Route as Route, "source.labels", |a| {
        Arc::make_mut(&mut a.source).labels = [("app".into(), "http".into())].into();
    });
    case!(cases, Sidecar Route as Route, "source.regex_limit", |a| {
        Arc::make_mut(&mut a.source).regex_limit = Some(100);
    });
    case!(cases, Sidecar Route as Route, "filters", |a| a.filters = filters(2));
    case!(cases, Sidecar Route as Route, "overrides", |a| a.overrides = overrides());

    scope!(Sidecar Endpoints as Endpoints: "scope.namespace" namespace = "other".into(), "scope.sidecar" sidecar = Some(id("narrow")),
        "scope.selected_rules" selected_rules = vec![id("selected"), id("selected-web")], "scope.cluster" cluster = "west".into());
    case!(cases, Sidecar Endpoints as Endpoints, "location.network", |a| Arc::make_mut(&mut a.location).network = "n2".into());
    case!(cases, Sidecar Endpoints as Endpoints, "location.networks", |a| {
        Arc::make_mut(&mut a.location).networks = vec!["n2".into()];
    });
    case!(cases, Sidecar Endpoints as Endpoints, "location.node", |a| Arc::make_mut(&mut a.location).node = "node2".into());
    case!(cases, Sidecar Endpoints as Endpoints, "location.locality", |a| {
        Arc::make_mut(&mut a.location).locality = Locality::parse("r2/z1");
    });
    case!(cases, Sidecar Endpoints as Endpoints, "location.labels", |a| {
        Arc::make_mut(&mut a.location).labels = [("zone".into(), "a".into())].into();
    });
    case!(cases, Sidecar Endpoints as Endpoints, "own", |a| a.own = Some(Arc::new(own())));
    macro_rules! own {
        ($($field:literal $name:ident = $value:expr),*) => {
            $( case!(cases, Sidecar Endpoints as Endpoints, $field, |a| a.own = Some(Arc::new(own())), |a| {
                Arc::make_mut(a.own.as_mut().unwrap()).$name = $value;
            }); )*
        };
    }
    own!("own.service" service = service("db"), "own.port" port = 81, "own.workload" workload = "other".into(),
        "own.templates" templates = ["2".into(), "".into()], "own.region" region = "r2".into());

    scope!(Grpc Listener as GrpcListener: "scope.namespace" namespace = "other".into(), "scope.sidecar" sidecar = Some(id("narrow")),
        "scope.cluster" cluster = "west".into());
    case!(cases, Grpc Listener as GrpcListener, "domain", |a| a.domain = "other.svc.cluster.local".into());
    case!(cases, Grpc Listener as GrpcListener, "inbound", |a| a.inbound = [8081].into());
    case!(cases, Grpc Listener as GrpcListener, "mutual_tls", |a| a.inbound = [8080].into(), |a| a.mutual_tls = [8080].into());
    case!(cases, Grpc Listener as GrpcListener, "policies", |a| a.inbound = [8080].into(), |a| a.policies = [id("closed")].into());

    case!(cases, Grpc Cluster as GrpcCluster, "namespace", |a| a.namespace = "other".into());
    case!(cases, Grpc Cluster as GrpcCluster, "sidecar", |a| a.sidecar = Some(id("narrow")));
    case!(cases, Grpc Cluster as GrpcCluster, "selected_rules", |a| a.selected_rules = vec![id("selected"), id("selected-web")]);

    case!(cases, Sidecar Secret as Secret, "namespace", |a| a.namespace = "other".into());
    case!(cases, Sidecar Secret as Secret, "cluster", |a| a.cluster = "west".into());
    case!(cases, Sidecar Secret as Secret, "account", |a| a.account = Some("web".into()));
    case!(cases, Sidecar Secret as Secret, "gateways", |a| a.account = Some("web".into()), |a| a.gateways = [id("edge")].into());
    case!(cases, Sidecar Secret as Secret, "kube", |a| a.account = Some("web".into()), |a| a.kube = [id("kube")].into());
    case!(cases, Sidecar Secret as Secret, "key_provider", |a| {
        a.key_provider = Some(KeyProvider {
            sort: KeyProviderSort::Qat,
            poll_delay: Duration::from_millis(5),
            fallback: false,
        });
    });
    case!(cases, Sidecar Extension as Extension, "filters", |a| a.filters = filters(3));

    scope!(Sidecar NameTable as NameTable: "scope.namespace" namespace = "other".into(), "scope.sidecar" sidecar = Some(id("narrow")));
    macro_rules! view {
        ($($field:literal $name:ident = $value:expr),*) => {
            $( case!(cases, Sidecar NameTable as NameTable, $field, |a| Arc::make_mut(&mut a.view).$name = $value); )*
        };
    }
    view!("view.cluster" cluster = "west".into(), "view.network" network = "n2".into(), "view.ip" ip = IpFamilies::V6,
        "view.assigned" assigned = true);
    cases
}

fn apply<T: Clone>(facts: &mut Arc<T>, change: fn(&mut T)) {
    change(Arc::make_mut(facts));
}

fn id(name: &str) -> ObjectId {
    ObjectId { namespace: "shop".into(), name: name.into() }
}

fn service(name: &str) -> ServiceKey {
    ServiceKey {
        hostname: Hostname::parse(&format!("{name}.shop.svc.cluster.local")).unwrap(),
        namespace: "shop".into(),
    }
}

fn port(port: u16) -> InboundPort {
    InboundPort {
        port,
        protocol: Protocol::Http,
        endpoint: None,
        service: Some((service("web"), 80)),
        by_sidecar: false,
        bind: None,
        captured: true,
        tls: false,
    }
}

fn own() -> OwnWorkload {
    OwnWorkload {
        service: service("web"),
        port: 80,
        workload: "web".into(),
        templates: ["1".into(), "".into()],
        region: "r1".into(),
    }
}

fn gateway(name: &str) -> Arc<GatewayFacts> {
    Arc::new(GatewayFacts {
        set: GatewaySet { gateways: [id(name)].into(), ..GatewaySet::default() },
        udp_ports: [].into(),
    })
}

fn filters(patch: u16) -> Filters {
    let patches = [patch].into();
    [FilterRef { id: id("patches"), patches }].into()
}

/// Overrides that change listeners, routes and clusters.
fn overrides() -> Option<Arc<ProxyConfigOverride>> {
    Some(Arc::new(ProxyConfigOverride::new(ProxyConfig {
        proxy_headers: Some(ProxyHeaders {
            attempt_count: Some(config::mesh::HeaderSwitch { disabled: Some(true) }),
            request_id: Some(config::mesh::HeaderSwitch { disabled: Some(true) }),
            preserve_http1_header_case: Some(true),
            ..ProxyHeaders::default()
        }),
        connection_settings: Some(ConnectionSettings::default()),
        ..ProxyConfig::default()
    })))
}

fn sidecar_clusters(audience: &mut ClusterAudience) -> &mut SidecarClusterFacts {
    match &mut audience.class {
        ProxyClass::Sidecar(facts) => facts,
        other => panic!("{other:?}"),
    }
}

fn sidecar_listeners(audience: &mut ListenerAudience) -> &mut SidecarListenerFacts {
    match &mut audience.class {
        ProxyClass::Sidecar(facts) => facts,
        other => panic!("{other:?}"),
    }
}

fn gateway_facts(audience: &mut ListenerAudience) -> &mut GatewayFacts {
    match &mut audience.class {
        ProxyClass::Gateway(facts) => Arc::make_mut(facts),
        other => panic!("{other:?}"),
    }
}

fn gateway_routes(audience: &mut RouteAudience) -> &mut GatewayFacts {
    match &mut audience.class {
        ProxyClass::Gateway(facts) => Arc::make_mut(facts),
        other => panic!("{other:?}"),
    }
}

type Fields = Vec<(&'static str, String)>;

/// The name of an audience, and its fields with their values. Destructuring is exhaustive: a new field needs a case.
fn fields(audience: &Audience) -> (&'static str, Fields) {
    let mut out = Fields::new();
    let name = match audience {
        Audience::Cluster(a) => {
            cluster_fields(a, &mut out);
            "cluster"
        }
        Audience::Listener(a) => {
            listener_fields(a, &mut out);
            "listener"
        }
        Audience::Route(a) => {
            let RouteAudience { scope, class, source, filters, overrides } = &**a;
            scope_fields(
                scope,
                &["scope.namespace", "scope.sidecar", "scope.selected_rules", "scope.cluster", "scope.assigned"],
                &mut out,
            );
            class_fields(class, &mut out, |(), _| {}, |facts, out| gateway_fields(facts, out));
            source_fields(source, ["source.namespace", "source.labels"], &mut out);
            add(&mut out, "source.regex_limit", source.regex_limit);
            add(&mut out, "filters", filters);
            add(&mut out, "overrides", overrides);
            "route"
        }
        Audience::Endpoints(a) => {
            endpoints_fields(a, &mut out);
            "endpoints"
        }
        Audience::GrpcCluster(scope) => {
            scope_fields(scope, &["namespace", "sidecar", "selected_rules"], &mut out);
            "grpc cluster"
        }
        Audience::GrpcListener(a) => {
            let GrpcAudience { scope, domain, inbound, mutual_tls, policies } = &**a;
            scope_fields(scope, &["scope.namespace", "scope.sidecar", "", "scope.cluster"], &mut out);
            add(&mut out, "domain", domain);
            add(&mut out, "inbound", inbound);
            add(&mut out, "mutual_tls", mutual_tls);
            add(&mut out, "policies", policies);
            "grpc"
        }
        Audience::Secret(a) => {
            let SecretAudience { namespace, cluster, account, gateways, kube, key_provider } = &**a;
            add(&mut out, "namespace", namespace);
            add(&mut out, "cluster", cluster);
            add(&mut out, "account", account);
            add(&mut out, "gateways", gateways);
            add(&mut out, "kube", kube);
            add(&mut out, "key_provider", key_provider);
            "secret"
        }
        Audience::Extension(a) => {
            let ExtensionAudience { filters } = &**a;
            add(&mut out, "filters", filters);
            "extension"
        }
        Audience::NameTable(a) => {
            let NameAudience { scope, view } = &**a;
            scope_fields(scope, &["scope.namespace", "scope.sidecar"], &mut out);
            let NameView { cluster, network, ip, assigned } = &**view;
            add(&mut out, "view.cluster", cluster);
            add(&mut out, "view.network", network);
            add(&mut out, "view.ip", ip);
            add(&mut out, "view.assigned", assigned);
            "name table"
        }
    };
    (name, out)
}

fn add(out: &mut Fields, name: &'static str, value: impl Debug) {
    out.push((name, format!("{value:?}")));
}

fn cluster_fields(audience: &ClusterAudience, out: &mut Fields) {
    let ClusterAudience { scope, class, agent, ip, location, filters, overrides } = audience;
    scope_fields(scope, &["scope.namespace", "scope.sidecar", "scope.selected_rules"], out);
    let sidecar = |facts: &SidecarClusterFacts, out: &mut Fields| {
        let SidecarClusterFacts { inbound, resolver } = facts;
        add(out, "sidecar.inbound", inbound);
        add(out, "sidecar.resolver", resolver);
    };
    let gateway = |facts: &GatewayClusterFacts, out: &mut Fields| {
        let GatewayClusterFacts { sni_passthrough, client_certificate } = facts;
        add(out, "gateway.sni_passthrough", sni_passthrough);
        add(out, "gateway.client_certificate", client_certificate);
    };
    class_fields(class, out, sidecar, gateway);
    add(out, "agent", agent);
    add(out, "ip", ip);
    location_fields(location, &["", "", "", "location.locality", "location.labels"], out);
    add(out, "filters", filters);
    add(out, "overrides", overrides);
}

fn listener_fields(audience: &ListenerAudience, out: &mut Fields) {
    let ListenerAudience {
        scope,
        class,
        capabilities,
        agent,
        own_files,
        policies,
        ip,
        accepts_http10,
        unprivileged,
        options,
        filters,
        overrides,
        trace_identity,
    } = audience;
    let names = ["scope.namespace", "scope.sidecar", "scope.selected_rules", "scope.cluster", "scope.assigned"];
    scope_fields(scope, &names, out);
    class_fields(class, out, sidecar_listener_fields, |facts, out| gateway_fields(facts, out));
    let Capabilities { istio_alpn, istio_stats, cryptomb, qat } = capabilities;
    assert!(!cryptomb && !qat, "listeners do not depend on key providers");
    add(out, "capabilities.istio_alpn", istio_alpn);
    add(out, "capabilities.istio_stats", istio_stats);
    add(out, "agent", agent);
    let OwnFiles { pair, authorities } = &**own_files;
    add(out, "own_files.pair", pair);
    add(out, "own_files.authorities", authorities);
    let Policies { authorization, authentication: _ } = policies;
    add(out, "policies.authorization", authorization);
    add(out, "ip", ip);
    add(out, "accepts_http10", accepts_http10);
    add(out, "unprivileged", unprivileged);
    let ListenerOptions { idle_timeout_ms, exact_balance, static_ports, addresses, exclusive } = options;
    add(out, "options.idle_timeout_ms", idle_timeout_ms);
    add(out, "options.exact_balance", exact_balance);
    add(out, "options.static_ports", static_ports);
    add(out, "options.addresses", addresses);
    add(out, "options.exclusive", exclusive);
    add(out, "filters", filters);
    add(out, "overrides", overrides);
    let TraceIdentity { tags, service } = &**trace_identity;
    add(out, "trace_identity.tags", tags);
    add(out, "trace_identity.service", service);
}

fn sidecar_listener_fields(facts: &SidecarListenerFacts, out: &mut Fields) {
    let SidecarListenerFacts {
        inbound,
        mtls,
        exact_balance_inbound,
        source,
        interception,
        network,
        http_proxy_port,
        resolver,
    } = facts;
    add(out, "sidecar.inbound", inbound);
    add(out, "sidecar.mtls", mtls);
    add(out, "sidecar.exact_balance_inbound", exact_balance_inbound);
    source_fields(source, ["sidecar.source.namespace", "sidecar.source.labels"], out);
    add(out, "sidecar.interception", interception);
    add(out, "sidecar.network", network);
    add(out, "sidecar.http_proxy_port", http_proxy_port);
    add(out, "sidecar.resolver", resolver);
}

fn endpoints_fields(audience: &AllEndpoints, out: &mut Fields) {
    let AllEndpoints { scope, location, own } = audience;
    scope_fields(scope, &["scope.namespace", "scope.sidecar", "scope.selected_rules", "scope.cluster"], out);
    let names = ["location.network", "location.networks", "location.node", "location.locality", "location.labels"];
    location_fields(location, &names, out);
    add(out, "own", own.is_some());
    if let Some(own) = own {
        let OwnWorkload { service, port, workload, templates, region } = &**own;
        add(out, "own.service", service);
        add(out, "own.port", port);
        add(out, "own.workload", workload);
        add(out, "own.templates", templates);
        add(out, "own.region", region);
    }
}

/// The fields of a scope that an audience uses. The others must have their defaults.
fn scope_fields(scope: &Scope, names: &[&'static str], out: &mut Fields) {
    let Scope { namespace, sidecar, selected_rules, cluster, assigned } = scope;
    let values = [
        format!("{namespace:?}"),
        format!("{sidecar:?}"),
        format!("{selected_rules:?}"),
        format!("{cluster:?}"),
        format!("{assigned:?}"),
    ];
    let defaults = ["", "", "[]", "\"\"", "false"];
    for (at, value) in values.into_iter().enumerate() {
        match names.get(at).copied().unwrap_or_default() {
            "" => assert_eq!(value, defaults[at], "field {at} of a scope"),
            name => out.push((name, value)),
        }
    }
}

fn location_fields(location: &ClientLocation, names: &[&'static str; 5], out: &mut Fields) {
    let ClientLocation { network, networks, node, locality, labels } = location;
    let values = [
        format!("{network:?}"),
        format!("{networks:?}"),
        format!("{node:?}"),
        format!("{locality:?}"),
        format!("{labels:?}"),
    ];
    let named = names.iter().zip(values).filter(|(name, _)| !name.is_empty());
    out.extend(named.map(|(name, value)| (*name, value)));
}

fn source_fields(source: &Source, names: [&'static str; 2], out: &mut Fields) {
    let Source { namespace, labels, .. } = source;
    add(out, names[0], namespace);
    add(out, names[1], labels);
}

fn gateway_fields(facts: &GatewayFacts, out: &mut Fields) {
    let GatewayFacts { set: GatewaySet { gateways, kube, ports }, udp_ports } = facts;
    add(out, "gateway.gateways", gateways);
    add(out, "gateway.kube", kube);
    add(out, "gateway.ports", ports);
    add(out, "gateway.udp_ports", udp_ports);
}

fn class_fields<S, G>(
    class: &ProxyClass<S, G>,
    out: &mut Fields,
    sidecar: impl Fn(&S, &mut Fields),
    gateway: impl Fn(&G, &mut Fields),
) {
    let name = match class {
        ProxyClass::Sidecar(facts) => {
            sidecar(facts, out);
            "sidecar"
        }
        ProxyClass::Gateway(facts) => {
            gateway(facts, out);
            "gateway"
        }
        ProxyClass::Waypoint => "waypoint",
        ProxyClass::Ztunnel => "ztunnel",
        ProxyClass::Grpc => "grpc",
    };
    add(out, "class", name);
}
