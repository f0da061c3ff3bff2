//! `rutter history` and `rutter rollback`: earlier versions of objects, where the server keeps them.

use anyhow::{Result, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value as Json, json};

use crate::failure::{Refusal, SUCCESS, usage};
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{self, Request, Server};
use crate::table::Table;
use crate::targets::{self, Target};
use crate::write::{self, DryRun, Options, Report};
use crate::{age, yaml};

/// How many changed fields a line names.
const MAX_FIELDS: usize = 4;
/// How many versions are asked for where those that say nothing new are left out.
const LOOK_AT: usize = 1000;
/// As many as a server gives.
const EVERYTHING: usize = 10_000;

pub(super) fn history_command() -> Command {
    let command = Command::new("history")
        .about("Print earlier versions of objects (embedded and etcd stores)")
        .after_help(
            "Versions in which nothing but the status changed are left out.\n\n\
             Examples:\n  rutter history vs/reviews\n  rutter history vs/reviews --revision 42 -o yaml\n  \
             rutter history vs/reviews --all --limit 100",
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Versions in which nothing but the status changed, too"),
        )
        .arg(
            Arg::new("revision")
                .long("revision")
                .value_name("VERSION")
                .help("Print the object as it was at this version"),
        )
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("COUNT")
                .value_parser(value_parser!(u32).range(1..))
                .default_value("20")
                .help("The newest so many versions"),
        );
    server::arguments(output::arguments(targets::words(command)))
}

pub(super) fn rollback_command() -> Command {
    let command = Command::new("rollback")
        .about("Make an object what it was (embedded and etcd stores)")
        .after_help(
            "What was deleted is created anew.\n\n\
             Examples:\n  rutter rollback vs/reviews\n  rutter rollback vs/reviews --to-revision 42\n  \
             rutter rollback vs/reviews --to-revision 42 --dry-run=server -o yaml",
        )
        .arg(
            Arg::new("to")
                .long("to-revision")
                .alias("to")
                .value_name("VERSION")
                .help("The version to go back to [default: the last one that was different]"),
        );
    server::arguments(output::arguments(write::arguments(targets::words(command))))
}

pub(super) async fn history(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let (server, target) = single(matches, io).await?;
    if let Some(version) = matches.get_one::<String>("revision") {
        let versions = versions(&server, &target, EVERYTHING).await?;
        let mut object = at(&versions, version, &target)?.clone();
        output::tidy(&mut object, matches);
        match output::of(matches).filter(|format| !format.is_table()) {
            Some(format) => output::print(io, &format, Some(&target.kind), &object)?,
            None => write!(io.out, "{}", yaml::document(&object))?,
        }
        return Ok(SUCCESS);
    }
    let limit = matches.get_one::<u32>("limit").copied().unwrap_or(20);
    let limit = usize::try_from(limit).unwrap_or(EVERYTHING);
    let all = matches.get_flag("all");
    // One more: what changed is told against the version before.
    let wanted = if all {
        limit.saturating_add(1)
    } else {
        LOOK_AT.max(limit)
    };
    let mut versions = versions(&server, &target, wanted).await?;
    if !all {
        versions = telling(versions);
    }
    let earlier = (versions.len() > limit).then(|| versions[limit].clone());
    versions.truncate(limit);
    match output::of(matches).unwrap_or(Format::Table { wide: false }) {
        Format::Table { .. } => {
            for line in table(&versions, earlier.as_ref()).lines(true, io.terminal.colour) {
                io.say(line)?;
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
    let versions = versions(&server, &target, EVERYTHING).await?;
    let current = match target.get(&server).await {
        Ok(current) => Some(current),
        Err(error) if Refusal::is_not_found(&error) => None,
        Err(error) => return Err(error),
    };
    let chosen = match matches.get_one::<String>("to") {
        Some(version) => at(&versions, version, &target)?,
        None => last_different(&versions, current.as_ref()).ok_or_else(|| {
            anyhow!(
                "{} was never different, as far as the history goes back",
                target.label()
            )
        })?,
    };
    let version = chosen["metadata"]["resourceVersion"].as_str().unwrap_or("?").to_owned();
    let mut object = chosen.clone();
    write::without_server_fields(&mut object);
    let mut report = Report::new(matches, &options);
    let what = format!("rolled back to {version}");
    if options.dry == DryRun::Client {
        report.add(io, &target.kind, object, &what)?;
        report.finish(io, matches)?;
        return Ok(SUCCESS);
    }
    let request = match current {
        Some(current) => {
            // Whoever writes in between is not overwritten.
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            Request::put(target.path(), &object)
        }
        None => Request::post(target.kind.collection(Some(&target.namespace)), &object),
    };
    let object = server.send(options.on(request)).await?;
    report.add(io, &target.kind, object, &what)?;
    report.finish(io, matches)?;
    Ok(SUCCESS)
}

async fn single(matches: &ArgMatches, io: &mut Io) -> Result<(Server, Target)> {
    let server = Server::connect(matches, io).await?;
    let catalogue = server.catalogue().await?;
    let words = targets::words_of(matches);
    ensure!(!words.is_empty(), usage("which object? KIND/NAME"));
    let mut found = targets::kinds(&words, &catalogue, io)?;
    match found.pop() {
        Some((kind, mut names)) if names.len() == 1 && found.is_empty() => {
            let target = targets::of_name(&kind, names.remove(0), &server);
            Ok((server, target))
        }
        _ => Err(usage("one object: KIND/NAME")),
    }
}

/// The versions of an object, the newest first.
async fn versions(server: &Server, target: &Target, limit: usize) -> Result<Vec<Json>> {
    let request = Request::get(format!("{}/history", target.path())).with("limit", limit.to_string());
    let answer: Result<Json> = server.send(request).await;
    match answer {
        Ok(answer) if answer["kind"] == "History" => Ok(answer["versions"].as_array().cloned().unwrap_or_default()),
        Ok(_) => Err(keeps_none(server)),
        // Either there is no object, or no such subresource: the object itself tells.
        Err(error) if Refusal::is_not_found(&error) => match target.get(server).await {
            Ok(_) => Err(keeps_none(server)),
            Err(error) => Err(error),
        },
        Err(error)
            if error
                .downcast_ref::<Refusal>()
                .is_some_and(|refusal| matches!(refusal.code, 405 | 501)) =>
        {
            Err(keeps_none(server))
        }
        Err(error) => Err(error),
    }
}

fn keeps_none(server: &Server) -> anyhow::Error {
    anyhow!(
        "{} keeps no history: it is a feature of Rutter's own server with the embedded or etcd store, which Kubernetes has not",
        server.url()
    )
}

/// The object at a version.
fn at<'v>(versions: &'v [Json], version: &str, target: &Target) -> Result<&'v Json> {
    let found = versions.iter().find(|one| one["resourceVersion"] == version);
    let found = found.ok_or_else(|| {
        anyhow!(
            "{} has no version {version}; `rutter history` lists them",
            target.label()
        )
    })?;
    match found.get("object").filter(|object| object.is_object()) {
        Some(object) => Ok(object),
        None => Err(anyhow!("{} was deleted at version {version}", target.label())),
    }
}

/// The newest version whose content is not the current one's.
fn last_different<'v>(versions: &'v [Json], current: Option<&Json>) -> Option<&'v Json> {
    let objects = versions
        .iter()
        .filter(|one| one["deleted"] != true)
        .filter_map(|one| one.get("object"));
    let different = |object: &&Json| current.is_none_or(|current| !write::same_content(object, current));
    objects.into_iter().find(different)
}

/// The versions without those that differ from the one before in nothing but what the server sets.
fn telling(versions: Vec<Json>) -> Vec<Json> {
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

/// A line for each version; `before` is the one before the oldest of them.
fn table(versions: &[Json], before: Option<&Json>) -> Table {
    let mut table = Table::new(["VERSION", "AGE", "GENERATION", "CHANGE"]);
    for (index, version) in versions.iter().enumerate() {
        let object = &version["object"];
        let age = version["time"].as_str().map_or("<unknown>".to_owned(), age::since);
        let generation = object["metadata"]["generation"]
            .as_i64()
            .map_or(String::new(), |generation| generation.to_string());
        let earlier = versions.get(index + 1).or(before);
        let change = match (version["deleted"] == true, earlier) {
            (true, _) => "deleted".to_owned(),
            (false, Some(earlier)) if earlier["deleted"] != true => changed(&earlier["object"], object),
            (false, Some(_)) => "created".to_owned(),
            // Of the oldest that is shown, it can only be told if it is the first.
            (false, None) => match generation.as_str() {
                "1" | "" => "created".to_owned(),
                _ => String::new(),
            },
        };
        table.row([text(&version["resourceVersion"]), age, generation, change]);
    }
    table
}

/// The fields that differ, in short.
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
    // A status says too much for a line.
    if path == "status" {
        return out.push(path.to_owned());
    }
    // Deeper than that, a path is no summary.
    if let (Json::Object(old), Json::Object(new), true) = (from, to, depth < 3) {
        let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let deeper = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            differing(&from[key.as_str()], &to[key.as_str()], &deeper, depth + 1, out);
        }
        return;
    }
    out.push(path.to_owned());
}

fn text(value: &Json) -> String {
    crate::jsonpath::text(value)
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
    fn each_line_says_what_changed() {
        let lines = table(&versions_of_a(), None).lines(true, false);
        assert_eq!(lines[1], "9         <unknown>   2            metadata.labels.x");
        assert_eq!(lines[2], "7         <unknown>   2            spec.hosts");
        assert_eq!(lines[3], "5         <unknown>   1            created");
        assert_eq!(lines[4], "4         <unknown>                deleted");
    }

    #[test]
    fn versions_that_say_nothing_new_are_left_out() {
        let mut versions = versions_of_a();
        let mut newest = versions[0].clone();
        newest["object"]["status"] = json!({"a": 1});
        newest["object"]["metadata"]["resourceVersion"] = json!("10");
        newest["resourceVersion"] = json!("10");
        versions.insert(0, newest);
        let left: Vec<Json> = telling(versions)
            .iter()
            .map(|one| one["resourceVersion"].clone())
            .collect();
        assert_eq!(left, ["9", "7", "5", "4"]);
    }

    #[test]
    fn rolling_back_goes_to_what_was_different() {
        let versions = versions_of_a();
        let current = versions[0]["object"].clone();
        let found =
            |current: Option<&Json>| last_different(&versions, current).unwrap()["metadata"]["resourceVersion"].clone();
        assert_eq!(found(Some(&current)), "7");
        assert_eq!(found(None), "9", "what was deleted comes back as it was last");
        assert!(last_different(&versions[..1], Some(&current)).is_none());
    }
}
