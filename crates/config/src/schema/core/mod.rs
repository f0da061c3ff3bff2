//! The kinds that every Kubernetes has, as far as a mesh needs them: names, columns, and all of their fields.
//!
//! Which fields there are, which are required, how they merge and what the API server fills in is as in Kubernetes 1.36.
//! The descriptions are our own.

mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use crate::object::Kind;
use crate::schema::mesh::{served, singular};
use crate::schema::{Column, Definition, Schema, Shape, meta};

use table::Table;
pub(super) use wire::messages;

/// The definitions of the core kinds.
pub(super) fn definitions() -> Vec<Definition> {
    let mut table = read();
    ROWS.iter().map(|row| definition(row, &mut table)).collect()
}

/// Types that every OpenAPI document has, because its operations take or return them.
pub(super) fn shared() -> Vec<Schema> {
    let mut table = read();
    let names = ["ListMeta", "Status", "DeleteOptions", "Patch", "WatchEvent"];
    names.into_iter().map(|name| (*table.resolve(name)).clone()).collect()
}

/// `metadata` of every object.
pub(super) fn object_meta() -> Schema {
    let mut table = read();
    let mut schema = Schema::new(Shape::Object(table.fields("ObjectMeta")));
    schema.named = table.named("ObjectMeta");
    let description = schema.named.as_ref().map(|named| named.description.clone());
    schema.description = description.unwrap_or_default();
    schema
}

fn read() -> Table {
    Table::read(&[
        include_str!("service.txt"),
        include_str!("pod.txt"),
        include_str!("container.txt"),
        include_str!("volume.txt"),
        include_str!("other.txt"),
        include_str!("ingress.txt"),
        include_str!("meta.txt"),
        include_str!("review.txt"),
    ])
}

/// A kind, by what the table of types does not tell.
struct Row {
    group: &'static str,
    kind: &'static str,
    /// The name of its block in the table.
    block: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    columns: &'static [Column],
    selectable: &'static [&'static str],
}

fn definition(row: &Row, table: &mut Table) -> Definition {
    let named = table.named(row.block);
    let fields = table.fields(row.block);
    let required = fields.required.clone();
    let own = fields
        .fields
        .into_iter()
        .map(|(name, schema)| (name, (*schema).clone()));
    let description = named.as_ref().map(|n| n.description.clone()).unwrap_or_default();
    let mut schema = meta::whole_object(&description, own.collect(), required);
    schema.named = named;
    let status = matches!(&schema.shape, Shape::Object(fields) if fields.get("status").is_some());
    Definition {
        group: row.group,
        versions: const { &[served("v1")] },
        kind: row.kind,
        plural: row.plural,
        singular: singular(row.kind),
        short_names: row.short_names,
        categories: row.categories,
        namespaced: row.namespaced,
        status,
        builtin: true,
        columns: row.columns,
        selectable: row.selectable,
        mesh: Kind::find(row.group, row.kind),
        schema: Arc::new(schema),
    }
}

/// A column that clients always show. Without a path: whoever prints tables works it out.
const fn column(name: &'static str, path: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        path,
        priority: 0,
        description,
    }
}

/// A column that clients show with `-o wide`.
const fn wide(name: &'static str, path: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        path,
        priority: 1,
        description,
    }
}

/// Core kinds say where their age stands, because some have columns behind it.
const AGE: Column = column("Age", ".metadata.creationTimestamp", "How long ago it was created");

const SERVICE: &[Column] = &[
    column("Type", ".spec.type", "How the service is reached"),
    column("Cluster-IP", ".spec.clusterIP", "Its virtual address"),
    column("External-IP", "", "Its addresses outside the cluster"),
    column("Port(s)", "", "Its ports"),
    AGE,
    wide("Selector", "", "The labels of its Pods"),
];
const POD: &[Column] = &[
    column("Ready", "", "How many of its containers are ready"),
    column("Status", "", "How it is"),
    column("Restarts", "", "How often its containers were started again"),
    AGE,
    wide("IP", ".status.podIP", "Its address"),
    wide("Node", ".spec.nodeName", "Its node"),
    wide(
        "Nominated Node",
        ".status.nominatedNodeName",
        "The node on which room is made for it",
    ),
    wide("Readiness Gates", "", "How many of its readiness gates are open"),
];
const NODE: &[Column] = &[
    column("Status", "", "Whether it is ready and takes Pods"),
    column("Roles", "", "What it is for"),
    AGE,
    column(
        "Version",
        ".status.nodeInfo.kubeletVersion",
        "The version of its kubelet",
    ),
    wide("Internal-IP", "", "Its address inside the cluster"),
    wide("External-IP", "", "Its address outside the cluster"),
    wide("OS-Image", ".status.nodeInfo.osImage", "Its system"),
    wide("Kernel-Version", ".status.nodeInfo.kernelVersion", "Its kernel"),
    wide(
        "Container-Runtime",
        ".status.nodeInfo.containerRuntimeVersion",
        "Its container runtime",
    ),
];
const DEPLOYMENT: &[Column] = &[
    column("Ready", "", "How many of its Pods are ready"),
    column("Up-to-date", "", "How many of its Pods are of the newest version"),
    column("Available", "", "How many of its Pods are available"),
    AGE,
    wide("Containers", "", "The names of its containers"),
    wide("Images", "", "The images of its containers"),
    wide("Selector", "", "The labels of its Pods"),
];
const EVENT: &[Column] = &[
    column("Last Seen", "", "When it was last seen"),
    column("Type", ".type", "`Normal` or `Warning`"),
    column("Reason", ".reason", "What happened, in one word"),
    column("Object", "", "The object"),
    wide("Subobject", "", "The part of the object"),
    wide("Source", "", "Who says it"),
    column("Message", "", "What happened"),
    wide("First Seen", "", "When it was first seen"),
    wide("Count", "", "How often"),
    wide("Name", ".metadata.name", "The name of the event"),
];

const ROWS: &[Row] = &[
    Row {
        group: "",
        kind: "Service",
        block: "Service",
        plural: "services",
        short_names: &["svc"],
        categories: &["all"],
        namespaced: true,
        columns: SERVICE,
        selectable: &["spec.clusterIP", "spec.type"],
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        block: "EndpointSlice",
        plural: "endpointslices",
        short_names: &[],
        categories: &[],
        namespaced: true,
        columns: &[
            column("AddressType", ".addressType", "What the addresses are"),
            column("Ports", "", "The ports"),
            column("Endpoints", "", "The addresses"),
            AGE,
        ],
        selectable: &[],
    },
    Row {
        group: "",
        kind: "Pod",
        block: "Pod",
        plural: "pods",
        short_names: &["po"],
        categories: &["all"],
        namespaced: true,
        columns: POD,
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    },
    Row {
        group: "",
        kind: "Node",
        block: "Node",
        plural: "nodes",
        short_names: &["no"],
        categories: &[],
        namespaced: false,
        columns: NODE,
        selectable: &["spec.unschedulable"],
    },
    Row {
        group: "",
        kind: "Namespace",
        block: "Namespace",
        plural: "namespaces",
        short_names: &["ns"],
        categories: &[],
        namespaced: false,
        columns: &[column("Status", ".status.phase", "Whether it is going"), AGE],
        selectable: &["status.phase"],
    },
    Row {
        group: "networking.k8s.io",
        kind: "Ingress",
        block: "Ingress",
        plural: "ingresses",
        short_names: &["ing"],
        categories: &[],
        namespaced: true,
        columns: &[
            column("Class", ".spec.ingressClassName", "Who serves it"),
            column("Hosts", ".spec.rules[*].host", "Its hosts"),
            column(
                "Address",
                ".status.loadBalancer.ingress[*].ip",
                "Where it can be reached",
            ),
            AGE,
        ],
        selectable: &[],
    },
    Row {
        group: "networking.k8s.io",
        kind: "IngressClass",
        block: "IngressClass",
        plural: "ingressclasses",
        short_names: &[],
        categories: &[],
        namespaced: false,
        columns: &[
            column("Controller", ".spec.controller", "Who serves its Ingresses"),
            column("Parameters", ".spec.parameters.name", "More settings"),
            AGE,
        ],
        selectable: &[],
    },
    Row {
        group: "",
        kind: "ConfigMap",
        block: "ConfigMap",
        plural: "configmaps",
        short_names: &["cm"],
        categories: &[],
        namespaced: true,
        columns: &[column("Data", "", "How many keys it has"), AGE],
        selectable: &[],
    },
    Row {
        group: "",
        kind: "Secret",
        block: "Secret",
        plural: "secrets",
        short_names: &[],
        categories: &[],
        namespaced: true,
        columns: &[
            column("Type", ".type", "What it is for"),
            column("Data", "", "How many keys it has"),
            AGE,
        ],
        selectable: &["type"],
    },
    Row {
        group: "",
        kind: "ServiceAccount",
        block: "ServiceAccount",
        plural: "serviceaccounts",
        short_names: &["sa"],
        categories: &[],
        namespaced: true,
        columns: &[AGE],
        selectable: &[],
    },
    Row {
        group: "coordination.k8s.io",
        kind: "Lease",
        block: "Lease",
        plural: "leases",
        short_names: &[],
        categories: &[],
        namespaced: true,
        columns: &[column("Holder", ".spec.holderIdentity", "Who holds it"), AGE],
        selectable: &[],
    },
    Row {
        group: "",
        kind: "Event",
        block: "Event",
        plural: "events",
        short_names: &["ev"],
        categories: &[],
        namespaced: true,
        columns: EVENT,
        selectable: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        block: "NewEvent",
        plural: "events",
        short_names: &["ev"],
        categories: &[],
        namespaced: true,
        columns: EVENT,
        selectable: &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
    },
    Row {
        group: "apps",
        kind: "Deployment",
        block: "Deployment",
        plural: "deployments",
        short_names: &["deploy"],
        categories: &["all"],
        namespaced: true,
        columns: DEPLOYMENT,
        selectable: &[],
    },
];
