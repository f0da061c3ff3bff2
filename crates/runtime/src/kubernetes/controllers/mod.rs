//! The controllers. Each runs while this replica holds its lease.
//!
//! A controller is a [`Driver`]: a list of watches, and a pure state machine that plans writes. When this replica
//! becomes the leader, a new driver reads everything before it plans, so no plan is based on stale or partial state.
//! When leadership ends, the driver is dropped with its watches. Other replicas watch nothing. Some controllers also
//! run in other clusters ([`remote`]), with leases there.

mod remote;
mod term;
mod writer;

use std::sync::Arc;

use config::MeshConfig;
use controllers::gateways::{self, ClassDriver, DeploymentDriver};
use controllers::{
    AddressDriver, Driver, ExportDriver, IngressDriver, PublishedRoots, Ranges, RootDriver, RootMapNames, UntaintDriver,
};
use kube::Client;
use server::{Configuration, WorldHandle};
use settings::{NativeSidecars, Settings};
use sources::kubernetes::Report;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::clusters::Ways;
use super::lock::{DEFAULT_REVISION, LeaseLock, name_of_revision};
use super::{Clients, identity};
use crate::webhooks::{self, Injection};
use term::{Watching, terms};
pub(crate) use writer::ObjectWriter;

/// The number of queued plans.
const PLANS: usize = 4;

/// The leases of the controllers that run in several clusters, with istiod's names.
const NAMESPACES: &str = "istio-namespace-controller-election";
const SERVICE_EXPORTS: &str = "istio-serviceexport-controller-election";
/// The lease of the deployment of gateways, with istiod's name. Each revision has one of its own.
const GATEWAY_DEPLOYMENTS: &str = "istio-gateway-deployment";
/// The lease of the GatewayClasses.
const GATEWAY_CLASSES: &str = "istio-gateway-classes";

/// Inputs of controllers besides objects.
#[derive(Clone)]
pub(crate) struct Inputs {
    /// The current mesh configuration.
    pub(crate) mesh: watch::Receiver<Arc<MeshConfig>>,
    /// The roots and revocation lists that the certificate authority publishes.
    pub(crate) roots: watch::Receiver<PublishedRoots>,
    /// The objects in effect.
    pub(crate) configuration: Configuration,
    /// The injection configuration.
    pub(crate) injection: watch::Receiver<Arc<Injection>>,
    /// The world, which is told which Gateways cannot be deployed.
    pub(crate) world: WorldHandle,
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
    if settings.gateway_deployments.0 {
        let options = gateway_options(settings);
        let lease = name_of_revision(GATEWAY_DEPLOYMENTS, &context.revision);
        running.spawn(context.clone().run(lease, move || DeploymentDriver::new(options.clone())));
    }
    if settings.gateway_classes.0 {
        let class: Arc<str> = settings.default_gateway_class.as_str().into();
        running.spawn(context.clone().run(GATEWAY_CLASSES, move || ClassDriver::new(&class)));
    }
    if context.exports || context.external {
        running.spawn(remote::run(context, ways, stopped.clone()));
    }
    running
}

fn gateway_options(settings: &Settings) -> gateways::Options {
    gateways::Options {
        namespace: settings.namespace.as_str().into(),
        revision: settings.revision.as_str().into(),
        cluster: settings.cluster_id.as_str().into(),
        default_class: settings.default_gateway_class.as_str().into(),
        copies_metadata: settings.gateway_metadata_copies.0,
        http3: settings.http3.0,
        native_sidecars: settings.native_sidecars != NativeSidecars::Disabled,
        openshift: settings.platform.as_str() == "openshift",
        compliance_policy: settings.compliance_policy.as_str().into(),
        environment: webhooks::environment(),
    }
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
    async fn run<D: Driver>(self, lock: impl AsRef<str>, make: impl Fn() -> D) {
        let lock = LeaseLock::new(self.client.clone(), &self.namespace, lock.as_ref(), self.report.clone());
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
        let watched =
            Watching { here: self.client, clients: self.clients, revision: self.revision, report: self.report };
        let worked = terms(make, watched, self.inputs, leads, writes);
        tokio::join!(written, worked);
    }
}

fn or(given: &str, default: &Arc<str>) -> Arc<str> {
    match given {
        "" => default.clone(),
        given => given.into(),
    }
}
