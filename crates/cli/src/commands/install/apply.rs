//! Applies the objects of a plan, and deletes those of an earlier one.

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};

use super::plan::Plan;
use super::{INSTANCE, MANAGED_BY, REVISION, RUTTER, named, path, text};
use crate::failure::StatusError;
use crate::io::Io;
use crate::server::{Catalog, Kind, Request, Server};

const MANAGER: &str = "rutter-install";

/// The kinds of the chart's objects, in the order in which they are deleted: what calls the control plane goes first.
const KINDS: [(&str, &str); 12] = [
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apps/v1", "Deployment"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "ServiceAccount"),
];

/// Applies everything in order; reports what changes.
pub(super) async fn all(
    server: &Server,
    catalog: &Catalog,
    plan: &Plan,
    crds: Vec<Json>,
    is_dry: bool,
    io: &mut Io,
) -> Result<()> {
    let namespace = plan.objects.first();
    // Objects in a namespace that is not there cannot be tried.
    let has_namespace = !is_dry || namespace.is_some_and(|(_, found)| found.is_some());
    for object in &crds {
        apply(server, &super::plan::crd_path(text(object, "/metadata/name")), object, is_dry).await?;
    }
    if !crds.is_empty() {
        io.print(format!("{} CustomResourceDefinitions applied", crds.len()))?;
    }
    for (object, found) in &plan.objects {
        if object["kind"] == "Namespace" && found.is_some() {
            continue;
        }
        if has_namespace || object["metadata"]["namespace"].is_null() {
            let applied = apply(server, &path(catalog, object)?, object, is_dry).await?;
            let did = match found {
                None => "created",
                Some(found) if content(found) == content(&applied) => "unchanged",
                Some(_) => "changed",
            };
            io.print(format!("{} {did}", named(object)))?;
        }
    }
    let wanted: Vec<String> = plan.objects.iter().map(|(object, _)| named(object)).collect();
    let selector = format!("{MANAGED_BY}={RUTTER},{INSTANCE}={},{REVISION}={}", plan.name, plan.revision);
    for object in made(server, catalog, &plan.namespace, &selector).await? {
        if !wanted.contains(&named(&object)) {
            delete(server, catalog, &object, is_dry, io).await?;
        }
    }
    io.out.flush()?;
    Ok(())
}

/// An object without what every write changes.
fn content(object: &Json) -> Json {
    let mut content = object.clone();
    for field in ["managedFields", "resourceVersion", "generation"] {
        content["metadata"][field] = Json::Null;
    }
    content
}

async fn apply(server: &Server, path: &str, object: &Json, is_dry: bool) -> Result<Json> {
    let request = Request::patch(path, "application/apply-patch+yaml", object.to_string())
        .with("fieldManager", MANAGER)
        .with("force", "true")
        .maybe("dryRun", is_dry.then_some("All"));
    server.send::<Json>(request).await.with_context(|| named(object))
}

/// The objects of the chart's kinds with these labels, in the order in which they can be deleted.
pub(super) async fn made(server: &Server, catalog: &Catalog, namespace: &str, selector: &str) -> Result<Vec<Json>> {
    let mut all = Vec::new();
    let kinds: Vec<&Kind> = KINDS.iter().filter_map(|(version, kind)| catalog.of_object(version, kind)).collect();
    for kind in kinds {
        let list = server.list(Request::get(kind.collection(Some(namespace))).with("labelSelector", selector)).await?;
        all.extend(crate::server::opened(list, kind));
    }
    Ok(all)
}

/// Deletes an object; it may be gone already.
pub(super) async fn delete(server: &Server, catalog: &Catalog, object: &Json, is_dry: bool, io: &mut Io) -> Result<()> {
    let options = json!({"propagationPolicy": "Foreground"});
    let request = Request::delete(path(catalog, object)?, &options).maybe("dryRun", is_dry.then_some("All"));
    match server.send::<Json>(request).await {
        Err(error) if !StatusError::is_not_found(&error) => return Err(error.context(named(object))),
        _ => io.print(format!("{} deleted", named(object)))?,
    }
    Ok(())
}
