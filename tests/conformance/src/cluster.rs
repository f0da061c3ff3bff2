//! The cluster with Rutter in it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use test_harness::kubernetes::{ControlPlane, Node, Settings};
use test_harness::run::{Result, wait_for};
use tokio::process::Command;

use crate::dns;
use crate::images::{self, PROXY, RUTTER};
use crate::suite::Suite;

/// The GatewayClass and the mesh that the suite uses.
pub(crate) const CLASS: &str = "istio";
pub(crate) const MESH: &str = "istio";

const PATIENCE: Duration = Duration::from_secs(120);

/// A running cluster. It ends when it is dropped.
pub(crate) struct Cluster {
    // Dropped first: the node must end before its control plane.
    node: Node,
    plane: Arc<ControlPlane>,
}

impl Cluster {
    /// Starts everything and waits until Rutter serves.
    pub(crate) async fn start(suite: &Suite) -> Result<Cluster> {
        let plane = ControlPlane::start(Settings { node: true, dns: true, ..Settings::default() }).await?;
        let node = Node::start(&plane).await?;
        let cluster = Cluster { node, plane: Arc::new(plane) };
        eprintln!("==> export KUBECONFIG={}", cluster.kubeconfig().display());
        let mut images = Vec::from(images::of_mesh(suite)?);
        images.extend(images::of_suite(suite)?);
        for image in &images {
            eprintln!("==> importing {}", image.name());
            cluster.node.import(image).await?;
        }
        cluster.install(suite).await?;
        Ok(cluster)
    }

    /// The control plane of Kubernetes.
    pub(crate) fn plane(&self) -> Arc<ControlPlane> {
        self.plane.clone()
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    /// Installs the suite's CRDs and Rutter.
    async fn install(&self, suite: &Suite) -> Result<()> {
        dns::deploy(&self.plane).await?;
        for crd in suite.crds()? {
            self.plane.kubectl(&["apply", "--server-side", "-f", &crd.display().to_string()], "").await?;
        }
        let values = format!("image={RUTTER},global.proxy.image={PROXY},global.proxy_init.image={PROXY}");
        // Many sidecars and gateways must fit on the node.
        let small = "global.proxy.resources.requests.cpu=10m,global.proxy.resources.requests.memory=32Mi";
        let node = "global.imagePullPolicy=Never,global.nativeNftables=true";
        let words = ["install", "--set", &values, "--set", node, "--set", small];
        let output = Command::new(images::program("rutter")?)
            .args(words)
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .await?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            return Err(String::from_utf8_lossy(&said).into_owned().into());
        }
        let class = || async { self.plane.kubectl(&["get", "gatewayclass", CLASS], "").await.ok() };
        wait_for("the GatewayClass", PATIENCE, class).await?;
        Ok(())
    }

    /// Creates the object that names the mesh, and waits for the features in its status.
    pub(crate) async fn name_mesh(&self) -> Result<()> {
        let mesh = json!({
            "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
            "kind": "XMesh",
            "metadata": {"name": MESH},
            "spec": {"controllerName": "istio.io/mesh-controller"},
        });
        self.plane.kubectl(&["apply", "--server-side", "-f", "-"], &mesh.to_string()).await?;
        let words = ["get", "xmesh", MESH, "-o", "jsonpath={.status.supportedFeatures[*].name}"];
        let features = || async { self.plane.kubectl(&words, "").await.ok().filter(|names| !names.trim().is_empty()) };
        wait_for("the features of the XMesh", PATIENCE, features).await.map(drop)
    }

    /// Writes Rutter's log into a directory.
    pub(crate) async fn save_logs(&self, directory: &Path) -> Result<()> {
        let log = self.plane.kubectl(&["-n", "istio-system", "logs", "deployment/istiod", "--tail=-1"], "").await?;
        Ok(std::fs::write(directory.join("rutter.log"), log)?)
    }
}
