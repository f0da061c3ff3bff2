//! Proxies that register: their claims, the proof of their identity, and the WorkloadEntry that they get.

use std::net::IpAddr;
use std::sync::Arc;

use config::StringMap;
use serde_json::{Map, Value, json};

use super::entry::{CONNECTED, CONTROLLER, GROUP, HEALTH_CHECKED, Nanos, format};
use crate::{Resource, Target};

/// The longest name of an object.
const NAME: usize = 253;
/// The label that overrides a pod's locality. Its value is not valid in a WorkloadEntry, which has a field for it.
const LOCALITY_LABEL: &str = "istio-locality";

/// The identity of a proxy, as far as its connection proves it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Nothing is proven.
    Nothing,
    /// It may be any proxy of this namespace; of all namespaces without one. The kernel proves its user.
    Local(Option<Arc<str>>),
    /// Its namespace and service account, from a certificate or a token.
    Identity(Arc<str>, Arc<str>),
}

/// The WorkloadEntry that a proxy has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Of {
    /// The one that is created for it from this WorkloadGroup (`AUTO_REGISTER_GROUP`).
    Group(Arc<str>),
    /// The one with this name (`WORKLOAD_ENTRY`).
    Entry(Arc<str>),
}

/// A proxy outside of Kubernetes that connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its ID, for messages.
    pub id: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its WorkloadEntry.
    pub of: Of,
    /// Its primary address.
    pub address: IpAddr,
    /// Its network.
    pub network: Arc<str>,
    /// Its labels.
    pub labels: StringMap,
    /// Its locality, as `REGION/ZONE/SUBZONE`.
    pub locality: String,
    /// Whether it probes its workload and reports the health.
    pub probed: bool,
    /// The proof of its identity.
    pub proof: Proof,
}

/// A registration that is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The WorkloadGroup does not exist.
    #[error(
        "cannot register {id}: WorkloadGroup {group} does not exist; create it, or change AUTO_REGISTER_GROUP in the proxy's metadata"
    )]
    NoGroup {
        /// The proxy.
        id: Arc<str>,
        /// Namespace and name.
        group: String,
    },
    /// The WorkloadEntry does not exist.
    #[error("WorkloadEntry {0} does not exist; create it, or change WORKLOAD_ENTRY in the proxy's metadata")]
    NoEntry(String),
    /// The proxy is not the workload of the WorkloadEntry.
    #[error("the proxy may not register WorkloadEntry {entry}: {reason}")]
    Identity {
        /// Namespace and name.
        entry: String,
        /// The difference.
        reason: String,
    },
    /// The WorkloadEntry cannot be written.
    #[error("cannot write WorkloadEntry {entry}: {reason}")]
    Write {
        /// Namespace and name.
        entry: String,
        /// The answer.
        reason: String,
    },
    /// The objects cannot be read or written at the moment.
    #[error("cannot register WorkloadEntry {entry} now: {reason}")]
    Unavailable {
        /// Namespace and name.
        entry: String,
        /// The error.
        reason: String,
    },
}

impl Claim {
    /// The name of its WorkloadEntry: for a group `GROUP-ADDRESS`, or `GROUP-ADDRESS-NETWORK`.
    pub fn entry(&self) -> Arc<str> {
        let group = match &self.of {
            Of::Entry(name) => return name.clone(),
            Of::Group(group) => group,
        };
        let address = self.address.to_string().replace(':', "-");
        let name = match self.network.is_empty() {
            true => format!("{group}-{address}"),
            false => format!("{group}-{address}-{}", self.network),
        };
        let mut first = name.len().saturating_sub(NAME);
        while !name.is_char_boundary(first) {
            first += 1;
        }
        name[first..].into()
    }

    /// The WorkloadGroup, if it has one.
    pub(super) fn group(&self) -> Option<Target> {
        match &self.of {
            Of::Group(group) => Some(Target::new(Resource::WORKLOAD_GROUP, &self.namespace, group)),
            Of::Entry(_) => None,
        }
    }

    /// Checks that the proxy is the workload of an entry with this service account.
    pub(super) fn check(&self, account: &str) -> Result<(), Refusal> {
        let reason = match &self.proof {
            Proof::Nothing => {
                "its connection proves no identity; connect to the TLS port with a certificate or a token".to_owned()
            }
            Proof::Local(None) => return Ok(()),
            Proof::Local(Some(namespace)) | Proof::Identity(namespace, _) if *namespace != self.namespace => {
                format!("its namespace is {namespace:?}, not {:?}", self.namespace)
            }
            Proof::Identity(_, proven) if !account.is_empty() && **proven != *account => {
                format!("its service account is {proven:?}, not {account:?}")
            }
            Proof::Local(_) | Proof::Identity(..) => return Ok(()),
        };
        Err(Refusal::Identity { entry: format!("{}/{}", self.namespace, self.entry()), reason })
    }

    /// The fields of a new entry, made from the WorkloadGroup. The proxy's own values have the highest precedence, then
    /// the group's metadata, then the template.
    pub(super) fn fields(&self, group: &Value, instance: &str, at: Nanos) -> Value {
        let mut spec = group["spec"]["template"].as_object().cloned().unwrap_or_default();
        let given = &group["spec"]["metadata"];
        let mut labels = map(&spec.remove("labels").unwrap_or_default());
        labels.extend(map(&given["labels"]));
        labels.extend(self.labels.iter().map(|(name, value)| (name.to_string(), (**value).into())));
        labels.remove(LOCALITY_LABEL);
        spec.insert("address".into(), self.address.to_string().into());
        for (field, value) in [("network", &*self.network), ("locality", &self.locality)] {
            if !value.is_empty() {
                spec.insert(field.into(), value.into());
            }
        }
        if !labels.is_empty() {
            spec.insert("labels".into(), labels.clone().into());
        }
        let mut annotations = map(&given["annotations"]);
        annotations.insert(GROUP.into(), group["metadata"]["name"].clone());
        annotations.insert(CONTROLLER.into(), instance.into());
        annotations.insert(CONNECTED.into(), format(at).into());
        if self.probed {
            annotations.insert(HEALTH_CHECKED.into(), "true".into());
        }
        let owner = json!({
            "apiVersion": Resource::WORKLOAD_GROUP.api_version(),
            "kind": Resource::WORKLOAD_GROUP.kind,
            "name": group["metadata"]["name"],
            "uid": group["metadata"]["uid"],
            "controller": true,
        });
        json!({"metadata": {"labels": labels, "annotations": annotations, "ownerReferences": [owner]}, "spec": spec})
    }
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The service account in the template of a group.
pub(super) fn account(group: &Value) -> &str {
    group["spec"]["template"]["serviceAccount"].as_str().unwrap_or_default()
}
