//! The state of a stream: the names that the proxy subscribed to, and what it was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tonic::Status;

use crate::name::{MAX_NAME, Name};
use crate::secret::{Entry, Secret, Table};
use crate::wanted::{Lease, Wanted};

/// The type of secrets.
pub(crate) const SECRET_TYPE: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// The most names of a stream.
const MAX_NAMES: usize = 1000;

/// A request, of either variant of the protocol.
#[derive(Clone, Default, Debug)]
pub(crate) struct Update {
    pub(crate) type_url: String,
    pub(crate) nonce: String,
    /// The reason for which the proxy rejected a response.
    pub(crate) rejected: Option<String>,
    pub(crate) names: Names,
}

/// The names of a request.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    /// State of the world: all names.
    Set(BTreeSet<String>),
    /// Delta: further names, names that are not needed any more, and the versions that the proxy has.
    Edit { add: Vec<String>, remove: Vec<String>, versions: BTreeMap<String, String> },
}

impl Default for Names {
    fn default() -> Names {
        Names::Set(BTreeSet::new())
    }
}

/// The secrets of a response.
#[derive(PartialEq, Eq, Default, Debug)]
pub(crate) struct Changes {
    pub(crate) nonce: u64,
    pub(crate) ready: Vec<(String, Secret)>,
    pub(crate) failed: Vec<(String, Arc<str>)>,
}

/// A name of a stream.
#[derive(Debug)]
struct Subscribed {
    name: Name,
    /// The version, or the reason of failure, that the proxy was sent last.
    sent: Option<Result<Arc<str>, Arc<str>>>,
    /// Keeps files watched. A name with a file but without a lease is one too many.
    lease: Option<Lease>,
}

/// The state of a stream.
#[derive(Debug)]
pub(crate) struct Subscription {
    names: BTreeMap<String, Subscribed>,
    nonce: u64,
    wanted: Arc<Wanted>,
    /// Whether secrets that do not exist yet are waited for. Envoy waits as long as its `initial_fetch_timeout` allows, whether
    /// the stream stays open or fails; on an open stream it gets the secret at once.
    waits: bool,
}

impl Subscription {
    pub(crate) fn new(wanted: Arc<Wanted>, waits: bool) -> Subscription {
        Subscription { names: BTreeMap::new(), nonce: 0, wanted, waits }
    }

    /// Takes a request.
    ///
    /// # Errors
    /// The stream must end: the request is for another type, or for too many names.
    pub(crate) fn update(&mut self, update: Update) -> Result<(), Status> {
        if ![SECRET_TYPE, ""].contains(&update.type_url.as_str()) {
            let kind: String = update.type_url.chars().take(100).collect();
            return Err(Status::invalid_argument(format!("this server has secrets only, not {kind:?}")));
        }
        match &update.rejected {
            Some(reason) => tracing::warn!(nonce = update.nonce, reason, "the proxy rejected a secret"),
            None if !update.nonce.is_empty() => tracing::debug!(nonce = update.nonce, "the proxy accepted secrets"),
            None => {}
        }
        match update.names {
            // The names of an answer to an older response may be older than those that the stream has.
            Names::Set(_) if !update.nonce.is_empty() && update.nonce != self.nonce.to_string() => {}
            Names::Set(names) => {
                if update.nonce.is_empty() {
                    self.names.clear();
                }
                self.names.retain(|name, _| names.contains(name));
                names.into_iter().for_each(|name| self.add(name, None, false));
            }
            Names::Edit { add, remove, mut versions } => {
                for name in remove {
                    self.names.remove(&name);
                }
                for name in add {
                    let version = versions.remove(&name);
                    self.add(name, version, true);
                }
            }
        }
        match self.names.len() {
            0..=MAX_NAMES => Ok(()),
            _ => Err(Status::resource_exhausted(format!("a stream has at most {MAX_NAMES} names of secrets"))),
        }
    }

    /// Adds a name, unless there are too many already. With `again`, its secret is sent again.
    fn add(&mut self, text: String, version: Option<String>, again: bool) {
        if self.names.len() > MAX_NAMES || !again && self.names.contains_key(&text) {
            return;
        }
        let name = Name::parse(&text);
        let lease = match &name {
            Name::File(file) => self.wanted.lease(file),
            _ => None,
        };
        self.names.insert(text, Subscribed { name, sent: version.map(|version| Ok(version.into())), lease });
    }

    /// The next response, if there is something that the proxy does not have.
    ///
    /// # Errors
    /// There is nothing for any of the names: the stream must end.
    pub(crate) fn next(&mut self, table: &Table) -> Result<Option<Changes>, Status> {
        let mut changes = Changes { nonce: self.nonce + 1, ..Changes::default() };
        for (text, subscribed) in &mut self.names {
            let failure = match subscribed.state(table) {
                Ok(Entry::Pending) => continue,
                Ok(Entry::Failed(_)) if self.waits => continue,
                Ok(Entry::Ready(secret)) => {
                    if subscribed.sent.as_ref() != Some(&Ok(secret.version.clone())) {
                        subscribed.sent = Some(Ok(secret.version.clone()));
                        changes.ready.push((text.clone(), secret.clone()));
                    }
                    continue;
                }
                Ok(Entry::Failed(reason)) => reason.clone(),
                Err(reason) => reason.into(),
            };
            if subscribed.sent.as_ref() != Some(&Err(failure.clone())) {
                subscribed.sent = Some(Err(failure.clone()));
                changes.failed.push((text.clone(), failure));
            }
        }
        if changes.ready.is_empty() && changes.failed.is_empty() {
            return Ok(None);
        }
        if self.names.values().all(|subscribed| matches!(subscribed.sent, Some(Err(_)))) {
            let unknown = self.names.values().all(|subscribed| subscribed.name == Name::Unknown);
            let reasons: Vec<_> =
                changes.failed.iter().map(|(name, reason)| format!("{}: {reason}", shown(name))).collect();
            let text = reasons.join("; ");
            return Err(if unknown { Status::not_found(text) } else { Status::unavailable(text) });
        }
        self.nonce += 1;
        Ok(Some(changes))
    }

    /// Whether it is known for each name if there is a secret.
    pub(crate) fn complete(&self, table: &Table) -> bool {
        self.names.values().all(|subscribed| !matches!(subscribed.state(table), Ok(Entry::Pending)))
    }
}

impl Subscribed {
    fn state<'t>(&self, table: &'t Table) -> Result<&'t Entry<Secret>, &'static str> {
        match &self.name {
            Name::Unknown => {
                Err("there is no secret of this name: use default, ROOTCA, file-cert:CHAIN~KEY or file-root:PATH")
            }
            Name::File(_) if self.lease.is_none() => Err("too many files are in use"),
            name => Ok(table.get(name)),
        }
    }
}

/// A name, shortened if it is very long.
pub(crate) fn shown(name: &str) -> String {
    if name.len() <= MAX_NAME {
        format!("{name:?}")
    } else {
        format!("{:?}…", name.chars().take(100).collect::<String>())
    }
}
