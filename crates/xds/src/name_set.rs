//! Sets of names that streams subscribe to.
//!
//! Proxies of one kind subscribe to the same names, so that sets are shared. A changed subscription is compared with the
//! existing sets before a new one is built.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock, OnceLock};

use model::xds::ResourceType;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Name;
use crate::decode::Texts;

/// So many names are looked at rather than indexed.
const FEW: usize = 64;

/// A fingerprint of a set: its digest, and the number of its names.
pub(crate) type Identity = (u64, usize);

/// Names, ascending, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSet {
    names: Arc<Names>,
    /// The sum of the names' hashes: it does not depend on the order, so that edits can update it.
    digest: u64,
}

#[derive(Debug, Default)]
struct Names {
    sorted: Box<[Name]>,
    required: OnceLock<Required>,
}

/// The names of a type by what they require ([`Origin::requires`]).
#[derive(Debug)]
struct Required {
    kind: ResourceType,
    /// The hash of what a name requires, and its index; ascending.
    by_hash: Box<[(u64, u32)]>,
    /// The indexes of the names that require nothing.
    free: Box<[u32]>,
}

impl Required {
    fn new(kind: ResourceType, requires: impl for<'n> Fn(&'n str) -> Option<&'n str>, names: &[Name]) -> Required {
        let (mut by_hash, mut free) = (Vec::new(), Vec::new());
        for (index, name) in (0..).zip(names) {
            match requires(name) {
                Some(required) => by_hash.push((hash(required), index)),
                None => free.push(index),
            }
        }
        by_hash.sort_unstable();
        Required { kind, by_hash: by_hash.into(), free: free.into() }
    }

    /// The indexes of the names that require this.
    fn of(&self, required: &str) -> impl Iterator<Item = u32> {
        let hash = hash(required);
        let first = self.by_hash.partition_point(|(other, _)| *other < hash);
        self.by_hash[first..].iter().take_while(move |(other, _)| *other == hash).map(|(_, index)| *index)
    }
}

impl NameSet {
    /// The set of these names, in any order.
    pub(crate) fn new(mut names: Vec<Name>) -> NameSet {
        // Most are in order, and then each occurs once.
        if !names.is_sorted_by(|one, other| one < other) {
            names.sort_unstable();
            names.dedup();
        }
        let digest = names.iter().fold(0, |sum: u64, name| sum.wrapping_add(hash(name)));
        NameSet::of(names, digest)
    }

    fn of(sorted: Vec<Name>, digest: u64) -> NameSet {
        NameSet { names: Arc::new(Names { sorted: sorted.into(), required: OnceLock::new() }), digest }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.as_slice().binary_search_by(|one| (**one).cmp(name)).is_ok()
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn as_slice(&self) -> &[Name] {
        &self.names.sorted
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Name> {
        self.as_slice().iter()
    }

    /// The names of a type that require one of `wanted`, and those that require nothing, in no order. Others may be among them.
    /// `requires` is [`Origin::requires`]. The first call for a large set costs by the number of all names.
    pub(crate) fn requiring<'a>(
        &'a self,
        kind: ResourceType,
        requires: impl for<'n> Fn(&'n str) -> Option<&'n str>,
        wanted: &'a BTreeSet<Name>,
    ) -> Box<dyn Iterator<Item = &'a Name> + 'a> {
        if self.len() <= FEW {
            return Box::new(self.iter());
        }
        let index = self.names.required.get_or_init(|| Required::new(kind, requires, self.as_slice()));
        if index.kind != kind {
            return Box::new(self.iter());
        }
        let found = wanted.iter().flat_map(|required| index.of(required)).chain(index.free.iter().copied());
        Box::new(found.map(|index| &self.as_slice()[index as usize]))
    }

    /// Whether these names, of which none occurs twice, are the set.
    pub(crate) fn is_set_of(&self, names: &Texts) -> bool {
        self.identity() == names.identity()
    }

    pub(crate) fn identity(&self) -> Identity {
        (self.digest, self.len())
    }

    /// The names of both sets.
    pub(crate) fn union(&self, other: &NameSet) -> NameSet {
        match (self.len(), other.len()) {
            (_, 0) => self.clone(),
            (0, _) => other.clone(),
            _ if self == other => self.clone(),
            _ => self.edit(other.iter().cloned().collect(), &[]).build(),
        }
    }

    /// The names for which this is true.
    pub(crate) fn filter(&self, is_kept: impl Fn(&Name) -> bool) -> NameSet {
        NameSet::new(self.iter().filter(|name| is_kept(name)).cloned().collect())
    }

    /// The names that are not in the other set.
    pub(crate) fn without(&self, other: &NameSet) -> NameSet {
        let removed: Vec<&str> = other.iter().map(|name| &**name).collect();
        self.edit(Vec::new(), &removed).build()
    }

    /// The set without `removed` and with `added`.
    pub(crate) fn edit<'a>(&'a self, added: Vec<Name>, removed: &[&'a str]) -> Edit<'a> {
        let mut removed: Vec<&str> = removed.iter().copied().filter(|name| self.contains(name)).collect();
        removed.sort_unstable();
        removed.dedup();
        let mut added: Vec<Name> =
            added.into_iter().filter(|name| !self.contains(name) || removed.binary_search(&&**name).is_ok()).collect();
        added.sort_unstable();
        added.dedup();
        // A name that is both removed and added stays.
        removed.retain(|name| added.binary_search_by(|one| (**one).cmp(name)).is_err());
        added.retain(|name| !self.contains(name));
        Edit { base: self, added, removed }
    }
}

impl PartialEq for NameSet {
    fn eq(&self, other: &NameSet) -> bool {
        let is_same = || Arc::ptr_eq(&self.names, &other.names) || self.as_slice() == other.as_slice();
        self.digest == other.digest && is_same()
    }
}

/// A changed set that is not built yet.
pub(crate) struct Edit<'a> {
    pub(crate) base: &'a NameSet,
    /// Added names, ascending.
    pub(crate) added: Vec<Name>,
    /// Removed names, ascending.
    pub(crate) removed: Vec<&'a str>,
}

impl Edit<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.base.len() + self.added.len() - self.removed.len()
    }

    fn digest(&self) -> u64 {
        let added = self.added.iter().fold(self.base.digest, |sum, name| sum.wrapping_add(hash(name)));
        self.removed.iter().fold(added, |sum, name| sum.wrapping_sub(hash(name)))
    }

    /// That of the result.
    pub(crate) fn identity(&self) -> Identity {
        (self.digest(), self.len())
    }

    pub(crate) fn build(&self) -> NameSet {
        match self.is_empty() {
            true => self.base.clone(),
            false => NameSet::of(self.names().cloned().collect(), self.digest()),
        }
    }

    fn names(&self) -> impl Iterator<Item = &Name> {
        let mut removed = self.removed.iter().peekable();
        let mut kept =
            self.base.iter().filter(move |name| removed.next_if(|gone| **gone == &***name).is_none()).peekable();
        let mut added = self.added.iter().peekable();
        std::iter::from_fn(move || match (kept.peek(), added.peek()) {
            (Some(one), Some(other)) if one.cmp(other) == Ordering::Less => kept.next(),
            (Some(_), None) => kept.next(),
            _ => added.next(),
        })
    }
}

/// The share of a name in the digest of a set. Clients choose names, and must not find two sets with one digest.
pub(crate) fn hash(name: &str) -> u64 {
    static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    xxh3_64_with_seed(name.as_bytes(), *SECRET)
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy::types;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(names: &[&str]) -> NameSet {
        NameSet::new(names.iter().map(|name| Name::from(*name)).collect())
    }

    proptest! {
        #[test]
        fn edits_match_set_operations(base: BTreeSet<u8>, added: Vec<u8>, removed: Vec<u8>) {
            let text = |numbers: Vec<u8>| -> Vec<String> { numbers.iter().map(|n| format!("n{n}")).collect() };
            let names = |texts: &[String]| -> Vec<Name> { texts.iter().map(|t| t.as_str().into()).collect() };
            let (base, added, removed) = (text(base.into_iter().collect()), text(added), text(removed));
            let mut expected: BTreeSet<String> = base.iter().cloned().collect();
            removed.iter().for_each(|name| { expected.remove(name); });
            expected.extend(added.iter().cloned());
            let expected = NameSet::new(names(&expected.into_iter().collect::<Vec<_>>()));

            let base = NameSet::new(names(&base));
            let removed: Vec<&str> = removed.iter().map(String::as_str).collect();
            let edit = base.edit(names(&added), &removed);
            prop_assert_eq!(edit.identity(), expected.identity());
            prop_assert!(edit.build() == expected);
            prop_assert_eq!(edit.is_empty(), expected == base);
        }
    }

    #[test]
    fn the_names_that_require_something_are_found() {
        let requires: for<'n> fn(&'n str) -> Option<&'n str> = |name| Some(name.split_once('|')?.1);
        let other: for<'n> fn(&'n str) -> Option<&'n str> = |_| None;
        for hosts in [2, 2 * FEW] {
            let names = (0..hosts).flat_map(|host| [80, 443].map(|port| Name::from(format!("{port}|{host}"))));
            let set = NameSet::new(names.chain(["free".into()]).collect());
            let wanted = ["0", "1", "none"].map(Name::from).into();
            let found = |kind, requires| {
                NameSet::new(set.requiring(kind, requires, &wanted).cloned().collect()).names.sorted.to_vec()
            };
            assert_eq!(found(types::ENDPOINTS, requires), ["443|0", "443|1", "80|0", "80|1", "free"].map(Name::from));
            assert_eq!(found(types::CLUSTER, other), set.as_slice(), "another type");
        }
    }

    #[test]
    fn sets_that_differ_in_one_name_are_distinguished() {
        let (one, other) = (set(&["a", "b"]), set(&["a", "c"]));
        assert_eq!(one.edit(vec!["c".into()], &["b"]).identity(), other.identity());
        assert_ne!(one.edit(vec!["c".into()], &[]).identity(), other.identity());
        assert!(one != other);
    }
}
