//! The clusters that Secrets define. Pure: Secrets in, [`Step`]s out.
//!
//! If several Secrets define a cluster, the oldest takes precedence. The others get a diagnostic, and the next one
//! takes over when it is deleted. If a kubeconfig is rejected, the previous one of the same Secret stays in effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Diagnostic, FieldPath, Severity, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

use super::kubeconfig::RejectedKubeconfig;

/// The maximum number of clusters.
const MOST: usize = 1000;

/// An action.
#[derive(Clone, Debug)]
pub enum Step<W> {
    /// Start to read a cluster, or switch to a new connection.
    Start {
        /// The cluster's id.
        cluster: Arc<str>,
        /// The Secret that defines it, such as `Secret NAMESPACE/NAME`.
        secret: Arc<str>,
        /// The connection.
        way: W,
    },
    /// Remove a cluster.
    End {
        /// The cluster's id.
        cluster: Arc<str>,
    },
}

/// The result of changes.
#[derive(Clone, Debug)]
pub struct Settled<W> {
    /// The actions, by cluster.
    pub steps: Vec<Step<W>>,
    /// The complete diagnostics of each Secret whose diagnostics changed. An empty list clears earlier ones.
    pub diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

/// An entry of a Secret: the kubeconfig of a cluster.
#[derive(Clone, Debug)]
pub struct Text<W> {
    /// The cluster's id.
    pub cluster: Arc<str>,
    /// The [`hash`] of the kubeconfig.
    pub hash: u128,
    /// The connection, or the reason for rejecting it; `None` if it is already known ([`Secrets::knows`]).
    pub read: Option<Result<W, RejectedKubeconfig>>,
}

/// A hash to compare kubeconfigs.
pub fn hash(text: &[u8]) -> u128 {
    xxh3_128(text)
}

/// The known Secrets. `W` is the connection type.
#[derive(Debug)]
pub struct Secrets<W> {
    place: Arc<str>,
    home: Arc<str>,
    secrets: BTreeMap<Rank, BTreeMap<Arc<str>, Entry<W>>>,
    ranks: BTreeMap<Arc<str>, Rank>,
    running: BTreeMap<Arc<str>, Held>,
    reported: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

/// The order of Secrets: creation time and name. Secrets without a time come last.
type Rank = (bool, Option<Timestamp>, Arc<str>);

#[derive(Clone, Debug)]
struct Entry<W> {
    hash: u128,
    read: Result<W, RejectedKubeconfig>,
}

/// The kubeconfig in use for a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    secret: Arc<str>,
    hash: u128,
}

impl<W: Clone> Secrets<W> {
    /// No Secrets. `place` is the prefix of their names, such as `Secret istio-system/`; `home` is the id of the config
    /// cluster, which no Secret may define.
    pub fn new(place: &str, home: &str) -> Secrets<W> {
        Secrets {
            place: place.into(),
            home: home.into(),
            secrets: BTreeMap::new(),
            ranks: BTreeMap::new(),
            running: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    /// Whether a Secret had this kubeconfig for a cluster at its last update.
    pub fn knows(&self, secret: &str, cluster: &str, hash: u128) -> bool {
        let entries = self.ranks.get(secret).and_then(|rank| self.secrets.get(rank));
        entries.and_then(|entries| entries.get(cluster)).is_some_and(|known| known.hash == hash)
    }

    /// Updates a Secret: its creation time and its entries.
    pub fn put(&mut self, name: &str, made: Option<Timestamp>, texts: Vec<Text<W>>) {
        let name: Arc<str> = name.into();
        let rank = (made.is_none(), made, name.clone());
        let before = self.ranks.insert(name, rank.clone());
        let mut before = before.and_then(|before| self.secrets.remove(&before)).unwrap_or_default();
        let entries = texts.into_iter().filter_map(|text| {
            let known = before.remove(&text.cluster).filter(|known| known.hash == text.hash);
            let entry = match text.read {
                Some(read) => Entry { hash: text.hash, read },
                None => known?,
            };
            Some((text.cluster, entry))
        });
        let entries = entries.collect();
        self.secrets.insert(rank, entries);
    }

    /// Removes a Secret.
    pub fn remove(&mut self, name: &str) {
        if let Some(rank) = self.ranks.remove(name) {
            self.secrets.remove(&rank);
        }
    }

    /// The names of the Secrets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ranks.keys().map(|name| &**name)
    }

    /// The clusters that a Secret defines.
    pub fn named_by(&self, secret: &str) -> impl Iterator<Item = &Arc<str>> {
        let entries = self.ranks.get(secret).and_then(|rank| self.secrets.get(rank));
        entries.into_iter().flat_map(BTreeMap::keys)
    }

    /// The clusters in use after the last [`Secrets::settle`].
    pub fn followed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.running.keys()
    }

    /// Returns the actions and diagnostics after changes.
    pub fn settle(&mut self) -> Settled<W> {
        let mut settled = Settled { steps: Vec::new(), diagnostics: BTreeMap::new() };
        let mut reported: BTreeMap<Arc<str>, Vec<Diagnostic>> = BTreeMap::new();
        let named: BTreeSet<Arc<str>> = self.secrets.values().flat_map(BTreeMap::keys).cloned().collect();
        let mut wanted = BTreeMap::new();
        for cluster in &named {
            if let Some(held) = self.choose(cluster, wanted.len(), &mut reported) {
                wanted.insert(cluster.clone(), held);
            }
        }
        let over = self.running.keys().filter(|cluster| !wanted.contains_key(*cluster));
        settled.steps.extend(over.map(|cluster| Step::End { cluster: cluster.clone() }));
        for (cluster, held) in &wanted {
            if self.running.get(cluster) == Some(held) {
                continue;
            }
            if let Some(way) = self.way(cluster, held) {
                settled.steps.push(Step::Start { cluster: cluster.clone(), secret: self.file(&held.secret), way });
            }
        }
        self.running = wanted;
        for (file, list) in &reported {
            if self.reported.get(file) != Some(list) {
                settled.diagnostics.insert(file.clone(), list.clone());
            }
        }
        let silent = self.reported.keys().filter(|file| !reported.contains_key(*file));
        settled.diagnostics.extend(silent.map(|file| (file.clone(), Vec::new())));
        self.reported = reported;
        settled
    }

    /// Chooses the kubeconfig for a cluster; `None` if there is none.
    fn choose(
        &self,
        cluster: &Arc<str>,
        followed: usize,
        reported: &mut BTreeMap<Arc<str>, Vec<Diagnostic>>,
    ) -> Option<Held> {
        let naming = self.secrets.iter();
        let naming = naming.filter_map(|((.., name), entries)| Some((name, entries.get(cluster)?)));
        let naming: Vec<(&Arc<str>, &Entry<W>)> = naming.collect();
        let mut say = |secret: &Arc<str>, diagnostic: Diagnostic| {
            reported.entry(self.file(secret)).or_default().push(diagnostic);
        };
        if *cluster == self.home {
            for (name, _) in naming {
                say(name, self.own_cluster(name, cluster));
            }
            return None;
        }
        for (name, entry) in &naming {
            if let Err(refusal) = &entry.read {
                say(name, self.refused(name, cluster, refusal));
            }
        }
        let (first, _) = naming.first()?;
        let running = self.running.get(cluster);
        let usable = naming.iter().find(|(_, entry)| entry.read.is_ok());
        let held = match (usable, running) {
            // While a Secret's new kubeconfig is rejected, its previous one stays in effect.
            (usable, Some(running)) if running.secret == **first && usable.is_none_or(|(name, _)| name != first) => {
                running.clone()
            }
            (Some((name, entry)), _) => Held { secret: (*name).clone(), hash: entry.hash },
            (None, Some(running)) if naming.iter().any(|(name, _)| **name == running.secret) => running.clone(),
            (None, _) => return None,
        };
        for (name, entry) in &naming {
            if **name != held.secret && entry.read.is_ok() {
                say(name, self.duplicate(name, cluster, &held.secret));
            }
        }
        if followed >= MOST && running.is_none() {
            say(&held.secret, self.too_many(&held.secret, cluster));
            return None;
        }
        Some(held)
    }

    fn way(&self, cluster: &str, held: &Held) -> Option<W> {
        let entry = self.secrets.get(self.ranks.get(&held.secret)?)?.get(cluster)?;
        entry.read.as_ref().ok().filter(|_| entry.hash == held.hash).cloned()
    }

    fn file(&self, secret: &str) -> Arc<str> {
        format!("{}{secret}", self.place).into()
    }

    fn about(&self, secret: &str, cluster: &str, code: &'static str, message: String) -> Diagnostic {
        Diagnostic {
            file: Some(self.file(secret)),
            line: 0,
            column: 0,
            object: None,
            path: FieldPath::root().field("data").key(cluster),
            severity: Severity::Warning,
            code,
            message,
            hint: None,
        }
    }

    fn own_cluster(&self, secret: &str, cluster: &str) -> Diagnostic {
        let message = "this is the config cluster, which is already read".to_owned();
        self.about(secret, cluster, "own-cluster", message)
    }

    fn duplicate(&self, secret: &str, cluster: &str, holder: &str) -> Diagnostic {
        let message = format!("{}{holder} names this cluster, too, and holds", self.place);
        Diagnostic {
            hint: Some("remove the key from one of them".to_owned()),
            ..self.about(secret, cluster, "duplicate-cluster", message)
        }
    }

    fn too_many(&self, secret: &str, cluster: &str) -> Diagnostic {
        let message = format!("it is left out: there are {MOST} clusters already");
        self.about(secret, cluster, "too-many-clusters", message)
    }

    fn refused(&self, secret: &str, cluster: &str, refusal: &RejectedKubeconfig) -> Diagnostic {
        let mut about = self.about(secret, cluster, "refused-kubeconfig", refusal.message.clone());
        for segment in refusal.path.segments() {
            about.path = match segment {
                config::Segment::Field(name) => about.path.field(name.clone()),
                config::Segment::Index(at) => about.path.index(*at),
                config::Segment::Key(key) => about.path.key(key.clone()),
            };
        }
        Diagnostic { severity: Severity::Error, hint: refusal.hint.map(str::to_owned), ..about }
    }
}
