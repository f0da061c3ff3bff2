//! The home for more than one replica: etcd.
//!
//! An object is one key (the layout is below), its value the object's JSON without `metadata.resourceVersion`, its
//! revision etcd's modification revision. A transaction is one of etcd's. A deletion also writes a small key below
//! `PREFIX/.deleted/`, so that an object's [history](crate::Store::history) is found by walking back; these keys go when
//! they are compacted. etcd may have other users: they make revisions, too, and are not disturbed.
//!
//! | key | is |
//! |---|---|
//! | `PREFIX/GROUP/PLURAL/NAMESPACE!NAME` | an object; the core group is `core`, the namespace is empty for types without |
//! | `PREFIX/.deleted/GROUP/PLURAL/NAMESPACE!NAME` | that the object was deleted, and when last |
//! | `PREFIX/.lock/NAME` | a [`Lock`], with a lease |
//!
//! A call that cannot reach a member goes to the next one until its time is over. A write whose answer is lost is not
//! repeated, since it may have happened: that is [`Error::Unknown`]. A watch survives members and whole clusters that
//! come back: it goes on after the last revision that it has yielded.

mod client;
mod follow;
mod keys;
mod lock;
mod read;
mod upkeep;
mod write;

use std::sync::Arc;
use std::time::Duration;

use crate::{Committed, Error, Key, List, Query, Revision, Scope, Store, Stored, Transaction, Version, Watch};

use client::Client;
use keys::Layout;

pub use lock::Lock;
pub use upkeep::Compaction;

/// How etcd is reached, and what of it is ours.
#[derive(Clone, Debug)]
pub struct Options {
    /// The members' addresses: `http://HOST:PORT`, `https://HOST:PORT`, or `HOST:PORT`, which is the latter with `tls`.
    pub endpoints: Vec<String>,
    /// Below which keys the objects are.
    pub prefix: String,
    /// What is needed beyond the system's certificates.
    pub tls: Option<Tls>,
    /// Who we are, if etcd asks.
    pub login: Option<Login>,
    /// How long a call may take, all attempts together.
    pub timeout: Duration,
    /// The largest object, in bytes of its JSON. etcd's own limit for a request (`--max-request-bytes`) is 1.5 MiB.
    pub object_bytes: usize,
    /// How often a quiet watch asks how far it is. Only of members that answer it right (3.5.8, 3.4.25 and later); others
    /// tell by themselves, as often as they are set to (`--experimental-watch-progress-notify-interval`).
    pub bookmarks: Duration,
    /// Regular compaction. None: somebody else does it; right where etcd has other users.
    pub compaction: Option<Compaction>,
}

impl Options {
    /// These members, all else as usual: keys below `/rutter`, 10 s, 1.5 MiB, no compaction.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Options {
        Options {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "/rutter".into(),
            tls: None,
            login: None,
            timeout: Duration::from_secs(10),
            object_bytes: 3 << 19,
            bookmarks: Duration::from_secs(5),
            compaction: None,
        }
    }
}

/// How a member is known, and we to it. All in PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// The certificates that members' are signed by. None: the system's.
    pub ca: Option<Vec<u8>>,
    /// Our certificate chain and key, if members ask for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in members' certificates, where it is not the address's.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Tls");
        shown
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some());
        shown.field("server_name", &self.server_name).finish()
    }
}

/// A user of etcd.
#[derive(Clone)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The store in etcd. Cheap to clone.
#[derive(Clone)]
pub struct Etcd {
    shared: Arc<Shared>,
}

/// What an [`Etcd`] and its watches share.
struct Shared {
    client: Client,
    layout: Layout,
    options: Options,
}

impl Etcd {
    /// Connects, and finds out whether etcd answers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for addresses and certificates that cannot be; [`Error::Unavailable`] when no member answers in
    /// time.
    pub async fn open(options: Options) -> Result<Etcd, Error> {
        let shared = Arc::new(Shared {
            client: Client::new(&options)?,
            layout: Layout::new(&options.prefix),
            options,
        });
        shared.revision().await?;
        if let Some(compaction) = shared.options.compaction {
            upkeep::start(&shared, compaction);
        }
        Ok(Etcd { shared })
    }

    /// Waits until this process, which calls itself `identity`, alone has the lock of this name. It is lost when it is
    /// dropped, or when etcd has not been reached for `ttl` (whole seconds, at least 2).
    ///
    /// # Errors
    /// etcd does not answer.
    pub async fn lock(&self, name: &str, identity: &str, ttl: Duration) -> Result<Lock, Error> {
        lock::take(self.shared.clone(), name, identity, ttl).await
    }
}

#[async_trait::async_trait]
impl Store for Etcd {
    async fn get(&self, key: &Key) -> Result<Option<Stored>, Error> {
        self.shared.get(key).await
    }

    async fn list(&self, query: &Query) -> Result<List, Error> {
        self.shared.list(query).await
    }

    async fn snapshot(&self, scope: &Scope) -> Result<List, Error> {
        self.shared.snapshot(scope).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, Error> {
        self.shared.commit(transaction).await
    }

    async fn watch(&self, scope: &Scope, after: Revision) -> Result<Watch, Error> {
        follow::watch(self.shared.clone(), scope, after).await
    }

    async fn revision(&self) -> Result<Revision, Error> {
        self.shared.revision().await
    }

    async fn history(&self, key: &Key, limit: usize) -> Result<Vec<Version>, Error> {
        self.shared.history(key, limit).await
    }

    async fn compact(&self, upto: Revision) -> Result<(), Error> {
        self.shared.compact(upto).await
    }

    async fn close(&self) {
        self.shared.client.close();
    }
}
