//! What becomes of patches: made, left out and why, or there was nothing to change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::audience::FilterRef;
use model::service::ObjectId;
use model::xds::Resource;
use protos::dynamic::{Completeness, DynamicMessage, check};

use crate::compile::CompiledPatch;

/// Which patch.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchId {
    /// The EnvoyFilter.
    pub filter: ObjectId,
    /// Which of its patches.
    pub index: u16,
}

/// Whether there was anything that a patch could change; or why it was left out.
pub(crate) type Outcome = Result<bool, String>;

/// What became of patches in one resource.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcomes {
    made: BTreeSet<PatchId>,
    /// With the first reason.
    skipped: BTreeMap<PatchId, Arc<str>>,
}

impl Outcomes {
    /// Notes what became of a patch at one place.
    pub(crate) fn note(&mut self, patch: &CompiledPatch, outcome: Outcome) {
        match outcome {
            Ok(false) => {}
            Ok(true) => self.made(&patch.id),
            Err(why) => self.skip(&patch.id, || why.into()),
        }
    }

    /// Notes that a patch was made.
    pub(crate) fn made(&mut self, patch: &PatchId) {
        if !self.made.contains(patch) {
            self.made.insert(patch.clone());
        }
    }

    /// Notes that a patch was left out.
    pub(crate) fn skip(&mut self, patch: &PatchId, why: impl FnOnce() -> Arc<str>) {
        if !self.skipped.contains_key(patch) {
            self.skipped.insert(patch.clone(), why());
        }
    }

    /// What was made of a part was thrown away.
    pub(crate) fn undone(&mut self, why: &str) {
        for patch in std::mem::take(&mut self.made) {
            self.skip(&patch, || why.into());
        }
    }

    /// Takes in what became of patches in a part of the resource.
    pub(crate) fn add(&mut self, part: Outcomes) {
        self.made.extend(part.made);
        for (patch, why) in part.skipped {
            self.skip(&patch, || why);
        }
    }

    /// Takes in what a part of the resource, which was looked at with these patches, says of them.
    pub(crate) fn add_left(&mut self, patches: &[FilterRef], left: &[Left]) {
        for patch in patch_ids(patches) {
            match left.iter().find(|left| left.patch == patch) {
                None => self.made(&patch),
                Some(Left { why: Some(why), .. }) => self.skip(&patch, || why.clone()),
                Some(Left { why: None, .. }) => {}
            }
        }
    }

    /// Of these patches those that were not made everywhere.
    pub fn left(&self, patches: &[FilterRef]) -> Box<[Left]> {
        let left = |patch: PatchId| {
            let why = self.skipped.get(&patch).cloned();
            (why.is_some() || !self.made.contains(&patch)).then_some(Left { patch, why })
        };
        patch_ids(patches).filter_map(left).collect()
    }
}

/// A patch that was not made, or not everywhere, in a resource that it might have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// Which patch.
    pub patch: PatchId,
    /// Why it was left out; none: there was nothing to change.
    pub why: Option<Arc<str>>,
}

/// A resource after its patches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patched {
    /// The resource.
    pub resource: Resource,
    /// The patches of its key that were not made.
    pub left: Box<[Left]>,
}

/// The patches that references name.
pub fn patch_ids(filters: &[FilterRef]) -> impl Iterator<Item = PatchId> + '_ {
    filters.iter().flat_map(|filter| {
        filter.patches.iter().map(|index| PatchId {
            filter: filter.id.clone(),
            index: *index,
        })
    })
}

/// Why Envoy would not take a message, as far as its description says; none: it would.
pub(crate) fn flaw(message: &DynamicMessage) -> Option<String> {
    let problems = check(message, Completeness::Whole, &|_| None);
    problems
        .first()
        .map(|problem| format!("the result would not be valid: {problem}"))
}
