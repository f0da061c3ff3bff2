//! `rutter manifest`: renders the Helm chart without Helm.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{ArgAction, ArgMatches, Command, value_parser};
use config::schema::{crd, definitions};
use serde_json::{Value as Json, json};

use crate::chart::{self, Release};
use crate::failure::{SUCCESS, usage};
use crate::flags::{flag, option, yaml_or_json};
use crate::io::Io;
use crate::manifests::{bytes_of, name_of};
use crate::output;

pub(super) fn command() -> Command {
    let values =
        |name: &'static str, form: &'static str, help: &'static str| option(name, form, help).action(ArgAction::Append);
    Command::new("manifest")
        .about("Print the objects that install Rutter in a cluster (the rendered Helm chart)")
        .after_help(
            "Without a revision, the objects have istiod's names and replace an istiod in the same cluster. Rutter does not \
             sign certificates or inject sidecars yet, so this breaks proxies that need one of them. It must be allowed with \
             --in-place-of-istiod, also for a cluster without istiod.\n\n\
             Examples:\n  rutter manifest --create-namespace --in-place-of-istiod | kubectl apply --server-side -f -\n  \
             rutter manifest --revision canary -f values.yaml --set replicaCount=3,autoscaleEnabled=false\n  \
             rutter manifest --show-values > values.yaml",
        )
        .arg(
            values(
                "values",
                "FILE",
                "File with values that override the defaults; later files override earlier ones; `-` reads standard input",
            )
            .short('f')
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(values("set", "PATH=VALUE", "Values that override those of files: a.b=1,c[0]=x,d={1,2}"))
        .arg(values("set-string", "PATH=VALUE", "Like --set, but every value is a string"))
        .arg(option("namespace", "NAMESPACE", "Namespace to install in").short('n').default_value("istio-system"))
        .arg(option("revision", "REVISION", "Revision of the control plane; overrides the value `revision`"))
        .arg(option("name", "NAME", "Name of the installation (Helm release)").default_value("rutter"))
        .arg(flag("in-place-of-istiod", "Allow objects with istiod's names, which replace an istiod in the same cluster"))
        .arg(flag("skip-crds", "Omit the CustomResourceDefinitions"))
        .arg(flag("create-namespace", "Include the namespace"))
        .arg(flag("show-values", "Print only the default values with their descriptions"))
        .arg(yaml_or_json())
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    if matches.get_flag("show-values") {
        write!(io.out, "{}", chart::VALUES)?;
        return Ok(SUCCESS);
    }
    let text = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let given = given(matches, io)?;
    let mut values = chart::defaults()?;
    for path in chart::unknown(&values, &given) {
        io.warn(format!("unknown value `{path}` has no effect"));
    }
    chart::merge(&mut values, &given);
    let revision = values["revision"].as_str().unwrap_or_default();
    if matches!(revision, "" | "default") && !matches.get_flag("in-place-of-istiod") {
        return Err(usage(
            "without a revision, the objects have istiod's names and replace it. \
             Add --revision NAME to install beside istiod, or --in-place-of-istiod if the cluster has no istiod or Rutter is \
             to replace it",
        ));
    }
    let release = Release { name: text("name"), namespace: text("namespace") };
    let mut objects = Vec::new();
    if matches.get_flag("create-namespace") {
        objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}));
    }
    if !matches.get_flag("skip-crds") {
        let custom = definitions().iter().filter(|definition| !definition.builtin);
        objects.extend(custom.map(crd));
    }
    objects.extend(chart::objects(&release, &values)?);
    print(&objects, text("output"), io)?;
    Ok(SUCCESS)
}

/// The values of files and flags, merged in order.
fn given(matches: &ArgMatches, io: &mut Io) -> Result<Json> {
    let mut given = json!({});
    for file in matches.get_many::<PathBuf>("values").into_iter().flatten() {
        let read = chart::read_values(&bytes_of(file, io)?).with_context(|| name_of(file))?;
        merge(&mut given, &read);
    }
    type Assign = fn(&mut Json, &str) -> Result<()>;
    let flags: [(&str, Assign); 2] = [("set", chart::assign), ("set-string", chart::assign_text)];
    for (flag, assign) in flags {
        for text in matches.get_many::<String>(flag).into_iter().flatten() {
            assign(&mut given, text).map_err(|error| usage(format!("--{flag}: {error}")))?;
        }
    }
    if let Some(revision) = matches.get_one::<String>("revision") {
        given["revision"] = revision.as_str().into();
    }
    Ok(given)
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

fn print(objects: &[Json], format: &str, io: &mut Io) -> Result<()> {
    if format == "json" {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        writeln!(io.out, "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    output::documents(objects, io)
}
