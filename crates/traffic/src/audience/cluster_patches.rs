//! Patches of few outbound clusters. They do not give a proxy a list of all clusters of its own: those for all proxies are added by
//! every list, and those for some workloads or a namespace are in their own lists, which replace the shared clusters.

use std::collections::{BTreeMap, BTreeSet};

use flow::Reads;
use model::audience::{FilterRef, Filters};
use model::service::ObjectId;
use registry::inputs::Mesh;

use super::filters::{FilterScope, FilterScopes, FiltersByNamespace, PatchScope};

/// What adds a patch.
#[derive(PartialEq, Eq)]
pub(super) enum AddedBy {
    /// The audiences of the proxies that it is for.
    Audiences,
    /// The own lists of the workloads that it is for. They share the list of clusters without the patch.
    OwnLists,
    /// Every list of clusters ([`with_common`]), because it is for all proxies. Their audiences do not name it, so that it does not give
    /// them other lists.
    EveryList,
}

impl AddedBy {
    pub(super) fn of(scope: &FilterScope, patch: &PatchScope, root: &str) -> AddedBy {
        let is_conditional = patch.version.is_some() || !patch.metadata.is_empty();
        match (patch.is_of_few_clusters(), scope.is_for_some(root)) {
            (true, true) => AddedBy::OwnLists,
            (true, false) if !is_conditional => AddedBy::EveryList,
            _ => AddedBy::Audiences,
        }
    }
}

flow::rule! {
    /// The patches of few outbound clusters that are for all proxies, in the order in which they are applied.
    pub CommonPatches: () => Filters = "common cluster patches", derive_common_patches;
}

fn derive_common_patches(cx: &Reads<'_>, (): &()) -> Option<Filters> {
    let root = &cx.get::<Mesh>(&())?.config.root_namespace;
    let ids = cx.get::<FiltersByNamespace>(root)?;
    Some(in_order(ids.iter().filter_map(|id| {
        let scope = cx.get::<FilterScopes>(id)?;
        let is_common = |patch: &PatchScope| AddedBy::of(&scope, patch, root) == AddedBy::EveryList;
        Some((scope.rank(root), scope.refer(id, &is_common)?))
    })))
}

fn in_order<R: Ord>(filters: impl Iterator<Item = (R, FilterRef)>) -> Filters {
    let mut ranked: Vec<_> = filters.collect();
    ranked.sort_by(|(a, _), (b, _)| a.cmp(b));
    ranked.into_iter().map(|(_, filter)| filter).collect()
}

/// The patches for a list of clusters: those of its audience, and [`CommonPatches`]. In the order in which they are applied.
pub fn with_common(cx: &Reads<'_>, filters: &Filters) -> Filters {
    let common = cx.get::<CommonPatches>(&()).filter(|common| !common.is_empty());
    let (Some(common), Some(mesh)) = (common, cx.get::<Mesh>(&())) else { return filters.clone() };
    let mut all: BTreeMap<&ObjectId, BTreeSet<u16>> = BTreeMap::new();
    for FilterRef { id, patches } in filters.iter().chain(common.iter()) {
        all.entry(id).or_default().extend(patches.iter());
    }
    in_order(all.into_iter().filter_map(|(id, patches)| {
        let rank = cx.get::<FilterScopes>(id)?.rank(&mesh.config.root_namespace);
        Some((rank, FilterRef { id: id.clone(), patches: patches.into_iter().collect() }))
    }))
}

/// The patches of an own list of clusters that change outbound clusters.
pub struct OutboundPatches {
    /// Patches that are part of the shared list, too.
    pub shared: Filters,
    /// Patches that are not. Each is for one cluster or service, or adds a cluster.
    pub own: Filters,
}

/// Divides the patches of an own list of clusters. `None` if they change no shared cluster.
pub fn outbound_patches(cx: &Reads<'_>, filters: &Filters) -> Option<OutboundPatches> {
    let mesh = cx.get::<Mesh>(&())?;
    let root = &mesh.config.root_namespace;
    let (mut shared, mut own) = (Vec::new(), Vec::new());
    for FilterRef { id, patches } in filters.iter() {
        let Some(scope) = cx.get::<FilterScopes>(id) else { continue };
        let add = |to: &mut Vec<FilterRef>, by: AddedBy| {
            let wanted = |patch: &PatchScope| {
                let is_outbound = patches.contains(&patch.index) && patch.directions.0;
                is_outbound && AddedBy::of(&scope, patch, root) == by
            };
            to.extend(scope.refer(id, &wanted));
        };
        add(&mut shared, AddedBy::Audiences);
        add(&mut own, AddedBy::OwnLists);
    }
    (!own.is_empty()).then(|| OutboundPatches { shared: shared.into(), own: own.into() })
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<CommonPatches>();
}
