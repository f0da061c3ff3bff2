//! The root certificate in every namespace, so that workloads can check who they talk to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use crate::controllers::{Body, Controller, Ledger, Target, Write};

/// The name of the ConfigMaps.
pub const CONFIG_MAP: &str = "istio-ca-root-cert";
/// The key in them.
pub const KEY: &str = "root-cert.pem";
/// The label by which they are recognised.
const LABEL: &str = "istio.io/config";
/// Namespaces that hold no workloads.
const LEFT_OUT: &[&str] = &["kube-public", "kube-node-lease", "local-path-storage"];
/// Root certificates together are no longer, in bytes: a ConfigMap holds 1 MiB.
const LIMIT: usize = 512 << 10;

/// The ConfigMap of a namespace as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// What stands below [`KEY`]; none: nothing.
    pub pem: Option<Arc<str>>,
    /// Whether it has the label.
    pub labelled: bool,
    /// `metadata.resourceVersion`.
    pub version: Arc<str>,
}

/// The root certificates of the mesh, from the Secrets that hold its authority: `cacerts`, which an operator made, before
/// `istio-ca-secret`, which a control plane made for itself. `read` gives a key of a Secret.
///
/// # Errors
/// What is wrong with the Secret that holds.
pub fn root_of(read: impl Fn(&str, &str) -> Option<Vec<u8>>) -> Result<Option<Arc<str>>, String> {
    // A self-signed authority is its own root.
    let places = [
        ("cacerts", KEY),
        ("istio-ca-secret", KEY),
        ("istio-ca-secret", "ca-cert.pem"),
    ];
    for (secret, key) in places {
        let Some(bytes) = read(secret, key).filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        let wrong = |what: &str| format!("Secret {secret}: {key} {what}");
        if bytes.len() > LIMIT {
            return Err(wrong(&format!("is longer than {LIMIT} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not text"))?;
        if !text.contains("-----BEGIN CERTIFICATE-----") {
            return Err(wrong("holds no certificate"));
        }
        if text.contains("PRIVATE KEY") {
            return Err(wrong("holds a private key, which nobody else may see"));
        }
        return Ok(Some(text.into()));
    }
    Ok(None)
}

/// Gives every namespace that is selected the root certificate. Without one nothing is written, and what is there stays.
#[derive(Default, Debug)]
pub struct RootCertificates {
    root: Option<Arc<str>>,
    namespaces: BTreeSet<Arc<str>>,
    found: BTreeMap<Arc<str>, Found>,
    dirty: BTreeSet<Arc<str>>,
    ledger: Ledger,
}

impl RootCertificates {
    /// The root certificates are these now; none: nobody knows.
    pub fn root(&mut self, root: Option<Arc<str>>) {
        if self.root != root {
            self.root = root;
            self.dirty.extend(self.namespaces.iter().cloned());
        }
    }

    /// Whether there is one.
    pub fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// A namespace is there, selected and not on its way out; or it is not.
    pub fn namespace(&mut self, name: &str, there: bool) {
        if there && !LEFT_OUT.contains(&name) {
            if self.namespaces.insert(name.into()) {
                self.dirty.insert(name.into());
            }
        } else if self.namespaces.remove(name) {
            self.ledger.forget(&target(name));
        }
    }

    /// The ConfigMap of a namespace is so, or is not there.
    pub fn config_map(&mut self, namespace: &str, found: Option<Found>) {
        let before = match &found {
            Some(found) => self.found.insert(namespace.into(), found.clone()),
            None => self.found.remove(namespace),
        };
        if before != found {
            self.ledger.forget(&target(namespace));
            self.dirty.insert(namespace.into());
        }
    }

    fn wanted(&self, namespace: &str) -> Option<Write> {
        let root = self.root.as_ref()?;
        self.namespaces.get(namespace)?;
        let found = self.found.get(namespace);
        if found.is_some_and(|found| found.labelled && found.pem.as_ref() == Some(root)) {
            return None;
        }
        Some(Write {
            target: target(namespace),
            uid: Arc::default(),
            body: Body::Apply {
                fields: json!({"metadata": {"labels": {LABEL: "true"}}, "data": {KEY: &**root}}),
                manager: "rutter",
                create: true,
            },
        })
    }
}

impl Controller for RootCertificates {
    fn plan(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        let settle = |namespace: &Arc<str>| {
            let wanted = self.wanted(namespace);
            self.ledger.settle(&target(namespace), wanted)
        };
        dirty.iter().filter_map(settle).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.dirty.extend(self.namespaces.iter().cloned());
    }
}

fn target(namespace: &str) -> Target {
    Target {
        group: "",
        version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
        subresource: "",
        namespace: namespace.into(),
        name: CONFIG_MAP.into(),
    }
}
