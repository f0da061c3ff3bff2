//! The outcome of patches: applied, left out for a reason, or nothing matched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::audience::FilterRef;
use model::xds::Resource;

use crate::budget::Budget;
use crate::compile::{CompiledPatch, PatchId};
use crate::error::PatchError;

/// Whether a patch matched anything, or the reason why it was left out.
pub(crate) type Outcome = Result<bool, PatchError>;

/// The outcome of patches in one resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcomes {
    applied: BTreeSet<PatchId>,
    /// The patches that were left out, with the first reason.
    skipped: BTreeMap<PatchId, Arc<str>>,
    /// The bytes that they added.
    budget: Budget,
}

impl Default for Outcomes {
    fn default() -> Outcomes {
        Outcomes { applied: BTreeSet::new(), skipped: BTreeMap::new(), budget: Budget::of_one() }
    }
}

impl Outcomes {
    /// The outcome in a part of the resource, to be added or discarded as a whole.
    pub(crate) fn part(&self) -> Outcomes {
        Outcomes { budget: self.budget.clone(), ..Outcomes::default() }
    }

    /// Applies a patch at one place, unless it has added too much, and records the outcome.
    pub(crate) fn attempt(&mut self, patch: &CompiledPatch, change: impl FnOnce() -> Outcome) {
        let outcome = match self.budget.covers(patch) {
            true => change(),
            false => Err(PatchError::TooMuchForOne),
        };
        // An attempt that fails costs as much.
        if !matches!(outcome, Ok(false) | Err(PatchError::TooMuchForOne)) {
            self.budget.spend(patch);
        }
        self.note(&patch.id, outcome);
    }

    /// Records the outcome of a patch at one place.
    fn note(&mut self, patch: &PatchId, outcome: Outcome) {
        match outcome {
            Ok(false) => {}
            Ok(true) => self.applied(patch),
            Err(why) => self.skip(patch, || why.to_string().into()),
        }
    }

    /// Records that a patch was applied.
    pub(crate) fn applied(&mut self, patch: &PatchId) {
        if !self.applied.contains(patch) {
            self.applied.insert(patch.clone());
        }
    }

    /// Records that a patch was left out.
    pub(crate) fn skip(&mut self, patch: &PatchId, why: impl FnOnce() -> Arc<str>) {
        if !self.skipped.contains_key(patch) {
            self.skipped.insert(patch.clone(), why());
        }
    }

    /// Records that the changes of a part were discarded.
    pub(crate) fn discarded(&mut self, why: &PatchError) {
        for patch in std::mem::take(&mut self.applied) {
            self.skip(&patch, || why.to_string().into());
        }
    }

    /// Adds the outcome of patches in a part of the resource.
    pub(crate) fn add(&mut self, part: Outcomes) {
        self.budget = part.budget;
        self.applied.extend(part.applied);
        for (patch, why) in part.skipped {
            self.skip(&patch, || why);
        }
    }

    /// Adds the outcome of these patches in a part of the resource that was derived separately.
    pub(crate) fn add_left(&mut self, patches: &[FilterRef], left: &[Left]) {
        for patch in patch_ids(patches) {
            match left.iter().find(|left| left.patch == patch) {
                None => self.applied(&patch),
                Some(Left { why: Some(why), .. }) => self.skip(&patch, || why.clone()),
                Some(Left { why: None, .. }) => {}
            }
        }
    }

    /// The patches that were left out or matched nothing.
    pub fn left(&self, patches: &[FilterRef]) -> Box<[Left]> {
        let left = |patch: PatchId| {
            let why = self.skipped.get(&patch).cloned();
            (why.is_some() || !self.applied.contains(&patch)).then_some(Left { patch, why })
        };
        patch_ids(patches).filter_map(left).collect()
    }
}

/// A patch that was left out of a resource, or of a part of it, or matched nothing in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// The patch.
    pub patch: PatchId,
    /// The reason why it was left out; `None`: it matched nothing.
    pub why: Option<Arc<str>>,
}

/// A resource after its patches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patched {
    /// The resource.
    pub resource: Resource,
    /// The patches of its key that were not applied.
    pub left: Box<[Left]>,
}

/// The patches of these references.
pub fn patch_ids(filters: &[FilterRef]) -> impl Iterator<Item = PatchId> + '_ {
    filters
        .iter()
        .flat_map(|filter| filter.patches.iter().map(|index| PatchId { filter: filter.id.clone(), index: *index }))
}
