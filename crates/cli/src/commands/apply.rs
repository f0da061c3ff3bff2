//! `rutter apply`: make the server's objects what files say, by server-side apply.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value as Json, json};

use super::wait::{self, Goal};
use super::{flag, prune};
use crate::blame;
use crate::failure::{FAILURE, Refusal, SUCCESS, usage};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Catalogue, Kind, Request, Server};
use crate::targets::{self, Target};
use crate::write::{DryRun, Options, Report};
use crate::{age, output, write};

/// The label of the objects of a set.
pub(super) const SET_LABEL: &str = "rutter.io/applyset";

pub(super) fn command() -> Command {
    let command = Command::new("apply")
        .about("Make the server's objects what files say")
        .after_help(
            "Fields that another manager owns and that the files say differently are conflicts.\n\n\
             Examples:\n  rutter apply -f mesh.yaml\n  rutter apply -Rf config/ --prune --applyset shop\n  \
             cat mesh.yaml | rutter apply -f - --dry-run=server -o yaml\n  rutter apply -f route.yaml --wait --timeout 30s",
        )
        .arg(flag("force-conflicts", "Take over fields that another manager owns"))
        // What scripts for kubectl say; there is no other way here.
        .arg(flag("server-side", "Accepted for kubectl's sake: apply is always server-side").hide(true))
        .arg(flag(
            "prune",
            "Delete objects that earlier calls applied and the files have no longer; needs --applyset or -l. Namespaces stay",
        ))
        .arg(
            Arg::new("applyset")
                .long("applyset")
                .value_name("NAME")
                .help("The set that the files are: every object gets the label rutter.io/applyset, by which --prune knows the set"),
        )
        .arg(Arg::new("selector").short('l').long("selector").value_name("LABELS").help(
            "With --prune: only objects with these labels, in the namespaces that the files name, are deleted",
        ))
        .arg(flag("wait", "Wait until all proxies that need the objects run them; exit code 1 if one refuses"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("TIME")
                .value_parser(age::parse)
                .default_value("60s")
                .help("How long to wait"),
        );
    server::arguments(output::arguments(write::arguments(manifests::arguments(command, true))))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    let set = matches.get_one::<String>("applyset");
    let selector = matches.get_one::<String>("selector");
    if matches.get_flag("prune") {
        ensure!(
            set.is_some() || selector.is_some(),
            usage("--prune needs --applyset NAME or -l LABELS")
        );
        ensure!(
            options.dry != DryRun::Client,
            usage("--prune asks the server: --dry-run=server")
        );
    }
    ensure!(
        selector.is_none() || matches.get_flag("prune"),
        usage("-l goes with --prune")
    );
    let mut files = manifests::read(matches, io)?;
    files.sort_by_key(|manifest| write::rank(manifest.kind()));
    let server = Server::connect(matches, io).await?;
    let mut job = Job {
        catalogue: server.catalogue().await?,
        server,
        force: matches.get_flag("force-conflicts"),
        set: set.cloned(),
        report: Report::new(matches, &options),
        options,
    };
    let mut done = Vec::new();
    let mut failed = 0;
    for manifest in &files {
        match job.one(manifest, io).await {
            Ok(target) => done.push(target),
            Err(error) => {
                blame::report(&error, manifest, io);
                failed += 1;
            }
        }
    }
    let Job {
        catalogue,
        server,
        options,
        report,
        ..
    } = job;
    report.finish(io, matches)?;
    if failed > 0 {
        if matches.get_flag("prune") {
            io.tell("nothing is pruned, for not everything was applied");
        }
        return Ok(FAILURE);
    }
    if matches.get_flag("prune") {
        let keep: BTreeSet<String> = done.iter().map(Target::path).collect();
        let namespaces: BTreeSet<String> = done.iter().map(|target| target.namespace.clone()).collect();
        let which = match (set, selector) {
            (Some(set), selector) => prune::Which::set(set, selector),
            (None, Some(selector)) => prune::Which::selected(selector, namespaces),
            (None, None) => return Ok(SUCCESS),
        };
        prune::run(&server, &catalogue, &which, &keep, &options, io).await?;
    }
    if !matches.get_flag("wait") || options.dry != DryRun::No {
        return Ok(SUCCESS);
    }
    let timeout = matches.get_one::<Duration>("timeout").copied().unwrap_or_default();
    let reported: Vec<Target> = done
        .into_iter()
        .filter(|target| wait::is_reported(&target.kind))
        .collect();
    wait::until(&server, reported, Goal::Proxies(100.0), timeout, io).await
}

struct Job {
    server: Server,
    catalogue: Catalogue,
    options: Options,
    force: bool,
    set: Option<String>,
    report: Report,
}

impl Job {
    async fn one(&mut self, manifest: &Manifest, io: &mut Io) -> Result<Target> {
        let kind = self.kind_of(manifest).await?;
        ensure!(
            !manifest.name().is_empty(),
            "{}: `metadata.name` is missing",
            manifest.place()
        );
        let namespace = targets::namespace_of(manifest, &kind, &self.server)?;
        let object = self.prepared(manifest, &namespace)?;
        let target = Target {
            name: manifest.name().to_owned(),
            namespace,
            kind,
        };
        if self.options.dry == DryRun::Client {
            self.report.add(io, &target.kind, object, "applied")?;
            return Ok(target);
        }
        // Only who knows how it was can say whether anything changed.
        let before = match target.get(&self.server).await {
            Ok(before) => Some(before),
            Err(error) if Refusal::is_not_found(&error) => None,
            Err(error) => return Err(error),
        };
        let request = Request::patch(target.path(), "application/apply-patch+yaml", object.to_string());
        let request = self.options.on(request).with("force", self.force.to_string());
        let after: Json = self.server.send(request).await?;
        let what = match before {
            None => "created",
            Some(before) if write::same_content(&before, &after) => "unchanged",
            Some(_) => "configured",
        };
        self.report.add(io, &target.kind, after, what)?;
        Ok(target)
    }

    /// The kind, which a definition among the files may just have brought.
    async fn kind_of(&mut self, manifest: &Manifest) -> Result<Kind> {
        match targets::kind_of(manifest, &self.catalogue) {
            Ok(kind) => Ok(kind),
            Err(_) => {
                self.catalogue = self.server.catalogue().await?;
                targets::kind_of(manifest, &self.catalogue)
            }
        }
    }

    fn prepared(&self, manifest: &Manifest, namespace: &str) -> Result<Json> {
        let mut object = manifest.value.clone();
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        output::without_managed_fields(&mut object);
        if let Some(set) = &self.set {
            let labels = &mut object["metadata"]["labels"];
            if labels.is_null() {
                *labels = json!({});
            }
            ensure!(
                labels.is_object(),
                "{}: `metadata.labels` is not an object",
                manifest.place()
            );
            labels[SET_LABEL] = json!(set);
        }
        Ok(object)
    }
}
