//! Redeems join tokens. A token is a Secret in the namespace of the control plane, which `rutter token create` writes: it has
//! the digest of the token only.
//!
//! Before the caller gets anything, the Secret is marked as used, by a write that names the version that was read. So of two
//! callers with one token, on any replicas, one succeeds; and a restart forgets nothing.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ca::caller::{Caller, CallerError, Method};
use ca::join::{JoinError, JoinRecord, JoinToken, LABEL, PREFIX, RECORD, secret_name};
use ca::keeper::Found;
use config::MeshConfig;
use server::{Authenticator, Credentials};
use store::{Error, Expect, GroupResource, Key, Operation, Query, Store, Transaction};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::record::{expected, failed, put};
use super::storage::{Secrets, StorageError};
use super::trust::own_domain;

/// The timeout of a redemption.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval in which records of expired tokens are deleted.
const CLEANING: Duration = Duration::from_secs(3600);
/// The time for which `rutter token list` shows an expired token.
const SHOWN: Duration = Duration::from_secs(86_400);

/// Authenticates callers by join tokens.
pub(crate) struct JoinTokens<S> {
    secrets: S,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    now: fn() -> SystemTime,
}

impl<S: Secrets> JoinTokens<S> {
    /// Finds tokens in these Secrets. Callers get identities of the mesh's trust domain.
    pub(crate) fn new(secrets: S, mesh: watch::Receiver<Arc<MeshConfig>>) -> JoinTokens<S> {
        JoinTokens { secrets, mesh, now: SystemTime::now }
    }

    async fn redeem(&self, token: &JoinToken) -> Result<Caller, JoinError> {
        let unknown = || JoinError::Wrong { id: token.id().to_owned() };
        let name = secret_name(token.id());
        let failure = |error: StorageError| JoinError::Unavailable(error.to_string());
        let found = self.secrets.read(&name).await.map_err(failure)?.ok_or_else(unknown)?;
        let bytes = found.data.get(RECORD).ok_or_else(unknown)?;
        let record: JoinRecord = serde_json::from_slice(bytes).map_err(|_| unknown())?;
        let domain = own_domain(&self.mesh.borrow());
        let (caller, used) = record.redeem(token, &domain, (self.now)())?;
        let json = serde_json::to_vec(&used).map_err(|error| JoinError::Unavailable(error.to_string()))?;
        let mut data = found.data;
        data.insert(RECORD.to_owned(), json);
        match self.secrets.write(&name, &data, Some(&found.version)).await.map_err(failure)? {
            Some(_) => {
                tracing::info!(token = token.id(), identity = %caller.identity, "a join token was used");
                Ok(caller)
            }
            // Someone else used or deleted it in between.
            None => Err(JoinError::Used { id: token.id().to_owned() }),
        }
    }
}

#[async_trait]
impl<S: Secrets> Authenticator for JoinTokens<S> {
    fn method(&self) -> Method {
        Method::JoinToken
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError> {
        let Some(text) = credentials.bearer().filter(|text| text.starts_with(PREFIX)) else {
            return Ok(None);
        };
        let token = JoinToken::parse(text)?;
        let redeemed = timeout(PATIENCE, self.redeem(&token)).await;
        let redeemed =
            redeemed.unwrap_or_else(|_| Err(JoinError::Unavailable("there was no answer in time".to_owned())));
        Ok(Some(redeemed?))
    }
}

/// Deletes the records of tokens that expired long ago, until the store is closed.
pub(super) async fn clean(secrets: StoredSecrets) {
    loop {
        match secrets.remove_over(SystemTime::now()).await {
            Ok(0) => {}
            Ok(removed) => tracing::debug!(removed, "deleted expired join tokens"),
            Err(Error::Closed) => return,
            Err(error) => tracing::debug!(%error, "cannot delete expired join tokens, will retry"),
        }
        sleep(CLEANING).await;
    }
}

/// The Secrets of a namespace in a store of Rutter.
#[derive(Clone)]
pub(crate) struct StoredSecrets {
    store: Arc<dyn Store>,
    namespace: Arc<str>,
}

impl StoredSecrets {
    /// The Secrets of this namespace.
    pub(crate) fn new(store: Arc<dyn Store>, namespace: &str) -> StoredSecrets {
        StoredSecrets { store, namespace: namespace.into() }
    }

    fn key(&self, name: &str) -> Key {
        Key::new(GroupResource::new("", "secrets"), self.namespace.clone(), name)
    }

    /// Deletes the records that are over for a day. Until then, `rutter token list` shows whether a token was used.
    async fn remove_over(&self, now: SystemTime) -> Result<usize, Error> {
        let resource = GroupResource::new("", "secrets");
        let query = Query { namespace: Some(self.namespace.clone()), ..Query::of(resource) };
        let mut removed = 0;
        for stored in self.store.list(&query).await?.items {
            let is_token = stored.labels.get(LABEL).is_some();
            let record = is_token.then(|| record(&stored.value())).flatten();
            if record.is_some_and(|record| record.is_over(now - SHOWN)) {
                let expect = Expect::Revision(stored.revision);
                let delete = Operation::Delete { key: stored.key.clone(), expect };
                match self.store.commit(Transaction::one(delete)).await {
                    Ok(_) => removed += 1,
                    // Someone else was faster.
                    Err(Error::Conflict { .. } | Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(removed)
    }
}

/// The record in a Secret.
fn record(secret: &serde_json::Value) -> Option<JoinRecord> {
    let bytes = STANDARD.decode(secret["data"][RECORD].as_str()?).ok()?;
    serde_json::from_slice(&bytes).ok()
}

impl Secrets for StoredSecrets {
    async fn read(&self, name: &str) -> Result<Option<Found>, StorageError> {
        let stored = self.store.get(&self.key(name)).await.map_err(failed)?;
        Ok(stored.map(|stored| {
            let value = stored.value();
            let values = value["data"].as_object().into_iter().flatten();
            let decoded = values.filter_map(|(key, value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?)));
            Found { data: decoded.collect(), version: stored.revision.to_string() }
        }))
    }

    async fn write(
        &self,
        name: &str,
        data: &std::collections::BTreeMap<String, Vec<u8>>,
        replaces: Option<&str>,
    ) -> Result<Option<String>, StorageError> {
        let key = self.key(name);
        // Only existing Secrets are written here: the API creates them.
        let (Some(stored), expect @ Expect::Revision(_)) =
            (self.store.get(&key).await.map_err(failed)?, expected(replaces)?)
        else {
            return Ok(None);
        };
        let mut value = stored.value();
        for (name, bytes) in data {
            value["data"][name] = STANDARD.encode(bytes).into();
        }
        put(&*self.store, Operation::Put { key, value, expect }).await
    }
}

#[cfg(test)]
mod tests;
