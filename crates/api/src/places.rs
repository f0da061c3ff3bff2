//! Places for requests and watches: a limit for all, a limit for each user, and places that only administrators use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::{Role, User};

/// One in so many places is added for administrators.
const RESERVE: usize = 10;

/// Places that users take. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Places(Arc<Inner>);

struct Inner {
    shared: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    /// The places of each user that has any.
    users: Mutex<HashMap<String, Arc<Semaphore>>>,
    per_user: usize,
}

/// A place that is taken until this is dropped.
pub(crate) struct Place {
    _shared: OwnedSemaphorePermit,
    _own: Own,
}

/// A place among those of a user.
struct Own {
    user: String,
    places: Places,
    permit: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// So many places for all users, and so many for each.
    pub(crate) fn new(shared: usize, per_user: usize) -> Places {
        let reserved = Arc::new(Semaphore::new(shared.div_ceil(RESERVE)));
        Places(Arc::new(Inner {
            shared: Arc::new(Semaphore::new(shared)),
            reserved,
            users: Mutex::default(),
            per_user,
        }))
    }

    /// Waits for a place.
    pub(crate) async fn take(&self, user: &User) -> Option<Place> {
        let mut own = self.own(user);
        own.permit = Some(self.of_user(user).acquire_owned().await.ok()?);
        if let Some(shared) = self.try_shared(user) {
            return Some(Place { _shared: shared, _own: own });
        }
        let shared = self.0.shared.clone().acquire_owned();
        let shared = match is_administrator(user) {
            true => tokio::select! {
                shared = shared => shared,
                reserved = self.0.reserved.clone().acquire_owned() => reserved,
            },
            false => shared.await,
        };
        Some(Place { _shared: shared.ok()?, _own: own })
    }

    /// Takes a place if there is one.
    pub(crate) fn try_take(&self, user: &User) -> Option<Place> {
        let mut own = self.own(user);
        own.permit = Some(self.of_user(user).try_acquire_owned().ok()?);
        Some(Place { _shared: self.try_shared(user)?, _own: own })
    }

    fn try_shared(&self, user: &User) -> Option<OwnedSemaphorePermit> {
        let shared = self.0.shared.clone().try_acquire_owned().ok();
        let reserved = || self.0.reserved.clone().try_acquire_owned().ok().filter(|_| is_administrator(user));
        shared.or_else(reserved)
    }

    fn own(&self, user: &User) -> Own {
        Own { user: user.name.clone(), places: self.clone(), permit: None }
    }

    fn of_user(&self, user: &User) -> Arc<Semaphore> {
        let mut users = self.0.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(user.name.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.0.per_user))).clone()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.permit.take());
        let Inner { users, per_user, .. } = &*self.places.0;
        let mut users = users.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody holds a place of the user, or waits for one: those have a reference.
        let unused = |own: &Arc<Semaphore>| own.available_permits() == *per_user && Arc::strong_count(own) == 1;
        if users.get(&self.user).is_some_and(unused) {
            users.remove(&self.user);
        }
    }
}

fn is_administrator(user: &User) -> bool {
    user.roles.contains(&Role::Admin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, role: Role) -> User {
        User::new(name, [], [role])
    }

    #[tokio::test]
    async fn a_user_has_a_part_of_the_places_and_administrators_have_their_own() {
        let places = Places::new(4, 2);
        let (ada, ben, eve) = (user("ada", Role::ReadOnly), user("ben", Role::ReadOnly), user("eve", Role::ReadOnly));
        let admin = user("admin", Role::Admin);
        let held: Vec<Place> = (0..2).filter_map(|_| places.try_take(&ada)).collect();
        assert_eq!(held.len(), 2);
        assert!(places.try_take(&ada).is_none(), "her places are taken");
        let others: Vec<Place> = (0..2).filter_map(|_| places.try_take(&ben)).collect();
        assert_eq!(others.len(), 2);
        assert!(places.try_take(&eve).is_none(), "all places are taken");
        let reserved = places.take(&admin).await.expect("a place of the administrators");
        assert!(places.try_take(&admin).is_none());
        drop(held);
        assert!(places.try_take(&eve).is_some());
        drop((reserved, others));
        assert!(places.0.users.lock().expect("not poisoned").is_empty(), "users without places are forgotten");
    }
}
