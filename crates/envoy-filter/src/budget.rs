//! Limits on what the patches of an EnvoyFilter add, so that one object cannot use up memory or time.
//!
//! The unit is a byte that is added. It does not depend on time, so that each replica leaves out the same patches.

use std::collections::BTreeMap;

use model::service::ObjectId;

use crate::compile::CompiledPatch;

/// The bytes that an EnvoyFilter may add to the clusters, to the listeners, or to a route table of a proxy.
const MANY: usize = 128 << 20;
/// The bytes that an EnvoyFilter may add to one cluster, listener or virtual host.
const ONE: usize = 16 << 20;
/// The bytes that a patch counts for in addition to its value, each time that it is applied.
const EACH: usize = 256;

/// The bytes that EnvoyFilters have added so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    limit: usize,
    spent: BTreeMap<ObjectId, usize>,
}

impl Budget {
    /// The budget for all resources of a type.
    pub(crate) fn of_many() -> Budget {
        Budget { limit: MANY, spent: BTreeMap::new() }
    }

    /// The budget for one resource.
    pub(crate) fn of_one() -> Budget {
        Budget { limit: ONE, spent: BTreeMap::new() }
    }

    /// Whether a patch may be applied once more.
    pub(crate) fn covers(&self, patch: &CompiledPatch) -> bool {
        cost(patch) <= self.limit.saturating_sub(self.spent.get(&patch.id.filter).copied().unwrap_or(0))
    }

    /// Counts a patch that is applied.
    pub(crate) fn spend(&mut self, patch: &CompiledPatch) {
        match self.spent.get_mut(&patch.id.filter) {
            Some(spent) => *spent += cost(patch),
            None => drop(self.spent.insert(patch.id.filter.clone(), cost(patch))),
        }
    }

    /// Counts a patch if it may be applied once more.
    pub(crate) fn admit(&mut self, patch: &CompiledPatch) -> bool {
        let covered = self.covers(patch);
        if covered {
            self.spend(patch);
        }
        covered
    }
}

/// A patch without a value removes something.
fn cost(patch: &CompiledPatch) -> usize {
    patch.value.as_ref().map_or(0, |_| patch.size.saturating_add(EACH))
}
