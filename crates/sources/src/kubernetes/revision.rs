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

/// The revision of this control plane and its tags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Revision {
    name: Arc<str>,
    /// The tags of this revision, by the object that defines them.
    tags: BTreeMap<Arc<str>, Arc<str>>,
    /// The revisions of the tag `default`, by the object that defines it.
    defaults: BTreeMap<Arc<str>, Arc<str>>,
}

impl Revision {
    /// A revision; an empty name means the default revision.
    pub(crate) fn new(name: &str) -> Revision {
        Revision {
            name: if name.is_empty() { DEFAULT } else { name }.into(),
            tags: BTreeMap::new(),
            defaults: BTreeMap::new(),
        }
    }

    /// The revision of the tag `default`; `None` if the tag is not defined.
    pub(crate) fn default(&self) -> Option<&Arc<str>> {
        self.defaults.values().next()
    }

    /// Whether revision labels apply to a kind: to users' configuration, but not to platform objects.
    pub(crate) fn applies_to(kind: Kind) -> bool {
        kind.is_complete()
    }

    /// Whether this revision selects an object with these labels.
    pub(crate) fn admits(&self, labels: &Value) -> bool {
        match labels[REVISION].as_str() {
            None | Some("") => true,
            Some(label) => *label == *self.name || self.tags.values().any(|tag| **tag == *label),
        }
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

    #[test]
    fn objects_are_selected_by_revision_or_tag() {
        let mut ours = Revision::new("canary");
        assert!(ours.admits(&json!({})) && ours.admits(&Value::Null) && ours.admits(&json!({REVISION: ""})));
        assert!(ours.admits(&json!({REVISION: "canary"})) && !ours.admits(&json!({REVISION: "default"})));
        let webhook: Arc<str> = "istio-revision-tag-prod".into();
        assert!(!ours.tag(&webhook, Some(&json!({REVISION: "stable", TAG: "prod"}))));
        assert!(ours.tag(&webhook, Some(&json!({REVISION: "canary", TAG: "prod"}))));
        assert!(ours.admits(&json!({REVISION: "prod"})));
        assert!(
            !ours.tag(&"other".into(), Some(&json!({REVISION: "canary", TAG: "prod"}))),
            "the tag is known already"
        );
        assert!(!ours.tag(&webhook, None), "the other one stays");
        assert!(ours.tag(&"other".into(), None) && !ours.admits(&json!({REVISION: "prod"})));
        assert!(Revision::new("").admits(&json!({REVISION: "default"})));
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
