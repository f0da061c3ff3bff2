//! The kinds of Istio and of the Gateway API as clients see them: names, versions, columns. Their fields come from their
//! types.

use std::sync::Arc;

use crate::object::Kind;
use crate::schema::meta::{list_by, object, whole_object};
use crate::schema::{Column, Definition, Schema, Served, Shape};

/// The definitions of the kinds that the mesh reads, in the order of the table.
pub(super) fn definitions() -> impl Iterator<Item = Definition> {
    ROWS.iter().filter_map(definition)
}

/// A kind, by what its type does not tell.
struct Row {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    versions: &'static [Served],
    columns: &'static [Column],
    /// Whether an object without `spec` is refused.
    needs_spec: bool,
    description: &'static str,
}

fn definition(row: &Row) -> Option<Definition> {
    let kind = Kind::find(row.group, row.kind)?;
    let spec = (*kind.spec_schema()).clone();
    let status = match kind.status_schema() {
        Some(status) => Some((*status).clone()),
        None if row.group.ends_with("istio.io") => Some(istio_status()),
        None => None,
    };
    let has_status = status.is_some();
    let mut fields = vec![("spec", spec)];
    fields.extend(status.map(|status| ("status", status)));
    let required = if row.needs_spec { vec!["spec"] } else { vec![] };
    Some(Definition {
        group: row.group,
        versions: row.versions,
        kind: row.kind,
        plural: row.plural,
        singular: singular(row.kind),
        short_names: row.short_names,
        categories: categories(row.group),
        namespaced: kind.is_namespaced(),
        status: has_status,
        builtin: false,
        columns: row.columns,
        selectable: &[],
        mesh: Some(kind),
        schema: Arc::new(whole_object(row.description, fields, required)),
    })
}

/// The kind in lower case. Made once per kind, for the life of the process.
pub(super) fn singular(kind: &str) -> &'static str {
    Box::leak(kind.to_ascii_lowercase().into_boxed_str())
}

fn categories(group: &str) -> &'static [&'static str] {
    match group {
        NETWORKING => &["istio-io", "networking-istio-io"],
        SECURITY => &["istio-io", "security-istio-io"],
        TELEMETRY => &["istio-io", "telemetry-istio-io"],
        EXTENSIONS => &["istio-io", "extensions-istio-io"],
        INFERENCE | MULTICLUSTER => &[],
        _ => &["gateway-api"],
    }
}

/// The status of Istio's kinds: open, because controllers write what they like; with what Rutter writes.
fn istio_status() -> Schema {
    let text = |description: &str| Schema::text().describe(description);
    let count = |description: &str| Schema::integer("int64").describe(description);
    let time = |description: &str| Schema::text_of(Some("date-time")).describe(description);
    let mut condition = object(
        "Something that holds of the object, or not.",
        vec![
            (
                "type",
                text("What: `Accepted`, `Programmed`, or another controller's word."),
            ),
            ("status", text("`True`, `False` or `Unknown`.")),
            ("reason", text("Why, in one word.")),
            ("message", text("Why, in a sentence.")),
            (
                "observedGeneration",
                count("The generation of the object that this is about."),
            ),
            ("lastTransitionTime", time("When the status last changed.")),
            ("lastProbeTime", time("When it was last looked at.")),
        ],
        vec!["type"],
    );
    let refusal = object(
        "The words of one proxy that refuses what was made of the object.",
        vec![
            ("proxy", text("Which proxy.")),
            (
                "type",
                text("The type of resource that it refuses: `CDS`, `EDS`, `LDS` or `RDS`."),
            ),
            ("resource", text("The resource.")),
            ("message", text("What the proxy says.")),
        ],
        vec![],
    );
    let proxies = object(
        "How many proxies run the object.",
        vec![
            ("generation", count("The generation of the object that was counted.")),
            ("total", count("Proxies that need it.")),
            ("running", count("Proxies that run it.")),
            ("refused", count("Proxies that refuse it.")),
            ("pending", count("Proxies that have not answered.")),
            ("lastChanged", time("When these numbers last changed.")),
            ("refusal", refusal),
        ],
        vec![],
    );
    crate::schema::facts::keep_unknown(&mut condition);
    let mut message = object("A remark about the object.", vec![], vec![]);
    crate::schema::facts::keep_unknown(&mut message);
    let mut status = object(
        "What became of the object.",
        vec![
            (
                "observedGeneration",
                Schema::new(Shape::IntOrText).describe("The generation of the object that the status is about."),
            ),
            (
                "conditions",
                list_by(condition, &["type"], Some("type")).describe("What holds of the object."),
            ),
            ("proxies", proxies),
            (
                "validationMessages",
                Schema::list(Arc::new(message)).describe("Conflicts of an analysis of the configuration."),
            ),
        ],
        vec![],
    );
    crate::schema::facts::keep_unknown(&mut status);
    status
}

const NETWORKING: &str = "networking.istio.io";
const SECURITY: &str = "security.istio.io";
const TELEMETRY: &str = "telemetry.istio.io";
const EXTENSIONS: &str = "extensions.istio.io";
const GATEWAY: &str = "gateway.networking.k8s.io";
const MULTICLUSTER: &str = "multicluster.x-k8s.io";
const INFERENCE: &str = "inference.networking.k8s.io";
const GATEWAY_X: &str = "gateway.networking.x-k8s.io";

pub(super) const fn served(version: &'static str) -> Served {
    Served {
        version,
        deprecated: None,
    }
}

const fn deprecated(version: &'static str, warning: &'static str) -> Served {
    Served {
        version,
        deprecated: Some(warning),
    }
}

const fn column(name: &'static str, path: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        path,
        priority: 0,
        description,
    }
}

const fn wide(name: &'static str, kind: &'static str, path: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind,
        path,
        priority: 1,
        description,
    }
}

const PROGRAMMED: Column = column(
    "Programmed",
    ".status.conditions[?(@.type==\"Programmed\")].status",
    "Whether all proxies that need it run it",
);
const RUNNING: Column = wide(
    "Running",
    "integer",
    ".status.proxies.running",
    "How many proxies run it",
);
const PROXIES: Column = wide(
    "Proxies",
    "integer",
    ".status.proxies.total",
    "How many proxies need it",
);
const ACCEPTED: Column = column(
    "Accepted",
    ".status.conditions[?(@.type==\"Accepted\")].status",
    "Whether the controller accepts it",
);
const HOSTNAMES: Column = column("Hostnames", ".spec.hostnames", "The hostnames that it applies to");

const ISTIO_COLUMNS: &[Column] = &[PROGRAMMED, RUNNING, PROXIES];
const V1_V1BETA1_V1ALPHA3: &[Served] = &[served("v1"), served("v1beta1"), served("v1alpha3")];
const V1_V1BETA1: &[Served] = &[served("v1"), served("v1beta1")];
const V1ALPHA1: &[Served] = &[served("v1alpha1")];

const ROWS: &[Row] = &[
    Row {
        group: NETWORKING,
        kind: "ServiceEntry",
        plural: "serviceentries",
        short_names: &["se"],
        versions: V1_V1BETA1_V1ALPHA3,
        columns: &[
            column("Hosts", ".spec.hosts", "The hosts of the service"),
            column("Location", ".spec.location", "Whether it is part of the mesh"),
            column("Resolution", ".spec.resolution", "How its endpoints are found"),
            PROGRAMMED,
            RUNNING,
            PROXIES,
        ],
        needs_spec: true,
        description: "Services that no platform knows, added to the mesh.",
    },
    Row {
        group: NETWORKING,
        kind: "WorkloadEntry",
        plural: "workloadentries",
        short_names: &["we"],
        versions: V1_V1BETA1_V1ALPHA3,
        columns: &[
            column("Address", ".spec.address", "The address of the workload"),
            PROGRAMMED,
            RUNNING,
            PROXIES,
        ],
        needs_spec: true,
        description: "A workload that is no Pod, such as a virtual machine.",
    },
    Row {
        group: NETWORKING,
        kind: "WorkloadGroup",
        plural: "workloadgroups",
        short_names: &["wg"],
        versions: V1_V1BETA1_V1ALPHA3,
        columns: ISTIO_COLUMNS,
        needs_spec: true,
        description: "What the entries of a group of workloads have in common.",
    },
    Row {
        group: NETWORKING,
        kind: "VirtualService",
        plural: "virtualservices",
        short_names: &["vs"],
        versions: V1_V1BETA1_V1ALPHA3,
        columns: &[
            column("Gateways", ".spec.gateways", "The gateways that it applies to"),
            column("Hosts", ".spec.hosts", "The hosts that it routes"),
            PROGRAMMED,
            RUNNING,
            PROXIES,
        ],
        needs_spec: false,
        description: "Where requests and connections to hosts go.",
    },
    Row {
        group: NETWORKING,
        kind: "DestinationRule",
        plural: "destinationrules",
        short_names: &["dr"],
        versions: V1_V1BETA1_V1ALPHA3,
        columns: &[
            column("Host", ".spec.host", "The host whose traffic it is about"),
            PROGRAMMED,
            RUNNING,
            PROXIES,
        ],
        needs_spec: false,
        description: "How traffic to a host is sent once it is routed.",
    },
    Row {
        group: NETWORKING,
        kind: "Gateway",
        plural: "gateways",
        short_names: &["gw"],
        versions: V1_V1BETA1_V1ALPHA3,
        columns: ISTIO_COLUMNS,
        needs_spec: false,
        description: "What the proxies at the edge of the mesh listen for.",
    },
    Row {
        group: NETWORKING,
        kind: "Sidecar",
        plural: "sidecars",
        short_names: &[],
        versions: V1_V1BETA1_V1ALPHA3,
        columns: ISTIO_COLUMNS,
        needs_spec: false,
        description: "What the proxies beside workloads see and accept.",
    },
    Row {
        group: NETWORKING,
        kind: "EnvoyFilter",
        plural: "envoyfilters",
        short_names: &[],
        versions: &[served("v1alpha3")],
        columns: ISTIO_COLUMNS,
        needs_spec: false,
        description: "Changes of the configuration that proxies get.",
    },
    Row {
        group: NETWORKING,
        kind: "ProxyConfig",
        plural: "proxyconfigs",
        short_names: &[],
        versions: &[served("v1beta1")],
        columns: ISTIO_COLUMNS,
        needs_spec: false,
        description: "Settings of the proxies themselves.",
    },
    Row {
        group: SECURITY,
        kind: "AuthorizationPolicy",
        plural: "authorizationpolicies",
        short_names: &["ap"],
        versions: V1_V1BETA1,
        columns: &[
            column("Action", ".spec.action", "What happens to requests that match"),
            PROGRAMMED,
            RUNNING,
            PROXIES,
        ],
        needs_spec: false,
        description: "Who may do what with workloads.",
    },
    Row {
        group: SECURITY,
        kind: "RequestAuthentication",
        plural: "requestauthentications",
        short_names: &["ra"],
        versions: V1_V1BETA1,
        columns: ISTIO_COLUMNS,
        needs_spec: false,
        description: "Whose tokens workloads accept.",
    },
    Row {
        group: SECURITY,
        kind: "PeerAuthentication",
        plural: "peerauthentications",
        short_names: &["pa"],
        versions: V1_V1BETA1,
        columns: &[
            column("Mode", ".spec.mtls.mode", "Whether mutual TLS is used"),
            PROGRAMMED,
            RUNNING,
            PROXIES,
        ],
        needs_spec: false,
        description: "Whether workloads accept connections without mutual TLS.",
    },
    Row {
        group: TELEMETRY,
        kind: "Telemetry",
        plural: "telemetries",
        short_names: &["telemetry"],
        versions: &[served("v1"), served("v1alpha1")],
        columns: ISTIO_COLUMNS,
        needs_spec: false,
        description: "What proxies measure, trace and log.",
    },
    Row {
        group: EXTENSIONS,
        kind: "WasmPlugin",
        plural: "wasmplugins",
        short_names: &[],
        versions: V1ALPHA1,
        columns: ISTIO_COLUMNS,
        needs_spec: true,
        description: "A WebAssembly module in the proxies' filter chain.",
    },
    Row {
        group: EXTENSIONS,
        kind: "TrafficExtension",
        plural: "trafficextensions",
        short_names: &[],
        versions: V1ALPHA1,
        columns: ISTIO_COLUMNS,
        needs_spec: true,
        description: "A WebAssembly module or a Lua script in the proxies' filter chain.",
    },
    Row {
        group: GATEWAY,
        kind: "GatewayClass",
        plural: "gatewayclasses",
        short_names: &["gc"],
        versions: V1_V1BETA1,
        columns: &[
            column("Controller", ".spec.controllerName", "The controller of the class"),
            ACCEPTED,
            wide("Description", "string", ".spec.description", "What the class is for"),
        ],
        needs_spec: true,
        description: "A class of gateways and the controller that runs them.",
    },
    Row {
        group: GATEWAY,
        kind: "Gateway",
        plural: "gateways",
        short_names: &["gtw"],
        versions: V1_V1BETA1,
        columns: &[
            column("Class", ".spec.gatewayClassName", "The class of the gateway"),
            column(
                "Address",
                ".status.addresses[*].value",
                "The addresses that it is reached at",
            ),
            column(
                "Programmed",
                ".status.conditions[?(@.type==\"Programmed\")].status",
                "Whether the gateway's proxies run it",
            ),
        ],
        needs_spec: true,
        description: "A point where traffic enters: addresses and listeners.",
    },
    Row {
        group: GATEWAY,
        kind: "HTTPRoute",
        plural: "httproutes",
        short_names: &[],
        versions: V1_V1BETA1,
        columns: &[HOSTNAMES],
        needs_spec: true,
        description: "Where HTTP requests go.",
    },
    Row {
        group: GATEWAY,
        kind: "GRPCRoute",
        plural: "grpcroutes",
        short_names: &[],
        versions: &[served("v1")],
        columns: &[HOSTNAMES],
        needs_spec: true,
        description: "Where gRPC requests go.",
    },
    Row {
        group: GATEWAY,
        kind: "TLSRoute",
        plural: "tlsroutes",
        short_names: &[],
        versions: &[
            served("v1"),
            deprecated(
                "v1alpha3",
                "gateway.networking.k8s.io/v1alpha3 TLSRoute is deprecated: use v1",
            ),
            deprecated(
                "v1alpha2",
                "gateway.networking.k8s.io/v1alpha2 TLSRoute is deprecated: use v1",
            ),
        ],
        columns: &[HOSTNAMES],
        needs_spec: true,
        description: "Where TLS connections go, by server name.",
    },
    Row {
        group: GATEWAY,
        kind: "TCPRoute",
        plural: "tcproutes",
        short_names: &[],
        versions: &[
            served("v1"),
            deprecated(
                "v1alpha2",
                "gateway.networking.k8s.io/v1alpha2 TCPRoute is deprecated: use v1",
            ),
        ],
        columns: &[],
        needs_spec: true,
        description: "Where TCP connections go.",
    },
    Row {
        group: GATEWAY,
        kind: "UDPRoute",
        plural: "udproutes",
        short_names: &[],
        versions: &[
            served("v1"),
            deprecated(
                "v1alpha2",
                "gateway.networking.k8s.io/v1alpha2 UDPRoute is deprecated: use v1",
            ),
        ],
        columns: &[],
        needs_spec: true,
        description: "Where UDP datagrams go.",
    },
    Row {
        group: GATEWAY,
        kind: "ReferenceGrant",
        plural: "referencegrants",
        short_names: &["refgrant"],
        versions: &[served("v1"), served("v1beta1")],
        columns: &[],
        needs_spec: true,
        description: "Lets objects of other namespaces refer to objects of this one.",
    },
    Row {
        group: GATEWAY,
        kind: "BackendTLSPolicy",
        plural: "backendtlspolicies",
        short_names: &["btlspolicy"],
        versions: &[
            served("v1"),
            deprecated(
                "v1alpha3",
                "gateway.networking.k8s.io/v1alpha3 BackendTLSPolicy is deprecated: use v1",
            ),
        ],
        columns: &[],
        needs_spec: true,
        description: "TLS from gateways to backends.",
    },
    Row {
        group: GATEWAY,
        kind: "ListenerSet",
        plural: "listenersets",
        short_names: &["lset"],
        versions: &[served("v1")],
        columns: &[
            ACCEPTED,
            column(
                "Programmed",
                ".status.conditions[?(@.type==\"Programmed\")].status",
                "Whether the gateway's proxies run it",
            ),
        ],
        needs_spec: true,
        description: "More listeners for a gateway.",
    },
    Row {
        group: GATEWAY_X,
        kind: "XBackendTrafficPolicy",
        plural: "xbackendtrafficpolicies",
        short_names: &["xbtrafficpolicy"],
        versions: V1ALPHA1,
        columns: &[],
        needs_spec: true,
        description: "How traffic is sent to backends: retries and sessions.",
    },
    Row {
        group: INFERENCE,
        kind: "InferencePool",
        plural: "inferencepools",
        short_names: &["infpool"],
        versions: &[served("v1")],
        columns: &[],
        needs_spec: true,
        description: "Pods that serve models, and who picks among them.",
    },
    Row {
        group: MULTICLUSTER,
        kind: "ServiceExport",
        plural: "serviceexports",
        short_names: &["svcex"],
        versions: &[served("v1alpha1")],
        columns: &[],
        needs_spec: false,
        description: "Says that a service is there for other clusters.",
    },
    Row {
        group: MULTICLUSTER,
        kind: "ServiceImport",
        plural: "serviceimports",
        short_names: &["svcim"],
        versions: &[served("v1alpha1")],
        columns: &[],
        needs_spec: false,
        description: "A service of the whole set of clusters, as one of them knows it.",
    },
];
