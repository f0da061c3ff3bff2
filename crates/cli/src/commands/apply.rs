//! `rutter apply`: server-side apply of the objects in files.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};

use super::wait::{self, Goal};
use crate::error_location;
use crate::failure::{FAILURE, SUCCESS};
use crate::flags::{self, flag};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Catalog, Request, Server};
use crate::targets::{self, Target};
use crate::write::{DryRun, Options, Report};
use crate::{output, write};

pub(super) fn command() -> Command {
    let command = Command::new("apply")
        .about("Create or update the objects of files by server-side apply")
        .after_help(
            "A field that another manager owns with a different value is a conflict.\n\n\
             Examples:\n  rutter apply -f mesh.yaml\n  rutter apply -Rf config/\n  \
             cat mesh.yaml | rutter apply -f - --dry-run=server -o yaml\n  rutter apply -f route.yaml --wait --timeout 30s",
        )
        .arg(flag("force-conflicts", "Take over fields that another manager owns"))
        // Scripts written for kubectl pass it.
        .arg(flag("server-side", "Accepted for compatibility with kubectl: apply is always server-side").hide(true))
        .arg(flag("wait", "Wait until all proxies that need the objects have acknowledged them; exit code 1 if one rejects them"))
        .arg(flags::timeout());
    server::arguments(output::arguments(write::arguments(manifests::arguments(command, true))))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    let mut files = manifests::read(matches, io)?;
    files.sort_by_key(sending_order);
    let server = Server::connect(matches, io).await?;
    let mut report = Report::new(matches, &options);
    let mut applier = Applier::new(server, options, matches).await?;
    let mut done = Vec::new();
    let mut code = SUCCESS;
    for manifest in &files {
        match applier.apply(manifest).await {
            Ok(applied) => {
                let verb = applied.verb();
                report.add(io, &applied.target.kind, applied.after, verb)?;
                done.push(applied.target);
            }
            Err(error) => {
                error_location::report(&error, manifest, io);
                code = FAILURE;
            }
        }
    }
    report.finish(io, matches)?;
    if code != SUCCESS || !matches.get_flag("wait") || applier.options.dry != DryRun::No {
        return Ok(code);
    }
    let timeout = matches.get_one::<Duration>("timeout").copied().unwrap_or_default();
    let reported: Vec<Target> = done.into_iter().filter(|target| wait::is_reported(&target.kind)).collect();
    wait::until(&applier.server, reported, Goal::Proxies(100.0), timeout, io).await
}

/// The order of sending: objects come after those to which they refer, so that no reference is reported as missing.
fn sending_order(manifest: &Manifest) -> (u8, u8) {
    let delegates = || {
        let routes = manifest.value["spec"]["http"].as_array();
        routes.is_some_and(|routes| routes.iter().any(|route| !route["delegate"].is_null()))
    };
    let referring = match manifest.kind() {
        "Gateway" => 1,
        "VirtualService" if delegates() => 3,
        "VirtualService" => 2,
        _ => 0,
    };
    (write::creation_order(manifest.kind()), referring)
}

/// Applies objects one by one.
pub(super) struct Applier {
    server: Server,
    catalog: Catalog,
    options: Options,
    force: bool,
}

/// An applied object.
pub(super) struct Applied {
    pub(super) target: Target,
    /// The object before; none if it did not exist.
    pub(super) before: Option<Json>,
    /// The object after.
    pub(super) after: Json,
    sent: bool,
}

impl Applied {
    /// The effect, for a report.
    fn verb(&self) -> &'static str {
        match &self.before {
            _ if !self.sent => "applied",
            None => "created",
            Some(before) if write::same_content(before, &self.after) => "unchanged",
            Some(_) => "configured",
        }
    }
}

impl Applier {
    pub(super) async fn new(server: Server, options: Options, matches: &ArgMatches) -> Result<Applier> {
        Ok(Applier { catalog: server.catalog().await?, server, options, force: matches.get_flag("force-conflicts") })
    }

    /// Applies the object of a file. A client-side dry run sends nothing.
    pub(super) async fn apply(&mut self, manifest: &Manifest) -> Result<Applied> {
        targets::discover(manifest, &self.server, &mut self.catalog).await?;
        let target = targets::of_manifest(manifest, &self.server, &self.catalog)?;
        ensure!(!target.name.is_empty(), "{}: `metadata.name` is missing", manifest.place());
        let mut object = manifest.value.clone();
        if !target.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(target.namespace);
        }
        output::without_managed_fields(&mut object);
        if self.options.dry == DryRun::Client {
            return Ok(Applied { target, before: None, after: object, sent: false });
        }
        let before = target.get_if_exists(&self.server).await?;
        let request = Request::patch(target.path(), "application/apply-patch+yaml", object.to_string());
        let request = self.options.on(request).with("force", self.force.to_string());
        let after = self.server.send(request).await?;
        Ok(Applied { target, before, after, sent: true })
    }
}
