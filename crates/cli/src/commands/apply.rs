//! `rutter apply`: server-side apply of the objects in files.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value as Json, json};

use super::wait::{self, Goal};
use super::{flag, prune};
use crate::error_location;
use crate::failure::{FAILURE, SUCCESS, usage};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Catalog, Kind, Request, Server};
use crate::targets::{self, Target};
use crate::write::{DryRun, Options, Report};
use crate::{age, output, write};

/// The label on the objects of an apply set.
pub(super) const SET_LABEL: &str = "rutter.io/applyset";

pub(super) fn command() -> Command {
    let command = Command::new("apply")
        .about("Create or update the objects of files by server-side apply")
        .after_help(
            "A field that another manager owns with a different value is a conflict.\n\n\
             Examples:\n  rutter apply -f mesh.yaml\n  rutter apply -Rf config/ --prune --applyset shop\n  \
             cat mesh.yaml | rutter apply -f - --dry-run=server -o yaml\n  rutter apply -f route.yaml --wait --timeout 30s",
        )
        .arg(flag("force-conflicts", "Take over fields that another manager owns"))
        // Scripts written for kubectl pass it.
        .arg(flag("server-side", "Accepted for compatibility with kubectl: apply is always server-side").hide(true))
        .arg(flag(
            "prune",
            "Delete objects that an earlier apply created and that the files no longer contain; needs --applyset or -l. Never \
             deletes namespaces",
        ))
        .arg(
            Arg::new("applyset")
                .long("applyset")
                .value_name("NAME")
                .help("Name of the set of objects in the files. Each object gets the label rutter.io/applyset, which --prune uses"),
        )
        .arg(Arg::new("selector").short('l').long("selector").value_name("LABELS").help(
            "With --prune: delete only objects with these labels, in the namespaces of the files' objects",
        ))
        .arg(flag("wait", "Wait until all proxies that need the objects have acknowledged them; exit code 1 if one rejects them"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("DURATION")
                .value_parser(age::parse)
                .default_value("60s")
                .help("Maximum time to wait"),
        );
    server::arguments(output::arguments(write::arguments(manifests::arguments(command, true))))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    check_prune_flags(matches, &options)?;
    let mut files = manifests::read(matches, io)?;
    files.sort_by_key(|manifest| write::creation_order(manifest.kind()));
    let server = Server::connect(matches, io).await?;
    let mut report = Report::new(matches, &options);
    let mut applier = Applier::new(server, options, matches).await?;
    let mut done = Vec::new();
    let mut failed = 0;
    for manifest in &files {
        match applier.apply(manifest).await {
            Ok(applied) => {
                let verb = applied.verb();
                report.add(io, &applied.target.kind, applied.after, verb)?;
                done.push(applied.target);
            }
            Err(error) => {
                error_location::report(&error, manifest, io);
                failed += 1;
            }
        }
    }
    report.finish(io, matches)?;
    if failed > 0 {
        if matches.get_flag("prune") {
            io.eprint("nothing was pruned because some objects could not be applied");
        }
        return Ok(FAILURE);
    }
    if matches.get_flag("prune") {
        applier.prune(matches, &done, io).await?;
    }
    if !matches.get_flag("wait") || applier.options.dry != DryRun::No {
        return Ok(SUCCESS);
    }
    let timeout = matches.get_one::<Duration>("timeout").copied().unwrap_or_default();
    let reported: Vec<Target> = done.into_iter().filter(|target| wait::is_reported(&target.kind)).collect();
    wait::until(&applier.server, reported, Goal::Proxies(100.0), timeout, io).await
}

fn check_prune_flags(matches: &ArgMatches, options: &Options) -> Result<()> {
    let selector = matches.contains_id("selector");
    if !matches.get_flag("prune") {
        ensure!(!selector, usage("-l needs --prune"));
        return Ok(());
    }
    ensure!(selector || matches.contains_id("applyset"), usage("--prune needs --applyset NAME or -l LABELS"));
    ensure!(options.dry != DryRun::Client, usage("--prune needs the server: use --dry-run=server"));
    Ok(())
}

/// Applies objects one by one.
pub(super) struct Applier {
    server: Server,
    catalog: Catalog,
    options: Options,
    force: bool,
    set: Option<String>,
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
        Ok(Applier {
            catalog: server.catalog().await?,
            server,
            options,
            force: matches.get_flag("force-conflicts"),
            set: matches.try_get_one::<String>("applyset").ok().flatten().cloned(),
        })
    }

    /// Applies the object of a file. A client-side dry run sends nothing.
    pub(super) async fn apply(&mut self, manifest: &Manifest) -> Result<Applied> {
        let kind = self.kind_of(manifest).await?;
        ensure!(!manifest.name().is_empty(), "{}: `metadata.name` is missing", manifest.place());
        let namespace = targets::namespace_of(manifest, &kind, &self.server)?;
        let object = self.prepared(manifest, &namespace)?;
        let target = Target { name: manifest.name().to_owned(), namespace, kind };
        if self.options.dry == DryRun::Client {
            return Ok(Applied { target, before: None, after: object, sent: false });
        }
        let before = target.get_if_exists(&self.server).await?;
        let request = Request::patch(target.path(), "application/apply-patch+yaml", object.to_string());
        let request = self.options.on(request).with("force", self.force.to_string());
        let after = self.server.send(request).await?;
        Ok(Applied { target, before, after, sent: true })
    }

    async fn prune(&self, matches: &ArgMatches, applied: &[Target], io: &mut Io) -> Result<()> {
        let keep: BTreeSet<String> = applied.iter().map(Target::path).collect();
        let selector = matches.get_one::<String>("selector");
        let selection = match (&self.set, selector) {
            (Some(set), selector) => prune::Selection::set(set, selector),
            (None, Some(selector)) => {
                let namespaces = applied.iter().map(|target| target.namespace.clone()).collect();
                prune::Selection::selected(selector, namespaces)
            }
            (None, None) => return Ok(()),
        };
        prune::run(&self.server, &self.catalog, &selection, &keep, &self.options, io).await
    }

    /// The kind of an object. An earlier object among the files may have defined it.
    async fn kind_of(&mut self, manifest: &Manifest) -> Result<Kind> {
        match targets::kind_of(manifest, &self.catalog) {
            Ok(kind) => Ok(kind),
            Err(_) => {
                self.catalog = self.server.catalog().await?;
                targets::kind_of(manifest, &self.catalog)
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
            ensure!(labels.is_object(), "{}: `metadata.labels` is not an object", manifest.place());
            labels[SET_LABEL] = json!(set);
        }
        Ok(object)
    }
}
