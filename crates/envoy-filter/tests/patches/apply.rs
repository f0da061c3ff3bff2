//! The effect of each operation on a message.

use crate::support::{compiled, filter_id, json, message};
use config::istio::EnvoyFilter;
use config::istio::envoy_filter::{ApplyTo, EnvoyConfigPatch, EnvoyPatch, PatchOperation};
use envoy_filter::apply;
use envoy_filter::merge::{Lists, merge};
use envoy_filter::{CompiledFilter, CompiledPatch, Outcomes, PatchId};
use model::audience::FilterRef;
use protos::dynamic::{DynamicMessage, encode_dynamic};
use serde_json::{Value as Json, json};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "envoy.config.listener.v3.Listener";
const TABLE: &str = "envoy.config.route.v3.RouteConfiguration";

fn cluster(value: &Json, patches: &str) -> Json {
    let mut cluster = message(CLUSTER, value);
    apply::cluster(&mut cluster, &compiled(patches), &mut Outcomes::default());
    json(&cluster)
}

fn listener(value: &Json, patches: &str) -> Json {
    let mut listener = message(LISTENER, value);
    apply::listener(&mut listener, &compiled(patches), &mut Outcomes::default());
    json(&listener)
}

fn table(value: &Json, patches: &str) -> Json {
    let mut table = message(TABLE, value);
    apply::route_configuration(&mut table, &compiled(patches), &mut Outcomes::default());
    json(&table)
}

fn merged(into: &Json, from: &Json, lists: Lists) -> Json {
    let mut into = message(CLUSTER, into);
    merge(&mut into, &message(CLUSTER, from), lists);
    json(&into)
}

/// The values of a field in all entries of a list.
fn each<'a>(list: &'a Json, field: &str) -> Vec<&'a str> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| item[field].as_str().unwrap_or("")).collect()
}

fn packed(name: &str, kind: &str) -> Json {
    json!({"name": name, "typedConfig": {"@type": format!("type.googleapis.com/envoy.extensions.filters.{kind}")}})
}

#[test]
fn messages_merge_like_protobuf() {
    let one = json!({
        "name": "a",
        "connectTimeout": "1.500s",
        "circuitBreakers": {"thresholds": [{"maxRetries": 1}]},
        "metadata": {"filterMetadata": {"x": {"kept": false}, "y": {}}},
        "commonLbConfig": {"healthyPanicThreshold": {"value": 10.0}},
        "ringHashLbConfig": {"minimumRingSize": "5"},
    });
    let other = json!({
        "connectTimeout": "3s",
        "circuitBreakers": {"thresholds": [{"maxRetries": 2}]},
        "metadata": {"filterMetadata": {"x": {"new": true}}},
        "commonLbConfig": {"updateMergeWindow": "1s"},
        "leastRequestLbConfig": {"choiceCount": 3},
    });
    let grown = merged(&one, &other, Lists::Grow);
    assert_eq!(grown["name"], "a");
    assert_eq!(grown["connectTimeout"], "3s", "a duration is one value");
    assert_eq!(grown["circuitBreakers"]["thresholds"], json!([{"maxRetries": 1}, {"maxRetries": 2}]));
    assert_eq!(grown["metadata"]["filterMetadata"], json!({"x": {"new": true}, "y": {}}), "entries are replaced");
    assert_eq!(grown["commonLbConfig"], json!({"healthyPanicThreshold": {"value": 10.0}, "updateMergeWindow": "1s"}));
    assert_eq!(grown["ringHashLbConfig"], Json::Null, "a field of a oneof replaces the others");
    let replaced = merged(&one, &other, Lists::Replace);
    assert_eq!(replaced["circuitBreakers"]["thresholds"], json!([{"maxRetries": 2}]));
}

#[test]
fn a_cluster_keeps_its_name_and_invalid_patches_are_left_out() {
    let plain = json!({"name": "outbound|80||a", "connectTimeout": "1s", "type": "EDS",
        "dnsLookupFamily": "V4_ONLY", "ringHashLbConfig": {"maximumRingSize": "100"}});
    let changed = cluster(
        &plain,
        "{applyTo: CLUSTER, patch: {operation: MERGE, value: {name: b, connectTimeout: 2s}}}, \
         {applyTo: CLUSTER, patch: {operation: MERGE, value: {transportSocketMatches: [{name: x}], altStatName: c}}}",
    );
    assert_eq!((&changed["name"], &changed["connectTimeout"]), (&json!("outbound|80||a"), &json!("2s")));
    assert_eq!(changed["altStatName"], "c");
}

#[test]
fn transport_sockets_of_the_same_name_are_merged() {
    const TLS: &str = "\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let patch = format!(
        "{{applyTo: CLUSTER, patch: {{operation: MERGE, value: {{connectTimeout: 9s, transportSocket: \
         {{name: tls, typedConfig: {{{TLS}, allowRenegotiation: true}}}}}}}}}}"
    );
    let socket = |name: &str| {
        json!({"name": name, "typedConfig": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", "sni": "a"}})
    };
    let same = cluster(&json!({"name": "a", "transportSocket": socket("tls")}), &patch);
    let config = &same["transportSocket"]["typedConfig"];
    assert_eq!((&config["sni"], &config["allowRenegotiation"]), (&json!("a"), &json!(true)));
    assert_eq!(same["connectTimeout"], Json::Null, "as in Istio, such a patch has no other effect");
    let other = cluster(&json!({"name": "a", "transportSocket": socket("other")}), &patch);
    assert_eq!(other["transportSocket"]["name"], "tls");
    assert_eq!(other["transportSocket"]["typedConfig"]["sni"], Json::Null);
    let matches = json!({"name": "a", "transportSocketMatches": [
        {"name": "x", "transportSocket": socket("other")}, {"name": "y", "transportSocket": socket("tls")}]});
    let matched = cluster(&matches, &patch);
    assert_eq!(matched["transportSocket"], Json::Null);
    assert_eq!(matched["transportSocketMatches"][1]["transportSocket"]["typedConfig"]["allowRenegotiation"], true);
    assert_eq!(matched["transportSocketMatches"][0], matches["transportSocketMatches"][0]);
}

fn manager(filters: &[&str]) -> Json {
    let filters: Vec<Json> = filters
        .iter()
        .map(|name| match *name {
            "router" => packed("envoy.filters.http.router", "http.router.v3.Router"),
            name => packed(name, "http.cors.v3.Cors"),
        })
        .collect();
    json!({"name": "envoy.filters.network.http_connection_manager", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "statPrefix": "a", "httpFilters": filters}})
}

fn with_chain(filters: &[Json]) -> Json {
    json!({"name": "l", "filterChains": [{"name": "c", "filters": filters}]})
}

fn http_patch(operation: &str, sub_filter: &str) -> String {
    let sub = match sub_filter {
        "" => String::new(),
        name => format!(", subFilter: {{name: {name}}}"),
    };
    format!(
        "{{applyTo: HTTP_FILTER, match: {{listener: {{filterChain: {{filter: {{name: \
         envoy.filters.network.http_connection_manager{sub}}}}}}}}}, patch: {{operation: {operation}, value: {{name: new, \
         typedConfig: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}}}}}}}"
    )
}

#[test]
fn http_filters_are_inserted_before_the_router() {
    let plain = with_chain(&[manager(&["x", "y", "x", "router"])]);
    for (operation, sub_filter, wanted) in [
        ("INSERT_FIRST", "", &["new", "x", "y", "x", "router"][..]),
        ("INSERT_FIRST", "none", &["new", "x", "y", "x", "router"]),
        ("INSERT_BEFORE", "", &["new", "x", "y", "x", "router"]),
        ("INSERT_BEFORE", "x", &["new", "x", "y", "x", "router"]),
        ("INSERT_BEFORE", "envoy.filters.http.router", &["x", "y", "x", "new", "router"]),
        ("INSERT_AFTER", "x", &["x", "new", "y", "x", "router"]),
        ("INSERT_AFTER", "none", &["x", "y", "x", "router"]),
        ("REPLACE", "x", &["new", "y", "x", "router"]),
        ("REPLACE", "", &["x", "y", "x", "router"]),
        ("REMOVE", "x", &["y", "router"]),
        ("REMOVE", "", &["x", "y", "x", "router"]),
        // Envoy would reject a listener with a filter after the router, or in its place.
        ("ADD", "", &["x", "y", "x", "router"]),
        ("INSERT_AFTER", "", &["x", "y", "x", "router"]),
        ("INSERT_AFTER", "envoy.filters.http.router", &["x", "y", "x", "router"]),
        ("REPLACE", "envoy.filters.http.router", &["x", "y", "x", "router"]),
        ("REMOVE", "envoy.filters.http.router", &["x", "y", "x", "router"]),
        ("MERGE", "y", &["x", "new", "x", "router"]),
    ] {
        let changed = listener(&plain, &http_patch(operation, sub_filter));
        let filters = &changed["filterChains"][0]["filters"][0]["typedConfig"]["httpFilters"];
        let wanted: Vec<&str> =
            wanted.iter().map(|name| if *name == "router" { "envoy.filters.http.router" } else { name }).collect();
        assert_eq!(each(filters, "name"), wanted, "{operation} {sub_filter}");
    }
}

#[test]
fn network_filters_are_inserted_before_the_terminal_filter() {
    let tcp = json!({"name": "envoy.filters.network.tcp_proxy", "typedConfig": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "statPrefix": "a", "cluster": "c"}});
    let plain = with_chain(&[packed("first", "network.rbac.v3.RBAC"), tcp]);
    let patch = |operation: &str, filter: &str| {
        let filter = match filter {
            "" => String::new(),
            name => format!(", match: {{listener: {{filterChain: {{filter: {{name: {name}}}}}}}}}"),
        };
        format!(
            "{{applyTo: NETWORK_FILTER{filter}, patch: {{operation: {operation}, value: {{name: new, typedConfig: \
             {{\"@type\": type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit, \
             statPrefix: a, maxConnections: 1}}}}}}}}"
        )
    };
    const TCP: &str = "envoy.filters.network.tcp_proxy";
    for (operation, filter, wanted) in [
        ("INSERT_FIRST", "", ["new", "first", TCP].as_slice()),
        ("INSERT_BEFORE", TCP, &["first", "new", TCP]),
        ("INSERT_AFTER", "first", &["first", "new", TCP]),
        ("REPLACE", "first", &["new", TCP]),
        ("REMOVE", "first", &[TCP]),
        ("ADD", "", &["first", TCP]),
        ("REMOVE", TCP, &["first", TCP]),
    ] {
        let changed = listener(&plain, &patch(operation, filter));
        assert_eq!(each(&changed["filterChains"][0]["filters"], "name"), wanted, "{operation} {filter}");
    }
}

#[test]
fn filter_chains_are_matched_by_their_conditions() {
    let chain =
        |name: &str, takes: Json| json!({"name": name, "filterChainMatch": takes, "filters": [manager(&["router"])]});
    let plain = json!({"name": "virtualInbound", "filterChains": [
        chain("tls", json!({"serverNames": ["a.b"], "transportProtocol": "tls", "applicationProtocols": ["h2", "x"]})),
        chain("port", json!({"destinationPort": 80})),
    ], "defaultFilterChain": {"name": "rest", "filters": [manager(&["router"])]}});
    let remove = |matches: &str| {
        format!("{{applyTo: FILTER_CHAIN, match: {{listener: {{{matches}}}}}, patch: {{operation: REMOVE}}}}")
    };
    for (matches, left) in [
        ("filterChain: {name: tls}", ["port"].as_slice()),
        ("filterChain: {sni: a.b}", &["port"]),
        ("filterChain: {sni: a}", &["tls", "port"]),
        ("filterChain: {transportProtocol: tls}", &["port"]),
        ("filterChain: {applicationProtocols: \"x,h2\"}", &["port"]),
        ("filterChain: {applicationProtocols: \"x,y\"}", &["tls", "port"]),
        ("filterChain: {destinationPort: 80}", &["tls"]),
        ("portNumber: 80", &["tls"]),
        ("name: other", &["tls", "port"]),
        // Envoy would reject a listener without a filter chain.
        ("", &["tls", "port"]),
    ] {
        let changed = listener(&plain, &remove(matches));
        assert_eq!(each(&changed["filterChains"], "name"), left, "{matches}");
    }
    let added = listener(
        &plain,
        "{applyTo: FILTER_CHAIN, patch: {operation: ADD, value: {name: again, filterChainMatch: {destinationPort: 80}}}}, \
         {applyTo: FILTER_CHAIN, patch: {operation: ADD, value: {name: new, filterChainMatch: {destinationPort: 81}}}}",
    );
    assert_eq!(each(&added["filterChains"], "name"), ["tls", "port", "new"]);
}

fn hosts() -> Json {
    let route = |name: &str| json!({"name": name, "match": {"prefix": "/"}, "route": {"cluster": "c"}});
    json!({"name": "inbound|80||", "virtualHosts": [
        {"name": "a", "domains": ["a.example.com", "a"], "routes": [route("r1"), route("r2")]},
        {"name": "b", "domains": ["b"]},
    ]})
}

#[test]
fn virtual_hosts_are_changed_added_and_removed() {
    let patch = |matches: &str, patch: &str| {
        format!("{{applyTo: VIRTUAL_HOST, match: {{routeConfiguration: {{{matches}}}}}, patch: {{{patch}}}}}")
    };
    let names = |patches: &str| each(&table(&hosts(), patches)["virtualHosts"], "name").join(" ");
    assert_eq!(names(&patch("vhost: {name: a}", "operation: REMOVE")), "b");
    assert_eq!(names(&patch("vhost: {domainName: b}", "operation: REMOVE")), "a");
    assert_eq!(names(&patch("portNumber: 81", "operation: REMOVE")), "a b");
    assert_eq!(names(&patch("portNumber: 80, name: \"inbound|80||\"", "operation: REMOVE")), "");
    assert_eq!(names(&patch("vhost: {name: a}", "operation: REPLACE, value: {name: c, domains: [c]}")), "c b");
    assert_eq!(names(&patch("", "operation: ADD, value: {name: c, domains: [c]}")), "a b c");
    // Envoy would reject a table with duplicate domains.
    assert_eq!(names(&patch("", "operation: ADD, value: {name: c, domains: [b]}")), "a b");
    let merged =
        table(&hosts(), &patch("vhost: {name: b}", "operation: MERGE, value: {domains: [a], requireTls: ALL}"));
    assert_eq!(merged["virtualHosts"], hosts()["virtualHosts"]);
}

#[test]
fn routes_are_inserted_by_position() {
    let patch = |operation: &str, route: &str| {
        let route = match route {
            "" => String::new(),
            name => format!(", route: {{name: {name}}}"),
        };
        format!(
            "{{applyTo: HTTP_ROUTE, match: {{routeConfiguration: {{vhost: {{name: a{route}}}}}}}, patch: {{operation: \
             {operation}, value: {{name: new, match: {{path: /x}}, redirect: {{pathRedirect: /y}}}}}}}}"
        )
    };
    for (operation, route, wanted) in [
        ("ADD", "", ["r1", "r2", "new"].as_slice()),
        ("INSERT_FIRST", "", &["new", "r1", "r2"]),
        ("INSERT_FIRST", "r2", &["new", "r1", "r2"]),
        ("INSERT_FIRST", "none", &["r1", "r2"]),
        ("INSERT_BEFORE", "r2", &["r1", "new", "r2"]),
        ("INSERT_AFTER", "r1", &["r1", "new", "r2"]),
        ("REMOVE", "r1", &["r2"]),
        ("REMOVE", "", &[]),
        ("REPLACE", "r1", &["r1", "r2"]),
        ("MERGE", "r1", &["new", "r2"]),
    ] {
        let changed = table(&hosts(), &patch(operation, route));
        assert_eq!(each(&changed["virtualHosts"][0]["routes"], "name"), wanted, "{operation} {route}");
    }
    let by_action = "{applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {action: REDIRECT}}}}, patch: {operation: REMOVE}}";
    assert_eq!(table(&hosts(), by_action)["virtualHosts"][0]["routes"].as_array().unwrap().len(), 2);
}

#[test]
fn an_invalid_patch_does_not_affect_others() {
    let patch = |value: Json| EnvoyConfigPatch {
        apply_to: ApplyTo::Cluster,
        matches: None,
        patch: Some(EnvoyPatch { operation: PatchOperation::Merge, value: Some(value), ..EnvoyPatch::default() }),
    };
    let filter = EnvoyFilter {
        config_patches: vec![
            patch(json!({"connectTimeout": "soon"})),
            patch(json!({"connectTimeout": "-1s"})),
            patch(json!({"ofTheFuture": {}, "connectTimeout": "5s"})),
            patch(json!({"transportSocket": {"typedConfig": {"@type": "t/no.such.Message"}}})),
            patch(json!([])),
            EnvoyConfigPatch::default(),
        ],
        ..EnvoyFilter::default()
    };
    let compiled = CompiledFilter::of(&filter_id(), &filter);
    let usable: Vec<bool> = compiled.patches.iter().map(Option::is_some).collect();
    assert_eq!(usable, [false, false, true, false, false, false]);
    let patches: Vec<_> = compiled.patches.into_iter().flatten().collect();
    let mut cluster: DynamicMessage = message(CLUSTER, &json!({"name": "a"}));
    apply::cluster(&mut cluster, &patches, &mut Outcomes::default());
    assert_eq!(json(&cluster)["connectTimeout"], "5s");
}

#[test]
fn a_resource_does_not_grow_without_limit() {
    let patch = format!(
        "{{applyTo: CLUSTER, patch: {{operation: MERGE, value: {{transportSocketMatches: [{{name: {}}}]}}}}}}",
        "x".repeat(1 << 20)
    );
    let patch = compiled(&patch).remove(0);
    let id = |index| PatchId { index, ..patch.id.clone() };
    let patches: Vec<CompiledPatch> = (0..20).map(|index| CompiledPatch { id: id(index), ..patch.clone() }).collect();
    let cluster = message(CLUSTER, &json!({"name": "a"}));
    let mut outcomes = Outcomes::default();
    let changed = apply::encoded_cluster(&encode_dynamic(&cluster).into(), &patches, &mut outcomes);
    assert!(changed.len() > 15 << 20 && changed.len() < 16 << 20, "{}", changed.len());
    let indexes: Vec<u16> = (0..20).collect();
    let left = outcomes.left(&[FilterRef { id: filter_id(), patches: indexes.into() }]);
    let left: Vec<u16> = left.iter().filter(|left| left.why.is_some()).map(|left| left.patch.index).collect();
    assert_eq!(left, [15, 16, 17, 18, 19]);
}
