//! `rutter config`: the kubeconfig's contexts.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value as Json, json};

use crate::failure::{SUCCESS, usage};
use crate::io::Io;
use crate::table::Table;
use crate::{manifests, server, yaml};

pub(super) fn command() -> Command {
    let file = |command: Command| {
        command.arg(
            Arg::new("kubeconfig")
                .long("kubeconfig")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The kubeconfig file"),
        )
    };
    let view = Command::new("view")
        .about("Print the kubeconfig, without its secrets")
        .arg(
            Arg::new("raw")
                .long("raw")
                .action(ArgAction::SetTrue)
                .help("With its secrets"),
        );
    Command::new("config")
        .about("The contexts of the kubeconfig")
        .after_help(
            "Examples:\n  rutter config get-contexts\n  rutter config use-context staging\n  rutter config view",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(file(Command::new("get-contexts").about("Print the contexts")))
        .subcommand(file(
            Command::new("current-context").about("Print the name of the current context"),
        ))
        .subcommand(file(
            Command::new("use-context")
                .about("Choose the current context")
                .arg(Arg::new("name").required(true).value_name("NAME").help("The context")),
        ))
        .subcommand(file(view))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let Some((name, matches)) = matches.subcommand() else {
        return Err(usage("get-contexts, current-context, use-context or view"));
    };
    let files = server::kubeconfig_files(matches, io)
        .ok_or_else(|| anyhow!("there is no kubeconfig; `rutter serve` writes one to ./rutter-data/kubeconfig"))?;
    let mut read = Vec::new();
    for path in files.into_iter().filter(|path| path.exists()) {
        read.push((read_one(&path, io)?, path));
    }
    ensure!(!read.is_empty(), "none of the kubeconfig files exists");
    match name {
        "get-contexts" => contexts(&read, io)?,
        "current-context" => {
            let name = current(&read).ok_or_else(|| anyhow!("current-context is not set"))?;
            io.say(name)?;
        }
        "use-context" => {
            let name = matches
                .get_one::<String>("name")
                .map(String::as_str)
                .unwrap_or_default();
            choose(&mut read, name)?;
            io.say(format!("Switched to context \"{name}\"."))?;
        }
        _ => {
            for (config, _) in &read {
                let mut config = config.clone();
                if !matches.get_flag("raw") {
                    redact(&mut config);
                }
                write!(io.out, "{}", yaml::document(&config))?;
            }
        }
    }
    Ok(SUCCESS)
}

fn read_one(path: &Path, io: &mut Io) -> Result<Json> {
    let bytes = manifests::bytes_of(path, io)?;
    let mut documents = manifests::parse_text(&bytes).with_context(|| path.display().to_string())?;
    ensure!(
        documents.len() == 1 && documents[0].0.is_object(),
        "{}: this is no kubeconfig",
        path.display()
    );
    Ok(documents.remove(0).0)
}

fn current(read: &[(Json, PathBuf)]) -> Option<&str> {
    let name = |(config, _): &'_ (Json, PathBuf)| config["current-context"].as_str().map(str::len);
    let index = read.iter().position(|one| name(one).is_some_and(|length| length > 0))?;
    read[index].0["current-context"].as_str()
}

fn contexts(read: &[(Json, PathBuf)], io: &mut Io) -> Result<()> {
    let current = current(read).unwrap_or_default();
    let mut table = Table::new(["CURRENT", "NAME", "CLUSTER", "AUTHINFO", "NAMESPACE"]);
    for (config, _) in read {
        for context in config["contexts"].as_array().into_iter().flatten() {
            let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
            let name = text(&context["name"]);
            let mark = if name == current { "*" } else { "" };
            let inner = &context["context"];
            table.row([
                mark.to_owned(),
                name,
                text(&inner["cluster"]),
                text(&inner["user"]),
                text(&inner["namespace"]),
            ]);
        }
    }
    for line in table.lines(true, io.terminal.colour) {
        io.say(line)?;
    }
    Ok(())
}

/// Writes the current context into the first file, which is where it is looked for first.
fn choose(read: &mut [(Json, PathBuf)], name: &str) -> Result<()> {
    let has = |config: &Json| {
        config["contexts"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|context| context["name"] == name)
    };
    ensure!(
        read.iter().any(|(config, _)| has(config)),
        "no context exists with the name: \"{name}\"; `rutter config get-contexts` lists them"
    );
    if let Some((config, path)) = read.first_mut() {
        config["current-context"] = json!(name);
        replace(path, &yaml::document(config)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Replaces a file at once, so that nobody ever reads half of it, and lets nobody else read it than before.
fn replace(path: &Path, text: &str) -> Result<()> {
    let path = fs::canonicalize(path)?;
    let permissions = fs::metadata(&path)?.permissions();
    let parent = path.parent().ok_or_else(|| anyhow!("it is in no directory"))?;
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

/// Takes out what others must not see.
fn redact(config: &mut Json) {
    const SECRET: [&str; 3] = ["token", "password", "client-key-data"];
    const LONG: [&str; 2] = ["client-certificate-data", "certificate-authority-data"];
    for (list, inner) in [("users", "user"), ("clusters", "cluster")] {
        for entry in config[list].as_array_mut().into_iter().flatten() {
            let Some(fields) = entry.get_mut(inner).and_then(Json::as_object_mut) else {
                continue;
            };
            for (name, value) in fields {
                if SECRET.contains(&name.as_str()) {
                    *value = json!("REDACTED");
                } else if LONG.contains(&name.as_str()) {
                    *value = json!("DATA+OMITTED");
                } else if name == "auth-provider" || name == "exec" {
                    // Both carry tokens in fields of any name.
                    *value = json!({"name": "REDACTED"});
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out() {
        let mut config = json!({
            "users": [{"name": "a", "user": {"token": "t", "client-key-data": "k", "exec": {"env": [{"value": "e"}]}}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://a", "certificate-authority-data": "x"}}]
        });
        redact(&mut config);
        assert_eq!(
            config["users"][0]["user"],
            json!({"token": "REDACTED", "client-key-data": "REDACTED", "exec": {"name": "REDACTED"}})
        );
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://a");
        assert_eq!(
            config["clusters"][0]["cluster"]["certificate-authority-data"],
            "DATA+OMITTED"
        );
    }

    #[test]
    fn contexts_are_chosen_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        fs::write(
            &path,
            "current-context: a\ncontexts:\n- name: a\n- name: b\nusers: [{name: u, user: {token: '1'}}]\n",
        )
        .unwrap();
        let mut io = Io::to(std::io::sink(), std::io::sink());
        let mut read = vec![(read_one(&path, &mut io).unwrap(), path.clone())];
        assert!(choose(&mut read, "c").is_err());
        choose(&mut read, "b").unwrap();
        let again = read_one(&path, &mut io).unwrap();
        assert_eq!(again["current-context"], "b");
        assert_eq!(again["users"][0]["user"]["token"], "1");
    }
}
