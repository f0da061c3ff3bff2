//! Resources that clients rejected, and what like clients are sent instead.
//!
//! An entry is keyed by the hash of the rejected bytes, so that a changed object is tried at once. It holds for a [`Group`]:
//! the proxies of one service account and version. A client can only change what its equals receive. An entry is tried again
//! from time to time with one client of the group, because a rejection may depend on the proxy.
//!
//! A [`Lens`] is the entries that hold for a stream. Streams with equal lenses share ledgers; a ledger shows its resources
//! through its lens.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;
use model::proxy::{Proxy, SecretRight};
use model::xds::{Resource, ResourceType, Version};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::hunt::Suspended;
use crate::parts::{parts_of, with_parts};
use crate::{Moment, Name, StreamId};

/// The maximum number of entries of a group and type; the oldest is dropped.
const OF_GROUP: usize = 64;
/// The maximum number of entries.
const ENTRIES: usize = 4096;
/// The longest time between two tries.
const LONGEST: Moment = Moment::from_secs(3600);

/// Proxies that share what is quarantined.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Group {
    /// Proxies of this service account and version whose connection proves who they are.
    Account { namespace: Arc<str>, name: Arc<str>, version: Arc<str> },
    /// A proxy that only claims to have this node id.
    Node(Arc<str>),
}

impl Group {
    pub(crate) fn of(proxy: &Proxy) -> Group {
        if proxy.secrets == SecretRight::None || proxy.service_account.is_empty() {
            return Group::Node(proxy.id.clone());
        }
        let (namespace, name) = (proxy.namespace.clone(), proxy.service_account.clone());
        Group::Account { namespace, name, version: proxy.version.clone() }
    }
}

/// Rejected bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    Resource(Version),
    Part(Version),
}

/// The resource and its parts as targets.
pub(crate) fn targets_of(kind: ResourceType, resource: &Resource) -> Vec<Target> {
    let mut targets = vec![Target::Resource(resource.version())];
    targets.extend(parts_of(kind, resource).into_iter().map(|part| Target::Part(part.version)));
    targets
}

/// The replacement of rejected bytes.
#[derive(Clone, Debug)]
pub(crate) enum Substitute {
    /// Another version of the resource.
    Resource(Resource),
    /// Another version of the part; if empty, the part is left out.
    Part(Bytes),
    /// The resource is not sent, and not removed.
    Nothing,
}

/// A rejected resource or part.
#[derive(Clone, Debug)]
pub(crate) struct Culprit {
    /// The resource.
    pub(crate) name: Name,
    /// Its part, if only that is rejected.
    pub(crate) part: Option<Name>,
    pub(crate) target: Target,
    pub(crate) substitute: Substitute,
    /// The client's error.
    pub(crate) message: Arc<str>,
}

/// A culprit in quarantine.
pub(crate) struct Entry {
    pub(crate) kind: ResourceType,
    group: Group,
    pub(crate) culprit: Culprit,
    /// The client that rejected it.
    pub(crate) proxy: Arc<str>,
    pub(crate) since: Moment,
    retry_at: Moment,
    tries: u32,
    /// The stream that is sent it again.
    trial: Option<StreamId>,
}

/// A quarantined resource, for the log, metrics and debug output.
#[derive(Clone, Debug)]
pub struct Quarantined {
    /// Its type.
    pub kind: ResourceType,
    /// Its name.
    pub resource: Arc<str>,
    /// The name of its rejected part, if only that is in quarantine.
    pub part: Option<Arc<str>>,
    /// Whether clients are sent an earlier version instead.
    pub replaced: bool,
    /// The client that rejected it.
    pub proxy: Arc<str>,
    /// The client's error.
    pub message: Arc<str>,
    /// When.
    pub since: Moment,
}

#[derive(Default)]
pub(crate) struct Quarantine {
    entries: BTreeMap<u64, Entry>,
    by_group: FxHashMap<(Group, ResourceType), Vec<u64>>,
    /// The entries of all groups by what is rejected, each list ascending.
    by_target: FxHashMap<(ResourceType, Target), Vec<u64>>,
    next: u64,
    /// The number of entries that a stream tries again.
    trials: usize,
    /// Groups whose entries changed.
    pub(crate) changed: Vec<(Group, ResourceType)>,
    /// Entries that were added since the last call.
    pub(crate) added: Vec<Quarantined>,
}

impl Quarantine {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it has no entries, and no stream must still move because it had some.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_empty() && self.changed.is_empty()
    }

    pub(crate) fn has_trials(&self) -> bool {
        self.trials > 0
    }

    /// A number that no lens has yet.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn entry(&self, id: u64) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(crate) fn list(&self) -> impl Iterator<Item = Quarantined> + '_ {
        self.entries.values().map(Entry::shown)
    }

    /// Adds a culprit, unless the group has it.
    pub(crate) fn add(
        &mut self,
        (group, kind): (&Group, ResourceType),
        culprit: Culprit,
        proxy: &Arc<str>,
        times: (Moment, Moment),
    ) {
        let (now, retry) = times;
        let key = (group.clone(), kind);
        let known = self.by_group.get(&key).map_or(&[][..], Vec::as_slice);
        if known.iter().any(|id| self.entries[id].culprit.target == culprit.target) || self.entries.len() >= ENTRIES {
            return;
        }
        if known.len() >= OF_GROUP {
            self.remove(known[0]);
        }
        let id = self.next_id();
        let (group, proxy) = (group.clone(), proxy.clone());
        let entry = Entry { kind, group, culprit, proxy, since: now, retry_at: now + retry, tries: 0, trial: None };
        self.added.push(entry.shown());
        self.by_target.entry((kind, entry.culprit.target)).or_default().push(id);
        self.entries.insert(id, entry);
        self.by_group.entry(key.clone()).or_default().push(id);
        self.changed.push(key);
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.trials -= usize::from(entry.trial.is_some());
        let key = (entry.group, entry.kind);
        remove_from(&mut self.by_group, &key, id);
        remove_from(&mut self.by_target, &(entry.kind, entry.culprit.target), id);
        self.changed.push(key);
    }

    /// The entries of a group.
    pub(crate) fn of(&self, group: &Group, kind: ResourceType) -> impl Iterator<Item = (u64, &Entry)> {
        let ids = self.by_group.get(&(group.clone(), kind)).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| Some((*id, self.entries.get(id)?)))
    }

    /// The substitutes of any group for this target: it is suspect for other groups, too.
    pub(crate) fn known(&self, kind: ResourceType, target: Target) -> Option<&Substitute> {
        let first = self.by_target.get(&(kind, target))?.first()?;
        self.entries.get(first).map(|one| &one.culprit.substitute)
    }

    /// The lens of a stream; `suspended` are the substitutes that it tries out, with a number of their own.
    pub(crate) fn lens(
        &self,
        (stream, group): (StreamId, &Group),
        kind: ResourceType,
        suspended: Option<(u64, Arc<Suspended>)>,
    ) -> Lens {
        let mut lens = Lens::default();
        for (id, entry) in self.of(group, kind).filter(|(_, entry)| entry.trial != Some(stream)) {
            lens.ids.push(id);
            lens.substitutes.insert(entry.culprit.target, (id, entry.culprit.substitute.clone()));
        }
        lens.ids.extend(suspended.iter().map(|(id, _)| *id));
        lens.suspended = suspended;
        lens
    }

    /// When an entry is to be tried again.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.entries.values().filter(|entry| entry.trial.is_none()).map(|entry| entry.retry_at).min()
    }

    /// The entries that are to be tried again now.
    pub(crate) fn due(&self, now: Moment) -> Vec<(u64, Group, ResourceType)> {
        let due = self.entries.iter().filter(|(_, entry)| entry.trial.is_none() && entry.retry_at <= now);
        due.map(|(id, entry)| (*id, entry.group.clone(), entry.kind)).collect()
    }

    /// Lets a stream try an entry again.
    pub(crate) fn begin_trial(&mut self, id: u64, stream: StreamId) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.trials += usize::from(entry.trial.is_none());
        entry.trial = Some(stream);
        self.changed.push((entry.group.clone(), entry.kind));
    }

    /// Ends the trials of a stream that ended, or that rejected the resource again.
    pub(crate) fn end_trials(
        &mut self,
        stream: StreamId,
        retry: Moment,
        now: Moment,
        of: impl Fn(&Entry) -> bool,
    ) -> bool {
        let mut ended = false;
        for entry in self.entries.values_mut().filter(|entry| entry.trial == Some(stream) && of(entry)) {
            entry.trial = None;
            entry.tries += 1;
            entry.retry_at = now + (retry * 2u32.saturating_pow(entry.tries.min(16))).min(LONGEST);
            self.trials -= 1;
            self.changed.push((entry.group.clone(), entry.kind));
            ended = true;
        }
        ended
    }

    /// The entries that a stream tries again and whose bytes are among these.
    pub(crate) fn tried(&self, stream: StreamId, kind: ResourceType, targets: &FxHashSet<Target>) -> Vec<u64> {
        let tried = |entry: &Entry| entry.trial == Some(stream) && entry.kind == kind;
        let entries = self.entries.iter().filter(|(_, entry)| tried(entry) && targets.contains(&entry.culprit.target));
        entries.map(|(id, _)| *id).collect()
    }
}

fn remove_from<K: Eq + Hash>(lists: &mut FxHashMap<K, Vec<u64>>, key: &K, id: u64) {
    let Some(ids) = lists.get_mut(key) else { return };
    ids.retain(|other| *other != id);
    if ids.is_empty() {
        lists.remove(key);
    }
}

impl Entry {
    fn shown(&self) -> Quarantined {
        Quarantined {
            kind: self.kind,
            resource: self.culprit.name.clone(),
            part: self.culprit.part.clone(),
            replaced: match &self.culprit.substitute {
                Substitute::Resource(_) => true,
                Substitute::Part(body) => !body.is_empty(),
                Substitute::Nothing => false,
            },
            proxy: self.proxy.clone(),
            message: self.culprit.message.clone(),
            since: self.since,
        }
    }
}

/// The replacements that a ledger shows for some of its resources.
#[derive(Default, Debug)]
pub(crate) struct Lens {
    /// Identify the lens, ascending.
    pub(crate) ids: Vec<u64>,
    substitutes: FxHashMap<Target, (u64, Substitute)>,
    /// Those of a search, which have precedence, and its number.
    suspended: Option<(u64, Arc<Suspended>)>,
}

/// A resource that a lens changes.
#[derive(Debug)]
pub(crate) struct Substituted {
    /// `None`: it is neither sent nor removed.
    pub(crate) resource: Option<Resource>,
    /// Whether it is replaced as a whole, and not some of its parts.
    pub(crate) whole: bool,
    /// The entries that apply.
    pub(crate) by: Vec<u64>,
}

impl Lens {
    pub(crate) fn is_empty(&self) -> bool {
        self.substitutes.is_empty() && self.suspended.is_none()
    }

    fn find(&self, target: Target) -> Option<(u64, &Substitute)> {
        let suspended = self.suspended.as_ref().and_then(|(id, suspended)| Some((*id, suspended.get(&target)?)));
        suspended.or_else(|| self.substitutes.get(&target).map(|(id, substitute)| (*id, substitute)))
    }

    /// The substitute of a resource; `None` if it is shown as it is.
    pub(crate) fn view(&self, kind: ResourceType, resource: &Resource) -> Option<Substituted> {
        if self.is_empty() {
            return None;
        }
        if let Some((id, substitute)) = self.find(Target::Resource(resource.version())) {
            let resource = match substitute {
                Substitute::Resource(other) => Some(other.clone()),
                Substitute::Part(_) | Substitute::Nothing => None,
            };
            return Some(Substituted { resource, whole: true, by: vec![id] });
        }
        let mut by = Vec::new();
        let replaced = with_parts(kind, resource, |version| {
            let (id, substitute) = self.find(Target::Part(version))?;
            by.push(id);
            Some(match substitute {
                Substitute::Part(body) => body.clone(),
                Substitute::Resource(_) | Substitute::Nothing => Bytes::new(),
            })
        })?;
        Some(Substituted { resource: Some(replaced), whole: false, by })
    }
}
