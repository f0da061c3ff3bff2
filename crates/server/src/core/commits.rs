//! Commits: another thread derives what they change, which is published and applied to the ledgers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use world::Batch;

use super::{Core, SHARE};
use crate::ahead::Ahead;
use crate::clients::Clients;
use crate::gathered::Lane;
use crate::inbox::Inbox;
use crate::log::log_diagnostics;
use crate::served_world::{Changes, Compared, ServedWorld};
use crate::stalls::Step;

impl Core {
    /// Commits changes and applies the observations.
    pub(super) fn take_in(&mut self, mut taken: Lane, inbox: &mut Inbox) {
        if self.repairs.has_failed() {
            return;
        }
        if let Some(batch) = taken.batch.take().filter(|batch| !batch.is_empty()) {
            self.paces.start(&batch);
            taken.since.iter().for_each(|since| self.counters.debounce.observe(since.elapsed().as_secs_f64()));
            taken.append(self.commit(batch, inbox));
        }
        self.tracker.observe(taken.observed, self.hub.epoch());
    }

    /// Commits a batch. Returns the observations of changes that were committed at the same time.
    pub(super) fn commit(&mut self, batch: Batch, inbox: &mut Inbox) -> Lane {
        let start = Instant::now();
        if self.expected.is_long() && !self.streams.open.is_empty() && Ahead::is_safe_during(&batch) {
            // It takes 0.1 s in a mesh with millions of rows.
            match self.beside(inbox, |served| served.world.fork()) {
                Ok(fork) => self.ahead = Some(Ahead::new(fork)),
                Err(panic) => self.contain::<()>("a fork of the world", Err(panic)),
            }
        }
        let objects = self.watched.objects.clone();
        let mut changes = match self.beside(inbox, move |served| objects.commit(&mut served.world, batch)) {
            Ok(changes) => self.committed(changes, start),
            Err(panic) => return self.fail_commit("a commit", panic),
        };
        let relisted = self.hub.relisted(&changes);
        let compared = relisted.map(|relisted| self.beside(inbox, |served| relisted.compare(served)));
        self.expected.took(start.elapsed());
        let compared = match compared.transpose() {
            Ok(compared) => compared.unwrap_or_default(),
            Err(panic) => return self.fail_commit("applying a commit", panic),
        };
        // Both are applied before the next response, so that no stream is sent endpoints as they were before.
        let (later, observed) = match self.catch_up(inbox) {
            Ok(caught_up) => caught_up,
            Err(panic) => return self.fail_commit("a commit", panic),
        };
        later.into_iter().for_each(|later| changes.append(later));
        self.apply(changes, compared, inbox);
        observed
    }

    /// Commits to the world what was committed to its fork, and drops the fork. Returns what changed, with the observations.
    pub(super) fn catch_up(&mut self, inbox: &mut Inbox) -> std::thread::Result<(Option<Changes>, Lane)> {
        let Some(ahead) = self.ahead.take() else { return Ok(Default::default()) };
        let (fork, mut sent, waiting) = ahead.end();
        self.gathered.put_back(waiting);
        let (start, batch, objects) = (Instant::now(), sent.batch.take(), self.watched.objects.clone());
        let changes = self.beside(inbox, move |served| {
            let changes = batch.map(|batch| objects.commit(&mut served.world, batch));
            // It may be the last that has rows which the long commit replaced.
            drop(fork);
            changes
        })?;
        sent.since.iter().for_each(|since| self.counters.debounce.observe((start - *since).as_secs_f64()));
        Ok((changes.map(|changes| self.committed(changes, start)), sent))
    }

    /// Publishes what a commit changed, apart from resources. Returns the changes of these.
    pub(super) fn committed(&mut self, mut changes: world::Changes, start: Instant) -> Changes {
        let settled = Instant::now();
        self.note_panics(&changes.panics);
        self.counters.commits += 1;
        self.counters.commit_seconds += start.elapsed().as_secs_f64();
        self.counters.events.note(&changes);
        log_diagnostics(&changes.overridden);
        if let Some(mesh) = &changes.mesh {
            self.watched.mesh.send_replace(Arc::new(mesh.config.clone()));
        }
        self.watched.publish(&self.served.world, changes.names, changes.keys);
        let (resources, catalogues) = (changes.resources.len(), changes.catalogues.len());
        tracing::debug!(
            epoch = changes.epoch,
            resources,
            catalogues,
            micros = start.elapsed().as_micros(),
            "committed"
        );
        let now = self.now();
        self.tracker.conflict(&changes.conflicts, now);
        self.tracker.patched(&changes.patching, now);
        self.tracker.stand(std::mem::take(&mut changes.standings), now);
        let changes = ServedWorld::changes(changes);
        let what = || format!("{resources} resources, {catalogues} catalogues");
        self.counters.stalls.note(Step::Commit, settled, what);
        changes
    }

    /// Applies the changes of a commit to the ledgers. If this takes long, clients are served meanwhile.
    pub(super) fn apply(&mut self, changes: Changes, compared: Compared, inbox: &mut Inbox) {
        let (resources, catalogues) = (changes.resources.len(), changes.catalogues.len());
        let what = || format!("{resources} resources, {catalogues} catalogues");
        let mut left = self.hub.application(changes, compared);
        while let Some(application) = left {
            let (begun, now) = (Instant::now(), self.now());
            let goes_on = || begun.elapsed() < SHARE;
            let apply = || self.hub.apply_some(&mut self.served, application, goes_on, now);
            left = match catch_unwind(AssertUnwindSafe(apply)) {
                Ok(left) => left,
                Err(panic) => return self.repair("applying a commit", panic),
            };
            self.counters.stalls.note(Step::Commit, begun, what);
            if left.is_some() {
                let Core { hub, streams, counters, started, gathered, .. } = self;
                let mut clients = Clients { hub, streams, counters, started: *started };
                let mut turns = 0..1;
                clients.serve_until(|_, _| turns.next().is_none(), inbox, gathered);
            }
        }
    }

    /// Repairs the state after a commit that panicked. What was committed to a fork only is committed next.
    pub(super) fn fail_commit(&mut self, what: &'static str, panic: Box<dyn Any + Send>) -> Lane {
        if let Some(ahead) = self.ahead.take() {
            let (_, mut sent, waiting) = ahead.end();
            sent.append(waiting);
            self.gathered.put_back(sent);
        }
        self.repair(what, panic);
        Lane::default()
    }

    pub(super) fn note_panics(&mut self, panics: &[String]) {
        for panic in panics {
            tracing::error!(%panic, "a rule panicked; what it derived before stays, and what it never derived is not sent");
        }
        self.counters.rule_panics += panics.len() as u64;
    }
}
