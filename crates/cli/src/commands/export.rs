//! `rutter export` and `rutter import`: everything to files, and back.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use super::get;
use crate::failure::{self, FAILURE, Refusal, SUCCESS};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Catalogue, Kind, Request, Server};
use crate::write::{self, DryRun, Options};
use crate::{targets, yaml};

/// Kinds whose objects come and go by themselves.
const FLEETING: [&str; 4] = ["Event", "Lease", "Node", "ComponentStatus"];
/// How many objects are written at the same time.
const IN_FLIGHT: usize = 16;

pub(super) fn export_command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let command = Command::new("export")
        .about("Write objects as files that can be imported or applied")
        .after_help(
            "Without kinds: all that the server has, but for events, leases and nodes, and for objects that others own. \
             Secrets are among them.\n\n\
             Examples:\n  rutter export -A > all.yaml\n  rutter export istio-io,gateway-api -A --to backup/\n  rutter export vs -n shop --full",
        )
        .arg(Arg::new("kinds").value_name("KINDS").help("Kinds or categories, separated by commas"))
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("DIRECTORY")
                .value_parser(value_parser!(PathBuf))
                .help("A file for each object: NAMESPACE/KIND/NAME.yaml"),
        )
        .arg(flag("full", "With status, versions and all else that a server sets, and objects that others own"))
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORMAT")
                .value_parser(["yaml", "json"])
                .default_value("yaml")
                .help("yaml or json"),
        );
    server::arguments(targets::selectors(command))
}

pub(super) fn import_command() -> Command {
    let command = Command::new("import")
        .about("Write all objects of files, whether or not they are there, and say how many")
        .after_help("Examples:\n  rutter import -R -f backup/\n  rutter import -f all.yaml --dry-run=server\n  rutter import -f all.yaml --skip-existing")
        .arg(
            Arg::new("skip-existing")
                .long("skip-existing")
                .action(ArgAction::SetTrue)
                .help("Leave objects that are there already alone"),
        );
    server::arguments(write::arguments(manifests::arguments(command, true)))
}

pub(super) async fn export(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalogue = server.catalogue().await?;
    let kinds: Vec<Kind> = match matches.get_one::<String>("kinds") {
        Some(words) => catalogue.many(words)?.into_iter().cloned().collect(),
        None => everything(&catalogue),
    };
    let full = matches.get_flag("full");
    let (mut objects, mut code) = (Vec::new(), SUCCESS);
    for kind in &kinds {
        let namespace = (!matches.get_flag("all-namespaces")).then_some(server.namespace.as_str());
        if namespace.is_some() && !kind.namespaced && matches.get_one::<String>("kinds").is_none() {
            continue;
        }
        let text = |name| matches.get_one::<String>(name).cloned();
        let request = Request::get(kind.collection(namespace))
            .maybe("labelSelector", text("selector"))
            .maybe("fieldSelector", text("field-selector"));
        match server.list(request).await {
            Ok(list) => objects.extend(get::opened(list, kind).into_iter().map(|object| (kind, object))),
            Err(error) => {
                io.warn(format!("{} are left out: {}", kind.plural, failure::describe(&error)));
                code = FAILURE;
            }
        }
    }
    if !full {
        objects.retain(|(_, object)| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .is_none_or(Vec::is_empty)
        });
        objects
            .iter_mut()
            .for_each(|(_, object)| write::without_server_fields(object));
    }
    objects.sort_by_key(|(kind, _)| write::rank(&kind.kind));
    let json = matches
        .get_one::<String>("output")
        .is_some_and(|format| format == "json");
    match matches.get_one::<PathBuf>("to") {
        Some(directory) => to_directory(directory, &objects, json)?,
        None => to_stream(objects.iter().map(|(_, object)| object), json, io)?,
    }
    if matches.contains_id("to") || !io.terminal.out {
        io.tell(format!("{} objects of {} kinds exported", objects.len(), kinds.len()));
    }
    Ok(code)
}

fn everything(catalogue: &Catalogue) -> Vec<Kind> {
    let wanted = |kind: &&Kind| kind.can("list") && kind.can("create") && !FLEETING.contains(&kind.kind.as_str());
    catalogue.preferred().filter(wanted).cloned().collect()
}

fn to_stream<'o>(objects: impl Iterator<Item = &'o Json>, json: bool, io: &mut Io) -> Result<()> {
    if json {
        let list = crate::output::list(objects.cloned().collect());
        writeln!(io.out, "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    for object in objects {
        write!(io.out, "---\n{}", yaml::document(object))?;
    }
    Ok(())
}

fn to_directory(directory: &Path, objects: &[(&Kind, Json)], json: bool) -> Result<()> {
    for (kind, object) in objects {
        let part = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let namespace = match part("namespace") {
            "" => "_cluster".to_owned(),
            namespace => file_name(namespace),
        };
        let folder = directory.join(namespace).join(file_name(&kind.qualified()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let end = if json { "json" } else { "yaml" };
        let path = folder.join(format!("{}.{end}", file_name(part("name"))));
        let text = match json {
            true => serde_json::to_string_pretty(object)? + "\n",
            false => yaml::document(object),
        };
        write_file(&path, &text, kind.kind == "Secret").with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A name from a server as that of a file: nothing in it leads out of the directory.
fn file_name(name: &str) -> String {
    match server::encode(name) {
        dots if dots.starts_with('.') => format!("%2E{}", &dots[1..]),
        name => name,
    }
}

/// Writes a file that only its owner may read if it is secret.
fn write_file(path: &Path, text: &str, secret: bool) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    if secret {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(text.as_bytes())
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Created,
    Replaced,
    Unchanged,
    Skipped,
}

pub(super) async fn import(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    let files = manifests::read(matches, io)?;
    let server = Server::connect(matches, io).await?;
    let skip = matches.get_flag("skip-existing");
    let bar = progress(files.len(), io.terminal.err);
    let (mut counts, mut failed) = ([0usize; 4], 0);
    // What others live in goes first, and what definitions bring is known only after them.
    for rank in 0..=1 {
        let catalogue = server.catalogue().await?;
        let mut files = files.iter().filter(|manifest| write::rank(manifest.kind()) == rank);
        let mut tasks: JoinSet<(String, Result<Fate>)> = JoinSet::new();
        loop {
            while tasks.len() < IN_FLIGHT
                && let Some(manifest) = files.next()
            {
                let job = job(&server, &catalogue, &options, skip, manifest);
                let place = manifest.place();
                tasks.spawn(async move { (place, job.await) });
            }
            let Some(done) = tasks.join_next().await else { break };
            let (place, result) = done.context("a task ended")?;
            bar.inc(1);
            match result {
                Ok(fate) => counts[fate as usize] += 1,
                Err(error) => {
                    failed += 1;
                    bar.suspend(|| io.tell(format!("{place}: {}", failure::describe(&error))));
                }
            }
        }
    }
    bar.finish_and_clear();
    let [created, replaced, unchanged, skipped] = counts;
    let skipped = if skip {
        format!(", {skipped} skipped")
    } else {
        String::new()
    };
    io.say(format!(
        "{created} created, {replaced} replaced, {unchanged} unchanged{skipped}, {failed} failed{}",
        options.suffix()
    ))?;
    Ok(if failed > 0 { FAILURE } else { SUCCESS })
}

fn job(
    server: &Server,
    catalogue: &Catalogue,
    options: &Options,
    skip: bool,
    manifest: &Manifest,
) -> impl Future<Output = Result<Fate>> + Send + 'static {
    let target = targets::of_manifest(manifest, server, catalogue);
    let (server, options, mut object) = (server.clone(), options.clone(), manifest.value.clone());
    async move {
        let target = target?;
        anyhow::ensure!(!target.name.is_empty(), "`metadata.name` is missing");
        write::without_server_fields(&mut object);
        if !target.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(target.namespace);
        }
        let current = match target.get(&server).await {
            Ok(current) => Some(current),
            Err(error) if Refusal::is_not_found(&error) => None,
            Err(error) => return Err(error),
        };
        let Some(current) = current else {
            if options.dry != DryRun::Client {
                let request = Request::post(target.kind.collection(Some(&target.namespace)), &object);
                server.send::<Json>(options.on(request)).await?;
            }
            return Ok(Fate::Created);
        };
        if skip {
            return Ok(Fate::Skipped);
        }
        if write::same_content(&current, &object) {
            return Ok(Fate::Unchanged);
        }
        if options.dry != DryRun::Client {
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            let after: Json = server.send(options.on(Request::put(target.path(), &object))).await?;
            if after["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"] {
                return Ok(Fate::Unchanged);
            }
        }
        Ok(Fate::Replaced)
    }
}

fn progress(length: usize, terminal: bool) -> ProgressBar {
    if !terminal {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_out_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let kind = Kind {
            plural: "secrets".into(),
            kind: "Secret".into(),
            ..Kind::default()
        };
        let object = |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}});
        let objects = [(&kind, object("..", "../../x")), (&kind, object("", "a"))];
        let inside = dir.path().join("inside");
        to_directory(&inside, &objects, false).unwrap();
        assert!(inside.join("%2E.").join("secrets").join("%2E.%2F..%2Fx.yaml").is_file());
        assert!(inside.join("_cluster").join("secrets").join("a.yaml").is_file());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(inside.join("_cluster/secrets/a.yaml"))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o077, 0);
        }
    }
}
