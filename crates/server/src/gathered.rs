//! Changes that wait for a commit, in two lanes.
//!
//! Changes of endpoints and pods have a lane of their own, so that they do not wait for the processor time that an expensive change of
//! the configuration used, such as that of an EnvoyFilter for all proxies.

use std::time::Instant;

use world::Batch;

use crate::pace::{LastCommit, Pace};
use crate::status_tracker::Observations;

/// Merged batches with the observations that came with them.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Batches of endpoints and pods alone. No object is in both lanes.
    endpoints: Lane,
    others: Lane,
}

/// Batches that are committed together.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) batch: Option<Batch>,
    pub(crate) observed: Observations,
    /// When the first batch arrived.
    pub(crate) since: Option<Instant>,
}

impl Gathered {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.others.is_empty()
    }

    /// Adds a batch behind those that arrived before.
    pub(crate) fn add(&mut self, later: Batch, observed: Observations) {
        let (has_endpoints, has_others) = (later.has_workloads(), later.has_others());
        if has_endpoints && !has_others && !self.others.has_workloads() {
            return self.endpoints.add(later, observed);
        }
        if has_endpoints {
            self.join();
        }
        self.others.add(later, observed);
    }

    /// The time at which the next commit may start; `None` if nothing waits.
    pub(crate) fn due(&self, paces: &Paces, pace: &Pace) -> Option<Instant> {
        let lanes = [(&self.endpoints, paces.endpoints), (&self.others, paces.others)];
        lanes.into_iter().filter(|(lane, _)| !lane.is_empty()).map(|(_, last)| next(last, pace)).min()
    }

    /// Takes what is due: all, or only the endpoints if the other changes must wait.
    pub(crate) fn take(&mut self, paces: &Paces, pace: &Pace) -> Lane {
        let others_wait = next(paces.others, pace) > Instant::now();
        match others_wait && !self.endpoints.is_empty() {
            true => std::mem::take(&mut self.endpoints),
            false => self.take_all(),
        }
    }

    /// Takes the endpoints if they are due.
    pub(crate) fn take_endpoints(&mut self, paces: &Paces, pace: &Pace) -> Option<Lane> {
        let is_due = self.endpoints.batch.is_some() && next(paces.endpoints, pace) <= Instant::now();
        is_due.then(|| std::mem::take(&mut self.endpoints))
    }

    /// Puts endpoints back before all that arrived since they were taken.
    pub(crate) fn put_back(&mut self, mut endpoints: Lane) {
        let lane = if self.others.has_workloads() { &mut self.others } else { &mut self.endpoints };
        endpoints.append(std::mem::take(lane));
        *lane = endpoints;
    }

    /// Takes everything.
    pub(crate) fn take_all(&mut self) -> Lane {
        self.join();
        std::mem::take(&mut self.others)
    }

    /// Puts the waiting endpoints among the other changes.
    fn join(&mut self) {
        self.others.append(std::mem::take(&mut self.endpoints));
    }
}

impl Lane {
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_none() && self.observed.is_empty()
    }

    /// Whether it may change endpoints or pods.
    fn has_workloads(&self) -> bool {
        self.batch.as_ref().is_some_and(Batch::has_workloads)
    }

    fn add(&mut self, later: Batch, observed: Observations) {
        self.append(Lane { batch: Some(later), observed, since: Some(Instant::now()) });
    }

    /// Adds changes that arrived later.
    pub(crate) fn append(&mut self, later: Lane) {
        self.observed.extend(later.observed);
        self.since = [self.since, later.since].into_iter().flatten().min();
        match (&mut self.batch, later.batch) {
            (Some(batch), Some(later)) => batch.merge(later),
            (batch, later) => *batch = batch.take().or(later),
        }
    }
}

/// The time at which the next commit of a lane may start after the last one.
fn next(last: Option<LastCommit>, pace: &Pace) -> Instant {
    last.map_or_else(Instant::now, |last| last.next(pace))
}

/// The last commit of each lane.
#[derive(Clone, Copy, Default)]
pub(crate) struct Paces {
    endpoints: Option<LastCommit>,
    others: Option<LastCommit>,
}

impl Paces {
    /// Records that a commit starts now.
    pub(crate) fn start(&mut self, batch: &Batch) {
        if !batch.has_others() {
            // The processor time still counts for the next other change as well, so that the share of both stays bounded.
            self.endpoints = Some(LastCommit::start());
        } else {
            // The processor time from now on is not that of endpoints.
            self.endpoints.iter_mut().for_each(LastCommit::end);
            self.others = Some(LastCommit::start());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use config::{AnyObject, Kind, ObjectKey, ParseOptions, parse_documents};

    use super::*;

    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\nspec: {ports: [{port: 80}]}\n";
    const SLICE: &str = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a, namespace: shop}\n\
                         addressType: IPv4\nendpoints: []\nports: []\n";

    fn batch(texts: &[&str]) -> Batch {
        let mut batch = Batch::new();
        for text in texts {
            let object: AnyObject =
                parse_documents(text.as_bytes(), "f", &ParseOptions::default()).objects.pop().expect("an object");
            batch.put(object);
        }
        batch
    }

    fn kinds(taken: &Lane) -> (bool, bool) {
        taken.batch.as_ref().map_or((false, false), |batch| (batch.has_workloads(), batch.has_others()))
    }

    /// A pace that lets no second commit start, with a commit of the configuration that just started.
    fn busy() -> (Paces, Pace) {
        let pace = Pace { interval: Duration::from_secs(3600), ..Pace::UNLIMITED };
        let mut paces = Paces::default();
        paces.start(&batch(&[SERVICE]));
        (paces, pace)
    }

    #[test]
    fn endpoints_do_not_wait_for_other_changes() {
        let (mut paces, pace) = busy();
        let mut gathered = Gathered::default();
        gathered.add(batch(&[SERVICE]), Observations::new());
        assert!(gathered.due(&paces, &pace).is_some_and(|due| due > Instant::now()));
        gathered.add(batch(&[SLICE]), Observations::new());
        assert!(gathered.due(&paces, &pace).is_some_and(|due| due <= Instant::now()));
        let taken = gathered.take(&paces, &pace);
        assert_eq!(kinds(&taken), (true, false));
        paces.start(&batch(&[SLICE]));
        assert!(gathered.due(&paces, &pace).is_some_and(|due| due > Instant::now()), "the service still waits");
        gathered.add(batch(&[SLICE]), Observations::new());
        assert!(gathered.due(&paces, &pace).is_some_and(|due| due > Instant::now()), "endpoints have a pace, too");
        assert_eq!(kinds(&gathered.take_all()), (true, true));
        assert!(gathered.is_empty());
    }

    #[test]
    fn an_object_is_never_overtaken() {
        for mixed_first in [true, false] {
            let (paces, pace) = busy();
            let mut gathered = Gathered::default();
            let mut batches = [batch(&[SERVICE, SLICE]), batch(&[SLICE])];
            if !mixed_first {
                batches.reverse();
            }
            batches.into_iter().for_each(|batch| gathered.add(batch, Observations::new()));
            assert_eq!(kinds(&gathered.take(&paces, &pace)), (true, true), "{mixed_first}");
        }
        let mut gathered = Gathered::default();
        gathered.add(batch(&[SLICE]), Observations::new());
        let older = gathered.take_endpoints(&Paces::default(), &Pace::UNLIMITED).expect("endpoints");
        let mut removal = Batch::new();
        removal.remove(&ObjectKey::new(Kind::EndpointSlice, "shop", "a"));
        gathered.add(removal, Observations::new());
        gathered.put_back(older);
        let both = gathered.take_all().batch.expect("both");
        let changes = world::World::new(Default::default(), 1).commit(both);
        assert!(changes.objects.upserts.is_empty(), "the later change counts");
        let mut gathered = Gathered::default();
        let mut relisted = Batch::new();
        relisted.replace(Default::default(), "".into(), Default::default());
        gathered.add(relisted, Observations::new());
        let mut removal = Batch::new();
        removal.remove(&ObjectKey::new(Kind::EndpointSlice, "shop", "a"));
        gathered.add(removal, Observations::new());
        let (paces, pace) = busy();
        assert_eq!(kinds(&gathered.take(&paces, &pace)), (true, true), "a list of all objects has endpoints");
    }
}
