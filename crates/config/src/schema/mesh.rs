//! The definitions of the kinds of Istio and of the Gateway API: names, versions, columns. The schemas of their fields come
//! from their types.

use std::sync::Arc;

use crate::object::Kind;
use crate::schema::meta::{list_by, object, whole_object};
use crate::schema::{Column, Definition, Schema, Served, Shape};

/// The definitions of the kinds that the mesh reads, in the order of the table. Made once: the lists live as long as the
/// process.
pub(super) fn definitions() -> impl Iterator<Item = Definition> {
    rows().into_iter().map(definition)
}

/// The facts of a kind that its type does not have.
struct Row {
    kind: Kind,
    plural: &'static str,
    short_names: &'static [&'static str],
    columns: Vec<Column>,
    /// Whether an object without `spec` is rejected.
    needs_spec: bool,
    description: &'static str,
}

/// One entry for each kind: names (plural first), description, and columns by heading, JSON path and description.
/// `spec` marks kinds whose objects need one.
macro_rules! rows {
    ($($kind:ident $plural:literal $([$($short:literal)+])? $($spec:ident)?: $description:literal
       $(, $heading:literal $path:literal $meaning:literal)*;)+) => {
        fn rows() -> Vec<Row> {
            vec![$(Row {
                kind: Kind::$kind,
                plural: $plural,
                short_names: &[$($($short),+)?],
                columns: vec![$(column($heading, $path, $meaning)),*],
                needs_spec: rows!(@spec $($spec)?),
                description: $description,
            }),+]
        }
    };
    (@spec) => { false };
    (@spec spec) => { true };
}

rows! {
    ServiceEntry "serviceentries" ["se"] spec: "Adds services to the mesh that no service registry has.",
        "Hosts" ".spec.hosts" "The hosts of the service",
        "Location" ".spec.location" "Whether the service is part of the mesh",
        "Resolution" ".spec.resolution" "How the endpoints are discovered";
    WorkloadEntry "workloadentries" ["we"] spec: "A workload that is not a Pod, such as a virtual machine.",
        "Address" ".spec.address" "The address of the workload";
    WorkloadGroup "workloadgroups" ["wg"] spec: "A template for the WorkloadEntries of a group of workloads.";
    VirtualService "virtualservices" ["vs"]: "Routes requests and connections to hosts.",
        "Gateways" ".spec.gateways" "The gateways that it applies to",
        "Hosts" ".spec.hosts" "The hosts that it routes";
    DestinationRule "destinationrules" ["dr"]: "Policies for traffic to a host after routing.",
        "Host" ".spec.host" "The host whose traffic it applies to";
    Gateway "gateways" ["gw"]: "Ports and hosts that proxies at the edge of the mesh listen on.";
    Sidecar "sidecars": "Limits the services that sidecars can reach, and configures their ports.";
    EnvoyFilter "envoyfilters": "Patches the configuration of proxies.";
    ProxyConfig "proxyconfigs": "Settings of the proxy process.";
    AuthorizationPolicy "authorizationpolicies" ["ap"]: "Controls access to workloads.",
        "Action" ".spec.action" "The action for requests that match";
    RequestAuthentication "requestauthentications" ["ra"]: "The tokens that workloads accept.";
    PeerAuthentication "peerauthentications" ["pa"]: "Whether workloads accept connections without mutual TLS.",
        "Mode" ".spec.mtls.mode" "Whether mutual TLS is used";
    Telemetry "telemetries" ["telemetry"]: "Metrics, traces and access logs of proxies.";
    WasmPlugin "wasmplugins" spec: "A WebAssembly module in the filter chain of proxies.";
    TrafficExtension "trafficextensions" spec: "A WebAssembly module or a Lua script in the filter chain of proxies.";
    GatewayClass "gatewayclasses" ["gc"] spec: "A class of gateways and the controller that runs them.",
        "Controller" ".spec.controllerName" "The controller of the class",
        "Accepted" ".status.conditions[?(@.type==\"Accepted\")].status" "Whether the controller accepts it",
        "(Description)" ".spec.description" "The purpose of the class";
    KubeGateway "gateways" ["gtw"] spec: "An entry point for traffic: addresses and listeners.",
        "Class" ".spec.gatewayClassName" "The class of the gateway",
        "Address" ".status.addresses[*].value" "The addresses of the gateway",
        "Programmed" ".status.conditions[?(@.type==\"Programmed\")].status" "Whether the proxies of the gateway acknowledged it";
    HttpRoute "httproutes" spec: "Routes HTTP requests.", "Hostnames" ".spec.hostnames" "The hostnames that it applies to";
    GrpcRoute "grpcroutes" spec: "Routes gRPC requests.", "Hostnames" ".spec.hostnames" "The hostnames that it applies to";
    TlsRoute "tlsroutes" spec: "Routes TLS connections by server name.",
        "Hostnames" ".spec.hostnames" "The hostnames that it applies to";
    TcpRoute "tcproutes" spec: "Routes TCP connections.";
    UdpRoute "udproutes" spec: "Routes UDP datagrams.";
    ReferenceGrant "referencegrants" ["refgrant"] spec: "Allows objects of other namespaces to reference objects of this namespace.";
    BackendTlsPolicy "backendtlspolicies" ["btlspolicy"] spec: "TLS settings for connections from gateways to backends.";
    ListenerSet "listenersets" ["lset"] spec: "Additional listeners of a gateway.",
        "Accepted" ".status.conditions[?(@.type==\"Accepted\")].status" "Whether the controller accepts it",
        "Programmed" ".status.conditions[?(@.type==\"Programmed\")].status" "Whether the proxies of the gateway acknowledged it";
    BackendTrafficPolicy "xbackendtrafficpolicies" ["xbtrafficpolicy"] spec: "Retry budgets and session persistence for backends.";
    XMesh "xmeshes" ["mesh"] spec: "A mesh, the controller that runs it, and its features.",
        "Accepted" ".status.conditions[?(@.type==\"Accepted\")].status" "Whether the controller accepts it";
    InferencePool "inferencepools" ["infpool"] spec: "Pods that serve models, and the service that picks among them.";
    ServiceExport "serviceexports" ["svcex"]: "Exports a service to other clusters.";
    ServiceImport "serviceimports" ["svcim"]: "A service of the cluster set, as one cluster sees it.";
}

fn definition(row: Row) -> Definition {
    let kind = row.kind;
    let group = kind.group();
    let mut columns = row.columns;
    let status = match kind.status_schema() {
        Some(status) => Some((*status).clone()),
        None if kind.is_istio() => {
            columns.extend(istio_columns());
            Some(istio_status())
        }
        None => None,
    };
    let has_status = status.is_some();
    let mut fields = vec![("spec", (*kind.content_schema()).clone())];
    fields.extend(status.map(|status| ("status", status)));
    let required = if row.needs_spec { vec!["spec"] } else { vec![] };
    Definition {
        group,
        versions: kind.versions().iter().map(|version| served(kind, version)).collect::<Vec<_>>().leak(),
        kind: kind.name(),
        plural: row.plural,
        singular: singular(kind.name()),
        short_names: row.short_names,
        categories: categories(group),
        namespaced: kind.is_namespaced(),
        status: has_status,
        builtin: false,
        columns: columns.leak(),
        selectable: &[],
        mesh: Some(kind),
        schema: Arc::new(whole_object(row.description, fields, required)),
    }
}

/// A version of a kind. The Gateway API deprecates alpha versions once there is a stable one.
fn served(kind: Kind, version: &'static str) -> Served {
    let stable = kind.versions()[0];
    let deprecated = stable == "v1" && version.contains("alpha") && kind.group() == "gateway.networking.k8s.io";
    let warning = || format!("{}/{version} {} is deprecated: use {stable}", kind.group(), kind.name());
    Served { version, deprecated: deprecated.then(|| &*warning().leak()) }
}

/// The columns for which Rutter writes the status of Istio's kinds.
fn istio_columns() -> [Column; 3] {
    let count = |name, path, description| Column { kind: "integer", priority: 1, ..column(name, path, description) };
    let programmed = ".status.conditions[?(@.type==\"Programmed\")].status";
    [
        column("Programmed", programmed, "Whether all proxies that need it acknowledged it"),
        count("Running", ".status.proxies.running", "The number of proxies that acknowledged it"),
        count("Proxies", ".status.proxies.total", "The number of proxies that need it"),
    ]
}

/// A column of texts. A heading in parentheses is shown with `-o wide` only.
pub(super) fn column(heading: &'static str, path: &'static str, description: &'static str) -> Column {
    let wide = heading.strip_prefix('(').and_then(|heading| heading.strip_suffix(')'));
    Column { name: wide.unwrap_or(heading), kind: "string", path, priority: u8::from(wide.is_some()), description }
}

/// The kind in lower case. Allocated once per kind, for the life of the process.
pub(super) fn singular(kind: &str) -> &'static str {
    Box::leak(kind.to_ascii_lowercase().into_boxed_str())
}

fn categories(group: &str) -> &'static [&'static str] {
    match group {
        "networking.istio.io" => &["istio-io", "networking-istio-io"],
        "security.istio.io" => &["istio-io", "security-istio-io"],
        "telemetry.istio.io" => &["istio-io", "telemetry-istio-io"],
        "extensions.istio.io" => &["istio-io", "extensions-istio-io"],
        "inference.networking.k8s.io" | "multicluster.x-k8s.io" => &[],
        _ => &["gateway-api"],
    }
}

/// The status of Istio's kinds: the fields that Rutter writes. Unknown fields are preserved, because other controllers write
/// their own.
fn istio_status() -> Schema {
    let text = |description: &str| Schema::text().describe(description);
    let count = |description: &str| Schema::integer("int64").describe(description);
    let time = |description: &str| Schema::text_of(Some("date-time")).describe(description);
    let mut condition = object(
        "A condition of the object.",
        vec![
            ("type", text("The type: `Accepted`, `Programmed`, or a type of another controller.")),
            ("status", text("`True`, `False` or `Unknown`.")),
            ("reason", text("The reason, in one word.")),
            ("message", text("The reason, in a sentence.")),
            ("observedGeneration", count("The generation of the object that the condition describes.")),
            ("lastTransitionTime", time("The time of the last change of the status.")),
            ("lastProbeTime", time("The time of the last probe.")),
        ],
        vec!["type"],
    );
    let rejection = object(
        "The error of one proxy that rejects the configuration.",
        vec![
            ("proxy", text("The proxy.")),
            ("type", text("The type of the rejected resource: `CDS`, `EDS`, `LDS` or `RDS`.")),
            ("resource", text("The resource.")),
            ("message", text("The error message.")),
        ],
        vec![],
    );
    let proxies = object(
        "The number of proxies that acknowledged the object.",
        vec![
            ("generation", count("The generation of the object that the numbers are about.")),
            ("total", count("Proxies that need it.")),
            ("running", count("Proxies that acknowledged it.")),
            ("rejected", count("Proxies that rejected it.")),
            ("pending", count("Proxies that have not responded.")),
            ("lastChanged", time("The time of the last change of the numbers.")),
            ("rejection", rejection),
        ],
        vec![],
    );
    crate::schema::facts::keep_unknown(&mut condition);
    let mut message = object("A message about the object.", vec![], vec![]);
    crate::schema::facts::keep_unknown(&mut message);
    let mut status = object(
        "The status of the object.",
        vec![
            ("observedGeneration", Schema::new(Shape::IntOrText).describe("The observed generation of the object.")),
            ("conditions", list_by(condition, &["type"], Some("type")).describe("The conditions of the object.")),
            ("proxies", proxies),
            (
                "validationMessages",
                Schema::list(Arc::new(message)).describe("Messages of an analysis of the configuration."),
            ),
        ],
        vec![],
    );
    crate::schema::facts::keep_unknown(&mut status);
    status
}
