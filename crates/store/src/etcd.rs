//! The store for more than one replica: etcd.
//!
//! An object is one key (see the table). Its value is the object's JSON without `metadata.resourceVersion`; its
//! revision is etcd's modification revision. A transaction is one etcd transaction. A deletion also writes a small key
//! below `PREFIX/.deleted/`, from which an object's [history](crate::Store::history) is found; these keys are removed
//! on compaction. etcd may have other users: their writes create revisions, too, and are not affected.
//!
//! | key | content |
//! |---|---|
//! | `PREFIX/GROUP/PLURAL/NAMESPACE!NAME` | an object; the core group is `core`, the namespace is empty for
//! cluster-scoped types |
//! | `PREFIX/.deleted/GROUP/PLURAL/NAMESPACE!NAME` | a tombstone: the time of the last deletion |
//!
//! A call that cannot reach a member is retried at the next one until its timeout. A write whose answer is lost is not
//! retried, because it may have happened: [`Error::Unknown`]. A watch survives failures of members and of whole
//! clusters: it resumes after the last yielded revision.

mod client;
mod follow;
mod keys;
mod read;
mod upkeep;
mod write;

use std::sync::Arc;
use std::time::Duration;

use crate::{Committed, Error, Key, List, Query, Revision, Scope, Store, Stored, Transaction, Version, Watch};

use client::Client;
use keys::Layout;

pub use upkeep::Compaction;

/// Options of an etcd store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The members' addresses: `http://HOST:PORT`, `https://HOST:PORT`, or `HOST:PORT`, which is the latter with `tls`.
    pub endpoints: Vec<String>,
    /// The prefix of all keys.
    pub prefix: String,
    /// TLS settings in addition to the system's certificates.
    pub tls: Option<Tls>,
    /// Credentials, if etcd requires them.
    pub login: Option<Login>,
    /// The timeout of a call, including retries.
    pub timeout: Duration,
    /// The maximum object size, in bytes of JSON. etcd's own request limit (`--max-request-bytes`) is 1.5 MiB.
    pub object_bytes: usize,
    /// The interval at which a quiet watch requests its progress. Only from members that answer correctly (3.5.8,
    /// 3.4.25 and later); others report progress at their own interval
    /// (`--experimental-watch-progress-notify-interval`).
    pub bookmarks: Duration,
    /// Automatic compaction. `None` if something else compacts; required if etcd has other users.
    pub compaction: Option<Compaction>,
}

impl Options {
    /// Options with these endpoints and defaults: prefix `/rutter`, 10 s, 1.5 MiB, no compaction.
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

/// TLS settings. All in PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// The CA certificates for the members' certificates. `None` for the system's.
    pub ca: Option<Vec<u8>>,
    /// The client certificate chain and key, if members require one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The server name in the members' certificates, if it differs from the address.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Tls");
        shown.field("ca", &self.ca.is_some()).field("identity", &self.identity.is_some());
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
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A store in etcd. Cheap to clone.
#[derive(Clone)]
pub struct Etcd {
    shared: Arc<Shared>,
}

/// The state shared by an [`Etcd`] and its watches.
struct Shared {
    client: Client,
    layout: Layout,
    options: Options,
}

impl Etcd {
    /// Connects and checks that etcd answers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for invalid addresses and certificates; [`Error::Unavailable`] if no member answers in time.
    pub async fn open(options: Options) -> Result<Etcd, Error> {
        let shared = Arc::new(Shared { client: Client::new(&options)?, layout: Layout::new(&options.prefix), options });
        shared.revision().await?;
        if let Some(compaction) = shared.options.compaction {
            upkeep::start(&shared, compaction);
        }
        Ok(Etcd { shared })
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
