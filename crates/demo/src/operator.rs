//! The operator of the demo: changes objects through the API and shows the equivalent commands.

use std::path::{Path, PathBuf};

use http::{Method, Request};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use test_harness::run::Result;

use super::config::Manifest;

/// The field manager of applied objects.
const MANAGER: &str = "demo";

/// A client of the API.
pub(super) struct Operator {
    kubeconfig: PathBuf,
    /// The directory of the applied files.
    directory: PathBuf,
    client: Client,
}

/// A request to the API and the equivalent command.
pub(super) struct Step {
    request: Request<Vec<u8>>,
    /// The command line for `kubectl` or `rutter`, without the program name.
    pub(super) command: String,
}

impl Operator {
    /// Creates an operator with this kubeconfig, who keeps files in this directory.
    pub(super) async fn new(kubeconfig: PathBuf, directory: &Path) -> Result<Operator> {
        Ok(Operator { client: connect(&kubeconfig).await?, kubeconfig, directory: directory.to_owned() })
    }

    /// Reconnects after the server was restarted.
    pub(super) async fn reconnect(&mut self) -> Result<()> {
        self.client = connect(&self.kubeconfig).await?;
        Ok(())
    }

    pub(super) async fn perform(&self, step: Step) -> Result<()> {
        self.client.request_text(step.request).await?;
        Ok(())
    }

    /// Server-side apply of an object, which is also written to a file for the viewer.
    pub(super) fn apply(&self, manifest: &Manifest) -> Result<Step> {
        let file = self.directory.join(format!("{}.yaml", manifest.file));
        std::fs::write(&file, &manifest.text)?;
        let path = format!("{}?fieldManager={MANAGER}&force=true", manifest.path());
        Ok(Step {
            request: request(Method::PATCH, &path, "application/apply-patch+yaml", manifest.text.clone().into())?,
            command: format!("apply --server-side -f {}", file.display()),
        })
    }

    /// A JSON patch of an object.
    pub(super) fn patch(&self, manifest: &Manifest, patch: &Value) -> Result<Step> {
        let path = format!("{}?fieldManager={MANAGER}", manifest.path());
        let body = patch.to_string();
        Ok(Step {
            command: format!(
                "-n {} patch {} {} --type json -p '{body}'",
                manifest.namespace, manifest.singular, manifest.name
            ),
            request: request(Method::PATCH, &path, "application/json-patch+json", body.into())?,
        })
    }

    pub(super) fn delete(&self, manifest: &Manifest) -> Result<Step> {
        Ok(Step {
            request: request(Method::DELETE, &manifest.path(), "application/json", Vec::new())?,
            command: format!("-n {} delete {} {}", manifest.namespace, manifest.singular, manifest.name),
        })
    }

    /// Runs `rutter` with these arguments, as a user does. Returns what it prints.
    pub(super) async fn rutter(&self, arguments: &[&str]) -> Result<String> {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        let output = command.args(arguments).env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true).output().await?;
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout)?.trim().to_owned()),
            false => Err(format!("rutter {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)).into()),
        }
    }

    pub(super) async fn get(&self, manifest: &Manifest) -> Result<Value> {
        let request = request(Method::GET, &manifest.path(), "application/json", Vec::new())?;
        Ok(serde_json::from_str(&self.client.request_text(request).await?)?)
    }
}

async fn connect(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn request(method: Method, path: &str, content: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content)
        .header("accept", "application/json");
    Ok(request.body(body)?)
}
