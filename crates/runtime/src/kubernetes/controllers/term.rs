//! The terms of a controller: while this replica leads, a driver gets everything that it needs and plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controllers::{Driver, Origin, Watched, Write};
use kube::Client;
use model::kube::GatewayRefusal;
use model::service::ObjectId;
use server::Configuration;
use sources::kubernetes::{Report, Seen};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use world::Batch;

use super::{DEFAULT_REVISION, Inputs, or};
use crate::kubernetes::Clients;
use crate::kubernetes::watched::follow;

/// The number of queued events of a controller; its watches wait when the queue is full.
const EVENTS: usize = 1024;

/// The APIs that the controllers of one cluster read.
pub(super) struct Watching {
    /// The API that they write to.
    pub(super) here: Client,
    pub(super) clients: Clients,
    /// The revision of this control plane.
    pub(super) revision: Arc<str>,
    /// The state of the source, which has the tags of the revision.
    pub(super) report: watch::Receiver<Report>,
}

impl Watching {
    fn client(&self, origin: Origin) -> Client {
        match origin {
            Origin::Here => self.here.clone(),
            Origin::Home => self.clients.home.clone(),
            Origin::Own => self.clients.own.clone(),
        }
    }

    /// Starts watches. Each event has the index of its watch.
    fn follow(&self, watched: Vec<Watched>, events: &mpsc::Sender<(usize, Seen)>) -> JoinSet<()> {
        let each = watched.into_iter().enumerate();
        each.map(|(place, watched)| {
            let client = self.client(watched.origin);
            follow(client, watched, events.clone(), move |seen| (place, seen))
        })
        .collect()
    }

    /// Passes the names of the revision to a driver.
    fn show_revisions(&mut self, driver: &mut impl Driver) {
        let own = or(&self.revision, &DEFAULT_REVISION.into());
        let report = self.report.borrow_and_update();
        let is_default = report.default_revision.as_deref().unwrap_or(DEFAULT_REVISION) == &*own;
        let mut names = report.revision_names.clone();
        drop(report);
        names.insert(own);
        driver.revisions(&names, is_default);
    }
}

/// Runs one term after another, until the election ends.
pub(super) async fn terms<D: Driver>(
    make: impl Fn() -> D,
    mut watching: Watching,
    mut inputs: Inputs,
    mut leads: watch::Receiver<bool>,
    writes: mpsc::Sender<Vec<Write>>,
) {
    // Refusals of an earlier term stay until a later one finds otherwise.
    let mut told = BTreeMap::new();
    while leads.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = term(make(), &mut watching, &mut inputs, (&writes, &mut told)) => return,
            over = leads.wait_for(|leads| !*leads) => if over.is_err() {
                return;
            },
        }
    }
}

/// Passes the objects of changed kinds to a driver. `seen` has the number of changes of each kind.
fn show_configuration(driver: &mut impl Driver, configuration: &Configuration, seen: &mut [Option<u64>]) {
    for (kind, seen) in driver.kinds().iter().zip(seen) {
        if let Some((generation, objects)) = configuration.changed_since(*kind, *seen) {
            *seen = Some(generation);
            driver.configuration(*kind, objects);
        }
    }
}

/// Passes an event of a watch to a driver. `awaited` has the watches whose list is not complete.
fn see(driver: &mut impl Driver, (place, seen): (usize, Seen), awaited: &mut BTreeSet<usize>) {
    match seen {
        Seen::Applied(object) => driver.see(place, &object, true),
        Seen::Deleted(object) => driver.see(place, &object, false),
        Seen::Synced => {
            if !awaited.remove(&place) {
                driver.machine().restart();
            }
        }
        Seen::Failing { .. } => {}
    }
}

/// The difference between the refusals that the world was told and those of now; none if there is none.
fn news(told: &mut BTreeMap<ObjectId, GatewayRefusal>, now: BTreeMap<ObjectId, GatewayRefusal>) -> Option<Batch> {
    if *told == now {
        return None;
    }
    let mut batch = Batch::new();
    let gone = told.keys().filter(|id| !now.contains_key(*id));
    gone.for_each(|id| batch.set_gateway_refusal(id.clone(), None));
    let new = now.iter().filter(|(id, refusal)| told.get(*id) != Some(refusal));
    new.for_each(|(id, refusal)| batch.set_gateway_refusal(id.clone(), Some(refusal.clone())));
    *told = now;
    Some(batch)
}

/// Watches and plans until the writer ends.
async fn term<D: Driver>(
    mut driver: D,
    watching: &mut Watching,
    Inputs { mesh, roots, configuration, injection, world }: &mut Inputs,
    (writes, told): (&mpsc::Sender<Vec<Write>>, &mut BTreeMap<ObjectId, GatewayRefusal>),
) {
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut awaited: BTreeSet<usize> = (0..driver.watched().len()).collect();
    let _watches = watching.follow(driver.watched(), &sender);
    driver.mesh(&mesh.borrow_and_update().clone());
    driver.roots(&roots.borrow_and_update().clone());
    driver.injector(injection.borrow_and_update().injector.as_ref());
    watching.show_revisions(&mut driver);
    let mut changes = configuration.changes();
    let mut seen = vec![None; driver.kinds().len()];
    show_configuration(&mut driver, configuration, &mut seen);
    let mut taken = Vec::new();
    // If a sender ends first, the last value stays in effect.
    let (mut follows, mut trusts, mut injects, mut reports) = (true, true, true, true);
    loop {
        tokio::select! {
            count = events.recv_many(&mut taken, EVENTS) => if count == 0 {
                return;
            },
            changed = mesh.changed(), if follows => match changed {
                Ok(()) => driver.mesh(&mesh.borrow_and_update().clone()),
                Err(_) => follows = false,
            },
            changed = roots.changed(), if trusts => match changed {
                Ok(()) => driver.roots(&roots.borrow_and_update().clone()),
                Err(_) => trusts = false,
            },
            changed = injection.changed(), if injects => match changed {
                Ok(()) => driver.injector(injection.borrow_and_update().injector.as_ref()),
                Err(_) => injects = false,
            },
            changed = watching.report.changed(), if reports => match changed {
                Ok(()) => watching.show_revisions(&mut driver),
                Err(_) => reports = false,
            },
            // It does not end before `configuration`.
            _ = changes.changed(), if !seen.is_empty() => show_configuration(&mut driver, configuration, &mut seen),
        }
        taken.drain(..).for_each(|event| see(&mut driver, event, &mut awaited));
        if !awaited.is_empty() {
            continue;
        }
        let planned = driver.plan();
        if let Some(batch) = news(told, driver.refusals())
            && world.commit(batch).await.is_err()
        {
            return;
        }
        if !planned.is_empty() && writes.send(planned).await.is_err() {
            return;
        }
    }
}
