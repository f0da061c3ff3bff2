//! The pod inside of a workload, for injection into files.

use serde_json::{Value, json};

use crate::owner::{Owner, owner};
use crate::pod::object;
use crate::{Decision, Error, Injector, Surroundings};

/// Kinds with pods, and the path of the pod's template.
const KINDS: &[(&str, &str)] = &[
    ("Pod", ""),
    ("CronJob", "/spec/jobTemplate/spec/template"),
    ("DaemonSet", "/spec/template"),
    ("Deployment", "/spec/template"),
    ("DeploymentConfig", "/spec/template"),
    ("Job", "/spec/template"),
    ("ReplicaSet", "/spec/template"),
    ("ReplicationController", "/spec/template"),
    ("Rollout", "/spec/template"),
    ("StatefulSet", "/spec/template"),
];

/// An object that makes pods, or a pod.
#[derive(Clone, Debug)]
pub struct Workload {
    object: Value,
    path: &'static str,
}

impl Workload {
    /// A workload; returns the object if its kind makes no pods.
    ///
    /// # Errors
    /// The object, if it is none.
    pub fn new(object: Value) -> Result<Workload, Value> {
        let kind = object["kind"].as_str().unwrap_or_default();
        match KINDS.iter().find(|(known, _)| *known == kind) {
            Some((_, path)) if object.pointer(path).is_some_and(|pod| pod["spec"].is_object()) => {
                Ok(Workload { object, path })
            }
            _ => Err(object),
        }
    }

    /// The object.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// The object.
    pub fn into_object(self) -> Value {
        self.object
    }

    /// The pod that the workload makes, with its namespace.
    pub fn pod(&self, default_namespace: &str) -> Value {
        let template = self.object.pointer(self.path).cloned().unwrap_or_default();
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        let own =
            |place: &Value| place["metadata"]["namespace"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let namespace = own(&pod).or_else(|| own(&self.object)).unwrap_or_else(|| default_namespace.to_owned());
        pod["metadata"]["namespace"] = namespace.into();
        pod
    }

    /// The decision on the pods of the workload.
    pub fn decide(&self, injector: &Injector, namespace: &str) -> Decision {
        injector.decide(&self.pod(namespace), namespace)
    }

    /// Adds the sidecar to the pods of the workload.
    ///
    /// # Errors
    /// As [`Injector::inject`].
    pub fn inject(&mut self, injector: &Injector, namespace: &str, around: &Surroundings<'_>) -> Result<(), Error> {
        let pod = self.pod(namespace);
        let owner = match self.path {
            "" => owner(&pod),
            _ => self.owner(&pod),
        };
        let mut injected = injector.inject_for(&pod, &owner, around)?;
        // The namespace was only added for the injection.
        let template = self.object.pointer(self.path).unwrap_or(&Value::Null);
        if template["metadata"]["namespace"].is_null()
            && let Some(metadata) = injected.get_mut("metadata").and_then(object)
        {
            metadata.remove("namespace");
        }
        if let Some(place) = self.object.pointer_mut(self.path).and_then(object) {
            for field in ["metadata", "spec"] {
                place.insert(field.to_owned(), injected[field].take());
            }
        }
        Ok(())
    }

    fn owner(&self, pod: &Value) -> Owner {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Owner {
            api_version: text(&self.object["apiVersion"]),
            kind: text(&self.object["kind"]),
            name: text(&self.object["metadata"]["name"]),
            namespace: text(&pod["metadata"]["namespace"]),
        }
    }
}
