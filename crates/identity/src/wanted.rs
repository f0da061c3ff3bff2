//! The files that somebody uses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::name::FileName;

/// The most files that are watched at a time.
const MAX_FILES: usize = 2000;

/// The files that somebody uses, with the number of their users.
#[derive(Default, Debug)]
pub(crate) struct Wanted {
    names: Mutex<BTreeMap<FileName, usize>>,
    changed: Notify,
}

/// The use of a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    name: FileName,
    wanted: Arc<Wanted>,
}

impl Wanted {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<FileName, usize>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses a file. There is no lease if too many other files are used.
    pub(crate) fn lease(self: &Arc<Self>, name: &FileName) -> Option<Lease> {
        let mut names = self.lock();
        if names.len() >= MAX_FILES && !names.contains_key(name) {
            return None;
        }
        let users = names.entry(name.clone()).or_default();
        *users += 1;
        if *users == 1 {
            self.changed.notify_one();
        }
        Some(Lease { name: name.clone(), wanted: self.clone() })
    }

    /// The files that are used now.
    pub(crate) fn names(&self) -> Vec<FileName> {
        self.lock().keys().cloned().collect()
    }

    /// Waits until other files are used.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut names = self.wanted.lock();
        if let Some(users) = names.get_mut(&self.name) {
            *users -= 1;
            if *users == 0 {
                names.remove(&self.name);
                self.wanted.changed.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_used_until_its_last_lease_ends() {
        let wanted = Arc::new(Wanted::default());
        let name = |number: usize| FileName::Roots(format!("/{number}").into());
        let (one, two) = (wanted.lease(&name(0)), wanted.lease(&name(0)));
        drop(one);
        assert_eq!(wanted.names(), [name(0)]);
        let many: Vec<_> = (1..MAX_FILES).map(|number| wanted.lease(&name(number)).unwrap()).collect();
        assert!(wanted.lease(&name(MAX_FILES)).is_none() && wanted.lease(&name(0)).is_some());
        drop((two, many));
        assert!(wanted.names().is_empty());
    }
}
