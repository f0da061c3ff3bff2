//! Discovery of kinds.

use anyhow::Result;
use kube::core::discovery::v2::{APIGroupDiscovery, APIGroupDiscoveryList, APIResourceDiscovery};

use super::{Catalog, Kind, Request, Server};

/// Aggregated discovery, which Kubernetes serves since 1.30.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Discovers all kinds.
pub(super) async fn catalog(server: &Server) -> Result<Catalog> {
    let ask = |path: &'static str| server.send::<APIGroupDiscoveryList>(Request::get(path).accept(AGGREGATED));
    let (core, groups) = tokio::try_join!(ask("/api"), ask("/apis"))?;
    let groups = core.items.into_iter().chain(groups.items);
    Ok(Catalog { kinds: groups.flat_map(of_group).collect() })
}

/// The kinds of a group. The server lists the preferred version first.
fn of_group(group: APIGroupDiscovery) -> impl Iterator<Item = Kind> {
    let name = group.metadata.and_then(|meta| meta.name).unwrap_or_default();
    let resources = group.versions.into_iter().flat_map(|version| {
        let name = version.version.unwrap_or_default();
        version.resources.into_iter().map(move |resource| (name.clone(), resource))
    });
    resources.map(move |(version, resource)| of_resource(name.clone(), version, resource))
}

fn of_resource(group: String, version: String, resource: APIResourceDiscovery) -> Kind {
    Kind {
        group,
        version,
        kind: resource.response_kind.and_then(|response| response.kind).unwrap_or_default(),
        plural: resource.resource.unwrap_or_default(),
        singular: resource.singular_resource.unwrap_or_default().to_lowercase(),
        short_names: resource.short_names,
        categories: resource.categories,
        namespaced: resource.scope.as_deref() == Some("Namespaced"),
        verbs: resource.verbs,
    }
}
