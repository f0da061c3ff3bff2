//! Whether a pod gets a sidecar, and why.

use std::fmt;

use config::StringMap;
use config::mesh::LabelSelector;
use serde_json::Value;

use crate::INJECT;
use crate::pod::{annotation, label};
use crate::settings::{Injector, Policy};

/// Namespaces whose pods never get a sidecar.
const SYSTEM_NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// The decision on a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether the pod gets a sidecar.
    pub inject: bool,
    /// Why.
    pub reason: Reason,
}

/// The reason of a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The pod uses the network of its node, on which interception would act.
    HostNetwork,
    /// The namespace belongs to Kubernetes.
    SystemNamespace(String),
    /// The label (or, if true, the annotation) of the pod.
    Explicit {
        /// Whether the deprecated annotation decides.
        annotation: bool,
    },
    /// `neverInjectSelector` at this index.
    NeverSelector(usize),
    /// `alwaysInjectSelector` at this index.
    AlwaysSelector(usize),
    /// The policy of the injection configuration.
    Policy(Policy),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::HostNetwork => f.write_str("the pod uses the network of its node (hostNetwork: true)"),
            Reason::SystemNamespace(name) => write!(f, "pods in the namespace {name} never get a sidecar"),
            Reason::Explicit { annotation: false } => write!(f, "the label {INJECT} of the pod"),
            Reason::Explicit { annotation: true } => write!(f, "the annotation {INJECT} of the pod"),
            Reason::NeverSelector(at) => write!(f, "neverInjectSelector[{at}] of the injection configuration"),
            Reason::AlwaysSelector(at) => write!(f, "alwaysInjectSelector[{at}] of the injection configuration"),
            Reason::Policy(Policy::Enabled) => f.write_str("policy: enabled of the injection configuration"),
            Reason::Policy(Policy::Disabled) => f.write_str("policy: disabled of the injection configuration"),
        }
    }
}

impl Injector {
    /// Decides on a pod that reached the webhook. `namespace` is that of the request, for pods that do not name theirs.
    pub fn decide(&self, pod: &Value, namespace: &str) -> Decision {
        let with = |inject, reason| Decision { inject, reason };
        if pod["spec"]["hostNetwork"] == true {
            return with(false, Reason::HostNetwork);
        }
        let named = pod["metadata"]["namespace"].as_str().filter(|name| !name.is_empty()).unwrap_or(namespace);
        if SYSTEM_NAMESPACES.contains(&named) {
            return with(false, Reason::SystemNamespace(named.to_owned()));
        }
        // The label takes precedence. Other values than these two leave the decision to the selectors and the policy.
        let (given, is_annotation) = match label(pod, INJECT) {
            Some(value) => (Some(value), false),
            None => (annotation(pod, INJECT), true),
        };
        let explicit = Reason::Explicit { annotation: is_annotation };
        match given {
            Some("true") => return with(true, explicit),
            Some("false") => return with(false, explicit),
            _ => {}
        }
        let labels = labels(pod);
        let first = |selectors: &[LabelSelector]| selectors.iter().position(|selector| selects(selector, &labels));
        if let Some(at) = first(&self.never) {
            return with(false, Reason::NeverSelector(at));
        }
        if let Some(at) = first(&self.always) {
            return with(true, Reason::AlwaysSelector(at));
        }
        with(self.policy == Policy::Enabled, Reason::Policy(self.policy))
    }
}

/// Whether a selector has conditions and all of them hold.
fn selects(selector: &LabelSelector, labels: &StringMap) -> bool {
    let is_empty = selector.match_labels.is_empty() && selector.match_expressions.is_empty();
    !is_empty && selector.matches(labels)
}

pub(crate) fn labels(pod: &Value) -> StringMap {
    let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into()))).collect()
}
