//! The operator of the demo: changes objects through the API, and says how one would type it.

use std::path::{Path, PathBuf};

use http::{Method, Request};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use test_harness::run::Result;

use super::config::{Manifest, NAMESPACE};

/// Who the API notes as the owner of what was applied.
const MANAGER: &str = "demo";

/// Who talks to the API.
pub(super) struct Operator {
    kubeconfig: PathBuf,
    /// Where the files lie that were applied.
    directory: PathBuf,
    client: Client,
}

/// A request to the API, and the command that sends the same one.
pub(super) struct Step {
    request: Request<Vec<u8>>,
    /// For `kubectl` and for `rutter`, without its name.
    pub(super) command: String,
}

impl Operator {
    /// One who uses this kubeconfig and keeps files in this directory.
    pub(super) async fn new(kubeconfig: PathBuf, directory: &Path) -> Result<Operator> {
        Ok(Operator {
            client: connect(&kubeconfig).await?,
            kubeconfig,
            directory: directory.to_owned(),
        })
    }

    /// Forgets connections to a server that has gone.
    pub(super) async fn reconnect(&mut self) -> Result<()> {
        self.client = connect(&self.kubeconfig).await?;
        Ok(())
    }

    /// Does it.
    pub(super) async fn perform(&self, step: Step) -> Result<()> {
        self.client.request_text(step.request).await?;
        Ok(())
    }

    /// Server-side apply of an object, which is also put into a file, for who wants to look or type.
    pub(super) fn apply(&self, manifest: &Manifest) -> Result<Step> {
        let file = self.directory.join(format!("{}.yaml", manifest.file));
        std::fs::write(&file, &manifest.text)?;
        let path = format!("{}?fieldManager={MANAGER}&force=true", manifest.path());
        Ok(Step {
            request: request(
                Method::PATCH,
                &path,
                "application/apply-patch+yaml",
                manifest.text.clone().into(),
            )?,
            command: format!("apply --server-side -f {}", file.display()),
        })
    }

    /// A JSON patch of an object.
    pub(super) fn patch(&self, manifest: &Manifest, patch: &Value) -> Result<Step> {
        let path = format!("{}?fieldManager={MANAGER}", manifest.path());
        let body = patch.to_string();
        Ok(Step {
            command: format!(
                "-n {NAMESPACE} patch {} {} --type json -p '{body}'",
                manifest.singular, manifest.name
            ),
            request: request(Method::PATCH, &path, "application/json-patch+json", body.into())?,
        })
    }

    /// The end of an object.
    pub(super) fn delete(&self, manifest: &Manifest) -> Result<Step> {
        Ok(Step {
            request: request(Method::DELETE, &manifest.path(), "application/json", Vec::new())?,
            command: format!("-n {NAMESPACE} delete {} {}", manifest.singular, manifest.name),
        })
    }

    /// An object as it is now.
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
