//! The filter chains of a listener.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

use crate::listener::ChainSpec;

/// The filter chains of a listener. They do not change, so that their hash is computed once: a listener is a key, and one for a port
/// that thousands of services share has a chain for each of them.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct Chains {
    list: Box<[ChainSpec]>,
    hash: u64,
}

impl From<Vec<ChainSpec>> for Chains {
    fn from(list: Vec<ChainSpec>) -> Chains {
        let mut hasher = DefaultHasher::new();
        list.hash(&mut hasher);
        Chains { list: list.into(), hash: hasher.finish() }
    }
}

impl Deref for Chains {
    type Target = [ChainSpec];

    fn deref(&self) -> &[ChainSpec] {
        &self.list
    }
}

impl PartialEq for Chains {
    fn eq(&self, other: &Chains) -> bool {
        self.hash == other.hash && self.list == other.list
    }
}

impl Hash for Chains {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl std::fmt::Debug for Chains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.list.fmt(f)
    }
}
