//! The flags with which a user sets values of the chart.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use serde_json::Value as Json;

use crate::chart;
use crate::failure::usage;
use crate::flags::option;
use crate::io::Io;
use crate::manifests::{bytes_of, name_of};

/// The flags: files, assignments, the revision and the name of the installation.
pub(super) fn arguments() -> [Arg; 5] {
    let several =
        |name: &'static str, form: &'static str, help: &'static str| option(name, form, help).action(ArgAction::Append);
    [
        several(
            "values",
            "FILE",
            "File with values of istiod's chart, or an IstioOperator, that override the defaults; later files override earlier \
             ones; `-` reads standard input",
        )
        .short('f')
        .value_parser(value_parser!(PathBuf)),
        several("set", "PATH=VALUE", "Values that override those of files: a.b=1,c[0]=x,d={1,2}"),
        several("set-string", "PATH=VALUE", "Like --set, but every value is a string"),
        option("revision", "REVISION", "Revision of the control plane; overrides the value `revision`").short('r'),
        option("name", "NAME", "Name of the installation (Helm release)").default_value("rutter"),
    ]
}

/// The values of files and flags, merged in order onto earlier ones.
pub(super) fn given(matches: &ArgMatches, earlier: Json, io: &mut Io) -> Result<Json> {
    let mut given = earlier;
    for file in matches.get_many::<PathBuf>("values").into_iter().flatten() {
        let read = chart::read_values(&bytes_of(file, io)?).with_context(|| name_of(file))?;
        merge(&mut given, &chart::adopted(read));
    }
    type Assign = fn(&mut Json, &str) -> Result<()>;
    let flags: [(&str, Assign); 2] = [("set", chart::assign), ("set-string", chart::assign_text)];
    for (flag, assign) in flags {
        for text in matches.get_many::<String>(flag).into_iter().flatten() {
            assign(&mut given, text).map_err(|error| usage(format!("--{flag}: {error}")))?;
        }
    }
    let mut given = chart::adopted(given);
    if let Some(revision) = matches.get_one::<String>("revision") {
        given["revision"] = revision.as_str().into();
    }
    Ok(given)
}

/// The chart's defaults with the given values. Warns about values without effect.
pub(super) fn effective(given: &Json, io: &mut Io) -> Result<Json> {
    let mut values = chart::defaults()?;
    for path in chart::unknown(&values, given) {
        io.warn(format!("the value `{path}` has no effect"));
    }
    chart::merge(&mut values, given);
    Ok(values)
}

/// The revision of these values: `default` if they name none.
pub(super) fn revision(values: &Json) -> &str {
    values["revision"].as_str().filter(|revision| !revision.is_empty()).unwrap_or("default")
}

/// Merges a file into another. Null is kept because it removes a default.
fn merge(under: &mut Json, over: &Json) {
    match (under, over) {
        (Json::Object(under), Json::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Json::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}
