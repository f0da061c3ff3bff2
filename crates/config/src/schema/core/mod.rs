//! The core kinds of Kubernetes 1.36 that a mesh needs: names, columns, and all of their fields.
//!
//! The tables of types have what no Rust crate has: how lists merge, defaults, and protobuf field numbers. The JSON schemas
//! of `k8s-openapi` have only names, types and required fields. The descriptions are our own.

mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use crate::object::Kind;
use crate::schema::{Column, Definition, Schema, Served, Shape, mesh, meta};

use table::Table;
pub(super) use wire::messages;

/// The definitions of the core kinds.
pub(super) fn definitions() -> Vec<Definition> {
    let mut table = read();
    rows().into_iter().map(|row| definition(row, &mut table)).collect()
}

/// Types that every OpenAPI document contains, because its operations accept or return them.
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

/// The facts of a kind that the table of types does not have.
struct Row {
    group: &'static str,
    kind: &'static str,
    /// The name of its block in the table of types.
    block: &'static str,
    namespaced: bool,
    plural: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    columns: Vec<Column>,
    selectable: &'static [&'static str],
}

/// One entry for each kind: group, kind, block in the table of types, scope, names (plural first), categories, columns by
/// heading, JSON path and description, and selectable fields. A column without a path is computed by the printer of tables.
macro_rules! rows {
    ($($group:literal $kind:literal $block:literal $scope:ident $plural:literal $([$($short:literal)+])? $($category:ident)*:
       $($heading:literal $path:literal $meaning:literal,)* select [$($selectable:literal)*];)+) => {
        fn rows() -> Vec<Row> {
            vec![$(Row {
                group: $group,
                kind: $kind,
                block: $block,
                namespaced: rows!(@scope $scope),
                plural: $plural,
                short_names: &[$($($short),+)?],
                categories: &[$(stringify!($category)),*],
                columns: vec![$(mesh::column($heading, $path, $meaning)),*],
                selectable: &[$($selectable),*],
            }),+]
        }
    };
    (@scope namespaced) => { true };
    (@scope cluster) => { false };
}

rows! {
    "" "Service" "Service" namespaced "services" ["svc"] all:
        "Type" ".spec.type" "The type of the service",
        "Cluster-IP" ".spec.clusterIP" "The virtual address",
        "External-IP" "" "The addresses outside the cluster",
        "Port(s)" "" "The ports",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        "(Selector)" "" "The label selector for Pods",
        select ["spec.clusterIP" "spec.type"];
    "discovery.k8s.io" "EndpointSlice" "EndpointSlice" namespaced "endpointslices":
        "AddressType" ".addressType" "The type of the addresses",
        "Ports" "" "The ports",
        "Endpoints" "" "The addresses",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select [];
    "" "Pod" "Pod" namespaced "pods" ["po"] all:
        "Ready" "" "The number of containers that are ready",
        "Status" "" "The status",
        "Restarts" "" "The number of restarts of containers",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        "(IP)" ".status.podIP" "The address",
        "(Node)" ".spec.nodeName" "The node",
        "(Nominated Node)" ".status.nominatedNodeName" "The node that preempts other Pods for this one",
        "(Readiness Gates)" "" "The number of readiness gates that are satisfied",
        select ["spec.nodeName" "spec.restartPolicy" "spec.schedulerName" "spec.serviceAccountName" "spec.hostNetwork"
            "status.phase" "status.podIP" "status.nominatedNodeName"];
    "" "Node" "Node" cluster "nodes" ["no"]:
        "Status" "" "Whether the node is ready and schedulable",
        "Roles" "" "The roles",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        "Version" ".status.nodeInfo.kubeletVersion" "The version of the kubelet",
        "(Internal-IP)" "" "The address inside the cluster",
        "(External-IP)" "" "The address outside the cluster",
        "(OS-Image)" ".status.nodeInfo.osImage" "The operating system",
        "(Kernel-Version)" ".status.nodeInfo.kernelVersion" "The kernel version",
        "(Container-Runtime)" ".status.nodeInfo.containerRuntimeVersion" "The container runtime",
        select ["spec.unschedulable"];
    "" "Namespace" "Namespace" cluster "namespaces" ["ns"]:
        "Status" ".status.phase" "Whether the namespace is terminating",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select ["status.phase"];
    "networking.k8s.io" "Ingress" "Ingress" namespaced "ingresses" ["ing"]:
        "Class" ".spec.ingressClassName" "The class",
        "Hosts" ".spec.rules[*].host" "The hosts",
        "Address" ".status.loadBalancer.ingress[*].ip" "The addresses of the load balancer",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select [];
    "networking.k8s.io" "IngressClass" "IngressClass" cluster "ingressclasses":
        "Controller" ".spec.controller" "The controller of the class",
        "Parameters" ".spec.parameters.name" "The object with parameters",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select [];
    "" "ConfigMap" "ConfigMap" namespaced "configmaps" ["cm"]:
        "Data" "" "The number of keys",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select [];
    "" "Secret" "Secret" namespaced "secrets":
        "Type" ".type" "The type of the secret",
        "Data" "" "The number of keys",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select ["type"];
    "" "ServiceAccount" "ServiceAccount" namespaced "serviceaccounts" ["sa"]:
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select [];
    "coordination.k8s.io" "Lease" "Lease" namespaced "leases":
        "Holder" ".spec.holderIdentity" "The holder",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        select [];
    "" "Event" "Event" namespaced "events" ["ev"]:
        "Last Seen" "" "The time of the last occurrence",
        "Type" ".type" "`Normal` or `Warning`",
        "Reason" ".reason" "The reason, in one word",
        "Object" "" "The object that the event is about",
        "(Subobject)" "" "The part of the object",
        "(Source)" "" "The component that reports the event",
        "Message" "" "The description",
        "(First Seen)" "" "The time of the first occurrence",
        "(Count)" "" "The number of occurrences",
        "(Name)" ".metadata.name" "The name of the event",
        select ["involvedObject.kind" "involvedObject.namespace" "involvedObject.name" "involvedObject.uid"
            "involvedObject.apiVersion" "involvedObject.resourceVersion" "involvedObject.fieldPath" "reason"
            "reportingComponent" "source" "type"];
    "events.k8s.io" "Event" "NewEvent" namespaced "events" ["ev"]:
        "Last Seen" "" "The time of the last occurrence",
        "Type" ".type" "`Normal` or `Warning`",
        "Reason" ".reason" "The reason, in one word",
        "Object" "" "The object that the event is about",
        "(Subobject)" "" "The part of the object",
        "(Source)" "" "The component that reports the event",
        "Message" "" "The description",
        "(First Seen)" "" "The time of the first occurrence",
        "(Count)" "" "The number of occurrences",
        "(Name)" ".metadata.name" "The name of the event",
        select ["regarding.kind" "regarding.namespace" "regarding.name" "regarding.uid" "regarding.apiVersion"
            "regarding.resourceVersion" "regarding.fieldPath" "reason" "reportingController" "type"];
    "apps" "Deployment" "Deployment" namespaced "deployments" ["deploy"] all:
        "Ready" "" "The number of Pods that are ready",
        "Up-to-date" "" "The number of Pods of the newest version",
        "Available" "" "The number of Pods that are available",
        "Age" ".metadata.creationTimestamp" "Time since creation",
        "(Containers)" "" "The names of the containers",
        "(Images)" "" "The images of the containers",
        "(Selector)" "" "The label selector for Pods",
        select [];
}

fn definition(row: Row, table: &mut Table) -> Definition {
    let named = table.named(row.block);
    let fields = table.fields(row.block);
    let required = fields.required.clone();
    let own = fields.fields.into_iter().map(|(name, schema)| (name, (*schema).clone()));
    let description = named.as_ref().map(|n| n.description.clone()).unwrap_or_default();
    let mut schema = meta::whole_object(&description, own.collect(), required);
    schema.named = named;
    let status = matches!(&schema.shape, Shape::Object(fields) if fields.get("status").is_some());
    Definition {
        group: row.group,
        versions: const { &[Served { version: "v1", deprecated: None }] },
        kind: row.kind,
        plural: row.plural,
        singular: mesh::singular(row.kind),
        short_names: row.short_names,
        categories: row.categories,
        namespaced: row.namespaced,
        status,
        builtin: true,
        columns: row.columns.leak(),
        selectable: row.selectable,
        mesh: Kind::find(row.group, row.kind),
        schema: Arc::new(schema),
    }
}
