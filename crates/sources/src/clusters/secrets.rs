//! Which clusters the Secrets name, as a machine that reads and waits for nothing: Secrets go in, [`Step`]s come out.
//!
//! One Secret holds a cluster: the oldest that names it. The others are told so, and the next one takes over when it goes.
//! A text that is refused takes nothing away: the one before it, of the same Secret, stays in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Diagnostic, FieldPath, Severity, Timestamp};
use xxhash_rust::xxh3::xxh3_128;

use super::kubeconfig::Refusal;

/// No more clusters are followed at once.
const MOST: usize = 1000;

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Step<W> {
    /// Follow a cluster; one that is followed is followed this way from now on.
    Start {
        /// Its id.
        cluster: Arc<str>,
        /// The Secret that holds it, such as `Secret NAMESPACE/NAME`.
        secret: Arc<str>,
        /// The way to it.
        way: W,
    },
    /// Forget a cluster.
    End {
        /// Its id.
        cluster: Arc<str>,
    },
}

/// What came of changes.
#[derive(Clone, Debug)]
pub struct Settled<W> {
    /// What is to be done, by cluster.
    pub steps: Vec<Step<W>>,
    /// All that is to be said, by Secret, of the Secrets of which that changed; an empty list takes back what was said.
    pub diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

/// What a Secret has below the id of a cluster.
#[derive(Clone, Debug)]
pub struct Text<W> {
    /// The id.
    pub cluster: Arc<str>,
    /// The [`hash`] of the text.
    pub hash: u128,
    /// The way that it describes, or why it is none; nothing where it is known already ([`Secrets::knows`]).
    pub read: Option<Result<W, Refusal>>,
}

/// By which equal texts are told.
pub fn hash(text: &[u8]) -> u128 {
    xxh3_128(text)
}

/// The Secrets that there are. `W` is the way to a cluster.
#[derive(Debug)]
pub struct Secrets<W> {
    place: Arc<str>,
    home: Arc<str>,
    secrets: BTreeMap<Rank, BTreeMap<Arc<str>, Entry<W>>>,
    ranks: BTreeMap<Arc<str>, Rank>,
    running: BTreeMap<Arc<str>, Held>,
    said: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

/// The order of Secrets: when it was made, and its name. What has no time comes last.
type Rank = (bool, Option<Timestamp>, Arc<str>);

#[derive(Clone, Debug)]
struct Entry<W> {
    hash: u128,
    read: Result<W, Refusal>,
}

/// Which text of which Secret a cluster is followed by.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    secret: Arc<str>,
    hash: u128,
}

impl<W: Clone> Secrets<W> {
    /// None yet. `place` is what stands before their names, such as `Secret istio-system/`; `home` is the id of the home
    /// cluster, which no Secret may name.
    pub fn new(place: &str, home: &str) -> Secrets<W> {
        Secrets {
            place: place.into(),
            home: home.into(),
            secrets: BTreeMap::new(),
            ranks: BTreeMap::new(),
            running: BTreeMap::new(),
            said: BTreeMap::new(),
        }
    }

    /// Whether a Secret had this text below a cluster's id when it was seen last.
    pub fn knows(&self, secret: &str, cluster: &str, hash: u128) -> bool {
        let entries = self.ranks.get(secret).and_then(|rank| self.secrets.get(rank));
        entries
            .and_then(|entries| entries.get(cluster))
            .is_some_and(|known| known.hash == hash)
    }

    /// A Secret is so: when it was made, and what it has.
    pub fn put(&mut self, name: &str, made: Option<Timestamp>, texts: Vec<Text<W>>) {
        let name: Arc<str> = name.into();
        let rank = (made.is_none(), made, name.clone());
        let before = self.ranks.insert(name, rank.clone());
        let mut before = before
            .and_then(|before| self.secrets.remove(&before))
            .unwrap_or_default();
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

    /// A Secret is gone.
    pub fn remove(&mut self, name: &str) {
        if let Some(rank) = self.ranks.remove(name) {
            self.secrets.remove(&rank);
        }
    }

    /// The names of the Secrets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ranks.keys().map(|name| &**name)
    }

    /// The clusters that a Secret names.
    pub fn named_by(&self, secret: &str) -> impl Iterator<Item = &Arc<str>> {
        let entries = self.ranks.get(secret).and_then(|rank| self.secrets.get(rank));
        entries.into_iter().flat_map(BTreeMap::keys)
    }

    /// The clusters that are followed, by the Secrets as they were when it was settled last.
    pub fn followed(&self) -> impl Iterator<Item = &Arc<str>> {
        self.running.keys()
    }

    /// What is to be done and said after changes.
    pub fn settle(&mut self) -> Settled<W> {
        let mut settled = Settled {
            steps: Vec::new(),
            diagnostics: BTreeMap::new(),
        };
        let mut said: BTreeMap<Arc<str>, Vec<Diagnostic>> = BTreeMap::new();
        let named: BTreeSet<Arc<str>> = self.secrets.values().flat_map(BTreeMap::keys).cloned().collect();
        let mut wanted = BTreeMap::new();
        for cluster in &named {
            if let Some(held) = self.choose(cluster, wanted.len(), &mut said) {
                wanted.insert(cluster.clone(), held);
            }
        }
        let over = self.running.keys().filter(|cluster| !wanted.contains_key(*cluster));
        settled.steps.extend(over.map(|cluster| Step::End {
            cluster: cluster.clone(),
        }));
        for (cluster, held) in &wanted {
            if self.running.get(cluster) == Some(held) {
                continue;
            }
            if let Some(way) = self.way(cluster, held) {
                settled.steps.push(Step::Start {
                    cluster: cluster.clone(),
                    secret: self.file(&held.secret),
                    way,
                });
            }
        }
        self.running = wanted;
        for (file, list) in &said {
            if self.said.get(file) != Some(list) {
                settled.diagnostics.insert(file.clone(), list.clone());
            }
        }
        let silent = self.said.keys().filter(|file| !said.contains_key(*file));
        settled
            .diagnostics
            .extend(silent.map(|file| (file.clone(), Vec::new())));
        self.said = said;
        settled
    }

    /// Which text a cluster is to be followed by; none: it is not to be followed.
    fn choose(
        &self,
        cluster: &Arc<str>,
        followed: usize,
        said: &mut BTreeMap<Arc<str>, Vec<Diagnostic>>,
    ) -> Option<Held> {
        let naming = self.secrets.iter();
        let naming = naming.filter_map(|((.., name), entries)| Some((name, entries.get(cluster)?)));
        let naming: Vec<(&Arc<str>, &Entry<W>)> = naming.collect();
        let mut say = |secret: &Arc<str>, diagnostic: Diagnostic| {
            said.entry(self.file(secret)).or_default().push(diagnostic);
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
            // What its Secret said before stays in force while what it says now is refused.
            (usable, Some(running)) if running.secret == **first && usable.is_none_or(|(name, _)| name != first) => {
                running.clone()
            }
            (Some((name, entry)), _) => Held {
                secret: (*name).clone(),
                hash: entry.hash,
            },
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
        let message = "this is the cluster that the configuration is read from; it is not read twice".to_owned();
        self.about(secret, cluster, "own-cluster", message)
    }

    fn duplicate(&self, secret: &str, cluster: &str, holder: &str) -> Diagnostic {
        let message = format!("{}{holder} names this cluster, too, and holds", self.place);
        Diagnostic {
            hint: Some("take the key out of one of them".to_owned()),
            ..self.about(secret, cluster, "duplicate-cluster", message)
        }
    }

    fn too_many(&self, secret: &str, cluster: &str) -> Diagnostic {
        let message = format!("it is left out: there are {MOST} clusters already");
        self.about(secret, cluster, "too-many-clusters", message)
    }

    fn refused(&self, secret: &str, cluster: &str, refusal: &Refusal) -> Diagnostic {
        let mut about = self.about(secret, cluster, "refused-kubeconfig", refusal.message.clone());
        for segment in refusal.path.segments() {
            about.path = match segment {
                config::Segment::Field(name) => about.path.field(name.clone()),
                config::Segment::Index(at) => about.path.index(*at),
                config::Segment::Key(key) => about.path.key(key.clone()),
            };
        }
        Diagnostic {
            severity: Severity::Error,
            hint: refusal.hint.map(str::to_owned),
            ..about
        }
    }
}
