//! The objects to apply, and what the cluster has in their place.

use anyhow::{Context, Result, anyhow, ensure};
use clap::ArgMatches;
use config::schema::{crd, definitions};
use serde_json::{Value as Json, json};

use super::{INSTANCE, MANAGED_BY, REVISION, RUTTER, label, named, path, text};
use crate::chart::{self, Release};
use crate::commands::{tag, values};
use crate::failure::StatusError;
use crate::io::Io;
use crate::server::{Catalog, Server, encode};

/// The service account for other clusters, which all revisions share.
const READER: &str = "istio-reader-service-account";
/// The ValidatingWebhookConfiguration for objects without a revision.
const DEFAULT_VALIDATOR: &str = "istiod-default-validator";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// An installation.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) revision: String,
    /// The objects in installation order, each with the one in its place.
    pub(super) objects: Vec<(Json, Option<Json>)>,
    /// The tag `default` stands for another revision.
    is_deactivated: bool,
    /// VHDS is off: proxies can go back to an istiod.
    is_reversible: bool,
}

impl Plan {
    /// Renders the chart, and reads the objects that exist.
    pub(super) async fn make(
        server: &Server,
        catalog: &Catalog,
        given: &Json,
        name: &str,
        namespace: &str,
        io: &mut Io,
    ) -> Result<Plan> {
        let values = values::effective(given, io)?;
        let revision = values::revision(&values).to_owned();
        let release = Release { name, namespace };
        let mut wanted = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
        wanted.extend(chart::objects(&release, &values)?);
        wanted.push(values_object(&release, &revision, given));
        let tag = optional(server, &format!("{WEBHOOKS}/istio-revision-tag-default")).await?;
        let is_deactivated =
            revision == "default" && tag.is_some_and(|tag| !matches!(label(&tag, REVISION), "" | "default"));
        if is_deactivated {
            // That of the tag.
            wanted.retain(|object| object["metadata"]["name"] != DEFAULT_VALIDATOR);
        }
        let mut objects = Vec::new();
        for object in wanted {
            let found = optional(server, &path(catalog, &object)?).await?;
            objects.push((object, found));
        }
        let is_reversible = values["env"]["RUTTER_VHDS"] == "off";
        let (name, namespace) = (name.to_owned(), namespace.to_owned());
        Ok(Plan { name, namespace, revision, objects, is_deactivated, is_reversible })
    }

    /// Whether an object was made by this installation.
    pub(super) fn is_own(&self, found: &Json) -> bool {
        label(found, MANAGED_BY) == RUTTER
            && label(found, INSTANCE) == self.name
            && label(found, REVISION) == self.revision
    }

    /// Whether the installation exists.
    pub(super) fn is_installed(&self) -> bool {
        self.deployment().is_some_and(|found| self.is_own(found))
    }

    /// The Deployment in the cluster.
    fn deployment(&self) -> Option<&Json> {
        let of_kind = |(wanted, _): &&(Json, Option<Json>)| wanted["kind"] == "Deployment";
        self.objects.iter().find(of_kind)?.1.as_ref()
    }

    /// Whether an istiod is replaced, and proxies could not go back to it.
    pub(super) fn replaces_istiod(&self) -> bool {
        !self.is_reversible && self.deployment().is_some_and(is_istiod)
    }

    /// Fails if an object belongs to another installation, or cannot be changed to the wanted one.
    pub(super) fn check(&mut self, replace: bool) -> Result<()> {
        // Of a second revision, the shared account is that of the first.
        let is_shared = |object: &Json| object["metadata"]["name"] == READER && object["kind"] == "ServiceAccount";
        self.objects.retain(|(object, found)| {
            let foreign = found.as_ref().is_some_and(|found| label(found, REVISION) != label(object, REVISION));
            !(is_shared(object) && foreign && label(object, REVISION) != "default")
        });
        let pairs = self.objects.iter().filter_map(|(object, found)| Some((object, found.as_ref()?)));
        let others: Vec<String> = self.others().map(|found| format!("{} ({})", named(found), owner(found))).collect();
        ensure!(
            replace || others.is_empty(),
            "these objects belong to another installation:\n  {}\nhint: --revision NAME installs beside it; \
             --in-place-of-istiod replaces these objects, and their Service keeps its address",
            others.join("\n  ")
        );
        for (object, found) in pairs.filter(|(object, _)| object["kind"] == "Deployment") {
            let (ours, theirs) = (&object["spec"]["selector"], &found["spec"]["selector"]);
            ensure!(
                ours == theirs,
                "{}: its selector is {theirs}, which cannot be changed to {ours}\nhint: delete it with \
                 `kubectl delete deployment {} -n {} --cascade=orphan`; its pods keep serving until the new ones do",
                named(found),
                text(found, "/metadata/name"),
                self.namespace
            );
        }
        Ok(())
    }

    /// The objects of other installations in the places of this one's.
    pub(super) fn others(&self) -> impl Iterator<Item = &Json> {
        let found = self.objects.iter().filter_map(|(_, found)| found.as_ref());
        // `rutter tag` makes objects that an installation may take over.
        let is_tag = |found: &Json| {
            !label(found, "istio.io/tag").is_empty()
                && label(found, MANAGED_BY).is_empty()
                && label(found, REVISION) == self.revision
        };
        found.filter(move |found| found["kind"] != "Namespace" && !self.is_own(found) && !is_tag(found))
    }

    /// Keeps what the running control plane or `rutter tag` have set, and reports a change of the mesh configuration.
    pub(super) fn adjust(&mut self, io: &mut Io) {
        for (object, found) in &mut self.objects {
            let Some(found) = found else { continue };
            match text(object, "/kind") {
                "ValidatingWebhookConfiguration" => keep_policies(object, found),
                "ConfigMap" if object["data"].get("mesh").is_some() => report_mesh(object, found, io),
                _ => {}
            }
        }
        if self.is_deactivated {
            io.eprint("note: the tag `default` stands for another revision, so the injection webhooks of this one match nothing");
            let webhooks = |object: &&mut Json| object["kind"] == "MutatingWebhookConfiguration";
            self.objects.iter_mut().map(|(object, _)| object).filter(webhooks).for_each(tag::never_match);
        }
    }

    /// Whether the injection webhooks of this installation can select a pod.
    pub(super) fn injects(&self) -> bool {
        !self.is_deactivated && self.objects.iter().any(|(object, _)| object["kind"] == "MutatingWebhookConfiguration")
    }
}

/// An object; none if it does not exist.
pub(super) async fn optional(server: &Server, path: &str) -> Result<Option<Json>> {
    match server.get(path).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if StatusError::is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The program that manages an object.
pub(super) fn owner(object: &Json) -> String {
    let release = object["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str();
    match (label(object, MANAGED_BY), release) {
        (manager, Some(release)) if manager != RUTTER => format!("Helm release {release}"),
        ("", _) => "no label says whose".to_owned(),
        (manager, _) => format!("{manager}, installation {}", label(object, INSTANCE)),
    }
}

/// The policy `Fail` that the control plane has set stays.
fn keep_policies(object: &mut Json, found: &Json) {
    let before = found["webhooks"].as_array().into_iter().flatten();
    let closed: Vec<&Json> =
        before.filter(|webhook| webhook["failurePolicy"] == "Fail").map(|webhook| &webhook["name"]).collect();
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        if closed.contains(&&webhook["name"]) {
            webhook["failurePolicy"] = "Fail".into();
        }
    }
}

/// Names the fields of the mesh configuration that change.
fn report_mesh(object: &Json, found: &Json, io: &mut Io) {
    let read = |object: &Json| {
        let read = chart::read_values(text(object, "/data/mesh").as_bytes());
        read.ok().and_then(|value| value.as_object().cloned()).unwrap_or_default()
    };
    let (new, old) = (read(object), read(found));
    let mut changed: Vec<&str> = old.keys().chain(new.keys()).map(String::as_str).collect();
    changed.retain(|field| old.get(*field) != new.get(*field));
    changed.sort_unstable();
    changed.dedup();
    if !changed.is_empty() {
        io.warn(format!(
            "{}: the mesh configuration changes in: {} (--set configMap=false keeps it as it is)",
            named(found),
            changed.join(", ")
        ));
    }
}

/// The name of the object with the values of an installation.
fn values_name(revision: &str) -> String {
    match revision {
        "default" => "rutter-values".to_owned(),
        revision => format!("rutter-values-{revision}"),
    }
}

fn values_object(release: &Release<'_>, revision: &str, given: &Json) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": values_name(revision),
            "namespace": release.namespace,
            "labels": {MANAGED_BY: RUTTER, INSTANCE: release.name, REVISION: revision, "app": "istiod"},
        },
        "data": {"values": serde_json::to_string_pretty(given).unwrap_or_default()},
    })
}

/// The values of the last `rutter install`, else those of istiod's chart.
pub(super) async fn earlier_values(
    server: &Server,
    namespace: &str,
    matches: &ArgMatches,
    of_istiod: bool,
    io: &mut Io,
) -> Result<Json> {
    let revision = matches.get_one::<String>("revision").map_or("default", String::as_str);
    let suffix = if revision == "default" { String::new() } else { format!("-{revision}") };
    let places = [(values_name(revision), "values"), (format!("values{suffix}"), "original-values")];
    for (name, key) in places.iter().take(if of_istiod { 2 } else { 1 }) {
        let path = format!("/api/v1/namespaces/{}/configmaps/{}", encode(namespace), encode(name));
        if let Some(found) = optional(server, &path).await? {
            let text = found["data"][key].as_str().with_context(|| format!("ConfigMap {name} has no key {key}"))?;
            let values = chart::read_values(text.as_bytes()).with_context(|| format!("ConfigMap {name}, {key}"))?;
            io.eprint(format!("values: those of ConfigMap {namespace}/{name}"));
            return Ok(chart::adopted(values));
        }
    }
    match of_istiod {
        true => Err(anyhow!("no values of an earlier installation of revision {revision} in namespace {namespace}")),
        false => Ok(json!({})),
    }
}

/// The CustomResourceDefinitions to apply: those that are missing, and those that `rutter install` has made.
pub(super) async fn crds(server: &Server, io: &mut Io) -> Result<Vec<Json>> {
    let mut wanted = Vec::new();
    let mut kept = 0;
    for mut definition in definitions().iter().filter(|definition| !definition.builtin).map(crd) {
        let path = crd_path(text(&definition, "/metadata/name"));
        match optional(server, &path).await? {
            Some(found) if label(&found, MANAGED_BY) != RUTTER => kept += 1,
            _ => {
                definition["metadata"]["labels"][MANAGED_BY] = RUTTER.into();
                wanted.push(definition);
            }
        }
    }
    if kept > 0 {
        io.eprint(format!("{kept} CustomResourceDefinitions are there already, and stay as they are"));
    }
    Ok(wanted)
}

pub(super) fn crd_path(name: &str) -> String {
    format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", encode(name))
}

/// Whether an istiod runs in the place of an installation with these values.
pub(super) async fn has_istiod(server: &Server, namespace: &str, given: &Json) -> Result<bool> {
    let name = match values::revision(given) {
        "default" => "istiod".to_owned(),
        revision => format!("istiod-{revision}"),
    };
    let found = optional(server, &format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}")).await?;
    Ok(found.as_ref().is_some_and(is_istiod))
}

fn is_istiod(deployment: &Json) -> bool {
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    arguments.is_some_and(|arguments| arguments.iter().any(|argument| argument == "discovery"))
}
