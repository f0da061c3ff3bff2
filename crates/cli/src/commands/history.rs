//! `rutter history` and `rutter rollback`: earlier versions of objects in Rutter's own store.

use anyhow::{Result, anyhow, ensure};
use clap::{ArgMatches, Command, value_parser};
use config::json_path::json_text;
use serde_json::{Value as Json, json};

use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::{flag, option};
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{self, Request, Server};
use crate::table::Table;
use crate::targets::{self, Target};
use crate::write::{self, DryRun, Options, Report};
use crate::{age, yaml};

/// Maximum number of changed fields on a line.
const MAX_FIELDS: usize = 4;
/// Versions to request if those with only status changes are left out.
const CANDIDATES: usize = 1000;
/// The server's maximum number of versions.
const ALL: usize = 10_000;

pub(super) fn history_command() -> Command {
    let command = Command::new("history")
        .about("Print earlier versions of objects (embedded and etcd stores)")
        .after_help(
            "Versions that change only the status are left out.\n\n\
             Examples:\n  rutter history vs/reviews\n  rutter history vs/reviews --revision 42 -o yaml\n  \
             rutter history vs/reviews --all --limit 100",
        )
        .arg(flag("all", "Include versions that change only the status"))
        .arg(option("revision", "VERSION", "Print the object at this version"))
        .arg(
            option("limit", "COUNT", "Maximum number of versions, newest first")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("20"),
        );
    server::arguments(output::arguments(targets::words(command)))
}

pub(super) fn rollback_command() -> Command {
    let command = Command::new("rollback")
        .about("Restore an earlier version of an object (embedded and etcd stores)")
        .after_help(
            "Recreates a deleted object.\n\n\
             Examples:\n  rutter rollback vs/reviews\n  rutter rollback vs/reviews --to-revision 42\n  \
             rutter rollback vs/reviews --to-revision 42 --dry-run=server -o yaml",
        )
        .arg(
            option(
                "to-revision",
                "VERSION",
                "Version to restore [default: the newest that differs from the current one]",
            )
            .alias("to"),
        );
    server::arguments(output::arguments(write::arguments(targets::words(command))))
}

pub(super) async fn history(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let (server, target) = single(matches, io).await?;
    if let Some(version) = matches.get_one::<String>("revision") {
        let versions = versions(&server, &target, ALL).await?;
        let mut object = at(&versions, version, &target)?.clone();
        output::tidy(&mut object, matches);
        match output::of(matches).filter(|format| !format.is_table()) {
            Some(format) => output::print(io, &format, Some(&target.kind), &object)?,
            None => write!(io.out, "{}", yaml::document(&object))?,
        }
        return Ok(SUCCESS);
    }
    let limit = matches.get_one::<u32>("limit").copied().unwrap_or(20);
    let limit = usize::try_from(limit).unwrap_or(ALL);
    let all = matches.get_flag("all");
    // One more: each line compares a version with the one before.
    let wanted = if all { limit.saturating_add(1) } else { CANDIDATES.max(limit) };
    let mut versions = versions(&server, &target, wanted).await?;
    if !all {
        versions = without_status_changes(versions);
    }
    let earlier = (versions.len() > limit).then(|| versions[limit].clone());
    versions.truncate(limit);
    match output::of(matches).unwrap_or(Format::Table { wide: false }) {
        Format::Table { .. } => {
            for line in table(&versions, earlier.as_ref()).lines(true, io.terminal.color) {
                io.print(line)?;
            }
        }
        format => {
            for version in &mut versions {
                output::tidy(&mut version["object"], matches);
            }
            let whole = json!({"apiVersion": "rutter.io/v1", "kind": "History", "metadata": {"name": target.name}, "versions": versions});
            output::print(io, &format, Some(&target.kind), &whole)?;
        }
    }
    Ok(SUCCESS)
}

pub(super) async fn rollback(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    let (server, target) = single(matches, io).await?;
    let versions = versions(&server, &target, ALL).await?;
    let current = target.get_if_exists(&server).await?;
    let chosen = match matches.get_one::<String>("to-revision") {
        Some(version) => at(&versions, version, &target)?,
        None => last_different(&versions, current.as_ref()).ok_or_else(|| {
            anyhow!("the history of {} has no version that differs from the current one", target.label())
        })?,
    };
    let version = chosen["metadata"]["resourceVersion"].as_str().unwrap_or("?").to_owned();
    let mut object = chosen.clone();
    write::without_server_fields(&mut object);
    let mut report = Report::new(matches, &options);
    let effect = format!("rolled back to {version}");
    if options.dry == DryRun::Client {
        report.add(io, &target.kind, object, &effect)?;
        report.finish(io, matches)?;
        return Ok(SUCCESS);
    }
    let request = match current {
        Some(current) => {
            // A concurrent change causes a conflict instead of being overwritten.
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            Request::put(target.path(), &object)
        }
        None => Request::post(target.kind.collection(Some(&target.namespace)), &object),
    };
    let object = server.send(options.on(request)).await?;
    report.add(io, &target.kind, object, &effect)?;
    report.finish(io, matches)?;
    Ok(SUCCESS)
}

async fn single(matches: &ArgMatches, io: &mut Io) -> Result<(Server, Target)> {
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let words = targets::words_of(matches);
    ensure!(!words.is_empty(), usage("expected KIND/NAME"));
    let mut found = targets::kinds(&words, &catalog, io)?;
    match found.pop() {
        Some((kind, mut names)) if names.len() == 1 && found.is_empty() => {
            let target = targets::of_name(&kind, names.remove(0), &server);
            Ok((server, target))
        }
        _ => Err(usage("expected one object: KIND/NAME")),
    }
}

/// The versions of an object, newest first.
async fn versions(server: &Server, target: &Target, limit: usize) -> Result<Vec<Json>> {
    let request = Request::get(format!("{}/history", target.path())).with("limit", limit.to_string());
    let answer: Result<Json> = server.send(request).await;
    match answer {
        Ok(answer) if answer["kind"] == "History" => Ok(answer["versions"].as_array().cloned().unwrap_or_default()),
        Ok(_) => Err(no_history(server)),
        // Either the object or the subresource does not exist.
        Err(error) if StatusError::is_not_found(&error) => match target.get(server).await {
            Ok(_) => Err(no_history(server)),
            Err(error) => Err(error),
        },
        Err(error)
            if error.downcast_ref::<StatusError>().is_some_and(|error| matches!(error.status.code, 405 | 501)) =>
        {
            Err(no_history(server))
        }
        Err(error) => Err(error),
    }
}

fn no_history(server: &Server) -> anyhow::Error {
    anyhow!("{} keeps no history: only Rutter's own server with the embedded or etcd store does", server.url())
}

/// The object at a version.
fn at<'v>(versions: &'v [Json], version: &str, target: &Target) -> Result<&'v Json> {
    let found = versions.iter().find(|one| one["resourceVersion"] == version);
    let found = found
        .ok_or_else(|| anyhow!("{} has no version {version}; `rutter history` lists the versions", target.label()))?;
    match found.get("object").filter(|object| object.is_object()) {
        Some(object) => Ok(object),
        None => Err(anyhow!("{} was deleted at version {version}", target.label())),
    }
}

/// The newest version whose content differs from the current one.
fn last_different<'v>(versions: &'v [Json], current: Option<&Json>) -> Option<&'v Json> {
    let objects = versions.iter().filter(|one| one["deleted"] != true).filter_map(|one| one.get("object"));
    let different = |object: &&Json| current.is_none_or(|current| !write::same_content(object, current));
    objects.into_iter().find(different)
}

/// Removes versions that differ from the one before only in server-set fields.
fn without_status_changes(versions: Vec<Json>) -> Vec<Json> {
    let is_new = |index: usize| {
        let (version, earlier) = (&versions[index], versions.get(index + 1));
        let is_deleted = |version: &Json| version["deleted"] == true;
        earlier.is_none_or(|earlier| {
            is_deleted(version) || is_deleted(earlier) || !write::same_content(&version["object"], &earlier["object"])
        })
    };
    let keep: Vec<bool> = (0..versions.len()).map(is_new).collect();
    let kept = versions.into_iter().zip(keep).filter(|(_, keep)| *keep);
    kept.map(|(version, _)| version).collect()
}

/// A line for each version; `before` is the version before the oldest one.
fn table(versions: &[Json], before: Option<&Json>) -> Table {
    let mut table = Table::new(["VERSION", "AGE", "GENERATION", "CHANGE"]);
    for (index, version) in versions.iter().enumerate() {
        let object = &version["object"];
        let age = version["time"].as_str().map_or("<unknown>".to_owned(), age::since);
        let generation =
            object["metadata"]["generation"].as_i64().map_or(String::new(), |generation| generation.to_string());
        let earlier = versions.get(index + 1).or(before);
        let change = match (version["deleted"] == true, earlier) {
            (true, _) => "deleted".to_owned(),
            (false, Some(earlier)) if earlier["deleted"] != true => changed(&earlier["object"], object),
            (false, Some(_)) => "created".to_owned(),
            // The version before the oldest one is unknown.
            (false, None) => match generation.as_str() {
                "1" | "" => "created".to_owned(),
                _ => String::new(),
            },
        };
        table.row([json_text(&version["resourceVersion"]), age, generation, change]);
    }
    table
}

/// A summary of the fields that differ.
fn changed(from: &Json, to: &Json) -> String {
    let mut fields = Vec::new();
    differing(from, to, "", 0, &mut fields);
    fields.retain(|field| {
        !field.starts_with("metadata.managedFields")
            && field != "metadata.resourceVersion"
            && field != "metadata.generation"
    });
    let more = fields.len().saturating_sub(MAX_FIELDS);
    fields.truncate(MAX_FIELDS);
    match (fields.is_empty(), more) {
        (true, _) => "no change".to_owned(),
        (false, 0) => fields.join(", "),
        (false, more) => format!("{} and {more} more", fields.join(", ")),
    }
}

fn differing(from: &Json, to: &Json, path: &str, depth: usize, out: &mut Vec<String>) {
    if from == to {
        return;
    }
    // The status has too many fields for one line.
    if path == "status" {
        return out.push(path.to_owned());
    }
    // Deeper paths are too long for a summary.
    if let (Json::Object(old), Json::Object(new), true) = (from, to, depth < 3) {
        let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let deeper = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            differing(&from[key.as_str()], &to[key.as_str()], &deeper, depth + 1, out);
        }
        return;
    }
    out.push(path.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions_of_a() -> Vec<Json> {
        let object = |version: &str, generation: i64, host: &str, label: &str| json!({"metadata": {"resourceVersion": version, "generation": generation, "labels": {"x": label}}, "spec": {"hosts": [host]}});
        vec![
            json!({"resourceVersion": "9", "object": object("9", 2, "b", "2")}),
            json!({"resourceVersion": "7", "object": object("7", 2, "b", "1")}),
            json!({"resourceVersion": "5", "object": object("5", 1, "a", "1")}),
            json!({"resourceVersion": "4", "deleted": true}),
        ]
    }

    #[test]
    fn each_line_names_the_changed_fields() {
        let lines = table(&versions_of_a(), None).lines(true, false);
        assert_eq!(lines[1], "9         <unknown>   2            metadata.labels.x");
        assert_eq!(lines[2], "7         <unknown>   2            spec.hosts");
        assert_eq!(lines[3], "5         <unknown>   1            created");
        assert_eq!(lines[4], "4         <unknown>                deleted");
    }

    #[test]
    fn versions_with_only_status_changes_are_left_out() {
        let mut versions = versions_of_a();
        let mut newest = versions[0].clone();
        newest["object"]["status"] = json!({"a": 1});
        newest["object"]["metadata"]["resourceVersion"] = json!("10");
        newest["resourceVersion"] = json!("10");
        versions.insert(0, newest);
        let left: Vec<Json> =
            without_status_changes(versions).iter().map(|one| one["resourceVersion"].clone()).collect();
        assert_eq!(left, ["9", "7", "5", "4"]);
    }

    #[test]
    fn rollback_restores_the_last_different_version() {
        let versions = versions_of_a();
        let current = versions[0]["object"].clone();
        let found =
            |current: Option<&Json>| last_different(&versions, current).unwrap()["metadata"]["resourceVersion"].clone();
        assert_eq!(found(Some(&current)), "7");
        assert_eq!(found(None), "9", "a deleted object is restored in its last version");
        assert!(last_different(&versions[..1], Some(&current)).is_none());
    }
}
