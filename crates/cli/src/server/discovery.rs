//! Discovery of kinds: aggregated discovery, or one document per version for older servers.

use anyhow::Result;
use serde_json::Value as Json;

use super::{Catalog, Kind, Request, Server};

/// Prefers aggregated discovery in either version; accepts the list of groups.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// Discovers all kinds.
pub(super) async fn catalog(server: &Server) -> Result<Catalog> {
    let ask = |path: &'static str| server.send::<Json>(Request::get(path).accept(AGGREGATED));
    let (core, groups) = tokio::try_join!(ask("/api"), ask("/apis"))?;
    let mut kinds = Vec::new();
    for document in [core, groups] {
        match document["kind"].as_str() {
            Some("APIGroupDiscoveryList") => kinds.extend(items(&document["items"]).flat_map(of_group)),
            Some("APIVersions") => {
                for version in items(&document["versions"]).filter_map(Json::as_str) {
                    legacy(server, "", version, &mut kinds).await?;
                }
            }
            _ => {
                for group in items(&document["groups"]) {
                    let name = text(&group["name"]);
                    for version in preferred_first(group) {
                        legacy(server, &name, &version, &mut kinds).await?;
                    }
                }
            }
        }
    }
    Ok(Catalog { kinds })
}

/// The kinds of a group in an aggregated document. The server lists the preferred version first.
fn of_group(group: &Json) -> Vec<Kind> {
    let name = text(&group["metadata"]["name"]);
    let versions = items(&group["versions"]);
    let kinds = versions.flat_map(|version| {
        let name = name.clone();
        items(&version["resources"]).map(move |resource| Kind {
            group: name.clone(),
            version: text(&version["version"]),
            kind: text(&resource["responseKind"]["kind"]),
            plural: text(&resource["resource"]),
            singular: text(&resource["singularResource"]).to_lowercase(),
            short_names: texts(&resource["shortNames"]),
            categories: texts(&resource["categories"]),
            namespaced: resource["scope"] == "Namespaced",
            verbs: texts(&resource["verbs"]),
            subresources: items(&resource["subresources"])
                .map(|sub| text(&sub["subresource"]))
                .collect(),
        })
    });
    kinds.collect()
}

async fn legacy(server: &Server, group: &str, version: &str, kinds: &mut Vec<Kind>) -> Result<()> {
    let path = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    // An unavailable aggregated API must not break discovery of the other groups.
    let Ok(document) = server.get(&path).await else {
        return Ok(());
    };
    let (subs, mains): (Vec<&Json>, Vec<&Json>) =
        items(&document["resources"]).partition(|resource| text(&resource["name"]).contains('/'));
    for resource in mains {
        let plural = text(&resource["name"]);
        let prefix = format!("{plural}/");
        let subresources = subs
            .iter()
            .filter_map(|sub| text(&sub["name"]).strip_prefix(&prefix).map(str::to_owned));
        kinds.push(Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(&resource["kind"]),
            singular: text(&resource["singularName"]),
            short_names: texts(&resource["shortNames"]),
            categories: texts(&resource["categories"]),
            namespaced: resource["namespaced"] == true,
            verbs: texts(&resource["verbs"]),
            subresources: subresources.collect(),
            plural,
        });
    }
    Ok(())
}

fn preferred_first(group: &Json) -> Vec<String> {
    let preferred = text(&group["preferredVersion"]["version"]);
    let mut versions: Vec<String> = items(&group["versions"])
        .map(|version| text(&version["version"]))
        .collect();
    versions.sort_by_key(|version| *version != preferred);
    versions
}

fn items(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Json) -> Vec<String> {
    items(value).filter_map(Json::as_str).map(str::to_owned).collect()
}
