//! Selection of objects by revision, and of kinds by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::Kind;
use serde_json::Value;

/// The label that assigns an object, or a webhook configuration, to a revision.
const REVISION: &str = "istio.io/rev";
/// The label of a webhook configuration or Service that defines a tag.
pub(crate) const TAG: &str = "istio.io/tag";
/// The name of the default revision, and of the default tag.
const DEFAULT: &str = "default";

/// The revisions that use an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Selection {
    /// No label assigns it to a revision: all of them use it.
    All,
    /// It is assigned to this revision.
    Own,
    /// It is assigned to another revision.
    Other,
}

/// The revision of this control plane and its tags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Revision {
    name: Arc<str>,
    /// The tags of this revision, by the object that defines them.
    tags: BTreeMap<Arc<str>, Arc<str>>,
    /// The revisions of the tag `default`, by the object that defines it.
    defaults: BTreeMap<Arc<str>, Arc<str>>,
    /// The revisions in the labels of namespaces that have one.
    namespaces: BTreeMap<Arc<str>, Arc<str>>,
}

impl Revision {
    /// A revision; an empty name means the default revision.
    pub(crate) fn new(name: &str) -> Revision {
        Revision {
            name: if name.is_empty() { DEFAULT } else { name }.into(),
            tags: BTreeMap::new(),
            defaults: BTreeMap::new(),
            namespaces: BTreeMap::new(),
        }
    }

    /// The revision of the tag `default`; `None` if the tag is not defined.
    pub(crate) fn default(&self) -> Option<&Arc<str>> {
        self.defaults.values().next()
    }

    /// The names of the revision and of its tags.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = Arc<str>> {
        [&self.name].into_iter().chain(self.tags.values()).cloned()
    }

    /// Whether revision labels apply to a kind: to users' configuration, but not to platform objects.
    pub(crate) fn applies_to(kind: Kind) -> bool {
        kind.is_complete()
    }

    /// Whether all revisions use the objects of a kind, and the label only decides which of them writes the status and deploys
    /// gateways. The proxies of a Gateway with a new label stay with the revision from before until others replace them.
    pub(crate) fn shares(kind: Kind) -> bool {
        kind.group().starts_with("gateway.networking.") || kind == Kind::InferencePool
    }

    /// The revision that an object of a kind with these labels is assigned to. For kinds that all revisions use, the label of the
    /// namespace stands in for a missing one, as in Istio.
    pub(crate) fn select(&self, kind: Kind, namespace: &str, labels: &Value) -> Selection {
        let of_namespace = || self.namespaces.get(namespace).filter(|_| Revision::shares(kind)).map(|label| &**label);
        match labels[REVISION].as_str().or_else(of_namespace) {
            None | Some("") => Selection::All,
            Some(label) if *label == *self.name || self.tags.values().any(|tag| **tag == *label) => Selection::Own,
            Some(_) => Selection::Other,
        }
    }

    /// Whether labels of namespaces decide for objects of a kind.
    pub(crate) fn reads_namespaces(&self, kind: Kind) -> bool {
        Revision::shares(kind) && !self.namespaces.is_empty()
    }

    /// Updates the labels of a namespace (`None` if deleted). Returns whether its revision changed.
    pub(crate) fn namespace(&mut self, name: &Arc<str>, labels: Option<&Value>) -> bool {
        let label = labels.and_then(|labels| labels[REVISION].as_str()).filter(|label| !label.is_empty());
        let before = match label {
            Some(label) => self.namespaces.insert(name.clone(), label.into()),
            None => self.namespaces.remove(name),
        };
        before.as_deref() != label
    }

    /// Updates an object that defines a tag (`None` if deleted). Returns whether our tags changed.
    pub(crate) fn tag(&mut self, webhook: &Arc<str>, labels: Option<&Value>) -> bool {
        let named = labels.filter(|labels| labels[TAG] == DEFAULT);
        match named.and_then(|labels| labels[REVISION].as_str()) {
            Some(revision) => drop(self.defaults.insert(webhook.clone(), revision.into())),
            None => drop(self.defaults.remove(webhook)),
        }
        let tag = labels.filter(|labels| labels[REVISION].as_str() == Some(&*self.name));
        let tag = tag.and_then(|labels| labels[TAG].as_str()).filter(|tag| !tag.is_empty());
        let before: Vec<Arc<str>> = self.names();
        match tag {
            Some(tag) => self.tags.insert(webhook.clone(), tag.into()),
            None => self.tags.remove(webhook),
        };
        before != self.names()
    }

    fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.tags.values().cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Patterns of kinds to ignore, with exceptions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kinds {
    ignored: Vec<String>,
    included: Vec<String>,
}

impl Kinds {
    /// Parses two comma-separated lists of `PLURAL.GROUP`, in which a leading `*` is a wildcard: kinds to ignore, and
    /// exceptions.
    pub fn new(ignored: &str, included: &str) -> Kinds {
        let list = |text: &str| -> Vec<String> {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        Kinds { ignored: list(ignored), included: list(included) }
    }

    /// Whether a kind is read.
    pub(crate) fn reads(&self, plural: &str, group: &str) -> bool {
        let name = format!("{plural}.{group}");
        let names = |patterns: &[String]| {
            patterns.iter().any(|pattern| match pattern.strip_prefix('*') {
                Some(rest) => name.ends_with(rest),
                None => name == *pattern,
            })
        };
        !names(&self.ignored) || names(&self.included)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn admits(revision: &Revision, labels: &Value) -> bool {
        revision.select(Kind::VirtualService, "x", labels) != Selection::Other
    }

    #[test]
    fn the_label_of_the_namespace_stands_in_for_that_of_a_route() {
        let mut ours = Revision::new("canary");
        let labels = |revision: &str| json!({REVISION: revision});
        let select = |ours: &Revision, own: &Value| ours.select(Kind::HttpRoute, "x", own);
        let route = |ours: &Revision, own: &Value| select(ours, own) != Selection::Other;
        assert!(ours.namespace(&"x".into(), Some(&labels("stable"))) && ours.reads_namespaces(Kind::HttpRoute));
        assert!(!ours.namespace(&"x".into(), Some(&labels("stable"))), "known already");
        assert!(!route(&ours, &json!({})) && ours.select(Kind::HttpRoute, "y", &json!({})) == Selection::All);
        assert_eq!(ours.select(Kind::InferencePool, "x", &json!({})), Selection::Other);
        assert_eq!(select(&ours, &labels("canary")), Selection::Own, "its own label precedes");
        assert_eq!(select(&ours, &labels("")), Selection::All, "an empty one, too");
        assert!(admits(&ours, &json!({})) && !ours.reads_namespaces(Kind::VirtualService));
        assert!(ours.namespace(&"x".into(), Some(&labels("canary"))));
        assert_eq!(select(&ours, &json!({})), Selection::Own);
        assert!(!route(&ours, &labels("stable")));
        assert!(ours.namespace(&"x".into(), None) && !ours.namespace(&"x".into(), Some(&json!({}))));
        assert!(route(&ours, &json!({})) && !ours.reads_namespaces(Kind::HttpRoute));
    }

    #[test]
    fn objects_are_selected_by_revision_or_tag() {
        let mut ours = Revision::new("canary");
        assert!(admits(&ours, &json!({})) && admits(&ours, &Value::Null) && admits(&ours, &json!({REVISION: ""})));
        assert!(admits(&ours, &json!({REVISION: "canary"})) && !admits(&ours, &json!({REVISION: "default"})));
        let webhook: Arc<str> = "istio-revision-tag-prod".into();
        assert!(!ours.tag(&webhook, Some(&json!({REVISION: "stable", TAG: "prod"}))));
        assert!(ours.tag(&webhook, Some(&json!({REVISION: "canary", TAG: "prod"}))));
        assert!(admits(&ours, &json!({REVISION: "prod"})));
        assert!(
            !ours.tag(&"other".into(), Some(&json!({REVISION: "canary", TAG: "prod"}))),
            "the tag is known already"
        );
        assert!(!ours.tag(&webhook, None), "the other one stays");
        assert!(ours.tag(&"other".into(), None) && !admits(&ours, &json!({REVISION: "prod"})));
        assert!(admits(&Revision::new(""), &json!({REVISION: "default"})));
    }

    #[test]
    fn the_default_tag_names_the_default_revision() {
        let mut ours = Revision::new("");
        assert_eq!(ours.default(), None);
        let webhook: Arc<str> = "istio-revision-tag-default".into();
        ours.tag(&webhook, Some(&json!({REVISION: "canary", TAG: "default"})));
        assert_eq!(ours.default().map(|name| &**name), Some("canary"));
        ours.tag(&webhook, Some(&json!({REVISION: "default", TAG: "default"})));
        assert_eq!(ours.default().map(|name| &**name), Some("default"));
        ours.tag(&webhook, None);
        assert_eq!(ours.default(), None);
    }

    #[test]
    fn kinds_are_ignored_by_pattern_with_exceptions() {
        let kinds = Kinds::new("*.istio.io, pods.", "sidecars.networking.istio.io");
        assert!(!kinds.reads("virtualservices", "networking.istio.io") && !kinds.reads("pods", ""));
        assert!(kinds.reads("sidecars", "networking.istio.io") && kinds.reads("services", ""));
        assert!(Kinds::new("", "").reads("pods", "") && !Kinds::new("*", "").reads("pods", ""));
    }
}
