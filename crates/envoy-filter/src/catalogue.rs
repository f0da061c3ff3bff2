//! The catalogues of clusters and listeners for audiences with patches.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::istio::envoy_filter::{ApplyTo, PatchContext, PatchOperation};
use flow::Reads;
use model::audience::{
    ClusterAudience, ClusterKey, Filters, ListenerAudience, PatchedCluster, PatchedListener, ProxyClass, ResourceKey,
    Section,
};
use model::listener::{Bind, ChainKind, ListenerSpec};
use traffic::Catalogue;
use traffic::audience::{outbound_patches, shared_clusters, with_common};
use traffic::clusters::ClusterCatalogue;
use traffic::listeners::ListenerCatalogue;

use crate::budget::Budget;
use crate::compile::PatchId;
use crate::compile::{Chosen, chosen, refer};
use crate::matching::{ClusterFacts, is_virtual, listener_match, may_match, outbound};
use crate::resources_of::{context_of, name_of};

/// The catalogue of an audience with patches.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PatchedCatalogue {
    /// The catalogue.
    pub catalogue: Arc<Catalogue>,
    /// The patches that it was derived with.
    pub patches: Filters,
    /// The patches that removed a resource.
    pub removed: Box<[PatchId]>,
    /// The patches that would add a resource with a name that already exists, with the name.
    pub taken: Box<[(PatchId, Arc<str>)]>,
    /// The patches that were left out of resources because the EnvoyFilter would add too much.
    pub(crate) excessive: Excessive,
}

/// Patches that were left out of resources: their number, and the first by name.
pub(crate) type Excessive = BTreeMap<PatchId, (usize, Arc<str>)>;

impl PatchedCatalogue {
    fn new(patches: &Filters, changed: Changed, added: impl Iterator<Item = (Arc<str>, PatchId)>) -> PatchedCatalogue {
        let Changed { mut entries, removed, spending } = changed;
        let added: Vec<(Arc<str>, PatchId)> = added.collect();
        let key = |patch: &PatchId| ResourceKey::Added(patch.filter.clone(), patch.index);
        entries.extend(added.iter().map(|(name, patch)| (name.clone(), key(patch))));
        let catalogue = Catalogue::new(entries);
        let taken = added.into_iter().filter(|(name, patch)| catalogue.get(name) != Some(&key(patch)));
        PatchedCatalogue {
            taken: taken.map(|(name, patch)| (patch, name)).collect(),
            catalogue: Arc::new(catalogue),
            patches: patches.clone(),
            removed: removed.into_iter().collect(),
            excessive: spending.excessive,
        }
    }
}

/// The entries of a catalogue after patches that remove or change a resource.
struct Changed {
    entries: Vec<(Arc<str>, ResourceKey)>,
    /// The patches that removed any.
    removed: BTreeSet<PatchId>,
    spending: Spending,
}

/// The bytes that patches add to the resources of a catalogue, in the order of the names.
struct Spending {
    budget: Budget,
    excessive: Excessive,
}

impl Spending {
    fn new() -> Spending {
        Spending { budget: Budget::of_many(), excessive: Excessive::new() }
    }

    /// The patches that may be applied to the resource of this name.
    fn admitted<'p>(&mut self, name: &Arc<str>, patches: Vec<&'p Chosen>) -> Vec<&'p Chosen> {
        let admitted = patches.into_iter().filter(|patch| {
            let covered = self.budget.admit(patch);
            if !covered {
                self.excessive.entry(patch.id.clone()).or_insert_with(|| (0, name.clone())).0 += 1;
            }
            covered
        });
        admitted.collect()
    }
}

flow::rule! {
    /// The clusters of an audience, or a section of them, with its patches and those for all proxies. An own section only has the
    /// latter if its patches also change shared clusters.
    pub PatchedClusterCatalogue: (Section, Arc<ClusterAudience>) => PatchedCatalogue = "patched cluster catalogue", derive_patched_cluster_catalogue;
}

fn derive_patched_cluster_catalogue(
    cx: &Reads<'_>,
    (section, audience): &(Section, Arc<ClusterAudience>),
) -> Option<PatchedCatalogue> {
    let plain = cx.get::<ClusterCatalogue>(&(*section, audience.plain()))?;
    if *section == Section::Own {
        return match outbound_patches(cx, &audience.filters) {
            Some(_) => own_clusters(cx, audience, &plain),
            None => Some(patched_clusters(cx, audience, &audience.filters, plain.entries.iter())),
        };
    }
    let filters = with_common(cx, &audience.filters);
    Some(match filters.is_empty() {
        true => PatchedCatalogue { catalogue: plain, ..PatchedCatalogue::default() },
        false => patched_clusters(cx, audience, &filters, plain.entries.iter()),
    })
}

/// The own clusters of a sidecar whose patches also change shared clusters.
fn own_clusters(cx: &Reads<'_>, audience: &Arc<ClusterAudience>, plain: &Catalogue) -> Option<PatchedCatalogue> {
    let rest = cx.get::<SelectivelyPatchedClusters>(&Arc::new(audience.shared(&audience.filters)?))?;
    let ports = plain.entries.iter().filter(|(_, key)| is_of_port(key));
    let mut changed = changed_clusters(audience, &chosen(cx, &audience.filters), ports);
    let mut added = Vec::new();
    for (name, key) in &rest.catalogue.entries {
        match key {
            ResourceKey::Added(filter, index) => {
                added.push((name.clone(), PatchId { filter: filter.clone(), index: *index }));
            }
            key => changed.entries.push((name.clone(), key.clone())),
        }
    }
    changed.removed.extend(rest.removed.iter().cloned());
    for (patch, (count, first)) in &rest.excessive {
        changed.spending.excessive.entry(patch.clone()).or_insert_with(|| (0, first.clone())).0 += count;
    }
    let all = PatchedCatalogue::new(&audience.filters, changed, added.into_iter());
    Some(PatchedCatalogue { taken: rest.taken.iter().chain(&all.taken).cloned().collect(), ..all })
}

/// Whether this is the key of the inbound cluster of a port.
fn is_of_port(key: &ResourceKey) -> bool {
    matches!(key, ResourceKey::Cluster(cluster) if matches!(cluster.without_override(), ClusterKey::Inbound { .. }))
}

flow::rule! {
    /// The own clusters of sidecars whose patches also change shared clusters, without those of inbound ports: the clusters that the
    /// namespace has otherwise, and the shared ones that the patches change. The audience has no inbound ports.
    pub SelectivelyPatchedClusters: Arc<ClusterAudience> => PatchedCatalogue = "selectively patched clusters", derive_selectively_patched_clusters;
}

fn derive_selectively_patched_clusters(cx: &Reads<'_>, audience: &Arc<ClusterAudience>) -> Option<PatchedCatalogue> {
    let outbound = outbound_patches(cx, &audience.filters)?;
    let own = cx.get::<ClusterCatalogue>(&(Section::Own, audience.plain()))?;
    let shared = Arc::new(shared_clusters(cx, audience, &outbound.shared)?);
    let plain = cx.get::<ClusterCatalogue>(&(Section::Shared, shared.plain()))?;

    let filters = with_common(cx, &audience.filters);
    let patches = chosen(cx, &filters);
    let added = added(&audience.class, ApplyTo::Cluster, &patches).map(|(name, _)| name);
    let replaced = own.entries.iter().map(|(name, _)| name.clone()).chain(added);
    let replaced = replaced.filter_map(|name| Some((plain.get(&name)?.clone(), name)));
    let mut selective = chosen(cx, &outbound.own);
    selective.retain(|patch| patch.operation.merges() || patch.operation == PatchOperation::Remove);
    let patched = plain.entries.iter().filter(|(name, key)| match key {
        ResourceKey::Cluster(cluster) => !matching_cluster(audience, name, cluster, &selective).is_empty(),
        _ => false,
    });
    let below = Catalogue::new(replaced.map(|(key, name)| (name, key)).chain(patched.cloned()).collect());
    let all = patched_clusters(cx, audience, &filters, own.over(&below).into_iter());
    let below = patched_clusters(cx, &shared, &with_common(cx, &shared.filters), below.entries.iter()).catalogue;
    Some(PatchedCatalogue { catalogue: Arc::new(all.catalogue.beside(&below)), ..all })
}

/// The catalogue of an audience after these patches instead of its own.
fn patched_clusters<'e>(
    cx: &Reads<'_>,
    audience: &ClusterAudience,
    filters: &Filters,
    plain: impl Iterator<Item = &'e (Arc<str>, ResourceKey)>,
) -> PatchedCatalogue {
    let patches = chosen(cx, filters);
    let changed = changed_clusters(audience, &patches, plain);
    PatchedCatalogue::new(filters, changed, added(&audience.class, ApplyTo::Cluster, &patches))
}

/// The clusters after patches that remove and merge.
fn changed_clusters<'e>(
    audience: &ClusterAudience,
    patches: &[Chosen],
    plain: impl Iterator<Item = &'e (Arc<str>, ResourceKey)>,
) -> Changed {
    let (mut removed, mut spending) = (BTreeSet::new(), Spending::new());
    let mut entries = Vec::new();
    for (name, key) in plain {
        let ResourceKey::Cluster(cluster) = key else {
            entries.push((name.clone(), key.clone()));
            continue;
        };
        let matching = matching_cluster(audience, name, cluster, patches);
        if is_removed(&matching, |_| true, &mut removed) {
            continue;
        }
        let merged = matching.into_iter().filter(|patch| patch.operation.merges()).collect();
        let merged = spending.admitted(name, merged);
        let key = match merged.is_empty() {
            true => key.clone(),
            false => ResourceKey::PatchedCluster(Arc::new(PatchedCluster {
                cluster: cluster.clone(),
                filters: refer(merged.into_iter()),
            })),
        };
        entries.push((name.clone(), key));
    }
    Changed { entries, removed, spending }
}

flow::rule! {
    /// The listeners of an audience with patches, or a section of them.
    pub PatchedListenerCatalogue: (Section, Arc<ListenerAudience>) => PatchedCatalogue = "patched listener catalogue", derive_patched_listener_catalogue;
}

fn derive_patched_listener_catalogue(
    cx: &Reads<'_>,
    (section, audience): &(Section, Arc<ListenerAudience>),
) -> Option<PatchedCatalogue> {
    let plain = cx.get::<ListenerCatalogue>(&(*section, audience.plain()))?;
    let patches = chosen(cx, &audience.filters);
    let (mut removed, mut spending) = (BTreeSet::new(), Spending::new());
    let mut entries = Vec::with_capacity(plain.entries.len());
    for (name, key) in &plain.entries {
        let ResourceKey::Listener(listener) = key else {
            entries.push((name.clone(), key.clone()));
            continue;
        };
        let matching: Vec<&Chosen> = patches.iter().filter(|patch| may_change(patch, listener)).collect();
        if is_removed(&matching, |patch| patch.apply_to == ApplyTo::Listener, &mut removed) {
            continue;
        }
        let matching = spending.admitted(name, matching);
        let key = match matching.is_empty() {
            true => key.clone(),
            false => ResourceKey::PatchedListener(Arc::new(PatchedListener {
                listener: listener.clone(),
                filters: refer(matching.into_iter()),
            })),
        };
        entries.push((name.clone(), key));
    }
    let changed = Changed { entries, removed, spending };
    Some(PatchedCatalogue::new(&audience.filters, changed, added(&audience.class, ApplyTo::Listener, &patches)))
}

/// Whether one of these patches removes the resource. Adds the patches that do to `removed`.
fn is_removed(matching: &[&Chosen], is_of: impl Fn(&Chosen) -> bool, removed: &mut BTreeSet<PatchId>) -> bool {
    let removing = matching.iter().filter(|patch| patch.operation == PatchOperation::Remove && is_of(patch));
    let mut found = false;
    for patch in removing {
        found = true;
        removed.insert(patch.id.clone());
    }
    found
}

/// The patches that match a cluster.
fn matching_cluster<'a>(
    audience: &ClusterAudience,
    name: &str,
    cluster: &ClusterKey,
    patches: &'a [Chosen],
) -> Vec<&'a Chosen> {
    let (context, own) = match cluster.without_override() {
        ClusterKey::Inbound { port, .. } => {
            let own = audience.inbound().iter().find(|own| own.port == *port);
            let service = own.and_then(|own| own.service.as_ref());
            (PatchContext::SidecarInbound, service.map(|(service, _)| &service.hostname))
        }
        ClusterKey::InboundPassthrough(_) => (PatchContext::SidecarInbound, None),
        _ => (outbound(&audience.class), None),
    };
    // Most clusters are of other services than a patch names.
    let facts = LazyCell::new(|| ClusterFacts::of(name, own));
    let fits =
        |patch: &&Chosen| patch.is_for(context) && (own.is_some() || may_match(patch, name)) && facts.matches(patch);
    patches.iter().filter(fits).collect()
}

/// Whether a patch may change a listener. Decided without its bytes, so that some patches may turn out not to match.
fn may_change(patch: &Chosen, listener: &ListenerSpec) -> bool {
    let at_all = match patch.apply_to {
        ApplyTo::HttpFilter => has_http(listener),
        // Only inbound listeners include their routes.
        ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => {
            return context_of(listener) == PatchContext::SidecarInbound
                && patch.is_for(PatchContext::SidecarInbound)
                && has_http(listener);
        }
        ApplyTo::Listener => patch.operation != PatchOperation::Add,
        _ => true,
    };
    if !at_all || !patch.is_for(context_of(listener)) {
        return false;
    }
    let wanted = match listener_match(patch) {
        None => return false,
        Some(None) => return true,
        Some(Some(wanted)) => wanted,
    };
    let of_chains = patch.apply_to != ApplyTo::Listener && is_virtual(&listener.name);
    let port = match of_chains {
        // Added chains do not depend on the port condition.
        true if patch.operation == PatchOperation::Add || patch.apply_to == ApplyTo::ListenerFilter => true,
        true => listener
            .chains
            .iter()
            .any(|chain| chain.matches.destination_port.map(u32::from) == Some(wanted.port_number)),
        false => matches!(&listener.bind, Bind::Socket { port, .. } if u32::from(*port) == wanted.port_number),
    };
    (wanted.name.is_empty() || *wanted.name == *listener.name) && (wanted.port_number == 0 || port)
}

fn has_http(listener: &ListenerSpec) -> bool {
    let mut chains = listener.chains.iter().chain(listener.default_chain.as_deref());
    chains.any(|chain| matches!(chain.kind, ChainKind::Http(_)))
}

/// The resources that patches add, each once.
fn added<'p, S, G>(
    class: &ProxyClass<S, G>,
    sort: ApplyTo,
    patches: &'p [Chosen],
) -> impl Iterator<Item = (Arc<str>, PatchId)> + use<'p, S, G> {
    let (outbound, sidecar) = (outbound(class), class.sidecar().is_some());
    let adds = move |patch: &&Chosen| {
        let fits = patch.is_for(outbound) || (sidecar && patch.context == PatchContext::SidecarInbound);
        patch.apply_to == sort && patch.operation == PatchOperation::Add && fits
    };
    patches.iter().filter(adds).filter_map(|patch| {
        let name = name_of(patch)?;
        Some((name.into(), patch.id.clone()))
    })
}
