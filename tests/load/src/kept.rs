//! The resources and subscriptions of a proxy. Thousands of proxies have tens of thousands of resources each, so
//! that a resource is eight bytes.

use std::collections::HashSet;

use bytes::Bytes;

use crate::facts::REMOVED;
use crate::texts::Id;

/// The state of a proxy that outlives its streams.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) types: [Subscription; 5],
    /// Whether it has subscribed to virtual hosts.
    pub(crate) vhds: bool,
}

/// The state of one type. The lists are sorted by number. New names have larger numbers, so that they are mostly
/// appended.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// The names and versions of the resources that it has (delta).
    pub(crate) had: Vec<(Id, Id)>,
    /// The subscribed names.
    pub(crate) names: Vec<Id>,
    /// The names of resources, each with a name that it references (delta).
    referred: Vec<(Id, Id)>,
    pub(crate) version: Bytes,
}

impl Subscription {
    /// Records the resources of a response.
    pub(crate) fn record(&mut self, changes: &[(Id, Id)]) {
        let (mut new, mut has_removed) = (Vec::new(), false);
        for (name, version) in changes {
            match self.had.binary_search_by_key(name, |(name, _)| *name) {
                Ok(at) => {
                    self.had[at].1 = *version;
                    has_removed |= *version == REMOVED;
                }
                Err(_) => new.push((*name, *version)),
            }
        }
        if has_removed {
            self.had.retain(|(_, version)| *version != REMOVED);
        }
        // The last of several changes of a name counts.
        new.reverse();
        new.sort_by_key(|(name, _)| *name);
        new.dedup_by_key(|(name, _)| *name);
        new.retain(|(_, version)| *version != REMOVED);
        merge(&mut self.had, &new);
    }

    /// Subscribes to the endpoints of the clusters that changed, except of the `fixed` ones. Returns the new names, in
    /// the order of the clusters, and whether names were removed.
    pub(crate) fn follow_clusters(&mut self, clusters: &[(Id, Id)], fixed: &[Id]) -> (Vec<Id>, bool) {
        let fixed: HashSet<Id> = fixed.iter().copied().collect();
        let (mut new, mut gone) = (Vec::new(), HashSet::new());
        for (name, version) in clusters {
            let is_wanted = *version != REMOVED && !fixed.contains(name);
            match (is_wanted, self.names.binary_search(name)) {
                (true, Err(_)) => new.push(*name),
                (false, Ok(_)) => drop(gone.insert(*name)),
                _ => {}
            }
        }
        if !gone.is_empty() {
            self.names.retain(|name| !gone.contains(name));
        }
        merge(&mut self.names, &sorted(new.clone()));
        (new, !gone.is_empty())
    }

    /// Replaces the references of the resources that changed. Returns all names that are referenced.
    pub(crate) fn refer(&mut self, changes: &[(Id, Id)], references: &[(Id, Id)]) -> Vec<Id> {
        let changed: HashSet<Id> = changes.iter().map(|(name, _)| *name).collect();
        self.referred.retain(|(name, _)| !changed.contains(name));
        merge(&mut self.referred, &sorted(references.to_vec()));
        self.referred.iter().map(|(_, name)| *name).collect()
    }

    /// Subscribes to these names instead of those before. Returns the new ones, and whether there is a difference.
    pub(crate) fn want(&mut self, names: Vec<Id>) -> (Vec<Id>, bool) {
        let mut names = sorted(names);
        names.shrink_to_fit();
        let new = names.iter().copied().filter(|name| self.names.binary_search(name).is_err()).collect();
        let is_changed = names != self.names;
        self.names = names;
        (new, is_changed)
    }
}

/// Adds items to a list; both are sorted, and have no item in common.
fn merge<T: Ord + Copy>(all: &mut Vec<T>, new: &[T]) {
    if new.is_empty() {
        return;
    }
    let are_last = all.last() < new.first();
    // Not twice the memory, as growing by `extend` would take.
    all.reserve_exact(new.len());
    all.extend_from_slice(new);
    if !are_last {
        all.sort();
    }
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_recorded_replaced_and_removed() {
        let mut kept = Subscription::default();
        kept.record(&[(5, 50), (3, 30), (9, 90)]);
        assert_eq!(kept.had, [(3, 30), (5, 50), (9, 90)]);
        kept.record(&[(5, 51), (3, REMOVED), (4, 40), (12, 120), (7, REMOVED)]);
        assert_eq!(kept.had, [(4, 40), (5, 51), (9, 90), (12, 120)]);
    }

    #[test]
    fn the_last_change_of_a_name_counts() {
        let mut kept = Subscription::default();
        kept.record(&[(1, 10), (2, 20), (1, 11), (2, REMOVED), (3, REMOVED), (3, 30)]);
        assert_eq!(kept.had, [(1, 11), (3, 30)]);
        kept.record(&[(1, REMOVED), (1, 12), (3, 31), (3, REMOVED)]);
        assert_eq!(kept.had, [(1, 12)]);
    }

    #[test]
    fn clusters_are_followed() {
        let mut kept = Subscription::default();
        assert_eq!(kept.follow_clusters(&[(5, 0), (3, 0), (4, 0)], &[4]), (vec![5, 3], false));
        assert_eq!(kept.names, [3, 5]);
        assert_eq!(kept.follow_clusters(&[(5, 1)], &[]), (vec![], false));
        assert_eq!(kept.follow_clusters(&[(5, REMOVED), (8, 0), (9, REMOVED)], &[]), (vec![8], true));
        assert_eq!(kept.names, [3, 8]);
        assert_eq!(kept.follow_clusters(&[(3, 1)], &[3]), (vec![], true));
        assert_eq!(kept.names, [8]);
    }

    #[test]
    fn references_are_replaced() {
        let mut kept = Subscription::default();
        assert_eq!(kept.refer(&[(1, 0), (2, 0)], &[(1, 80), (1, 81), (2, 80)]), [80, 81, 80]);
        assert_eq!(kept.refer(&[(1, 1)], &[(1, 82)]), [82, 80]);
        assert_eq!(kept.refer(&[(1, REMOVED)], &[]), [80]);
    }

    #[test]
    fn names_are_wanted_instead_of_others() {
        let mut kept = Subscription::default();
        assert_eq!(kept.want(vec![81, 80, 80]), (vec![80, 81], true));
        assert_eq!(kept.want(vec![80, 81]), (vec![], false));
        assert_eq!(kept.want(vec![81, 82]), (vec![82], true));
        assert_eq!(kept.want(vec![82]), (vec![], true));
    }
}
