//! `rutter label` and `rutter annotate`.

use anyhow::{Result, bail, ensure};
use clap::{ArgMatches, Command};
use serde_json::{Map, Value as Json, json};

use super::flag;
use crate::failure::{self, FAILURE, SUCCESS, usage};
use crate::io::Io;
use crate::rows;
use crate::server::{self, Request, Server};
use crate::targets::{self, Target};
use crate::write::{self, DryRun, Options, Report};
use crate::{manifests, output};

pub(super) fn label_command() -> Command {
    command("label", "Set and remove labels")
}

pub(super) fn annotate_command() -> Command {
    command("annotate", "Set and remove annotations")
}

pub(super) async fn label(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    run(matches, io, "labels", "labeled").await
}

pub(super) async fn annotate(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    run(matches, io, "annotations", "annotated").await
}

fn command(name: &'static str, about: &'static str) -> Command {
    let command = Command::new(name)
        .about(about)
        .override_usage(format!(
            "rutter {name} [OPTIONS] KIND NAME… | KIND/NAME… | -f FILE  KEY=VALUE… KEY-…"
        ))
        .after_help(format!(
            "Examples:\n  rutter {name} vs reviews tier=gold\n  rutter {name} vs/reviews tier=silver --overwrite\n  \
             rutter {name} vs --all tier-"
        ))
        .arg(flag("overwrite", "Change a key that has another value"))
        .arg(flag("list", "Print them, too"));
    server::arguments(output::arguments(write::arguments(targets::arguments(command))))
}

/// Keys with their new values; no value: to be removed.
type Changes = Vec<(String, Option<String>)>;

async fn run(matches: &ArgMatches, io: &mut Io, field: &'static str, done: &str) -> Result<u8> {
    let options = Options::of(matches);
    let (words, changes) = parts(targets::words_of(matches));
    ensure!(
        !changes.is_empty() || matches.get_flag("list"),
        usage("what is to be set? KEY=VALUE sets a key, KEY- removes it")
    );
    let server = Server::connect(matches, io).await?;
    let all = chosen(matches, &words, &server, io).await?;
    let mut report = Report::new(matches, &options);
    let mut code = SUCCESS;
    for target in all {
        match one(&server, &target, matches, &options, field, &changes).await {
            Ok((object, changed)) => {
                let list = object["metadata"][field].clone();
                let not = format!("not {done}");
                let removed = changes.iter().all(|(_, value)| value.is_none());
                let what = match (changed, removed) {
                    (false, _) => not.as_str(),
                    (true, true) if field == "labels" => "unlabeled",
                    (true, _) => done,
                };
                report.add(io, &target.kind, object, what)?;
                if matches.get_flag("list") {
                    io.say(rows::labels(&list))?;
                }
            }
            Err(error) => {
                failure::report(&error, io);
                code = FAILURE;
            }
        }
    }
    report.finish(io, matches)?;
    Ok(code)
}

/// Words that name objects, and words that change keys: `a=b`, `a-`.
fn parts(words: Vec<String>) -> (Vec<String>, Changes) {
    let mut objects = Vec::new();
    let mut changes = Changes::new();
    for word in words {
        // A name may end in no hyphen, and has no equals sign.
        match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => changes.push((key.to_owned(), Some(value.to_owned()))),
            (None, Some(key)) => changes.push((key.to_owned(), None)),
            (None, None) => objects.push(word),
        }
    }
    (objects, changes)
}

async fn chosen(matches: &ArgMatches, words: &[String], server: &Server, io: &mut Io) -> Result<Vec<Target>> {
    let catalogue = server.catalogue().await?;
    if matches.contains_id("filename") {
        ensure!(words.is_empty(), usage("either -f or names, not both"));
        let read = manifests::read(matches, io)?;
        return read
            .iter()
            .map(|one| targets::of_manifest(one, server, &catalogue))
            .collect();
    }
    targets::named(words, matches, server, &catalogue, io).await
}

async fn one(
    server: &Server,
    target: &Target,
    matches: &ArgMatches,
    options: &Options,
    field: &str,
    changes: &Changes,
) -> Result<(Json, bool)> {
    let object = target.get(server).await?;
    let current = object["metadata"][field].as_object().cloned().unwrap_or_default();
    let patch = difference(&current, changes, matches.get_flag("overwrite"), &target.label())?;
    if patch.is_empty() {
        return Ok((object, false));
    }
    if options.dry == DryRun::Client {
        return Ok((object, true));
    }
    let body = json!({"metadata": {field: patch}});
    let request = Request::patch(target.path(), "application/merge-patch+json", body.to_string());
    Ok((server.send(options.on(request)).await?, true))
}

/// The keys that a merge patch has to name.
fn difference(
    current: &Map<String, Json>,
    changes: &Changes,
    overwrite: bool,
    label: &str,
) -> Result<Map<String, Json>> {
    let mut patch = Map::new();
    for (key, value) in changes {
        match (current.get(key), value) {
            (Some(old), Some(new)) if old == new => {}
            (Some(old), Some(_)) if !overwrite => {
                bail!("{label}: `{key}` is {old} already; --overwrite changes it")
            }
            (_, Some(new)) => {
                patch.insert(key.clone(), json!(new));
            }
            (Some(_), None) => {
                patch.insert(key.clone(), Json::Null);
            }
            (None, None) => {}
        }
    }
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        let own = |text: &str| text.to_owned();
        let words = ["vs", "a", "b/c=d=e", "f-", "g="].map(own).to_vec();
        let (objects, changes) = parts(words);
        assert_eq!(objects, ["vs", "a"]);
        let expected = [
            (own("b/c"), Some(own("d=e"))),
            (own("f"), None),
            (own("g"), Some(own(""))),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn only_what_differs_is_sent() {
        let current = json!({"a": "1", "b": "2"}).as_object().cloned().unwrap();
        let changes = vec![
            ("a".into(), Some("1".into())),
            ("b".into(), None),
            ("c".into(), None),
            ("d".into(), Some("4".into())),
        ];
        let patch = difference(&current, &changes, false, "x").unwrap();
        assert_eq!(Json::Object(patch), json!({"b": null, "d": "4"}));
        let other = vec![("a".into(), Some("9".into()))];
        assert!(difference(&current, &other, false, "x").is_err());
        assert_eq!(difference(&current, &other, true, "x").unwrap().len(), 1);
    }
}
