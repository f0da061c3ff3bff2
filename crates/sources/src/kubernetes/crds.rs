//! The kinds that the server serves: from its CustomResourceDefinitions, or from discovery if those cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::schema::Definition;
use kube::Client;
use serde_json::Value;

/// The relevant content of a CustomResourceDefinition.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Served {
    group: Arc<str>,
    plural: Arc<str>,
    versions: BTreeSet<String>,
}

/// The kinds of CustomResourceDefinitions, without built-in kinds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Crds(BTreeMap<Arc<str>, Served>);

impl Crds {
    /// Updates a definition: served when it is established, and no longer when it is being deleted.
    pub(crate) fn put(&mut self, name: &Arc<str>, crd: &Value) {
        match served(crd) {
            Some(served) => drop(self.0.insert(name.clone(), served)),
            None => drop(self.0.remove(name)),
        }
    }

    /// Removes a definition.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The version in which a kind is read: the first supported version that is served.
    pub(crate) fn version(&self, definition: &Definition) -> Option<&'static str> {
        if definition.builtin {
            return definition.versions.first().map(|served| served.version);
        }
        let of = |served: &&Served| *served.group == *definition.group && *served.plural == *definition.plural;
        let served = self.0.values().find(of)?;
        let mut versions = definition.versions.iter().map(|served| served.version);
        versions.find(|version| served.versions.contains(*version))
    }
}

fn served(crd: &Value) -> Option<Served> {
    let holds = |what: &str| {
        let conditions = crd["status"]["conditions"].as_array()?;
        let one = conditions.iter().find(|condition| condition["type"] == what)?;
        Some(one["status"] == "True")
    };
    if holds("Established") != Some(true) || holds("Terminating") == Some(true) {
        return None;
    }
    let spec = &crd["spec"];
    let versions = spec["versions"].as_array()?.iter();
    let versions = versions.filter(|version| version["served"] == true);
    Some(Served {
        group: spec["group"].as_str()?.into(),
        plural: spec["names"]["plural"].as_str()?.into(),
        versions: versions.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect(),
    })
}

/// Asks the server which of these kinds it serves. `None` if it does not answer.
pub(crate) async fn discover(client: &Client, definitions: Vec<&'static Definition>) -> Option<Crds> {
    let mut crds = Crds::default();
    let groups = client.list_api_groups().await.ok()?;
    for definition in definitions.into_iter().filter(|definition| !definition.builtin) {
        let Some(group) = groups.groups.iter().find(|group| group.name == definition.group) else {
            continue;
        };
        let mut versions = BTreeSet::new();
        for version in &group.versions {
            let ours = definition.versions.iter().any(|served| served.version == version.version);
            if !ours {
                continue;
            }
            let list = client.list_api_group_resources(&version.group_version).await.ok()?;
            if list.resources.iter().any(|resource| resource.name == definition.plural) {
                versions.insert(version.version.clone());
            }
        }
        if !versions.is_empty() {
            let (group, plural): (Arc<str>, Arc<str>) = (definition.group.into(), definition.plural.into());
            let name: Arc<str> = format!("{plural}.{group}").into();
            crds.0.insert(name, Served { group, plural, versions });
        }
    }
    Some(crds)
}

#[cfg(test)]
mod tests {
    use config::schema::find;
    use serde_json::json;

    use super::*;

    fn crd(versions: &[(&str, bool)], conditions: &[(&str, &str)]) -> Value {
        let versions: Vec<Value> =
            versions.iter().map(|(name, served)| json!({"name": name, "served": served})).collect();
        let conditions: Vec<Value> =
            conditions.iter().map(|(what, status)| json!({"type": what, "status": status})).collect();
        json!({
            "spec": {"group": "networking.istio.io", "names": {"plural": "sidecars"}, "versions": versions},
            "status": {"conditions": conditions},
        })
    }

    #[test]
    fn an_established_kind_is_read_in_the_preferred_version() {
        let sidecars = find("networking.istio.io", "sidecars").unwrap();
        let name: Arc<str> = "sidecars.networking.istio.io".into();
        let mut crds = Crds::default();
        crds.put(&name, &crd(&[("v1", true)], &[]));
        assert_eq!(crds.version(sidecars), None);
        crds.put(&name, &crd(&[("v1alpha3", true), ("v1", true)], &[("Established", "True")]));
        assert_eq!(crds.version(sidecars), Some("v1"));
        crds.put(&name, &crd(&[("v1alpha3", true), ("v1", false)], &[("Established", "True")]));
        assert_eq!(crds.version(sidecars), Some("v1alpha3"));
        crds.put(&name, &crd(&[("v1", true)], &[("Established", "True"), ("Terminating", "True")]));
        assert_eq!(crds.version(sidecars), None);
        assert_eq!(crds.version(find("", "pods").unwrap()), Some("v1"), "every server serves core kinds");
    }
}
