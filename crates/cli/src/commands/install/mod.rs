//! `rutter install`, `upgrade`, `uninstall` and `precheck`: the chart's objects in a cluster, without Helm.
//!
//! ```text
//! values ─► Plan (objects, and what the cluster has in their place) ─► checks ─► apply ─► wait ─► a pod as a trial
//! ```

mod apply;
mod plan;
mod precheck;
mod ready;
mod uninstall;

use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};

use super::values;
use crate::age;
use crate::chart;
use crate::failure::{FAILURE, SUCCESS, usage};
use crate::flags::{flag, option};
use crate::io::Io;
use crate::server::{self, Catalog, Server};
use plan::Plan;

pub(super) use precheck::{precheck, precheck_command};
pub(super) use uninstall::{uninstall, uninstall_command};

/// The label with the program that manages an object, and its value for [`install`].
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const RUTTER: &str = "rutter";
/// The label with the name of the installation.
const INSTANCE: &str = "app.kubernetes.io/instance";
const REVISION: &str = "istio.io/rev";
/// The namespace if no flag names one.
const SYSTEM: &str = "istio-system";

/// `rutter install`.
pub(super) fn install_command() -> Command {
    let command = Command::new("install")
        .about("Install Rutter in a cluster, and wait until it serves")
        .after_help(
            "Without --revision, the objects have istiod's names. Objects of another installation are replaced with \
             --in-place-of-istiod only.\n\n\
             Exit codes: 0 Rutter serves and its webhooks work; 1 failure; 2 invalid command line; 3 not ready within --timeout.\n\n\
             Examples:\n  rutter install --set global.hub=docker.io/istio,global.tag=1.28.0\n  \
             rutter install --revision canary -f values.yaml\n  rutter install --in-place-of-istiod --reuse-values",
        )
        .arg(flag("in-place-of-istiod", "Replace the objects of an istiod, or another installation, with the same names"))
        .arg(flag("reuse-values", "Start from the values with which istiod's chart, or Rutter, was installed here"));
    arguments(command)
}

/// `rutter upgrade`.
pub(super) fn upgrade_command() -> Command {
    let command = Command::new("upgrade")
        .about("Update an installation of `rutter install` to this version, with its values and the given ones")
        .after_help(
            "Exit codes: as for `rutter install`.\n\n\
             Examples:\n  rutter upgrade\n  rutter upgrade --revision canary --set replicaCount=3,autoscaleEnabled=false",
        )
        .arg(flag("reset-values", "Use only the given values, not those of the installation"));
    arguments(command)
}

fn arguments(command: Command) -> Command {
    let command = command
        .args(values::arguments())
        .arg(flag("skip-crds", "Do not install CustomResourceDefinitions"))
        .arg(flag("dry-run", "Let the API server check all objects, and change nothing"))
        .arg(flag("no-wait", "Do not wait until Rutter serves"))
        .arg(option("timeout", "DURATION", "Maximum time to wait").value_parser(age::parse).default_value("5m"));
    server::arguments(command)
}

pub(super) async fn install(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let reuse = matches.get_flag("reuse-values");
    run(matches, matches.get_flag("in-place-of-istiod"), reuse, false, io).await
}

pub(super) async fn upgrade(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    run(matches, false, !matches.get_flag("reset-values"), true, io).await
}

async fn run(matches: &ArgMatches, replace: bool, reuse: bool, existing: bool, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let namespace = namespace(&server);
    let earlier = match reuse {
        true => plan::earlier_values(&server, &namespace, matches, !existing, io).await?,
        false => json!({}),
    };
    let mut given = values::given(matches, earlier, io)?;
    let keeps_way_back =
        replace && given.pointer("/env/RUTTER_VHDS").is_none() && plan::has_istiod(&server, &namespace, &given).await?;
    if keeps_way_back {
        chart::assign_text(&mut given, "env.RUTTER_VHDS=off")?;
    }
    let name = matches.get_one::<String>("name").map_or(RUTTER, String::as_str);
    let mut plan = Plan::make(&server, &catalog, &given, name, &namespace, io).await?;
    if existing && !plan.is_installed() {
        return Err(anyhow!(
            "`rutter install` has made no installation {name} of revision {} in namespace {namespace}: use `rutter install`, or \
             Helm if that installed it",
            plan.revision
        ));
    }
    plan.check(replace)?;
    plan.adjust(io);
    let is_dry = matches.get_flag("dry-run");
    let crds = if matches.get_flag("skip-crds") { Vec::new() } else { plan::crds(&server, io).await? };
    apply::all(&server, &catalog, &plan, crds, is_dry, io).await?;
    if is_dry {
        io.print("dry run: nothing was changed")?;
        return Ok(SUCCESS);
    }
    if keeps_way_back {
        io.eprint(
            "note: VHDS is off (env.RUTTER_VHDS), so that proxies can go back to istiod; when you will not go back, use \
             `rutter upgrade --set-string env.RUTTER_VHDS=on`",
        );
    } else if plan.replaces_istiod() {
        io.eprint("note: proxies that get virtual hosts by VHDS (env.RUTTER_VHDS) cannot go back to istiod before they restart");
    }
    if matches.get_flag("no-wait") {
        return Ok(SUCCESS);
    }
    let timeout = matches.get_one::<Duration>("timeout").copied().unwrap_or(Duration::from_secs(300));
    ready::wait(&server, &plan, timeout, io).await?;
    match ready::trial(&server, &plan).await? {
        Ok(what) => {
            io.print(format!("Rutter {} serves as revision {}{what}", env!("CARGO_PKG_VERSION"), plan.revision))?;
            Ok(SUCCESS)
        }
        Err(why) => {
            io.eprint(format!("error: Rutter runs, but {why}"));
            Ok(FAILURE)
        }
    }
}

/// The namespace of the control plane: that of the flag; the context's namespace has no effect.
fn namespace(server: &Server) -> String {
    if server.namespace_given { server.namespace.clone() } else { SYSTEM.to_owned() }
}

/// A text in an object.
fn text<'o>(object: &'o Json, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Json::as_str).unwrap_or_default()
}

fn label<'o>(object: &'o Json, name: &str) -> &'o str {
    object["metadata"]["labels"].get(name).and_then(Json::as_str).unwrap_or_default()
}

/// The path of an object.
fn path(catalog: &Catalog, object: &Json) -> Result<String> {
    let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    let kind = catalog
        .of_object(version, kind)
        .ok_or_else(|| usage(format!("the cluster does not serve {version} {kind}")))?;
    Ok(kind.object(text(object, "/metadata/namespace"), text(object, "/metadata/name")))
}

/// `deployment istio-system/istiod`.
fn named(object: &Json) -> String {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match text(object, "/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}
