//! Starts and inspects `rutter serve --store kubernetes`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use test_harness::kubernetes::ControlPlane;
use test_harness::run::{Control, Node, Result, wait_for};

use crate::observer::Observer;
use crate::rutter_binary;

/// The maximum time to wait for an expected change.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A control plane for a namespace of the cluster.
pub struct Rutter {
    /// The process.
    pub control: Control,
    data: tempfile::TempDir,
}

impl Rutter {
    /// Prepares a control plane without starting it, with this kubeconfig or the administrator's.
    pub fn idle(plane: &ControlPlane, namespace: &str, user: Option<&str>, more: &[&str]) -> Result<Rutter> {
        Rutter::idle_with(plane, namespace, user, more, &[])
    }

    /// As above, with environment variables that name files.
    pub fn idle_with(
        plane: &ControlPlane,
        namespace: &str,
        user: Option<&str>,
        more: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Rutter> {
        let data = tempfile::tempdir()?;
        let kubeconfig = data.path().join("kubeconfig");
        match user {
            Some(text) => fs::write(&kubeconfig, text)?,
            None => drop(fs::copy(plane.kubeconfig(), &kubeconfig)?),
        }
        let (kubeconfig, home) = (kubeconfig.display().to_string(), data.path().display().to_string());
        let flags = [
            &["--store", "kubernetes", "--kubeconfig", &kubeconfig, "--namespace", namespace][..],
            &["--data-dir", &home, "--snapshot-interval", "1s", "--status-interval", "100ms"],
            more,
        ];
        // Control planes with authorities of their own would write root certificates over each other's in the shared cluster.
        // Tests that need one pass `--ca-server on`.
        let environment = [&[("RUTTER_CA_SERVER", Path::new("off"))], environment].concat();
        let control = Control::idle(rutter_binary(), &flags.concat(), &environment)?;
        Ok(Rutter { control, data })
    }

    /// Starts a control plane as the administrator, and waits until it is ready.
    pub async fn start(plane: &ControlPlane, namespace: &str) -> Result<Rutter> {
        let mut rutter = Rutter::idle(plane, namespace, None, &[])?;
        rutter.control.begin().await?;
        Ok(rutter)
    }

    /// Waits until a debug page contains this text, or no longer contains it.
    pub async fn shows(&self, page: &str, text: &str, present: bool) -> Result<()> {
        let reached = || async {
            let found = self.control.debug(page).await.ok()?.text();
            (found.contains(text) == present).then_some(())
        };
        let what = format!("{page} to {} `{text}`", if present { "show" } else { "lose" });
        self.explained(wait_for(&what, PATIENCE, reached).await)
    }

    /// Waits until `/ready` contains this text, or no longer contains it.
    pub async fn says(&self, text: &str, ready: bool) -> Result<()> {
        let said = || async {
            let answer = self.control.readiness().await.ok()?;
            (answer.text().contains(text) && answer.status.is_success() == ready).then_some(())
        };
        self.explained(wait_for(&format!("`/ready` to say `{text}`"), PATIENCE, said).await)
    }

    /// Adds the end of the log to the error of a result.
    pub fn explained<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Ok(done) => Ok(done),
            Err(error) => Err(format!("{error}; the log ends:\n{}", self.control.log_end()?).into()),
        }
    }

    /// The directory that outlives the process.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// All configuration objects, or those of a namespace. Versions are left out, because statuses change them.
    async fn configuration(&self, namespace: Option<&str>) -> Result<BTreeSet<String>> {
        let mut page: Value = serde_json::from_str(&self.control.debug("/debug/configz").await?.text())?;
        let objects = page.as_array_mut().ok_or("no list")?;
        objects.retain(|object| namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace));
        let bare = objects.iter_mut().map(|object| {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            object.to_string()
        });
        Ok(bare.collect())
    }

    /// Waits until the state equals that of a control plane that has just listed everything, and a recomputation
    /// agrees.
    pub async fn is_as_new(&self, plane: &ControlPlane, namespace: &str) -> Result<()> {
        let fresh = Rutter::start(plane, namespace).await?;
        let same = || async {
            let (ours, theirs) = (self.configuration(None).await.ok()?, fresh.configuration(None).await.ok()?);
            (ours == theirs && !ours.is_empty()).then_some(())
        };
        self.explained(wait_for("the world of a fresh list", PATIENCE, same).await)?;
        self.agrees().await
    }

    /// As above for this namespace; and a connected [`client`] must have the same bytes as a new one.
    pub async fn is_as_new_to(&self, proxy: &Observer, plane: &ControlPlane, namespace: &str) -> Result<()> {
        let fresh = Rutter::start(plane, namespace).await?;
        let other = Observer::start(fresh.control.grpc(), &client(namespace));
        let only = Some(namespace);
        let same = || async {
            let (ours, theirs) = (self.configuration(only).await.ok()?, fresh.configuration(only).await.ok()?);
            let equal = ours == theirs && !ours.is_empty() && proxy.versions() == other.versions();
            equal.then_some(())
        };
        let waited = self.explained(wait_for("the world of a fresh list", PATIENCE, same).await);
        proxy.check()?;
        if let Err(error) = waited {
            let (ours, theirs) = (self.configuration(only).await?, fresh.configuration(only).await?);
            let objects: Vec<&String> = ours.symmetric_difference(&theirs).collect();
            let (ours, theirs) = (proxy.versions(), other.versions());
            let one = ours.iter().filter(|(name, version)| theirs.get(*name) != Some(version));
            let two = theirs.keys().filter(|name| !ours.contains_key(*name));
            let resources: Vec<&String> = one.map(|(name, _)| name).chain(two).collect();
            return Err(format!("{error}\nobjects that differ: {objects:?}, resources: {resources:?}").into());
        }
        self.agrees().await
    }

    /// Checks that a recomputation agrees.
    async fn agrees(&self) -> Result<()> {
        let agrees = self.control.debug("/debug/recompute").await?;
        match agrees.status.is_success() {
            true => Ok(()),
            false => Err(agrees.text().into()),
        }
    }
}

/// A proxy of this namespace.
pub fn client(namespace: &str) -> Node {
    Node::sidecar("client", namespace, "127.0.0.2", &[("app", "client")])
}

/// A ServiceEntry of this name and host.
pub fn entry(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{ name: {name} }}\nspec:\n  hosts: [{host}]\n  \
         ports: [{{ number: 80, name: http, protocol: HTTP }}]\n  resolution: DNS\n"
    )
}
