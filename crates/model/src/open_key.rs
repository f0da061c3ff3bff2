//! Keys of any type, for code that does not know all types.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A key of some type. Keys of different types differ. Cloning it copies nothing.
#[derive(Clone)]
pub struct OpenKey(Arc<dyn AnyKey>);

impl OpenKey {
    /// Wraps a key.
    pub fn new<K: Eq + Ord + Hash + Debug + Send + Sync + 'static>(key: K) -> OpenKey {
        OpenKey(Arc::new(key))
    }

    /// The key, if it is of this type.
    pub fn get<K: 'static>(&self) -> Option<&K> {
        self.0.as_any().downcast_ref()
    }
}

trait AnyKey: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn compare(&self, other: &dyn Any) -> Ordering;
    fn equals(&self, other: &dyn Any) -> bool;
    fn feed(&self, state: &mut dyn Hasher);
}

impl<K: Eq + Ord + Hash + Debug + Send + Sync + 'static> AnyKey for K {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn compare(&self, other: &dyn Any) -> Ordering {
        match other.downcast_ref::<K>() {
            Some(other) => self.cmp(other),
            None => self.type_id().cmp(&other.type_id()),
        }
    }

    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<K>().is_some_and(|other| self == other)
    }

    fn feed(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }
}

impl PartialEq for OpenKey {
    fn eq(&self, other: &OpenKey) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.equals(other.0.as_any())
    }
}

impl Eq for OpenKey {}

impl PartialOrd for OpenKey {
    fn partial_cmp(&self, other: &OpenKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpenKey {
    fn cmp(&self, other: &OpenKey) -> Ordering {
        self.0.compare(other.0.as_any())
    }
}

impl Hash for OpenKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.feed(state);
    }
}

impl Debug for OpenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_types_differ() {
        let (one, same, other) = (OpenKey::new(1u32), OpenKey::new(1u32), OpenKey::new(1u64));
        assert_eq!(one, same);
        assert_eq!(one.cmp(&same), Ordering::Equal);
        assert_ne!(one, other);
        assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
        assert_eq!((one.get::<u32>(), one.get::<u64>()), (Some(&1), None));
    }
}
