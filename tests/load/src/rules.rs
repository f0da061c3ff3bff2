//! The rules of a mesh with many teams: a VirtualService and a DestinationRule for each service, Sidecars and
//! EnvoyFilters.

use crate::objects::Size;

/// The number of Sidecars in a mesh with rules; each selects one proxy.
const SIDECARS: usize = 100;
/// The number of EnvoyFilters in a mesh with rules.
const FILTERS: usize = 50;

/// The objects, each as a text.
pub(crate) fn objects(size: Size) -> Vec<String> {
    // Service 0 has the VirtualService that is measured.
    let virtual_services = (1..size.services).map(|service| virtual_service(size, service));
    let destination_rules = (0..size.services).map(|service| destination_rule(size, service));
    let sidecars = (0..SIDECARS).map(|number| sidecar(size, number));
    let filters = (0..FILTERS).map(|number| envoy_filter(size, number));
    virtual_services.chain(destination_rules).chain(sidecars).chain(filters).collect()
}

fn virtual_service(size: Size, service: usize) -> String {
    let (host, namespace) = (size.host(service), size.namespace(service));
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{ name: svc-{service}, namespace: {namespace} }}\n\
         spec:\n  hosts: [{host}]\n  http:\n  - match: [{{ uri: {{ prefix: /v2 }} }}]\n    timeout: 5s\n\
         \x20   route: [{{ destination: {{ host: {host}, subset: v2, port: {{ number: 80 }} }} }}]\n\
         \x20 - retries: {{ attempts: 3, perTryTimeout: 2s }}\n\
         \x20   route: [{{ destination: {{ host: {host}, subset: v1, port: {{ number: 80 }} }} }}]\n"
    )
}

fn destination_rule(size: Size, service: usize) -> String {
    let (host, namespace) = (size.host(service), size.namespace(service));
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
         metadata: {{ name: svc-{service}, namespace: {namespace} }}\n\
         spec:\n  host: {host}\n  trafficPolicy:\n    connectionPool: {{ http: {{ http2MaxRequests: 1000 }} }}\n\
         \x20   outlierDetection: {{ consecutive5xxErrors: 7, interval: 30s }}\n\
         \x20 subsets:\n  - {{ name: v1, labels: {{ version: v1 }} }}\n  - {{ name: v2, labels: {{ version: v2 }} }}\n"
    )
}

/// Limits one proxy to its own namespace and the next one.
fn sidecar(size: Size, number: usize) -> String {
    let (own, next) = (size.namespace(number), size.namespace(number + 1));
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{ name: load-{number}, namespace: {own} }}\n\
         spec:\n  workloadSelector: {{ labels: {{ app: svc-{number} }} }}\n  egress:\n  - hosts: [./*, {next}/*]\n"
    )
}

/// A service that only the clients of a namespace see, and their policy for a service of the next one.
pub(crate) fn private(size: Size, number: usize) -> String {
    let (namespace, host) = (size.namespace(number), size.host(number + 1));
    let meta = format!("metadata: {{ name: private, namespace: {namespace} }}");
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\n{meta}\nspec:\n  exportTo: [.]\n\
         \x20 hosts: [private.{namespace}.example.com]\n  addresses: [{}]\n  resolution: STATIC\n\
         \x20 ports: [{{ number: 5432, name: tcp, protocol: TCP }}, {{ number: 80, name: http, protocol: HTTP }}]\n\
         \x20 endpoints: [{{ address: 192.0.2.1 }}]\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\n{meta}\nspec:\n  exportTo: [.]\n  host: {host}\n\
         \x20 trafficPolicy: {{ outlierDetection: {{ consecutive5xxErrors: 3 }} }}\n",
        size.address(number, 100)
    )
}

/// Changes the cluster of one service in all sidecars of the mesh.
pub(crate) fn filter_of_all(size: Size) -> String {
    format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{ name: for-all, namespace: istio-system }}\nspec:\n  configPatches:\n  - applyTo: CLUSTER\n\
         \x20   match: {{ context: SIDECAR_OUTBOUND, cluster: {{ service: {} }} }}\n\
         \x20   patch: {{ operation: MERGE, value: {{ connect_timeout: 4s }} }}\n",
        size.host(1)
    )
}

/// Denies a path to the clients of one service, or of all. A later generation denies another path.
pub(crate) fn policy(size: Size, service: Option<usize>, generation: usize) -> String {
    let (name, namespace, selector) = match service {
        None => ("of-all".to_owned(), "istio-system".to_owned(), String::new()),
        Some(service) => {
            let selector = format!("  selector: {{ matchLabels: {{ app: svc-{service} }} }}\n");
            (format!("of-{service}"), size.namespace(service), selector)
        }
    };
    format!(
        "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
         metadata: {{ name: {name}, namespace: {namespace} }}\nspec:\n{selector}  action: DENY\n\
         \x20 rules: [{{ to: [{{ operation: {{ paths: [/denied-{generation}] }} }}] }}]\n"
    )
}

/// Half of them change a cluster for a whole namespace, half insert a filter at one proxy.
fn envoy_filter(size: Size, number: usize) -> String {
    let (namespace, host) = (size.namespace(number), size.host(number));
    let head = format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{ name: patch-{number}, namespace: {namespace} }}\nspec:\n"
    );
    if number.is_multiple_of(2) {
        return format!(
            "{head}  configPatches:\n  - applyTo: CLUSTER\n    match: {{ context: SIDECAR_OUTBOUND, cluster: {{ service: {host} }} }}\n\
             \x20   patch: {{ operation: MERGE, value: {{ connect_timeout: 3s }} }}\n"
        );
    }
    format!(
        "{head}  workloadSelector: {{ labels: {{ app: svc-{number} }} }}\n  configPatches:\n  - applyTo: HTTP_FILTER\n\
         \x20   match: {{ context: SIDECAR_OUTBOUND, listener: {{ filterChain: {{ filter: {{ \
         name: envoy.filters.network.http_connection_manager, subFilter: {{ name: envoy.filters.http.router }} }} }} }} }}\n\
         \x20   patch:\n      operation: INSERT_BEFORE\n      value:\n        name: load.lua\n        typed_config:\n\
         \x20         \"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua\n\
         \x20         default_source_code: {{ inline_string: \"function envoy_on_request(handle) end\" }}\n"
    )
}
