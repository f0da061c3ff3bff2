//! `rutter create-remote-secret`: prints a Secret with credentials for reading this cluster, for control planes of other
//! clusters.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::option;
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{self, Request, Server};

/// The service account with read access, which the chart creates.
const READER: &str = "istio-reader-service-account";
/// The prefix of the Secret's name, before the cluster ID.
const PREFIX: &str = "istio-remote-secret-";
/// The type of Secrets with service account tokens.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// The annotation with the name of the service account.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Number and interval of polls for the token of a new Secret.
const TRIES: (u32, Duration) = (60, Duration::from_millis(250));

pub(super) fn command() -> Command {
    let command = Command::new("create-remote-secret")
        .about("Print a Secret that gives control planes of other clusters read access to this cluster")
        .after_help(
            "The Secret contains a service account token: keep the output secret.\n\n\
             Examples:\n  rutter create-remote-secret --context east --name east | kubectl --context west apply -f -\n  \
             rutter create-remote-secret --context east --name east --api-server https://east.example:6443",
        )
        .arg(option("name", "ID", "Cluster ID, as in --cluster-id of the cluster's control plane [default: the UID of the namespace kube-system]"))
        .arg(
            option("istioNamespace", "NAME", "Namespace of the control plane in both clusters")
                .short('i')
                .default_value("istio-system"),
        )
        .arg(option("service-account", "NAME", "Service account whose token is used").default_value(READER))
        .arg(option("secret-name", "NAME", "Secret with the token [default: a token Secret of the account, created if there is none]"))
        .arg(option("api-server", "URL", "URL of this cluster's API server for other clusters [default: the URL of this connection]"));
    server::arguments(command)
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let server = Server::connect(matches, io).await?;
    let namespace = given("istioNamespace").unwrap_or("istio-system");
    let account = given("service-account").unwrap_or(READER);
    let id = match given("name") {
        Some(id) => id.to_owned(),
        None => cluster_id(&server).await?,
    };
    ensure!(is_key(&id), usage("--name: expected at most 253 letters, digits, dots, dashes and underscores"));
    let url = given("api-server").unwrap_or(server.url()).trim_end_matches('/').to_owned();
    let (certificate, token) = credentials(&server, namespace, account, given("secret-name")).await?;
    let kubeconfig = kubeconfig(&id, &url, &certificate, &token);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": format!("{PREFIX}{}", id.to_lowercase().replace('_', "-")),
            "namespace": namespace,
            "labels": {"istio/multiCluster": "true"},
            "annotations": {"networking.istio.io/cluster": id},
        },
        "stringData": {id: kubeconfig},
    });
    let host = url.split("://").nth(1).unwrap_or(&url);
    if ["localhost", "127.", "[::1]"].iter().any(|local| host.starts_with(local)) {
        io.warn(format!("{url} is a loopback address: set --api-server to a URL that other clusters can reach"));
    }
    output::print(io, &Format::Yaml, None, &secret)?;
    Ok(SUCCESS)
}

/// Whether a text is a valid key of a Secret.
fn is_key(id: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !id.is_empty() && id.len() <= 253 && id.chars().all(fits) && id != "." && !id.starts_with("..")
}

async fn cluster_id(server: &Server) -> Result<String> {
    let system = server.get("/api/v1/namespaces/kube-system").await;
    let system = system.context("cannot read the cluster ID: set --name")?;
    let uid = system["metadata"]["uid"].as_str();
    Ok(uid.ok_or_else(|| usage("--name is missing"))?.to_owned())
}

/// The server's CA certificate in base64, and a token of the account.
async fn credentials(
    server: &Server,
    namespace: &str,
    account: &str,
    secret: Option<&str>,
) -> Result<(String, String)> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
    match server.get(&path).await {
        Ok(_) => {}
        Err(error) if StatusError::is_not_found(&error) => bail!(
            "service account {namespace}/{account} not found: install the chart with global.reader.enabled, or set \
             --service-account"
        ),
        Err(error) => return Err(error),
    }
    let secrets = format!("/api/v1/namespaces/{namespace}/secrets");
    let name = match secret {
        Some(name) => name.to_owned(),
        None => token_secret(server, &secrets, account).await?,
    };
    let (tries, pause) = TRIES;
    for _ in 0..tries {
        let found = server.get(&format!("{secrets}/{name}")).await?;
        let of = found["metadata"]["annotations"][ACCOUNT].as_str().unwrap_or_default();
        ensure!(
            found["type"] == TOKEN_TYPE && of == account,
            "Secret {namespace}/{name} is not a token Secret of the service account {account}"
        );
        let (certificate, token) = (found["data"]["ca.crt"].as_str(), found["data"]["token"].as_str());
        if let (Some(certificate), Some(token)) = (certificate, token) {
            return Ok((certificate.to_owned(), decoded(token)?));
        }
        // The controller manager adds the token shortly after the Secret is created.
        tokio::time::sleep(pause).await;
    }
    Err(anyhow!("Secret {namespace}/{name} has no token: check that the controller manager runs"))
}

/// The name of a token Secret of the account. Creates one if there is none.
async fn token_secret(server: &Server, secrets: &str, account: &str) -> Result<String> {
    let all = server.get(&format!("{secrets}?fieldSelector=type%3D{}", TOKEN_TYPE.replace('/', "%2F"))).await?;
    let of_account = |secret: &&Json| secret["metadata"]["annotations"][ACCOUNT] == account;
    let found = all["items"].as_array().into_iter().flatten().find(of_account);
    if let Some(name) = found.and_then(|found| found["metadata"]["name"].as_str()) {
        return Ok(name.to_owned());
    }
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TOKEN_TYPE,
        "metadata": {"name": format!("{account}-istio-remote-secret-token"), "annotations": {ACCOUNT: account}},
    });
    let made: Json = server.send(Request::post(secrets, &secret)).await?;
    Ok(made["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

fn decoded(base64: &str) -> Result<String> {
    let bytes = STANDARD.decode(base64);
    // The error itself would reveal a part of the token.
    let bytes = bytes.map_err(|_| anyhow!("the token is not valid base64"))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("the token is not UTF-8"))
}

fn kubeconfig(id: &str, url: &str, certificate: &str, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": id,
        "contexts": [{"name": id, "context": {"cluster": id, "user": id}}],
        "clusters": [{"name": id, "cluster": {"server": url, "certificate-authority-data": certificate}}],
        "users": [{"name": id, "user": {"token": token}}],
    });
    format!("{config:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_ids_are_secret_keys() {
        assert!(is_key("east-1.example_b") && is_key("Kubernetes"));
        assert!(!is_key("") && !is_key("a/b") && !is_key(".") && !is_key("..a") && !is_key(&"a".repeat(254)));
    }

    #[test]
    fn the_kubeconfig_has_server_and_token() {
        let text = kubeconfig("east", "https://east:6443", "QQ==", "t");
        let config: Json = serde_json::from_str(&text).unwrap();
        assert_eq!(config["current-context"], "east");
        assert_eq!(config["users"][0]["user"], json!({"token": "t"}));
        let wanted = json!({"server": "https://east:6443", "certificate-authority-data": "QQ=="});
        assert_eq!(config["clusters"][0]["cluster"], wanted);
    }
}
