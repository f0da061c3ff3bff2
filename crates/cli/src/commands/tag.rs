//! `rutter tag`: names for revisions, which namespaces use in the label `istio.io/rev`.

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::{flag, option};
use crate::io::Io;
use crate::server::{self, Request, Server, encode};
use crate::table::Table;

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATORS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// The ValidatingWebhookConfiguration for objects without a revision.
const DEFAULT_VALIDATOR: &str = "istiod-default-validator";
const TAG: &str = "istio.io/tag";
const REVISION: &str = "istio.io/rev";
const INJECT: &str = "sidecar.istio.io/inject";
const INJECTION: &str = "istio-injection";
/// The label that no object has: selectors with it match nothing.
pub(super) const DEACTIVATED: &str = "istio.io/deactivated";
/// The names of the Services of tags begin with this.
const TAG_SERVICE: &str = "istiod-revision-tag-";
/// The tag that serves namespaces with `istio-injection=enabled`.
const DEFAULT: &str = "default";

pub(super) fn command() -> Command {
    let name = || Arg::new("tag").value_name("TAG").required(true).help("Name of the tag");
    let set = Command::new("set")
        .about("Let a tag stand for a revision; replaces the tag with --overwrite")
        .arg(name())
        .arg(option("revision", "REVISION", "The revision").short('r').required(true))
        .arg(flag("overwrite", "Replace a tag that exists"));
    let remove = Command::new("remove")
        .about("Remove a tag")
        .arg(name())
        .arg(flag("yes", "Remove it although namespaces use it").short('y'));
    Command::new("tag")
        .about("Set, list and remove tags: names for revisions of the control plane")
        .after_help("Examples:\n  rutter tag set prod --revision 1-0\n  rutter tag list\n  rutter tag remove prod")
        .subcommand_required(true)
        .subcommand(server::arguments(set))
        .subcommand(server::arguments(Command::new("list").about("List the tags")))
        .subcommand(server::arguments(remove))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let Some((verb, matches)) = matches.subcommand() else {
        return Err(usage("expected set, list or remove"));
    };
    let server = Server::connect(matches, io).await?;
    let tag = || matches.get_one::<String>("tag").map_or("", String::as_str);
    match verb {
        "set" => {
            let revision = matches.get_one::<String>("revision").map_or("", String::as_str);
            set(&server, tag(), revision, matches.get_flag("overwrite"), io).await
        }
        "remove" => remove(&server, tag(), matches.get_flag("yes"), io).await,
        _ => list(&server, io).await,
    }
}

/// The webhook configurations of a collection.
async fn all(server: &Server, collection: &str) -> Result<Vec<Json>> {
    let list = server.list(Request::get(collection)).await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

fn label<'o>(object: &'o Json, name: &str) -> Option<&'o str> {
    object["metadata"]["labels"].get(name)?.as_str()
}

async fn set(server: &Server, tag: &str, revision: &str, overwrite: bool, io: &mut Io) -> Result<u8> {
    ensure!(is_name(tag), usage(format!("{tag:?} cannot be a tag: use lowercase letters, digits and dashes")));
    let found = all(server, WEBHOOKS).await?;
    ensure!(
        tag == DEFAULT || of_revision(&found, tag).is_err(),
        "{tag} is the name of a revision: namespaces with istio.io/rev={tag} use that"
    );
    let source = of_revision(&found, revision)?;
    let configuration = configuration(tag, revision, source)?;
    let existing = found.iter().find(|object| label(object, TAG) == Some(tag) || name(object) == name(&configuration));
    if let Some(known) = existing.and_then(|existing| label(existing, REVISION))
        && known != revision
        && !overwrite
    {
        return Err(anyhow!("the tag {tag} stands for {known}: replace it with --overwrite"));
    }
    // Validation first: if it fails, the tag is as it was.
    if tag == DEFAULT {
        let validators = all(server, VALIDATORS).await?;
        let validator = default_validator(revision, of_revision(&validators, revision)?)?;
        let existing = validators.iter().find(|object| name(object) == DEFAULT_VALIDATOR);
        put(server, VALIDATORS, existing, validator).await?;
    }
    let service = &source["webhooks"][0]["clientConfig"]["service"];
    tag_service(server, tag, revision, service).await?;
    put(server, WEBHOOKS, existing, configuration).await?;
    // Otherwise two control planes would inject the same pods.
    if tag == DEFAULT
        && let Ok(unnamed) = of_revision(&found, DEFAULT)
    {
        deactivate(server, unnamed.clone()).await?;
        io.print(format!("deactivated {}, which served the label without a revision", name(unnamed)))?;
    }
    io.print(format!("tag {tag} stands for revision {revision}"))?;
    Ok(SUCCESS)
}

/// Lets no webhook of a configuration match, so that another one takes its place. It is kept for the way back.
async fn deactivate(server: &Server, mut unnamed: Json) -> Result<()> {
    never_match(&mut unnamed);
    let path = format!("{WEBHOOKS}/{}", encode(name(&unnamed)));
    server.send::<Json>(Request::put(path, &unnamed)).await.map(drop)
}

/// Gives the webhooks of a configuration selectors that match nothing.
pub(super) fn never_match(configuration: &mut Json) {
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        for selector in ["namespaceSelector", "objectSelector"] {
            webhook[selector] = json!({"matchLabels": {DEACTIVATED: "never-match"}});
        }
    }
}

/// Creates or replaces the Service of a tag: it selects the pods that the Service of the revision selects.
async fn tag_service(server: &Server, tag: &str, revision: &str, service: &Json) -> Result<()> {
    let (Some(namespace), Some(name)) = (service["namespace"].as_str(), service["name"].as_str()) else {
        // The control plane is outside of the cluster.
        return Ok(());
    };
    let collection = format!("/api/v1/namespaces/{}/services", encode(namespace));
    let source = server.get(&format!("{collection}/{}", encode(name))).await?;
    let own = format!("{TAG_SERVICE}{tag}");
    let mut ports = source["spec"]["ports"].clone();
    for port in ports.as_array_mut().into_iter().flatten().filter_map(Json::as_object_mut) {
        port.remove("nodePort");
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": own,
            "namespace": namespace,
            "labels": {TAG: tag, REVISION: revision, "app": "istiod", "istio": "pilot"},
        },
        "spec": {"selector": source["spec"]["selector"], "ports": ports},
    });
    let path = format!("{collection}/{}", encode(&own));
    let request = Request::patch(path, "application/apply-patch+yaml", object.to_string());
    server.send::<Json>(request.with("fieldManager", "rutter-tag").with("force", "true")).await.map(drop)
}

fn name(object: &Json) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The configuration of a revision itself, not of a tag.
fn of_revision<'o>(found: &'o [Json], revision: &str) -> Result<&'o Json> {
    let own = found.iter().find(|object| label(object, REVISION) == Some(revision) && label(object, TAG).is_none());
    own.with_context(|| format!("no control plane with webhooks has the revision {revision:?}"))
}

/// Creates a configuration, or replaces the existing one.
async fn put(server: &Server, collection: &str, existing: Option<&Json>, mut object: Json) -> Result<()> {
    let request = match existing {
        Some(existing) => {
            for field in ["name", "resourceVersion"] {
                object["metadata"][field] = existing["metadata"][field].clone();
            }
            Request::put(format!("{collection}/{}", encode(name(existing))), &object)
        }
        None => Request::post(collection, &object),
    };
    server.send::<Json>(request).await.map(drop)
}

/// The configuration that validates objects without a revision by the control plane of this one.
fn default_validator(revision: &str, source: &Json) -> Result<Json> {
    let mut webhook = source["webhooks"].get(0).context("the revision has no validation webhook")?.clone();
    webhook["name"] = "validation.istio.io".into();
    webhook["objectSelector"] = json!({"matchExpressions": [{"key": REVISION, "operator": "DoesNotExist"}]});
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": DEFAULT_VALIDATOR,
            "labels": {TAG: DEFAULT, REVISION: revision, "app": "istiod", "istio": "istiod"},
        },
        "webhooks": [webhook],
    }))
}

/// The webhook configuration of a tag, whose webhooks call the control plane that those of the revision call.
fn configuration(tag: &str, revision: &str, source: &Json) -> Result<Json> {
    let first = source["webhooks"].get(0).context("the revision has no injection webhooks")?;
    let is = |key: &str, operator: &str, values: &[&str]| match values {
        [] => json!({"key": key, "operator": operator}),
        values => json!({"key": key, "operator": operator, "values": values}),
    };
    let webhook = |name: &str, namespaces: Vec<Json>, objects: Vec<Json>| {
        let mut webhook = first.clone();
        webhook["name"] = format!("{name}.sidecar-injector.istio.io").into();
        webhook["namespaceSelector"] = json!({"matchExpressions": namespaces});
        webhook["objectSelector"] = json!({"matchExpressions": objects});
        webhook
    };
    let (none, no_revision) = (is(INJECTION, "DoesNotExist", &[]), is(REVISION, "DoesNotExist", &[]));
    let not_refused = is(INJECT, "NotIn", &["false"]);
    let tagged = is(REVISION, "In", &[tag]);
    let mut webhooks = vec![
        webhook("rev.namespace", vec![tagged.clone(), none.clone()], vec![not_refused.clone()]),
        webhook("rev.object", vec![no_revision.clone(), none.clone()], vec![not_refused.clone(), tagged]),
    ];
    if tag == DEFAULT {
        webhooks.push(webhook("namespace", vec![is(INJECTION, "In", &["enabled"])], vec![not_refused]));
        webhooks.push(webhook(
            "object",
            vec![none, no_revision.clone()],
            vec![is(INJECT, "In", &["true"]), no_revision],
        ));
    }
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": format!("istio-revision-tag-{tag}"),
            "labels": {TAG: tag, REVISION: revision, "app": "sidecar-injector"},
        },
        "webhooks": webhooks,
    }))
}

fn is_name(tag: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !tag.is_empty() && tag.len() <= 56 && tag.chars().all(fits) && !tag.starts_with('-') && !tag.ends_with('-')
}

/// The namespaces that use a tag.
async fn namespaces(server: &Server, tag: &str) -> Result<Vec<String>> {
    let list = server.list(Request::get("/api/v1/namespaces")).await?;
    let items = list["items"].as_array().into_iter().flatten();
    let uses = |object: &&Json| {
        label(object, REVISION) == Some(tag) || (tag == DEFAULT && label(object, INJECTION) == Some("enabled"))
    };
    Ok(items.filter(uses).filter_map(|object| Some(object["metadata"]["name"].as_str()?.to_owned())).collect())
}

async fn list(server: &Server, io: &mut Io) -> Result<u8> {
    let mut table = Table::new(["TAG", "REVISION", "NAMESPACES"]);
    for object in all(server, WEBHOOKS).await? {
        if let Some(tag) = label(&object, TAG) {
            let used = namespaces(server, tag).await?.join(",");
            table.row([tag.to_owned(), label(&object, REVISION).unwrap_or_default().to_owned(), used]);
        }
    }
    for line in table.lines(true, false) {
        io.print(line)?;
    }
    Ok(SUCCESS)
}

async fn remove(server: &Server, tag: &str, yes: bool, io: &mut Io) -> Result<u8> {
    let found = all(server, WEBHOOKS).await?;
    let object = found
        .iter()
        .find(|object| label(object, TAG) == Some(tag))
        .with_context(|| format!("there is no tag {tag}"))?;
    let used = namespaces(server, tag).await?;
    if !used.is_empty() && !yes {
        return Err(anyhow!(
            "the tag {tag} is used by the namespaces {}: pods there would get no sidecar (--yes removes it)",
            used.join(", ")
        ));
    }
    delete(server, WEBHOOKS, name(object)).await?;
    if let Some(namespace) = object["webhooks"][0]["clientConfig"]["service"]["namespace"].as_str() {
        let services = format!("/api/v1/namespaces/{}/services", encode(namespace));
        delete(server, &services, &format!("{TAG_SERVICE}{tag}")).await?;
    }
    if tag == DEFAULT {
        delete(server, VALIDATORS, DEFAULT_VALIDATOR).await?;
        if of_revision(&found, DEFAULT).is_ok() {
            io.print("namespaces with istio-injection=enabled get no sidecar: `rutter upgrade` restores the webhooks of the default \
                      revision")?;
        }
    }
    io.print(format!("removed the tag {tag}"))?;
    Ok(SUCCESS)
}

/// Deletes a configuration; it may be gone already.
async fn delete(server: &Server, collection: &str, name: &str) -> Result<()> {
    let path = format!("{collection}/{}", encode(name));
    match server.send::<Json>(Request::delete(path, &json!({}))).await {
        Err(error) if !StatusError::is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_tag_also_serves_labels_without_a_revision() {
        let source = json!({"webhooks": [{"name": "x", "clientConfig": {"service": {"name": "istiod-a"}}}]});
        let names = |tag: &str| {
            let made = configuration(tag, "a", &source).unwrap();
            let webhooks = made["webhooks"].as_array().unwrap().clone();
            assert!(webhooks.iter().all(|webhook| webhook["clientConfig"]["service"]["name"] == "istiod-a"));
            webhooks.len()
        };
        assert_eq!((names("prod"), names("default")), (2, 4));
        assert!(configuration("prod", "a", &json!({"webhooks": []})).is_err());
        assert!(is_name("prod-1") && !is_name("Prod") && !is_name("-a") && !is_name(""));
    }
}
