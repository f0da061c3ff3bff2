//! `rutter precheck`: what would keep an installation from working.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{ArgMatches, Command};
use config::schema::definitions;
use serde_json::{Value as Json, json};

use super::plan::{Plan, crd_path, optional, owner};
use super::{MANAGED_BY, REVISION, RUTTER, label, named, namespace, text, values};
use crate::failure::{FAILURE, SUCCESS};
use crate::flags::flag;
use crate::io::Io;
use crate::server::{self, Catalog, Request, Server, encode};
use crate::table::Table;

/// The first version of Kubernetes that is supported: 1.32.
const KUBERNETES: (u32, u32) = (1, 32);
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

pub(in super::super) fn precheck_command() -> Command {
    let command = Command::new("precheck")
        .about("Check whether Rutter can be installed in a cluster; changes nothing")
        .after_help(
            "Exit codes: 0 nothing prevents an installation (there may be warnings); 1 something does.\n\n\
             Examples:\n  rutter precheck\n  rutter precheck --revision canary -f values.yaml",
        )
        .args(values::arguments())
        .arg(flag("in-place-of-istiod", "The installation is to replace an istiod with the same names"));
    server::arguments(command)
}

/// The results of checks.
struct Findings {
    table: Table,
    failed: bool,
}

impl Findings {
    fn add(&mut self, level: &str, check: &str, detail: impl Into<String>) {
        self.failed |= level == "error";
        self.table.row([level.to_owned(), check.to_owned(), detail.into()]);
    }
}

pub(in super::super) async fn precheck(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let namespace = namespace(&server);
    let name = matches.get_one::<String>("name").map_or(RUTTER, String::as_str);
    let given = values::given(matches, json!({}), io)?;
    let mut found = Findings { table: Table::new(["RESULT", "CHECK", "DETAIL"]), failed: false };
    version(&server, &mut found).await?;
    let mut plan = Plan::make(&server, &catalog, &given, name, &namespace, io).await?;
    permissions(&server, &catalog, &plan, &mut found).await?;
    control_planes(&server, &plan, &mut found).await?;
    objects(&mut plan, matches.get_flag("in-place-of-istiod"), &mut found);
    kinds(&server, &mut found).await?;
    webhooks(&server, &plan, &mut found).await?;
    authority(&server, &namespace, &mut found).await?;
    for line in found.table.lines(true, false) {
        io.print(line)?;
    }
    Ok(if found.failed { FAILURE } else { SUCCESS })
}

/// Whether the objects can be applied.
fn objects(plan: &mut Plan, replace: bool, found: &mut Findings) {
    let checked = plan.check(true);
    let owners: BTreeSet<String> = plan.others().map(owner).collect();
    let owners: Vec<String> = owners.into_iter().collect();
    match (checked, owners.is_empty()) {
        (Err(error), _) => found.add("error", "objects", error.to_string()),
        (Ok(()), true) => found.add("ok", "objects", "none belongs to another installation"),
        (Ok(()), false) => {
            let detail = format!("{} objects belong to {}", plan.others().count(), owners.join(", "));
            let advice = "use --revision NAME to install beside them, or --in-place-of-istiod to replace them";
            let (level, note) = if replace { ("warning", "they will be replaced") } else { ("error", advice) };
            found.add(level, "objects", format!("{detail}: {note}"));
        }
    }
}

async fn version(server: &Server, found: &mut Findings) -> Result<()> {
    let version = server.get("/version").await?;
    let number = |field: &str| {
        let digits: String = text(&version, field).chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or(0)
    };
    let level = if (number("/major"), number("/minor")) >= KUBERNETES { "ok" } else { "error" };
    let (major, minor) = KUBERNETES;
    found.add(level, "Kubernetes", format!("{} ({major}.{minor} or later is needed)", text(&version, "/gitVersion")));
    Ok(())
}

/// Whether the user may create and change every object.
async fn permissions(server: &Server, catalog: &Catalog, plan: &Plan, found: &mut Findings) -> Result<()> {
    let mut asked = BTreeSet::new();
    let mut denied = Vec::new();
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "");
    let objects = plan
        .objects
        .iter()
        .map(|(object, _)| (text(object, "/apiVersion"), text(object, "/kind"), text(object, "/metadata/namespace")));
    for (api, kind, space) in objects.chain([crd]) {
        let Some(kind) = catalog.of_object(api, kind) else { continue };
        for verb in ["create", "patch"] {
            if !asked.insert((kind.qualified(), space, verb)) {
                continue;
            }
            let attributes = json!({"group": kind.group, "resource": kind.plural, "namespace": space, "verb": verb});
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes}});
            let answer: Json = server.send(Request::post(REVIEWS, &review)).await?;
            if answer["status"]["allowed"] != true {
                denied.push(format!("{verb} {}", kind.qualified()));
            }
        }
    }
    match denied.is_empty() {
        true => found.add("ok", "permissions", format!("{} allowed", asked.len())),
        false => found.add("error", "permissions", format!("you may not {}", denied.join(", "))),
    }
    Ok(())
}

/// The control planes that run.
async fn control_planes(server: &Server, plan: &Plan, found: &mut Findings) -> Result<()> {
    let list = server.list(Request::get("/apis/apps/v1/deployments").with("labelSelector", "app=istiod")).await?;
    let mut others = 0;
    for item in list["items"].as_array().into_iter().flatten() {
        let (revision, space) = (label(item, REVISION), text(item, "/metadata/namespace"));
        let image = text(item, "/spec/template/spec/containers/0/image");
        others += 1;
        let same = revision == plan.revision && space == plan.namespace;
        let level = if same && !plan.is_own(item) { "warning" } else { "ok" };
        let note = if same { ", which this installation would replace" } else { "" };
        let name = text(item, "/metadata/name");
        found.add(
            level,
            "control plane",
            format!("{space}/{name}, revision {revision}, image {image}, {}{note}", owner(item)),
        );
    }
    if others == 0 {
        found.add("ok", "control plane", "none runs");
    }
    Ok(())
}

/// Whether the kinds are served in the versions that Rutter reads.
async fn kinds(server: &Server, found: &mut Findings) -> Result<()> {
    let (mut missing, mut stale) = (0, Vec::new());
    let custom: Vec<_> = definitions().iter().filter(|definition| !definition.builtin).collect();
    for definition in &custom {
        let name = format!("{}.{}", definition.plural, definition.group);
        let Some(there) = optional(server, &crd_path(&name)).await? else {
            missing += 1;
            continue;
        };
        let wanted = config::schema::crd(definition);
        let served = |object: &Json| -> BTreeSet<String> {
            let versions = object["spec"]["versions"].as_array().into_iter().flatten();
            versions.filter(|it| it["served"] == true).map(|it| text(it, "/name").to_owned()).collect()
        };
        let lacks: Vec<String> = served(&wanted).difference(&served(&there)).cloned().collect();
        if !lacks.is_empty() && label(&there, MANAGED_BY) != RUTTER {
            stale.push(format!("{name} does not serve {}", lacks.join(", ")));
        }
    }
    found.add("ok", "kinds", format!("{} are there, {missing} will be created", custom.len() - missing));
    if !stale.is_empty() {
        found.add("warning", "kinds", format!("{}: update their CustomResourceDefinitions", stale.join("; ")));
    }
    Ok(())
}

/// Webhooks that call a control plane that is not there, and two that inject the same pods.
async fn webhooks(server: &Server, plan: &Plan, found: &mut Findings) -> Result<()> {
    let mut count = 0;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let list = server.list(Request::get(format!("{REGISTRATION}/{}s", kind.to_lowercase()))).await?;
        for item in list["items"].as_array().into_iter().flatten() {
            let webhooks = item["webhooks"].as_array().into_iter().flatten();
            let mut of_mesh = webhooks.filter(|webhook| {
                let name = text(webhook, "/name");
                name.ends_with("sidecar-injector.istio.io") || name.ends_with("validation.istio.io")
            });
            let Some(webhook) = of_mesh.next() else { continue };
            count += 1;
            let (name, tag) = (text(item, "/metadata/name"), label(item, "istio.io/tag"));
            let service = &webhook["clientConfig"]["service"];
            let (space, target) = (text(service, "/namespace"), text(service, "/name"));
            let path = format!("/api/v1/namespaces/{}/services/{}", encode(space), encode(target));
            if !service.is_null() && optional(server, &path).await?.is_none() {
                let refuses = webhook["failurePolicy"] == "Fail";
                let level = if refuses { "error" } else { "warning" };
                let effect = if refuses { ", so what it selects cannot be created" } else { "" };
                found.add(
                    level,
                    "webhooks",
                    format!("{kind} {name} calls the Service {space}/{target}, which does not exist{effect}"),
                );
            }
            if tag == "default" && plan.revision == "default" && label(item, REVISION) != "default" {
                found.add(
                    "warning",
                    "webhooks",
                    format!(
                        "{}: the tag `default` stands for revision {}",
                        named_as(kind, item),
                        label(item, REVISION)
                    ),
                );
            }
        }
    }
    found.add("ok", "webhooks", format!("{count} configurations of control planes"));
    Ok(())
}

fn named_as(kind: &str, item: &Json) -> String {
    let mut item = item.clone();
    item["kind"] = kind.into();
    named(&item)
}

/// The authority that will sign certificates.
async fn authority(server: &Server, namespace: &str, found: &mut Findings) -> Result<()> {
    let secret = |name: &str| format!("/api/v1/namespaces/{}/secrets/{name}", encode(namespace));
    let detail =
        match (optional(server, &secret("cacerts")).await?, optional(server, &secret("istio-ca-secret")).await?) {
            (Some(_), _) => "the Secret cacerts is used",
            (None, Some(_)) => "the Secret istio-ca-secret is used: the roots stay the same",
            (None, None) => "a new one will be created",
        };
    found.add("ok", "authority", detail);
    Ok(())
}
