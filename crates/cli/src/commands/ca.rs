//! `rutter ca`: shows the root certificates of the mesh.

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, Command};

use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::option;
use crate::io::Io;
use crate::server::{self, Server};

/// The key of the ConfigMap.
const KEY: &str = "root-cert.pem";

pub(super) fn command() -> Command {
    let root = Command::new("root")
        .about("Print the root certificates of the mesh in PEM")
        .after_help(
            "Proxies and clients verify workloads and the control plane with them.\n\n\
             Examples:\n  rutter ca root > root-cert.pem\n  rutter ca root | openssl x509 -noout -subject -enddate",
        )
        .arg(
            option("istioNamespace", "NAME", "Namespace of the control plane").short('i').default_value("istio-system"),
        )
        .arg(
            option("config-map", "NAME", "ConfigMap with the root certificates (PILOT_CA_CERT_CONFIGMAP)")
                .default_value("istio-ca-root-cert"),
        );
    Command::new("ca")
        .about("Show the certificate authority")
        .after_help("Examples:\n  rutter ca root > root-cert.pem")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(server::arguments(root))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let Some(("root", matches)) = matches.subcommand() else {
        // clap requires a subcommand.
        return Err(usage("expected root"));
    };
    let server = Server::connect(matches, io).await?;
    let given = |name: &str| matches.get_one::<String>(name).map(|name| server::encode(name)).unwrap_or_default();
    let (namespace, name) = (given("istioNamespace"), given("config-map"));
    let found = match server.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await {
        Err(error) if StatusError::is_not_found(&error) => bail!(
            "ConfigMap {namespace}/{name} not found: the control plane writes it once it has a certificate authority; its log \
             and `/ready` say what is missing"
        ),
        found => found?,
    };
    let pem = found["data"][KEY].as_str().filter(|pem| !pem.is_empty());
    let pem = pem.with_context(|| format!("ConfigMap {namespace}/{name} has no {KEY}"))?;
    io.print(pem.trim_end())?;
    Ok(SUCCESS)
}
