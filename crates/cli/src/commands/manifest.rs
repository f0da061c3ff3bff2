//! `rutter manifest`: renders the Helm chart without Helm.

use anyhow::Result;
use clap::{ArgMatches, Command};
use config::schema::{crd, definitions};
use serde_json::{Value as Json, json};

use super::values;
use crate::chart::{self, Release};
use crate::failure::{SUCCESS, usage};
use crate::flags::{flag, option, yaml_or_json};
use crate::io::Io;
use crate::output;

pub(super) fn command() -> Command {
    Command::new("manifest")
        .about("Print the objects that install Rutter in a cluster (the rendered Helm chart)")
        .after_help(
            "Without a revision, the objects have istiod's names and replace an istiod in the same cluster. This must \
             be allowed with --in-place-of-istiod, because the command does not access a cluster. `rutter install` does, and \
             asks only if there is an istiod.\n\n\
             Examples:\n  rutter manifest --create-namespace --in-place-of-istiod | kubectl apply --server-side -f -\n  \
             rutter manifest --revision canary -f values.yaml --set replicaCount=3,autoscaleEnabled=false\n  \
             rutter manifest --show-values > values.yaml",
        )
        .args(values::arguments())
        .arg(option("namespace", "NAMESPACE", "Namespace to install in").short('n').default_value("istio-system"))
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
    let given = values::given(matches, json!({}), io)?;
    let values = values::effective(&given, io)?;
    let revision = values::revision(&values);
    if revision == "default" && !matches.get_flag("in-place-of-istiod") {
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

fn print(objects: &[Json], format: &str, io: &mut Io) -> Result<()> {
    if format == "json" {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        writeln!(io.out, "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    output::documents(objects, io)
}
