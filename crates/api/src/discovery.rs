//! Discovery of groups, versions and types, in the legacy and the aggregated form.

use config::schema::Definition;
use http::header::{ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::answer::Answer;
use crate::body::Body;
use crate::error::ApiError;
use crate::kinds;
use crate::media;

/// Verbs of stored types, sorted as in Kubernetes.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The same verbs in the order that Kubernetes uses for custom resources.
const CRD_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
const SUB_VERBS: [&str; 3] = ["get", "patch", "update"];

/// A group with its versions, preferred version first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub name: &'static str,
    pub versions: Vec<&'static str>,
}

/// All groups: the core group first, then by name.
pub(crate) fn groups() -> Vec<Group> {
    let kinds = kinds::all().flat_map(|kind| kind.versions.iter().map(|served| (kind.group, served.version)));
    let reviews = kinds::REVIEWS.iter().map(|review| (review.group, "v1"));
    let mut groups: Vec<Group> = Vec::new();
    for (name, version) in kinds.chain(reviews) {
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) if group.versions.contains(&version) => {}
            Some(group) => group.versions.push(version),
            None => groups.push(Group { name, versions: vec![version] }),
        }
    }
    for group in &mut groups {
        group.versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
    }
    groups.sort_by_key(|group| group.name);
    groups
}

/// Sorts versions as Kubernetes does: `v2` > `v1` > `v1beta2` > `v1beta1` > `v1alpha1`.
fn rank(version: &str) -> (u8, u32, u32) {
    let digits = version.trim_start_matches('v');
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let major = digits[..end].parse().unwrap_or(0);
    let rest = &digits[end..];
    let minor = |prefix: &str| rest.strip_prefix(prefix).and_then(|n| n.parse().ok());
    match (rest, minor("beta"), minor("alpha")) {
        ("", ..) => (2, major, 0),
        (_, Some(minor), _) => (1, major, minor),
        (_, _, minor) => (0, major, minor.unwrap_or(0)),
    }
}

/// `/api`.
pub(crate) fn core(headers: &HeaderMap, read_only: bool) -> Result<Answer, ApiError> {
    let versions = json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] });
    choose(headers, versions, read_only, |group| group.name.is_empty())
}

/// `/apis`.
pub(crate) fn all(headers: &HeaderMap, read_only: bool) -> Result<Answer, ApiError> {
    let groups = groups();
    let named = groups.iter().filter(|group| !group.name.is_empty());
    let named: Vec<Value> = named.map(group_value).collect();
    let list = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": named });
    choose(headers, list, read_only, |group| !group.name.is_empty())
}

/// Answers with the legacy document, or with the aggregated one of the wanted groups.
fn choose(
    headers: &HeaderMap,
    legacy: Value,
    read_only: bool,
    wanted: impl Fn(&Group) -> bool,
) -> Result<Answer, ApiError> {
    if !media::prefers_aggregated(headers)? {
        return tagged(headers, "application/json", &legacy);
    }
    let groups = groups();
    let items: Vec<Value> =
        groups.iter().filter(|group| wanted(group)).map(|group| group_discovery(group, read_only)).collect();
    let value = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    tagged(headers, media::AGGREGATED, &value)
}

/// `/apis/GROUP`.
pub(crate) fn group(headers: &HeaderMap, name: &str) -> Result<Answer, ApiError> {
    let group = groups().into_iter().find(|group| group.name == name && !name.is_empty());
    let mut value = group_value(&group.ok_or_else(ApiError::no_such_path)?);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    tagged(headers, "application/json", &value)
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn resources(headers: &HeaderMap, group: &str, version: &str, read_only: bool) -> Result<Answer, ApiError> {
    let entries = resources_of(group, version, read_only);
    if entries.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let resources: Vec<Value> = entries.iter().flat_map(Resource::legacy).collect();
    let group_version = group_version(group, version);
    let value = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    });
    tagged(headers, "application/json", &value)
}

/// A cacheable response with an `ETag`.
pub(crate) fn tagged(headers: &HeaderMap, media: &'static str, value: &Value) -> Result<Answer, ApiError> {
    let body = value.to_string();
    let tag = format!("\"{}\"", hash(body.as_bytes()));
    let known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = match known {
        true => Answer::of(media, StatusCode::NOT_MODIFIED, Body::pieces(Vec::new())),
        false => Answer::of(media, StatusCode::OK, Body::whole(body)),
    };
    let tag = HeaderValue::from_str(&tag).map_err(|error| ApiError::internal(error.to_string()))?;
    answer.headers.insert(ETAG, tag);
    answer.headers.insert(VARY, HeaderValue::from_static("Accept"));
    answer.headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("public"));
    Ok(answer)
}

/// A hash as text.
pub(crate) fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn group_discovery(group: &Group, read_only: bool) -> Value {
    let version = |version: &&'static str| {
        let resources = resources_of(group.name, version, read_only);
        let resources: Vec<Value> = resources.iter().map(|resource| resource.aggregated(group.name, version)).collect();
        json!({ "version": version, "resources": resources, "freshness": "Current" })
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    let metadata = match group.name {
        "" => json!({}),
        name => json!({ "name": name }),
    };
    json!({ "metadata": metadata, "versions": versions })
}

/// A type of objects, or a review.
struct Resource {
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    verbs: &'static [&'static str],
    /// The definition of stored types.
    stored: Option<&'static Definition>,
    /// Whether clients may only read.
    read_only: bool,
}

/// The types of a version by name, then its reviews. If clients may only read, no other verbs are offered.
fn resources_of(group: &str, version: &str, read_only: bool) -> Vec<Resource> {
    let kinds = kinds::all().filter(|kind| kind.group == group && kind.served(version).is_some());
    let mut all: Vec<Resource> = kinds
        .map(|kind| Resource {
            plural: kind.plural,
            singular: kind.singular,
            kind: kind.kind,
            namespaced: kind.namespaced,
            verbs: if read_only { &READ_VERBS } else { verbs(kind) },
            stored: Some(kind),
            read_only,
        })
        .collect();
    all.sort_by_key(|resource| resource.plural);
    let reviews = kinds::REVIEWS.iter().filter(|review| review.group == group && version == "v1");
    all.extend(reviews.map(|review| Resource {
        plural: review.plural,
        singular: review.singular,
        kind: review.kind,
        namespaced: review.namespaced,
        verbs: &["create"],
        stored: None,
        read_only,
    }));
    all
}

impl Resource {
    /// The entries of the type and its subresources in the legacy form.
    fn legacy(&self) -> Vec<Value> {
        let mut entry = json!({
            "name": self.plural, "singularName": self.singular, "namespaced": self.namespaced, "kind": self.kind,
            "verbs": self.verbs,
        });
        let Some(kind) = self.stored else { return vec![entry] };
        entry["storageVersionHash"] = storage_hash(kind).into();
        add_names(&mut entry, kind);
        let subresource = |sub: Subresource| {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced,
                "kind": sub.kind, "verbs": sub.verbs,
            });
            if sub.group != kind.group {
                entry["group"] = sub.group.into();
                entry["version"] = sub.version.into();
            }
            entry
        };
        let subresources = subresources(kind, self.read_only).into_iter().map(subresource);
        std::iter::once(entry).chain(subresources).collect()
    }

    /// The entry of the type with its subresources in the aggregated form.
    fn aggregated(&self, group: &str, version: &str) -> Value {
        let mut entry = json!({
            "resource": self.plural, "singularResource": self.singular, "verbs": self.verbs,
            "responseKind": { "group": group, "version": version, "kind": self.kind },
            "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
        });
        let Some(kind) = self.stored else { return entry };
        add_names(&mut entry, kind);
        let subresource = |sub: Subresource| {
            let version = if sub.group == kind.group { version } else { sub.version };
            json!({
                "subresource": sub.name, "verbs": sub.verbs,
                "responseKind": { "group": sub.group, "version": version, "kind": sub.kind },
            })
        };
        let subresources: Vec<Value> = subresources(kind, self.read_only).into_iter().map(subresource).collect();
        if !subresources.is_empty() {
            entry["subresources"] = subresources.into();
        }
        entry
    }
}

fn add_names(entry: &mut Value, kind: &Definition) {
    if !kind.short_names.is_empty() {
        entry["shortNames"] = kind.short_names.into();
    }
    if !kind.categories.is_empty() {
        entry["categories"] = kind.categories.into();
    }
}

fn verbs(kind: &Definition) -> &'static [&'static str] {
    match kind.builtin {
        _ if kinds::is_crd(kind) => &READ_VERBS,
        true => &VERBS,
        false => &CRD_VERBS,
    }
}

/// A subresource, with group, version and kind of its objects.
struct Subresource {
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
}

fn subresources(kind: &Definition, read_only: bool) -> Vec<Subresource> {
    let crd = kinds::is_crd(kind);
    let writable: &'static [&'static str] = if crd || read_only { &SUB_VERBS[..1] } else { &SUB_VERBS };
    let known = [
        (!crd, "history", "rutter.io", "v1", "History", &SUB_VERBS[..1]),
        (kind.kind == "Deployment", "scale", "autoscaling", "v1", "Scale", writable),
        (kind.status, "status", kind.group, kind.versions[0].version, kind.kind, writable),
    ];
    let served = known.into_iter().filter(|(served, ..)| *served);
    let subresource = |(_, name, group, version, kind, verbs)| Subresource { name, group, version, kind, verbs };
    served.map(subresource).collect()
}

fn group_value(group: &Group) -> Value {
    let version = |version: &&str| json!({ "groupVersion": group_version(group.name, version), "version": version });
    json!({
        "name": group.name,
        "versions": group.versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": version(&group.versions[0]),
    })
}

fn group_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

fn storage_hash(kind: &Definition) -> String {
    use base64::Engine as _;
    let digest = Sha256::digest(format!("{}/{}/{}", kind.group, kind.versions[0].version, kind.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions = ["v1alpha1", "v1beta1", "v2", "v1", "v1beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1"]);
    }

    #[tokio::test]
    async fn both_forms_have_the_same_types() {
        let mut accept = HeaderMap::new();
        let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        accept.insert(http::header::ACCEPT, media.parse().unwrap());
        let read = async |answer: Answer| serde_json::from_slice::<Value>(&answer.body.bytes().await).unwrap();
        let aggregated = read(all(&accept, false).unwrap()).await;
        let names = |list: &Value, field: &str| -> Vec<String> {
            let names = list.as_array().unwrap().iter().map(|entry| entry[field].as_str().unwrap().to_owned());
            names.filter(|name| !name.contains('/')).collect()
        };
        let mut seen = 0;
        for group in aggregated["items"].as_array().unwrap() {
            let name = group["metadata"]["name"].as_str().unwrap();
            for version in group["versions"].as_array().unwrap() {
                let plain = resources(&HeaderMap::new(), name, version["version"].as_str().unwrap(), false).unwrap();
                let plain = read(plain).await;
                assert_eq!(names(&plain["resources"], "name"), names(&version["resources"], "resource"));
                seen += 1;
            }
        }
        assert!(seen > 3);
        let tag = all(&accept, false).unwrap().headers[ETAG].clone();
        accept.insert(IF_NONE_MATCH, tag);
        assert_eq!(all(&accept, false).unwrap().status, StatusCode::NOT_MODIFIED);
    }
}
