//! The controllers. Each runs while this replica holds its lease.
//!
//! A controller is a [`Driver`]: a list of watches, and a pure state machine that plans writes. When this replica
//! becomes the leader, a new driver reads everything before it plans, so no plan is based on stale or partial state.
//! When leadership ends, the driver is dropped with its watches. Other replicas watch nothing. Some controllers also
//! run in other clusters ([`remote`]), with leases there.

mod remote;
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use controllers::{
    AddressDriver, Driver, ExportDriver, IngressDriver, Origin, PublishedRoots, Ranges, RootDriver, RootMapNames,
    UntaintDriver, Write,
};
use kube::Client;
use settings::Settings;
use sources::kubernetes::{Report, Seen};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::clusters::Ways;
use super::lock::LeaseLock;
use super::watched::follow;
use super::{Clients, identity};
pub(crate) use writer::ObjectWriter;

/// The number of queued events of a controller; its watches wait when the queue is full.
const EVENTS: usize = 1024;
/// The number of queued plans.
const PLANS: usize = 4;

/// The leases of the controllers that run in several clusters, with istiod's names.
const NAMESPACES: &str = "istio-namespace-controller-election";
const SERVICE_EXPORTS: &str = "istio-serviceexport-controller-election";

/// Inputs of controllers besides objects.
#[derive(Clone)]
pub(crate) struct Inputs {
    /// The current mesh configuration.
    pub(crate) mesh: watch::Receiver<Arc<MeshConfig>>,
    /// The roots and revocation lists that the certificate authority publishes.
    pub(crate) roots: watch::Receiver<PublishedRoots>,
}

/// Starts the configured controllers. They end when `stopped` becomes true.
pub(super) fn start(
    clients: &Clients,
    (report, ways): (&watch::Receiver<Report>, watch::Receiver<Ways>),
    settings: &Settings,
    inputs: Inputs,
    stopped: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let context = Context::new(clients, report, settings, inputs, stopped);
    let namespace: Arc<str> = settings.namespace.as_str().into();
    let names = context.root_maps.clone();
    running.spawn(context.clone().run(NAMESPACES, move || RootDriver::new(&names)));
    if settings.ip_autoallocate.0 {
        let ranges = Ranges {
            v4: (settings.ip_autoallocate_ipv4_prefix.address, settings.ip_autoallocate_ipv4_prefix.length),
            v6: (settings.ip_autoallocate_ipv6_prefix.address, settings.ip_autoallocate_ipv6_prefix.length),
        };
        let make = move || AddressDriver::new(ranges.clone());
        running.spawn(context.clone().run("istio-ip-autoallocate", make));
    }
    if settings.node_untaint.0 {
        let agents = or(settings.cni_namespace.as_str(), &namespace);
        let make = move || UntaintDriver::new(&agents);
        running.spawn(context.clone().run("istio-node-untaint", make));
    }
    let gateways = or(settings.ingress_namespace.as_str(), &namespace);
    running.spawn(context.clone().run("istio-leader", move || IngressDriver::new(&gateways)));
    if context.exports {
        let domain = context.domain.clone();
        running.spawn(context.clone().run(SERVICE_EXPORTS, move || ExportDriver::new(&domain)));
    }
    if context.exports || context.external {
        running.spawn(remote::run(context, ways, stopped.clone()));
    }
    running
}

/// The common parameters of the controllers of one cluster.
#[derive(Clone)]
struct Context {
    /// The API that they write to, and mostly read from.
    client: Client,
    clients: Clients,
    report: watch::Receiver<Report>,
    namespace: Arc<str>,
    revision: Arc<str>,
    identity: Arc<str>,
    /// The id of the home cluster.
    cluster: Arc<str>,
    domain: Arc<str>,
    /// Whether the cluster is not the home cluster.
    remote: bool,
    /// Whether Services are exported automatically.
    exports: bool,
    /// Whether this replica runs outside of the clusters that it serves.
    external: bool,
    /// The ConfigMaps with root certificates and revocation lists.
    root_maps: RootMapNames,
    inputs: Inputs,
    stopped: watch::Receiver<bool>,
}

impl Context {
    /// The context for the home cluster.
    fn new(
        clients: &Clients,
        report: &watch::Receiver<Report>,
        settings: &Settings,
        inputs: Inputs,
        stopped: &watch::Receiver<bool>,
    ) -> Context {
        Context {
            client: clients.home.clone(),
            clients: clients.clone(),
            report: report.clone(),
            namespace: settings.namespace.as_str().into(),
            revision: settings.revision.as_str().into(),
            identity: identity(settings).into(),
            cluster: settings.cluster_id.as_str().into(),
            domain: settings.domain.as_str().into(),
            remote: false,
            exports: settings.mcs_auto_export.0,
            external: settings.external_istiod.0,
            root_maps: RootMapNames {
                roots: settings.ca_cert_configmap.as_str().into(),
                revocation: settings.crl_configmap.as_str().into(),
            },
            inputs,
            stopped: stopped.clone(),
        }
    }

    fn for_remote_cluster(&self, client: &Client, stopped: watch::Receiver<bool>) -> Context {
        Context { client: client.clone(), remote: true, stopped, ..self.clone() }
    }

    /// Competes for this lease and runs the controller while it is held.
    async fn run<D: Driver>(self, lock: &'static str, make: impl Fn() -> D) {
        let lock = LeaseLock::new(self.client.clone(), &self.namespace, lock, self.report);
        let lock = lock.of_revision(&self.revision);
        let lock = if self.remote { lock.in_remote_cluster() } else { lock };
        let (writes, planned) = mpsc::channel(PLANS);
        let (lead, leads) = watch::channel(false);
        let led = async move |leading| {
            lead.send_replace(leading);
        };
        let written = crate::leadership::run(
            planned,
            ObjectWriter::new(self.client.clone()),
            lock,
            crate::leadership::Options::new(&*self.identity),
            Arc::default(),
            led,
            self.stopped,
        );
        let worked = terms(make, (self.client, self.clients), self.inputs, leads, writes);
        tokio::join!(written, worked);
    }
}

fn or(given: &str, default: &Arc<str>) -> Arc<str> {
    match given {
        "" => default.clone(),
        given => given.into(),
    }
}

/// Runs one term after another, until the election ends.
async fn terms<D: Driver>(
    make: impl Fn() -> D,
    clients: (Client, Clients),
    mut inputs: Inputs,
    mut leads: watch::Receiver<bool>,
    writes: mpsc::Sender<Vec<Write>>,
) {
    while leads.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = term(make(), &clients, &mut inputs, &writes) => return,
            over = leads.wait_for(|leads| !*leads) => if over.is_err() {
                return;
            },
        }
    }
}

/// Watches and plans until the writer ends.
async fn term<D: Driver>(
    mut driver: D,
    (here, clients): &(Client, Clients),
    Inputs { mesh, roots }: &mut Inputs,
    writes: &mpsc::Sender<Vec<Write>>,
) {
    let (sender, mut events) = mpsc::channel(EVENTS);
    let mut watches = JoinSet::new();
    let mut awaited = BTreeSet::new();
    for (place, watched) in driver.watched().into_iter().enumerate() {
        awaited.insert(place);
        let client = match watched.origin {
            Origin::Here => here,
            Origin::Home => &clients.home,
            Origin::Own => &clients.own,
        };
        let wrap = move |seen| (place, seen);
        watches.spawn(follow(client.clone(), watched, sender.clone(), wrap));
    }
    driver.mesh(&mesh.borrow_and_update().clone());
    driver.roots(&roots.borrow_and_update().clone());
    let mut taken = Vec::new();
    // If a sender ends first, the last value stays in effect.
    let (mut follows, mut trusts) = (true, true);
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
        }
        for (place, seen) in taken.drain(..) {
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
        if !awaited.is_empty() {
            continue;
        }
        let planned = driver.plan();
        if !planned.is_empty() && writes.send(planned).await.is_err() {
            return;
        }
    }
}
