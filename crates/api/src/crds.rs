//! The built-in CRDs as read-only objects. They are not in the store.

use config::Timestamp;
use config::schema::{self, definitions};
use serde_json::{Value, json};
use store::{GroupResource, Key, Stored};

use crate::discovery::hash;
use crate::kinds::CRD_GROUP;

/// All CRDs by name. Their resource version is that of an empty store.
pub(crate) fn objects(made: Timestamp) -> Vec<Stored> {
    let mut objects: Vec<Stored> = definitions()
        .iter()
        .filter(|kind| !kind.builtin)
        .map(|kind| {
            let name = format!("{}.{}", kind.plural, kind.group);
            let mut object = schema::crd(kind);
            let versions = kind.versions[0].version;
            let names = object["spec"]["names"].clone();
            let uid = uid(&name);
            object["metadata"]["name"] = name.as_str().into();
            object["metadata"]["uid"] = uid.into();
            object["metadata"]["creationTimestamp"] = made.to_string().into();
            object["metadata"]["generation"] = 1.into();
            object["status"] = json!({
                "acceptedNames": names,
                "storedVersions": [versions],
                "conditions": [
                    condition("NamesAccepted", "NoConflicts", "no conflicts found", made),
                    condition("Established", "InitialNamesAccepted", "the kind is built in and served", made),
                ],
            });
            Stored::new(Key::new(resource(), "", name), 1, object)
        })
        .collect();
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    objects
}

/// The type.
pub(crate) fn resource() -> GroupResource {
    GroupResource::new(CRD_GROUP, "customresourcedefinitions")
}

fn condition(kind: &str, reason: &str, message: &str, since: Timestamp) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": since.to_string(),
    })
}

/// Equal on every replica and after restarts.
fn uid(name: &str) -> String {
    let hash = hash(name.as_bytes()).to_ascii_lowercase();
    format!("{}-{}-8{}-a{}-{}", &hash[..8], &hash[8..12], &hash[12..15], &hash[15..18], &hash[18..30])
}
