//! A real Kubernetes for the tests of one program: started on first use, with a namespace for each test.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use test_harness::kubernetes::{ControlPlane, Node, Settings};
use test_harness::run::Result;
use tokio::sync::OnceCell;

use crate::rutter_binary;

/// The control plane that all tests of this program share. It ends with the program. Tests that stop or restore
/// components start their own.
///
/// # Errors
/// It does not start; the error has the end of a log.
pub async fn shared() -> Result<&'static ControlPlane> {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED.get_or_try_init(|| ControlPlane::start(Settings::default())).await
}

/// As above, with the CRDs that `rutter crds` prints.
///
/// # Errors
/// It does not start, or does not accept the CRDs.
pub async fn shared_with_crds() -> Result<&'static ControlPlane> {
    static APPLIED: OnceCell<()> = OnceCell::const_new();
    let plane = shared().await?;
    APPLIED.get_or_try_init(|| apply_crds(plane)).await?;
    Ok(plane)
}

/// A cluster with a node.
#[derive(Debug)]
pub struct WithNode {
    /// Its node.
    pub node: Node,
    /// Its control plane.
    pub plane: ControlPlane,
}

/// The cluster with a node that all tests of this program share. `None` if this machine cannot run one: a message then
/// names what is missing and that the test is skipped.
///
/// # Errors
/// It does not start; the error has the end of a log.
pub async fn shared_with_node() -> Result<Option<&'static WithNode>> {
    static SHARED: OnceCell<WithNode> = OnceCell::const_new();
    if let Some(missing) = test_harness::kubernetes::missing() {
        eprintln!("skipped: {missing}");
        return Ok(None);
    }
    let start = || async {
        let settings = Settings { node: true, ..Settings::default() };
        let plane = ControlPlane::start(settings).await?;
        let node = Node::start(&plane).await?;
        Result::Ok(WithNode { node, plane })
    };
    SHARED.get_or_try_init(start).await.map(Some)
}

/// Applies the CRDs that `rutter crds` prints, and waits until they are served.
///
/// # Errors
/// The API rejects a CRD; the error names it.
pub async fn apply_crds(plane: &ControlPlane) -> Result<()> {
    let printed = Command::new(rutter_binary()).arg("crds").output()?;
    if !printed.status.success() {
        return Err(format!("rutter crds: {}", String::from_utf8_lossy(&printed.stderr)).into());
    }
    let crds = String::from_utf8(printed.stdout)?;
    let flags = ["--server-side", "--force-conflicts", "-f", "-"];
    plane.kubectl(&[&["apply"], &flags[..]].concat(), &crds).await?;
    let wait = ["wait", "--for=condition=established", "crd", "--all", "--timeout=60s"];
    plane.kubectl(&wait, "").await?;
    Ok(())
}

/// The namespace of one test. It is deleted when this value is dropped, without waiting for the deletion.
#[derive(Debug)]
pub struct Namespace<'a> {
    plane: &'a ControlPlane,
    name: String,
}

impl<'a> Namespace<'a> {
    /// Creates a namespace with this prefix and a unique name.
    ///
    /// # Errors
    /// The API rejects it.
    pub async fn create(plane: &'a ControlPlane, prefix: &str) -> Result<Namespace<'a>> {
        Namespace::create_with(plane, prefix, &[]).await
    }

    /// As above, with labels.
    ///
    /// # Errors
    /// The API rejects it.
    pub async fn create_with(plane: &'a ControlPlane, prefix: &str, labels: &[(&str, &str)]) -> Result<Namespace<'a>> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut manifest =
            format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n    test: {prefix}\n");
        for (label, value) in labels {
            let _ = writeln!(manifest, "    {label}: \"{value}\"");
        }
        plane.kubectl(&["create", "-f", "-"], &manifest).await?;
        Ok(Namespace { plane, name })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies objects in it by server-side apply.
    ///
    /// # Errors
    /// The API rejects an object.
    pub async fn apply(&self, manifests: &str) -> Result<String> {
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], manifests).await
    }

    /// Runs `kubectl` in it.
    ///
    /// # Errors
    /// It fails; the error is its output.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let all = [&["--namespace", &self.name], arguments].concat();
        self.plane.kubectl(&all, input).await
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        // The API may be gone by now; the namespace is then removed with the cluster.
        self.plane.delete_soon(&format!("/api/v1/namespaces/{}", self.name));
    }
}
