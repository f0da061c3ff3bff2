//! Compiles EnvoyFilters: their match conditions, and their values as Envoy messages.

use std::ops::Deref;
use std::sync::Arc;

use config::istio::EnvoyFilter;
use config::istio::envoy_filter::{ApplyTo, EnvoyConfigPatch, ObjectMatch, PatchContext, PatchOperation, patch_value};
use flow::Reads;
use model::audience::FilterRef;
use model::service::ObjectId;
use protos::Message;
use protos::dynamic::{DynamicMessage, Fault};
use registry::inputs::EnvoyFilters;

use crate::merge::Lists;
use crate::overlay::Overlay;

/// Identifies a patch.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchId {
    /// The EnvoyFilter.
    pub filter: ObjectId,
    /// The index of the patch in it.
    pub index: u16,
}

flow::rule! {
    /// Compiled EnvoyFilters.
    pub CompiledFilters: ObjectId => CompiledFilter = "compiled envoy filters", derive_compiled_filters;
}

fn derive_compiled_filters(cx: &Reads<'_>, id: &ObjectId) -> Option<CompiledFilter> {
    let object = cx.get::<EnvoyFilters>(id)?;
    Some(CompiledFilter::of(id, &object.spec))
}

/// A compiled EnvoyFilter.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CompiledFilter {
    /// Its patches, by their index in the object; `None` for a patch that cannot be used.
    pub patches: Vec<Option<CompiledPatch>>,
}

/// A patch that can be applied.
#[derive(Clone, PartialEq, Debug)]
pub struct CompiledPatch {
    /// Its identity.
    pub id: PatchId,
    /// The part of the configuration that it applies to.
    pub apply_to: ApplyTo,
    /// The operation.
    pub operation: PatchOperation,
    /// The traffic direction that it applies to.
    pub context: PatchContext,
    /// The match conditions.
    pub object: Option<ObjectMatch>,
    /// The value; `None` for operations without one.
    pub value: Option<DynamicMessage>,
    /// The encoded size of the value, in bytes.
    pub size: usize,
    /// The value of a merge, if encoded resources can be merged with it.
    pub overlay: Option<Overlay>,
}

impl CompiledFilter {
    /// Compiles an EnvoyFilter. Invalid patches were reported when the object was read; they are left out here.
    pub fn of(id: &ObjectId, spec: &EnvoyFilter) -> CompiledFilter {
        let patches = spec.config_patches.iter().enumerate();
        let compiled = patches.map(|(index, patch)| {
            let id = PatchId { filter: id.clone(), index: u16::try_from(index).ok()? };
            CompiledPatch::of(id, patch)
        });
        CompiledFilter { patches: compiled.collect() }
    }
}

impl CompiledPatch {
    fn of(id: PatchId, patch: &EnvoyConfigPatch) -> Option<CompiledPatch> {
        let change = patch.patch.as_ref()?;
        let (value, problems) = patch_value(patch.apply_to, change);
        if problems.iter().any(|problem| problem.fault == Fault::Wrong) {
            return None;
        }
        let operation = match change.operation {
            PatchOperation::Invalid => return None,
            // In lists without an order the value is added.
            PatchOperation::InsertBefore | PatchOperation::InsertAfter | PatchOperation::InsertFirst
                if !patch.apply_to.is_ordered() =>
            {
                PatchOperation::Add
            }
            operation => operation,
        };
        if value.is_none() && operation != PatchOperation::Remove {
            return None;
        }
        let context = patch.matches.as_ref().map(|m| m.context).unwrap_or_default();
        let object = patch.matches.as_ref().and_then(|m| m.object.clone());
        Some(CompiledPatch::new(id, (patch.apply_to, operation), (context, object), value))
    }

    /// A patch with this value, which fits the part of the configuration that it applies to.
    pub fn new(
        id: PatchId,
        (apply_to, operation): (ApplyTo, PatchOperation),
        (context, object): (PatchContext, Option<ObjectMatch>),
        value: Option<DynamicMessage>,
    ) -> CompiledPatch {
        let size = value.as_ref().map_or(0, Message::encoded_len);
        // Patches that set a transport socket have rules of their own.
        let merged = value.as_ref().filter(|value| {
            apply_to == ApplyTo::Cluster && operation.merges() && !value.has_field_by_name("transport_socket")
        });
        let overlay = merged.and_then(|value| Overlay::of(value, Lists::of(operation), true));
        CompiledPatch { id, apply_to, operation, context, object, value, size, overlay }
    }

    /// Whether the patch applies to this context.
    pub(crate) fn is_for(&self, context: PatchContext) -> bool {
        self.context == PatchContext::Any || self.context == context
    }
}

/// A patch that was chosen by a key.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    filter: Arc<CompiledFilter>,
    index: u16,
}

impl Deref for Chosen {
    type Target = CompiledPatch;

    fn deref(&self) -> &CompiledPatch {
        // `chosen` only returns patches that exist.
        self.filter.patches[usize::from(self.index)].as_ref().expect("chosen patches exist")
    }
}

impl std::borrow::Borrow<CompiledPatch> for Chosen {
    fn borrow(&self) -> &CompiledPatch {
        self
    }
}

/// The usable patches that a key refers to, in order.
pub(crate) fn chosen(cx: &Reads<'_>, filters: &[FilterRef]) -> Vec<Chosen> {
    let mut found = Vec::new();
    for FilterRef { id, patches } in filters {
        let Some(filter) = cx.get::<CompiledFilters>(id) else {
            continue;
        };
        let usable = |index: &&u16| matches!(filter.patches.get(usize::from(**index)), Some(Some(_)));
        found.extend(patches.iter().filter(usable).map(|index| Chosen { filter: filter.clone(), index: *index }));
    }
    found
}

/// The references to these patches.
pub(crate) fn refer<'a>(patches: impl Iterator<Item = &'a Chosen>) -> Arc<[FilterRef]> {
    let mut found: Vec<(ObjectId, Vec<u16>)> = Vec::new();
    for patch in patches {
        match found.last_mut() {
            Some((id, indexes)) if *id == patch.id.filter => indexes.push(patch.id.index),
            _ => found.push((patch.id.filter.clone(), vec![patch.id.index])),
        }
    }
    let found = found.into_iter().map(|(id, patches)| FilterRef { id, patches: patches.into() });
    found.collect()
}
