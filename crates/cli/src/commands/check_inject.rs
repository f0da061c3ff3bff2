//! `rutter check-inject`: says whether a pod gets a sidecar, and why.

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command};
use inject::Workload;
use serde_json::Value as Json;

use super::inject::{Settings, mesh_of_cluster, of_cluster, workload};
use super::tag::DEACTIVATED;
use crate::failure::{FAILURE, SUCCESS};
use crate::flags::option;
use crate::io::Io;
use crate::server::{self, Request, Server, encode};
use crate::table::Table;

/// The resource of injection webhooks.
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// The end of the names of injection webhooks.
const INJECTOR: &str = "sidecar-injector.istio.io";

pub(super) fn command() -> Command {
    let command = Command::new("check-inject")
        .about("Say whether a pod gets a sidecar, and why or why not")
        .long_about(
            "Say whether a pod, or the pods of a workload, get a sidecar when they are created, and why or why not: which webhooks \
             select the namespace and the pod, and what the injection configuration decides. The exit code is 1 if there is no \
             sidecar.",
        )
        .after_help("Examples:\n  rutter check-inject web-7d8f -n shop\n  rutter check-inject deployment/web -n shop")
        .arg(Arg::new("workload").value_name("POD|KIND/NAME").required(true).help("A pod, or a workload such as deployment/web"))
        .arg(
            option("istioNamespace", "NAME", "Namespace of the control plane").short('i').default_value("istio-system"),
        );
    server::arguments(command)
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let name = matches.get_one::<String>("workload").map_or("", String::as_str);
    let server = Server::connect(matches, io).await?;
    let workload = workload(find(&server, name).await?)?;
    let pod = workload.pod(&server.namespace);
    let namespace = server.get(&format!("/api/v1/namespaces/{}", encode(&server.namespace))).await?;
    let root = matches.get_one::<String>("istioNamespace").map_or("istio-system", String::as_str);
    let found = webhooks(&server).await?;
    let mut table = Table::new(["WEBHOOK", "REVISION", "SELECTS", "REASON"]);
    let mut revision = None;
    for webhook in &found {
        let verdict = webhook.verdict(&namespace["metadata"]["labels"], &pod["metadata"]["labels"]);
        let selects = if verdict.is_none() { "yes" } else { "no" };
        table.row([
            webhook.name.clone(),
            webhook.revision.clone(),
            selects.to_owned(),
            verdict.clone().unwrap_or_default(),
        ]);
        if verdict.is_none() && revision.is_none() {
            revision = Some(webhook.revision.clone());
        }
    }
    for line in table.lines(true, false) {
        io.print(line)?;
    }
    let Some(revision) = revision else {
        io.print("no sidecar: no webhook selects the pod; label the namespace with istio-injection=enabled or istio.io/rev=REVISION")?;
        return Ok(FAILURE);
    };
    let injector = of_cluster(&server, root, &revision).await?;
    let decision = workload.decide(&injector, &server.namespace);
    if !decision.inject {
        io.print(format!("no sidecar: {}", decision.reason))?;
        return Ok(FAILURE);
    }
    let mesh = mesh_of_cluster(&server, root, &revision).await?;
    let settings = Settings { injector, mesh, revision: revision.clone() };
    dry_run(&settings, workload, &server.namespace)?;
    io.print(format!("sidecar of revision {revision}: {}", decision.reason))?;
    Ok(SUCCESS)
}

/// Whether the templates work for this pod.
fn dry_run(settings: &Settings, mut workload: Workload, namespace: &str) -> Result<()> {
    settings.inject(&mut workload, namespace, false).context("the pod cannot be created: its injection fails")
}

/// The pod or workload.
async fn find(server: &Server, word: &str) -> Result<Json> {
    let (kind, name) = word.split_once('/').unwrap_or(("pods", word));
    let catalog = server.catalog().await?;
    let kind = catalog.one(kind)?;
    let mut object = server.get(&kind.object(&server.namespace, name)).await?;
    if let Some(fields) = object.as_object_mut() {
        fields.entry("kind").or_insert_with(|| kind.kind.to_string().into());
    }
    Ok(object)
}

/// An injection webhook of the cluster.
struct Webhook {
    name: String,
    revision: String,
    namespaces: Json,
    objects: Json,
}

async fn webhooks(server: &Server) -> Result<Vec<Webhook>> {
    let list = server.list(Request::get(WEBHOOKS)).await?;
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for object in list["items"].as_array().into_iter().flatten() {
        for webhook in object["webhooks"].as_array().into_iter().flatten() {
            let name = text(&webhook["name"]);
            if name.ends_with(INJECTOR) {
                let revision = object["metadata"]["labels"]["istio.io/rev"].as_str().unwrap_or("default");
                found.push(Webhook {
                    name: format!("{} {name}", text(&object["metadata"]["name"])),
                    revision: revision.to_owned(),
                    namespaces: webhook["namespaceSelector"].clone(),
                    objects: webhook["objectSelector"].clone(),
                });
            }
        }
    }
    Ok(found)
}

impl Webhook {
    /// The condition that does not hold; none if the webhook selects the pod.
    fn verdict(&self, namespace: &Json, pod: &Json) -> Option<String> {
        if self.namespaces["matchLabels"][DEACTIVATED].is_string() {
            return Some("it is deactivated: the tag `default` stands for another revision".to_owned());
        }
        let failed = |selector: &Json, labels: &Json, whose: &str| {
            unmet(selector, labels).map(|condition| format!("the {whose} does not meet: {condition}"))
        };
        failed(&self.namespaces, namespace, "namespace").or_else(|| failed(&self.objects, pod, "pod"))
    }
}

/// The first condition of a label selector that does not hold.
fn unmet(selector: &Json, labels: &Json) -> Option<String> {
    let label = |key: &str| labels.get(key).and_then(Json::as_str);
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        if label(key) != value.as_str() {
            return Some(format!("{key}={}", value.as_str().unwrap_or_default()));
        }
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let operator = expression["operator"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let found = label(key);
        let is_one = found.is_some_and(|found| values.contains(&found));
        let holds = match operator {
            "In" => is_one,
            "NotIn" => !is_one,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        };
        if !holds {
            let values = if values.is_empty() { String::new() } else { format!(" {}", values.join(",")) };
            return Some(format!("{key} {operator}{values}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_unmet_condition_is_named() {
        let selector = json!({"matchLabels": {"a": "1"}, "matchExpressions": [
            {"key": "b", "operator": "NotIn", "values": ["x"]}, {"key": "c", "operator": "DoesNotExist"}]});
        assert_eq!(unmet(&selector, &json!({"a": "1"})), None);
        assert_eq!(unmet(&selector, &json!({})).as_deref(), Some("a=1"));
        assert_eq!(unmet(&selector, &json!({"a": "1", "b": "x"})).as_deref(), Some("b NotIn x"));
        assert_eq!(unmet(&selector, &json!({"a": "1", "c": ""})).as_deref(), Some("c DoesNotExist"));
        assert_eq!(unmet(&Json::Null, &Json::Null), None);
    }
}
