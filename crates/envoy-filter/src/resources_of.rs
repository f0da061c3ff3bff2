//! Patched clusters and listeners, and resources that patches add.

use std::sync::Arc;

use config::istio::envoy_filter::{ApplyTo, PatchContext};
use envoy::{Clusters, Listeners, equal_parts};
use flow::Reads;
use model::audience::{PatchedCluster, PatchedListener};
use model::listener::{Direction, ListenerSpec};
use model::service::ObjectId;
use model::xds::Resource;
use protos::dynamic::{DynamicMessage, descriptor, encode_dynamic};

use crate::apply;
use crate::compile::{Chosen, CompiledFilters, CompiledPatch, chosen};
use crate::outcome::{Outcomes, Patched};

flow::rule! {
    /// Patched clusters.
    pub PatchedClusters: Arc<PatchedCluster> => Patched = "patched clusters", derive_patched_clusters;
}

fn derive_patched_clusters(cx: &Reads<'_>, key: &Arc<PatchedCluster>) -> Option<Patched> {
    let plain = cx.get::<Clusters>(&key.cluster)?;
    let patches = chosen(cx, &key.filters);
    let mut outcomes = Outcomes::default();
    let body = apply::encoded_cluster(&plain.body(), &patches, &mut outcomes);
    Some(Patched { resource: Resource::new(plain.name().clone(), body), left: outcomes.left(&key.filters) })
}

flow::rule! {
    /// Patched listeners.
    pub PatchedListeners: Arc<PatchedListener> => Patched = "patched listeners", derive_patched_listeners;
}

fn derive_patched_listeners(cx: &Reads<'_>, key: &Arc<PatchedListener>) -> Option<Patched> {
    let plain = cx.get::<Listeners>(&key.listener)?;
    let context = context_of(&key.listener);
    let patches: Vec<Chosen> = chosen(cx, &key.filters).into_iter().filter(|p| p.is_for(context)).collect();
    let mut outcomes = Outcomes::default();
    // One that cannot be decoded is not changed.
    let decoded = ApplyTo::Listener.message().and_then(descriptor);
    let decoded = decoded.and_then(|descriptor| DynamicMessage::decode(descriptor, plain.body()).ok());
    let resource = decoded.map_or_else(
        || (*plain).clone(),
        |mut message| {
            apply::listener(&mut message, &patches, &mut outcomes);
            equal_parts::listener(cx, plain.name().clone(), &encode_dynamic(&message))
        },
    );
    Some(Patched { resource, left: outcomes.left(&key.filters) })
}

flow::rule! {
    /// Resources that patches add, by EnvoyFilter and index of the patch.
    pub AddedResources: (ObjectId, u16) => Resource = "added resources", derive_added_resources;
}

fn derive_added_resources(cx: &Reads<'_>, (id, index): &(ObjectId, u16)) -> Option<Resource> {
    let filter = cx.get::<CompiledFilters>(id)?;
    let patch = filter.patches.get(usize::from(*index))?.as_ref()?;
    let name = name_of(patch)?;
    Some(Resource::new(name, encode_dynamic(patch.value.as_ref()?)))
}

/// The context of a listener.
pub(crate) fn context_of(listener: &ListenerSpec) -> PatchContext {
    match listener.direction {
        Direction::Outbound => PatchContext::SidecarOutbound,
        Direction::Inbound => PatchContext::SidecarInbound,
        Direction::Gateway => PatchContext::Gateway,
    }
}

/// The name of the resource that a patch adds.
pub(crate) fn name_of(patch: &CompiledPatch) -> Option<String> {
    let name = patch.value.as_ref()?.get_field_by_name("name")?;
    name.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}
