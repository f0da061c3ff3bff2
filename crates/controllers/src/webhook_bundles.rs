//! Writes the CA bundle of the webhooks' certificate to the webhook configurations of a revision, and makes the validation
//! webhook fail closed once it is known to refuse invalid objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::{Body, Controller, Ledger, Resource, Target, Write, id};

/// Webhook configurations of injection.
pub const MUTATING: Resource = Resource::new(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
/// Webhook configurations of validation.
pub const VALIDATING: Resource = Resource::new(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
/// The end of the names of injection webhooks. Other webhooks of a configuration may be another program's.
const INJECTOR: &str = "sidecar-injector.istio.io";
const REVISION: &str = "istio.io/rev";

/// The settings of [`WebhookBundles`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookNames {
    /// The revision; `default` for the default one.
    pub revision: String,
    /// A MutatingWebhookConfiguration that belongs to the control plane without the label of the revision.
    pub injection: String,
    /// The same for a ValidatingWebhookConfiguration.
    pub validation: String,
}

/// Keeps the CA bundle and the failure policy of webhook configurations.
#[derive(Debug)]
pub struct WebhookBundles {
    names: WebhookNames,
    /// The bundle in Base64, as it is in the API.
    bundle: Option<Arc<str>>,
    /// Whether the validation webhook refuses an invalid object.
    refuses: bool,
    /// The observed configurations of the revision.
    found: BTreeMap<Target, Found>,
    dirty: BTreeSet<Target>,
    ledger: Ledger,
}

#[derive(Clone, PartialEq, Debug)]
struct Found {
    webhooks: Vec<Value>,
    version: Arc<str>,
}

impl WebhookBundles {
    /// Without a bundle, and without configurations.
    pub fn new(names: WebhookNames) -> WebhookBundles {
        let (found, dirty, ledger) = Default::default();
        WebhookBundles { names, bundle: None, refuses: false, found, dirty, ledger }
    }

    /// Sets the root certificates of the webhooks' certificate; empty if they are unknown.
    pub fn bundle(&mut self, pem: &str) {
        let bundle: Option<Arc<str>> = (!pem.is_empty()).then(|| STANDARD.encode(pem).into());
        if self.bundle != bundle {
            self.bundle = bundle;
            self.dirty.extend(self.found.keys().cloned());
        }
    }

    /// Sets whether the validation webhook was seen to refuse an invalid object.
    pub fn refuses(&mut self, refuses: bool) {
        if self.refuses != refuses {
            self.refuses = refuses;
            self.dirty.extend(self.found.keys().cloned());
        }
    }

    /// Whether there is a validation webhook that does not fail closed yet.
    pub fn awaits_refusal(&self) -> bool {
        let validating = self.found.iter().filter(|(target, _)| target.resource == VALIDATING);
        let mut webhooks = validating.flat_map(|(_, found)| &found.webhooks);
        !self.refuses && self.bundle.is_some() && webhooks.any(|webhook| webhook["failurePolicy"] != "Fail")
    }

    /// Sets an observed configuration.
    pub fn see(&mut self, resource: Resource, object: &Value, there: bool) {
        let (_, name) = id(object);
        let target = Target::new(resource, "", name);
        let by_name = if resource == MUTATING { &self.names.injection } else { &self.names.validation };
        let is_own = match object["metadata"]["labels"].get(REVISION) {
            Some(revision) => revision == self.names.revision.as_str(),
            None => name == by_name && self.names.revision == "default",
        };
        let found = (there && is_own).then(|| Found {
            webhooks: object["webhooks"].as_array().cloned().unwrap_or_default(),
            version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into(),
        });
        if self.found.get(&target) != found.as_ref() {
            self.ledger.forget(&target);
            match found {
                Some(found) => drop(self.found.insert(target.clone(), found)),
                None => drop(self.found.remove(&target)),
            }
            self.dirty.insert(target);
        }
    }

    fn wanted(&self, target: &Target) -> Option<Write> {
        let (bundle, found) = (self.bundle.as_ref()?, self.found.get(target)?);
        let webhooks: Vec<Value> = found.webhooks.iter().map(|webhook| self.patched(target, webhook, bundle)).collect();
        (webhooks != found.webhooks).then(|| Write {
            target: target.clone(),
            uid: Arc::default(),
            body: Body::Merge { patch: json!({"webhooks": webhooks}), version: found.version.clone() },
        })
    }

    fn patched(&self, target: &Target, webhook: &Value, bundle: &str) -> Value {
        let mut patched = webhook.clone();
        let is_validating = target.resource == VALIDATING;
        let is_injector = || webhook["name"].as_str().is_some_and(|name| name.ends_with(INJECTOR));
        if !is_validating && !is_injector() {
            return patched;
        }
        if let Some(client) = patched.get_mut("clientConfig").and_then(Value::as_object_mut) {
            client.insert("caBundle".to_owned(), bundle.into());
        }
        if is_validating && self.refuses && patched.is_object() {
            patched["failurePolicy"] = "Fail".into();
        }
        patched
    }
}

impl Controller for WebhookBundles {
    fn plan(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        let settle = |target: &Target| {
            let wanted = self.wanted(target);
            self.ledger.settle(target, wanted)
        };
        dirty.iter().filter_map(settle).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.dirty.extend(self.found.keys().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> WebhookBundles {
        WebhookBundles::new(WebhookNames {
            revision: "default".to_owned(),
            injection: "istio-sidecar-injector".to_owned(),
            validation: "istio-istio-system".to_owned(),
        })
    }

    fn configuration(name: &str, labels: Value, webhook: &str, policy: &str) -> Value {
        json!({"metadata": {"name": name, "labels": labels, "resourceVersion": "7"}, "webhooks": [
            {"name": webhook, "failurePolicy": policy, "clientConfig": {"service": {"name": "istiod"}}},
        ]})
    }

    fn patch(write: &Write) -> &Value {
        match &write.body {
            Body::Merge { patch, version } if &**version == "7" => &patch["webhooks"][0],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_bundle_of_own_configurations_follows_the_roots() {
        let mut machine = machine();
        let own = json!({REVISION: "default"});
        let injector = "rev.namespace.sidecar-injector.istio.io";
        machine.see(MUTATING, &configuration("tag", own.clone(), injector, "Fail"), true);
        machine.see(MUTATING, &configuration("other", json!({REVISION: "canary"}), injector, "Fail"), true);
        machine.see(MUTATING, &configuration("mixed", own, "somebody.example", "Fail"), true);
        machine.see(MUTATING, &configuration("istio-sidecar-injector", Value::Null, injector, "Fail"), true);
        assert!(machine.plan().is_empty(), "there is no bundle yet");
        machine.bundle("PEM");
        let writes = machine.plan();
        let names: Vec<&str> = writes.iter().map(|write| &*write.target.name).collect();
        assert_eq!(names, ["istio-sidecar-injector", "tag"]);
        assert_eq!(patch(&writes[0])["clientConfig"]["caBundle"], STANDARD.encode("PEM"));
        assert_eq!(patch(&writes[0])["clientConfig"]["service"]["name"], "istiod", "the rest is kept");
        assert!(machine.plan().is_empty(), "in flight");
        machine.bundle("NEXT");
        assert_eq!(machine.plan().len(), 2);
        machine.restart();
        assert_eq!(machine.plan().len(), 2);
    }

    #[test]
    fn the_validation_webhook_fails_closed_after_it_refused() {
        let mut machine = machine();
        let before =
            configuration("istio-validator-x", json!({REVISION: "default"}), "rev.validation.istio.io", "Ignore");
        machine.see(VALIDATING, &before, true);
        assert!(!machine.awaits_refusal(), "nothing can be called yet");
        machine.bundle("PEM");
        assert_eq!(patch(&machine.plan()[0])["failurePolicy"], "Ignore");
        assert!(machine.awaits_refusal());
        machine.refuses(true);
        assert_eq!(patch(&machine.plan()[0])["failurePolicy"], "Fail");
        machine.see(VALIDATING, &before, false);
        assert!(machine.plan().is_empty() && !machine.awaits_refusal());
    }
}
