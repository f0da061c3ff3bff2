//! `rutter crds`: prints the CustomResourceDefinitions of this build.

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use config::schema::{Definition, crd, definitions};

use crate::failure::{SUCCESS, usage};
use crate::flags;
use crate::io::Io;
use crate::output::{self, Format};

pub(super) fn command() -> Command {
    Command::new("crds")
        .about("Print the CustomResourceDefinitions of this build")
        .after_help("Examples:\n  rutter crds | kubectl apply --server-side -f -\n  rutter crds virtualservices gateway-api -o json")
        .arg(
            Arg::new("kinds")
                .value_name("KINDS")
                .action(ArgAction::Append)
                .num_args(0..)
                .value_delimiter(',')
                .help("Kinds or categories [default: all]"),
        )
        .arg(
            flags::format("Output format: yaml, json or name")
                .value_parser(["yaml", "json", "name"])
                .default_value("yaml"),
        )
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let chosen = chosen(matches)?;
    let objects = chosen.iter().map(|one| crd(one));
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => output::print(io, &Format::Json, None, &output::list(objects.collect()))?,
        Some("name") => {
            for one in chosen {
                io.print(format!("customresourcedefinition.apiextensions.k8s.io/{}.{}", one.plural, one.group))?;
            }
        }
        _ => output::documents(&objects.collect::<Vec<_>>(), io)?,
    }
    Ok(SUCCESS)
}

fn chosen(matches: &ArgMatches) -> Result<Vec<&'static Definition>> {
    let Some(words) = matches.get_many::<String>("kinds") else {
        return Ok(definitions().iter().filter(|definition| !definition.builtin).collect());
    };
    let mut chosen: Vec<&Definition> = Vec::new();
    for word in words {
        let mut named = definitions().iter().filter(|one| is_named(one, &word.to_lowercase())).peekable();
        ensure!(named.peek().is_some(), usage(format!("unknown kind or category `{word}`")));
        for one in named.filter(|one| !one.builtin) {
            if !chosen.iter().any(|known| std::ptr::eq(*known, one)) {
                chosen.push(one);
            }
        }
    }
    ensure!(!chosen.is_empty(), usage("these kinds are built into Kubernetes and have no definition"));
    Ok(chosen)
}

/// Whether a lowercase word is a name of the kind or of a category.
fn is_named(kind: &Definition, word: &str) -> bool {
    [kind.plural, kind.singular].contains(&word)
        || kind.kind.to_lowercase() == word
        || kind.short_names.contains(&word)
        || kind.categories.contains(&word)
        || word.strip_prefix(kind.plural).and_then(|rest| rest.strip_prefix('.')) == Some(kind.group)
}
