//! The controllers that write, each while this replica holds its lease.
//!
//! A controller is a [`Driver`]: what it watches, and the pure machine of `plan` that it feeds. When this replica begins to
//! lead, a new one reads everything first, so that nothing is planned from a past or from a part; when it ends to lead,
//! the driver is dropped with its watches. Replicas that do not lead watch nothing for it. Some work in other clusters, too
//! ([`remote`]); their leases are there.

mod remote;
mod writer;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use controllers::{
    AddressDriver, Driver, ExportDriver, IngressDriver, Origin, Ranges, RootDriver, UntaintDriver, Watched, Write,
};
use kube::Client;
use settings::Settings;
use sources::kubernetes::{self, Report, Resource, Seen};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::clusters::Ways;
use super::lock::LeaseLock;
use super::{Clients, identity};
use writer::ObjectWriter;

/// Events that may wait for a controller; its watches wait when there are more.
const EVENTS: usize = 1024;
/// Plans that may wait to be written.
const PLANS: usize = 4;

/// The leases of the controllers that work in several clusters, by the names that istiod gives them.
const NAMESPACES: &str = "istio-namespace-controller-election";
const SERVICE_EXPORTS: &str = "istio-serviceexport-controller-election";

/// The mesh configuration, as it changes.
pub(crate) type Mesh = watch::Receiver<Arc<MeshConfig>>;

/// Starts all controllers that the settings want. They end after `stopped` was said.
pub(super) fn start(
    clients: &Clients,
    (report, ways): (&watch::Receiver<Report>, watch::Receiver<Ways>),
    settings: &Settings,
    mesh: &Mesh,
    stopped: &watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let context = Context::new(clients, report, settings, mesh, stopped);
    let namespace: Arc<str> = settings.namespace.as_str().into();
    let own = namespace.clone();
    running.spawn(context.clone().run(NAMESPACES, move || RootDriver::new(&own)));
    if settings.ip_autoallocate.0 {
        let ranges = Ranges {
            v4: (
                settings.ip_autoallocate_ipv4_prefix.address,
                settings.ip_autoallocate_ipv4_prefix.length,
            ),
            v6: (
                settings.ip_autoallocate_ipv6_prefix.address,
                settings.ip_autoallocate_ipv6_prefix.length,
            ),
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
    running.spawn(
        context
            .clone()
            .run("istio-leader", move || IngressDriver::new(&gateways)),
    );
    if context.exports {
        let domain = context.domain.clone();
        running.spawn(context.clone().run(SERVICE_EXPORTS, move || ExportDriver::new(&domain)));
    }
    if context.exports || context.external {
        running.spawn(remote::run(context, ways, stopped.clone()));
    }
    running
}

/// What the controllers of one cluster have in common.
#[derive(Clone)]
struct Context {
    /// The API that they write to, and read most of what they need from.
    client: Client,
    clients: Clients,
    report: watch::Receiver<Report>,
    namespace: Arc<str>,
    revision: Arc<str>,
    identity: Arc<str>,
    /// The id of the home cluster.
    cluster: Arc<str>,
    domain: Arc<str>,
    /// Whether it is another cluster than the home.
    remote: bool,
    /// Whether services are exported.
    exports: bool,
    /// Whether this replica runs outside of the clusters that it serves.
    external: bool,
    mesh: Mesh,
    stopped: watch::Receiver<bool>,
}

impl Context {
    /// Those of the home cluster.
    fn new(
        clients: &Clients,
        report: &watch::Receiver<Report>,
        settings: &Settings,
        mesh: &Mesh,
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
            mesh: mesh.clone(),
            stopped: stopped.clone(),
        }
    }

    /// Those of another cluster.
    fn for_remote_cluster(&self, client: &Client, stopped: watch::Receiver<bool>) -> Context {
        Context {
            client: client.clone(),
            remote: true,
            stopped,
            ..self.clone()
        }
    }

    /// Seeks the lease of this name, and works while it has it.
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
        let worked = terms(make, (self.client, self.clients), self.mesh, leads, writes);
        tokio::join!(written, worked);
    }
}

fn or(given: &str, default: &Arc<str>) -> Arc<str> {
    match given {
        "" => default.clone(),
        given => given.into(),
    }
}

/// One term after the other, until nobody can lead any more.
async fn terms<D: Driver>(
    make: impl Fn() -> D,
    clients: (Client, Clients),
    mut mesh: Mesh,
    mut leads: watch::Receiver<bool>,
    writes: mpsc::Sender<Vec<Write>>,
) {
    while leads.wait_for(|leads| *leads).await.is_ok() {
        tokio::select! {
            () = term(make(), &clients, &mut mesh, &writes) => return,
            over = leads.wait_for(|leads| !*leads) => if over.is_err() {
                return;
            },
        }
    }
}

/// Watches and plans. It ends when nobody writes any more.
async fn term<D: Driver>(
    mut driver: D,
    (here, clients): &(Client, Clients),
    mesh: &mut Mesh,
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
    let mut taken = Vec::new();
    // Whoever says what the mesh configuration is may end before us; then it stays as it is.
    let mut follows = true;
    loop {
        tokio::select! {
            count = events.recv_many(&mut taken, EVENTS) => if count == 0 {
                return;
            },
            changed = mesh.changed(), if follows => match changed {
                Ok(()) => driver.mesh(&mesh.borrow_and_update().clone()),
                Err(_) => follows = false,
            },
        }
        for (place, seen) in taken.drain(..) {
            match seen {
                Seen::There(object) => driver.see(place, &object, true),
                Seen::Gone(object) => driver.see(place, &object, false),
                Seen::Everything => {
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

/// Follows the objects of a watch until the receiver is dropped.
pub(super) async fn follow<E>(client: Client, watched: Watched, events: mpsc::Sender<E>, wrap: impl Fn(Seen) -> E) {
    let of = watched.resource;
    let resource = Resource::selected(
        &client,
        (of.group, of.version, of.plural),
        watched.namespace.as_deref(),
        watched.labels.as_deref(),
        watched.fields.as_deref(),
    );
    kubernetes::objects(resource, (&of.api_version(), of.kind), events, wrap).await;
}
