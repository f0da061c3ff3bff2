//! A simulated proxy that records everything that it receives, and checks it.
//!
//! It checks the hosts of a [`crate::steady::Steady`] population. Every object contains a number, its generation, in
//! two places, and no host is ever deleted. The proxy checks that
//!
//! - its stream never ended,
//! - no resource of the population was ever removed, not even by one response,
//! - no resource was ever derived from a partial object,
//! - no resource ever returned to an older generation, unless the test permits it,
//! - and, if the test requires it, that two generations were never mixed.

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

/// The maximum time to wait for an expected change.
const PATIENCE: Duration = Duration::from_secs(90);

/// A resource type, with the object that has its generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Clusters, from DestinationRules.
    Cluster,
    /// Endpoints, from ServiceEntries.
    Endpoints,
    /// Listeners, which contain no generation.
    Listener,
    /// Routes, from VirtualServices.
    Route,
}

/// A connected proxy.
#[derive(Debug)]
pub struct Observer {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// The record of a proxy.
#[derive(Debug, Default)]
struct Seen {
    /// The suffix of the population's hostnames.
    suffix: String,
    held: BTreeMap<(usize, String), Held>,
    /// After each response: the type, and the generations of all its resources that the proxy has.
    moments: Vec<(Kind, BTreeSet<u64>)>,
    /// The number of resources of the population that were sent.
    received: usize,
    wrong: Vec<String>,
    may_go_back: bool,
    forgiving: bool,
    ended: Option<String>,
}

#[derive(Debug)]
struct Held {
    version: String,
    /// The generations, by host.
    told: BTreeMap<String, u64>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// Connects to the discovery service at this address, to observe the population of its namespace.
    pub fn start(address: SocketAddr, node: &Node) -> Observer {
        let namespace = node.metadata["NAMESPACE"].as_str().unwrap_or_default();
        let seen = Arc::new(Mutex::new(Seen { suffix: suffix(namespace), ..Seen::default() }));
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

    /// Waits until all types have this many hosts, all with this generation.
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

    /// Permits resources to return to an older generation from now on, because the server's data was restored.
    pub fn may_go_back(&self, may: bool) {
        lock(&self.seen).may_go_back = may;
    }

    /// From now on, only the end of the stream is an error, because the population is deleted.
    pub fn forgive(&self, all: bool) {
        lock(&self.seen).forgiving = all;
    }

    /// The number of responses so far.
    pub fn responses(&self) -> usize {
        lock(&self.seen).moments.len()
    }

    /// The number of resources of the population that were sent so far.
    pub fn received(&self) -> usize {
        lock(&self.seen).received
    }

    /// Whether it has a resource whose name contains this text.
    pub fn holds(&self, name: &str) -> bool {
        lock(&self.seen).held.keys().any(|(_, held)| held.contains(name))
    }

    /// Fails if any check failed so far.
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

    /// Fails if a response after the first `since` left a type with two generations at once.
    pub fn never_mixed(&self, since: usize) -> Result<()> {
        self.unmixed(since, None)
    }

    /// As above, for routes only.
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

    /// The versions of all its resources, by type and name.
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

    /// A proxy drops resources to which it does not subscribe any more.
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
                    self.wrong.push(format!("{:?} {}: {problem}", TYPES[kind].0, resource.name));
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

    /// The number of hosts in a type, and their generations.
    fn told(&self, kind: Kind) -> (usize, BTreeSet<u64>) {
        let of = self.held.iter().filter(|((at, _), _)| TYPES[*at].0 == kind);
        let told: BTreeMap<&String, u64> =
            of.flat_map(|(_, held)| held.told.iter().map(|(host, told)| (host, *told))).collect();
        (told.len(), told.values().copied().collect())
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
