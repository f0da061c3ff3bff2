//! A simulated proxy that notes everything that it is sent, and what is wrong with it.
//!
//! It looks at the hosts of a [`crate::steady::Steady`] population, of which every object says one number, its generation, in
//! two places, and of which no host ever goes. So it can tell that
//!
//! - its stream never ended,
//! - nothing of the population ever went, not even for one response,
//! - no resource ever came of half an object,
//! - no resource ever went back to an older generation (unless the test says that it may),
//! - and, where a test asks for it, that two generations were never mixed.

mod reading;
pub(crate) mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protos::Any;
use protos::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use test_harness::run::{Node, Result, wait_for};
use tokio::task::JoinHandle;

use crate::steady::suffix;
use reading::{TYPES, read};
use stream::Told;

/// How long what must come is waited for.
const PATIENCE: Duration = Duration::from_secs(90);

/// A kind of resource that tells a generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Clusters, from DestinationRules.
    Cluster,
    /// Endpoints, from ServiceEntries.
    Endpoints,
    /// Listeners, which tell none.
    Listener,
    /// Routes, from VirtualServices.
    Route,
}

/// A proxy that is connected.
#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// What it has seen.
#[derive(Debug, Default)]
struct Seen {
    /// What the names of the population's hosts end with.
    suffix: String,
    held: BTreeMap<(usize, String), Held>,
    /// After each response: the kind, and the generations of all that is held of it.
    moments: Vec<(Kind, BTreeSet<u64>)>,
    /// How often a resource of the population was sent.
    received: usize,
    wrong: Vec<String>,
    may_go_back: bool,
    forgiving: bool,
    ended: Option<String>,
}

#[derive(Debug)]
struct Held {
    version: String,
    /// By host: what is said of it.
    told: BTreeMap<String, u64>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// Connects to the discovery service at this address; it looks at the population of its namespace.
    pub fn start(address: SocketAddr, node: &Node) -> Observer {
        let namespace = node.metadata["NAMESPACE"].as_str().unwrap_or_default();
        let seen = Arc::new(Mutex::new(Seen {
            suffix: suffix(namespace),
            ..Seen::default()
        }));
        let (shared, node) = (Arc::clone(&seen), node.clone());
        let task = tokio::spawn(async move {
            let take = |told: Told<'_>| match told {
                Told::Response(response) => lock(&shared).take(response),
                Told::Dropped(kind, names) => lock(&shared).forget(kind, names),
            };
            let ended = stream::follow(address, &node, take).await;
            lock(&shared).ended = Some(ended.map_or_else(|error| error.to_string(), |()| "in good order".to_owned()));
        });
        Observer { seen, task }
    }

    /// Waits until so many hosts are there in all kinds, all of this generation.
    pub async fn settled(&self, hosts: usize, generation: u64) -> Result<()> {
        let settled = || async {
            let seen = lock(&self.seen);
            let all = [Kind::Cluster, Kind::Endpoints, Kind::Route];
            let done = all.iter().all(|kind| seen.told(*kind) == (hosts, [generation].into()));
            (done || seen.ended.is_some()).then_some(())
        };
        let waited = wait_for(&format!("generation {generation} of {hosts} hosts"), PATIENCE, settled).await;
        self.check()?;
        waited.map_err(|error| format!("{error}; {}", self.summary()).into())
    }

    /// Whether resources may go back to an older generation from now on: the server's data were.
    pub fn may_go_back(&self, may: bool) {
        lock(&self.seen).may_go_back = may;
    }

    /// Whether from now on only the end of the stream is wrong: somebody takes the population away.
    pub fn forgive(&self, all: bool) {
        lock(&self.seen).forgiving = all;
    }

    /// How many responses came so far.
    pub fn responses(&self) -> usize {
        lock(&self.seen).moments.len()
    }

    /// How often a resource of the population was sent so far.
    pub fn received(&self) -> usize {
        lock(&self.seen).received
    }

    /// Whether it holds a resource in whose name this is.
    pub fn holds(&self, name: &str) -> bool {
        lock(&self.seen).held.keys().any(|(_, held)| held.contains(name))
    }

    /// Fails if anything was wrong so far.
    pub fn check(&self) -> Result<()> {
        let seen = lock(&self.seen);
        if let Some(reason) = &seen.ended {
            return Err(format!("the stream ended: {reason}").into());
        }
        match seen.wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("a proxy got what it must not get:\n{}", seen.wrong.join("\n")).into()),
        }
    }

    /// Fails if any of the responses after the first `since` left a kind with two generations at once.
    pub fn never_mixed(&self, since: usize) -> Result<()> {
        self.unmixed(since, None)
    }

    /// The same of routes alone.
    pub fn routes_never_mixed(&self, since: usize) -> Result<()> {
        self.unmixed(since, Some(Kind::Route))
    }

    fn unmixed(&self, since: usize, only: Option<Kind>) -> Result<()> {
        self.check()?;
        let seen = lock(&self.seen);
        let mut moments = seen.moments[since..].iter();
        let mixed = moments.find(|(kind, told)| told.len() > 1 && only.is_none_or(|only| only == *kind));
        match mixed {
            None => Ok(()),
            Some((kind, told)) => {
                let all = &seen.moments[since..];
                Err(format!("{kind:?} of two generations at once: {told:?}; all responses: {all:?}").into())
            }
        }
    }

    /// The versions of all that it holds, by type and name.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let seen = lock(&self.seen);
        let one = |((kind, name), held): (&(usize, String), &Held)| {
            (format!("{:?} {name}", TYPES[*kind].0), held.version.clone())
        };
        seen.held.iter().map(one).collect()
    }

    fn summary(&self) -> String {
        let seen = lock(&self.seen);
        let of = |kind| format!("{kind:?} {:?}", seen.told(kind));
        [of(Kind::Cluster), of(Kind::Endpoints), of(Kind::Route)].join(", ")
    }
}

impl Seen {
    fn take(&mut self, response: &DeltaDiscoveryResponse) {
        let before = self.wrong.len();
        self.note(response);
        if self.forgiving {
            self.wrong.truncate(before);
        }
    }

    /// A proxy forgets what it does not ask for any more.
    fn forget(&mut self, kind: usize, names: &[String]) {
        for name in names {
            self.held.remove(&(kind, name.clone()));
        }
    }

    fn note(&mut self, response: &DeltaDiscoveryResponse) {
        let Some(kind) = TYPES.iter().position(|(_, url)| *url == response.type_url) else {
            self.wrong.push(format!("a response of type {}", response.type_url));
            return;
        };
        for name in &response.removed_resources {
            self.held.remove(&(kind, name.clone()));
            if name.contains(&self.suffix) {
                self.wrong.push(format!("{:?} {name} went", TYPES[kind].0));
            }
        }
        for resource in &response.resources {
            let read = |any: &Any| read(TYPES[kind].0, &any.value, &self.suffix);
            let read = resource.resource.as_ref().map(read);
            let told = match read.unwrap_or_else(|| Err("it is empty".to_owned())) {
                Ok(told) => told,
                Err(problem) => {
                    self.wrong
                        .push(format!("{:?} {}: {problem}", TYPES[kind].0, resource.name));
                    continue;
                }
            };
            self.received += usize::from(!told.is_empty());
            let version = resource.version.clone();
            let before = self.held.insert((kind, resource.name.clone()), Held { version, told });
            self.compare((kind, &resource.name), before);
        }
        let kind = TYPES[kind].0;
        let (_, told) = self.told(kind);
        self.moments.push((kind, told));
    }

    fn compare(&mut self, (kind, name): (usize, &str), before: Option<Held>) {
        let (Some(before), Some(now)) = (before, self.held.get(&(kind, name.to_owned()))) else {
            return;
        };
        for (host, old) in before.told {
            let problem = match now.told.get(&host) {
                None => "went".to_owned(),
                Some(new) if *new < old && !self.may_go_back => format!("went back from {old} to {new}"),
                Some(_) => continue,
            };
            self.wrong.push(format!("{:?} {name}: {host} {problem}", TYPES[kind].0));
        }
    }

    /// How many hosts are told of by a kind, and their generations.
    fn told(&self, kind: Kind) -> (usize, BTreeSet<u64>) {
        let of = self.held.iter().filter(|((at, _), _)| TYPES[*at].0 == kind);
        let told: BTreeMap<&String, u64> = of
            .flat_map(|(_, held)| held.told.iter().map(|(host, told)| (host, *told)))
            .collect();
        (told.len(), told.values().copied().collect())
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
