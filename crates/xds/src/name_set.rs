//! Sets of names that streams subscribe to.
//!
//! Proxies of one kind subscribe to the same names, so that sets are shared. A changed subscription is compared with the
//! existing sets before a new one is built.

use std::cmp::Ordering;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Name;
use crate::decode::Texts;

/// A fingerprint of a set: its digest, and the number of its names.
pub(crate) type Identity = (u64, usize);

/// Names, ascending, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSet {
    names: Arc<[Name]>,
    /// The sum of the names' hashes: it does not depend on the order, so that edits can update it.
    digest: u64,
}

impl NameSet {
    /// The set of these names, in any order.
    pub(crate) fn new(mut names: Vec<Name>) -> NameSet {
        names.sort_unstable();
        names.dedup();
        let digest = names.iter().fold(0, |sum: u64, name| sum.wrapping_add(hash(name)));
        NameSet { names: names.into(), digest }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.binary_search_by(|one| (**one).cmp(name)).is_ok()
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn as_slice(&self) -> &[Name] {
        &self.names
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Name> {
        self.names.iter()
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
        self.digest == other.digest && (Arc::ptr_eq(&self.names, &other.names) || self.names == other.names)
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
            false => NameSet { names: self.names().cloned().collect(), digest: self.digest() },
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
    fn sets_that_differ_in_one_name_are_distinguished() {
        let (one, other) = (set(&["a", "b"]), set(&["a", "c"]));
        assert_eq!(one.edit(vec!["c".into()], &["b"]).identity(), other.identity());
        assert_ne!(one.edit(vec!["c".into()], &[]).identity(), other.identity());
        assert!(one != other);
    }
}
