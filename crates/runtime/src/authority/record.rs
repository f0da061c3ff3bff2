//! The self-signed authority in a store of Rutter: an internal record, which the API does not serve and exports do not contain.
//!
//! The private key is sealed with a key file outside of the store ([`ca::sealed`]).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ca::keeper::{Content, Found, Place};
use ca::sealed::{KeyFile, random_bytes};
use serde_json::{Value, json};
use store::follow::{self, Event as StoreEvent};
use store::{Error, Expect, GroupResource, Key, Operation, Store, Stored, Transaction};
use tokio::sync::mpsc;

use super::keeping::Event;
use super::storage::{Secrets, StorageError};

/// The group of internal records. The API serves no such group.
const GROUP: &str = "internal.rutter.io";
const PLURAL: &str = "authorities";
const NAME: &str = "self-signed";
/// The purpose of the sealed key.
const PURPOSE: &str = "ca-key";
/// The key of a set that is sealed.
const PRIVATE: &str = "ca-key.pem";
/// The keys of a set that are stored as they are.
const PUBLIC: [&str; 2] = ["ca-cert.pem", "root-cert.pem"];
/// The largest key file, in bytes.
const LIMIT: u64 = 4096;

/// The key file.
#[derive(Clone)]
pub(super) enum Sealing {
    /// Random bytes that end with the process, for stores that do so, too.
    Process(Arc<KeyFile>),
    /// A file.
    File {
        /// The path.
        path: PathBuf,
        /// Whether it is created if it is missing and there is no authority yet.
        create: bool,
    },
    /// None is configured.
    Missing,
}

impl Sealing {
    /// Random bytes that end with the process.
    pub(super) fn process() -> Result<Sealing, StorageError> {
        let file = random_bytes().and_then(|bytes| KeyFile::new(&bytes));
        Ok(Sealing::Process(Arc::new(file.map_err(|error| StorageError(error.to_string()))?)))
    }

    /// The key file, created if that is allowed.
    fn open(&self, may_create: bool) -> Result<Arc<KeyFile>, StorageError> {
        match self {
            Sealing::Process(file) => Ok(file.clone()),
            Sealing::File { path, create } => {
                let error = |error: &dyn std::fmt::Display| StorageError(format!("key file {}: {error}", path.display()));
                let bytes = match read(path) {
                    Err(missing) if missing.kind() == ErrorKind::NotFound && *create && may_create => {
                        create_file(path).map_err(|failure| error(&failure))?
                    }
                    Err(missing) if missing.kind() == ErrorKind::NotFound && !may_create => {
                        return Err(error(
                            &"it is missing, and the key of the certificate authority in the store cannot be read without \
                              it; restore the file from your backup",
                        ));
                    }
                    read => read.map_err(|failure| error(&failure))?,
                };
                Ok(Arc::new(KeyFile::new(&bytes).map_err(|failure| error(&failure))?))
            }
            Sealing::Missing => Err(StorageError(
                "no key file is configured, with which the key of the certificate authority is encrypted in the store; set \
                 --ca-key-file to a file with random bytes (`head -c 32 /dev/urandom`), the same for every replica"
                    .to_owned(),
            )),
        }
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(std::io::Error::other("every user can read it; run `chmod 600` for it"));
    }
    let mut bytes = Vec::new();
    file.take(LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Creates the file with random bytes. Another process may create it at the same time; then its bytes are used.
fn create_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = random_bytes().map_err(std::io::Error::other)?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => {
            file.write_all(&bytes)?;
            file.sync_all()?;
            tracing::info!(file = %path.display(), "created the key file of the certificate authority; keep a backup of it");
            Ok(bytes)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error),
    }
}

/// The record in a store.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) store: Arc<dyn Store>,
    pub(super) sealing: Sealing,
}

impl Record {
    fn key() -> Key {
        Key::new(GroupResource::new(GROUP, PLURAL), "", NAME)
    }

    /// Reports the record at the start and after each change, until the receiver is dropped or the store is closed.
    pub(super) async fn follow(self, events: mpsc::Sender<Event>) {
        let mut follower = follow::Follower::new(Arc::clone(&self.store), vec![GroupResource::new(GROUP, PLURAL)]);
        while let Some(event) = follower.next().await {
            let found = match event {
                StoreEvent::Listed(all) => all.into_iter().find(|stored| stored.key == Record::key()),
                StoreEvent::Changed(changes) => {
                    let last = changes.iter().rev().find(|change| change.key == Record::key());
                    let Some(change) = last else { continue };
                    change.after.clone()
                }
            };
            let content = match found.map(|stored| self.unsealed(&stored)) {
                None => Content::Absent,
                Some(Ok(found)) => Content::Present(found),
                Some(Err(error)) => Content::Unreadable(error.to_string()),
            };
            if events.send((Place::SelfSigned, content)).await.is_err() {
                return;
            }
        }
    }

    fn unsealed(&self, stored: &Stored) -> Result<Found, StorageError> {
        let value = stored.value();
        let damaged = || StorageError("the record in the store is damaged".to_owned());
        let mut data = BTreeMap::new();
        for key in PUBLIC {
            let text = value["certificates"][key].as_str().ok_or_else(damaged)?;
            data.insert(key.to_owned(), text.as_bytes().to_vec());
        }
        let sealed = value["sealedKey"].as_str().and_then(|text| STANDARD.decode(text).ok()).ok_or_else(damaged)?;
        let key = self.sealing.open(false)?.open(&sealed, PURPOSE).map_err(|error| StorageError(error.to_string()))?;
        data.insert(PRIVATE.to_owned(), key);
        Ok(Found { data, version: stored.revision.to_string() })
    }

    fn sealed(&self, data: &BTreeMap<String, Vec<u8>>, is_first: bool) -> Result<Value, StorageError> {
        let of = |key: &str| data.get(key).map(Vec::as_slice).unwrap_or_default();
        let file = self.sealing.open(is_first)?;
        let sealed = file.seal(of(PRIVATE), PURPOSE).map_err(|error| StorageError(error.to_string()))?;
        let certificates: serde_json::Map<String, Value> =
            PUBLIC.iter().map(|key| ((*key).to_owned(), String::from_utf8_lossy(of(key)).into())).collect();
        Ok(json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "Authority",
            "metadata": {"name": NAME},
            "certificates": certificates,
            "sealedKey": STANDARD.encode(sealed),
        }))
    }
}

impl Secrets for Record {
    async fn read(&self, _: &str) -> Result<Option<Found>, StorageError> {
        let stored = self.store.get(&Record::key()).await.map_err(failed)?;
        stored.map(|stored| self.unsealed(&stored)).transpose()
    }

    async fn write(
        &self,
        _: &str,
        data: &BTreeMap<String, Vec<u8>>,
        replaces: Option<&str>,
    ) -> Result<Option<String>, StorageError> {
        let expect = expected(replaces)?;
        let value = self.sealed(data, replaces.is_none())?;
        put(&*self.store, Operation::Put { key: Record::key(), value, expect }).await
    }
}

/// The precondition of a write that replaces this version.
pub(super) fn expected(replaces: Option<&str>) -> Result<Expect, StorageError> {
    let invalid = |_| StorageError("the version is not a revision of the store".to_owned());
    replaces.map_or(Ok(Expect::Absent), |version| Ok(Expect::Revision(version.parse().map_err(invalid)?)))
}

/// Commits one operation. Returns the new revision; `None` if the precondition failed.
pub(super) async fn put(store: &dyn Store, operation: Operation) -> Result<Option<String>, StorageError> {
    match store.commit(Transaction::one(operation)).await {
        Ok(committed) => Ok(Some(committed.revision.to_string())),
        Err(Error::Conflict { .. } | Error::Exists { .. } | Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

pub(super) fn failed(error: Error) -> StorageError {
    StorageError(error.to_string())
}

#[cfg(test)]
mod tests;
