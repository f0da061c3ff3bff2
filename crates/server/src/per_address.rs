//! A value for each address that has connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The number of entries at which unused ones are removed for the first time.
const PRUNE_AT: usize = 1024;

/// A value for each address, shared by its connections. It is removed some time after the last one has ended.
pub(crate) struct PerAddress<T>(Arc<Mutex<Values<T>>>);

struct Values<T> {
    by_address: HashMap<IpAddr, Weak<T>>,
    prune_at: usize,
}

impl<T> Clone for PerAddress<T> {
    fn clone(&self) -> PerAddress<T> {
        PerAddress(self.0.clone())
    }
}

impl<T> Default for PerAddress<T> {
    fn default() -> PerAddress<T> {
        PerAddress(Arc::new(Mutex::new(Values { by_address: HashMap::new(), prune_at: PRUNE_AT })))
    }
}

impl<T> PerAddress<T> {
    /// The value of an address, which is made if the address has no connection yet. Without an address, a value of its own.
    pub(crate) fn get(&self, address: Option<IpAddr>, make: impl FnOnce() -> T) -> Arc<T> {
        let Some(address) = address else {
            return Arc::new(make());
        };
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.by_address.get(&address).and_then(Weak::upgrade) {
            return value;
        }
        if values.by_address.len() >= values.prune_at {
            values.by_address.retain(|_, value| value.strong_count() > 0);
            values.prune_at = (2 * values.by_address.len()).max(PRUNE_AT);
        }
        let value = Arc::new(make());
        values.by_address.insert(address, Arc::downgrade(&value));
        value
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_address.len()
    }
}
