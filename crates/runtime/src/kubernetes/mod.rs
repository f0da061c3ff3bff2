//! The Kubernetes backend. Configuration is read from the Kubernetes API, and the leader writes statuses to it. Secrets
//! in it name the other clusters of the mesh, whose workloads are read too.

pub(crate) mod answer;
mod client;
mod clusters;
pub(crate) mod controllers;
mod injection;
mod lock;
mod secret_readers;
pub(crate) mod secrets;
mod serving_status;
mod status;
mod status_leases;
pub(crate) mod watched;
mod webhook_configurations;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use config::MeshConfig;
use kube::Client;
use server::{SecretAccess, ServingStatus, WorldHandle};
use settings::Settings;
use sources::kubernetes::{Kinds, MeshOptions, Options, Report, SnapshotOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::ack_counts::{AckCounts, config_maps::ConfigMapBoard};
use super::store_status::planning;
use super::webhooks::Injection;
use super::{backend, replica};
use crate::secure::Reviews;
use lock::LeaseLock;
use sources::ChangeSender;
use status::StatusWriter;

use client::connect;

pub(crate) use clusters::Ways;
pub(super) use serving_status::waiting;

/// How long to wait for an unavailable API at the start before the snapshot of an earlier run is served.
const PATIENCE: Duration = Duration::from_secs(3);
/// The path at which istiod's deployment mounts the mesh configuration.
const MOUNTED: &str = "./etc/istio/config/mesh";

/// Clients of the APIs that the control plane itself needs.
#[derive(Clone)]
pub(crate) struct Clients {
    /// The home cluster: source of configuration, target of statuses and leases.
    pub(crate) home: Client,
    /// The cluster with the Secrets that name other clusters. It differs from the home only if the control plane runs
    /// outside of the clusters that it serves.
    pub(crate) own: Client,
}

/// The home cluster and the tasks that use it.
pub(crate) struct Cluster {
    clients: Clients,
    /// The address of the home cluster's API server.
    address: String,
    report: watch::Sender<Report>,
    /// The other clusters that are not synced yet, as text.
    awaited: watch::Sender<String>,
    ways: watch::Sender<Ways>,
    following: JoinSet<()>,
    writing: JoinSet<()>,
    controlling: JoinSet<()>,
}

impl Cluster {
    /// Creates the clients for the configured API.
    ///
    /// # Errors
    /// The kubeconfig is missing or invalid.
    pub(super) async fn open(settings: &Settings) -> Result<Cluster> {
        let (home, address) = connect(settings).await?;
        let own = client::own(settings).await?.unwrap_or_else(|| home.clone());
        Ok(Cluster {
            clients: Clients { home, own },
            address,
            report: watch::Sender::default(),
            awaited: watch::Sender::default(),
            ways: watch::Sender::default(),
            following: JoinSet::new(),
            writing: JoinSet::new(),
            controlling: JoinSet::new(),
        })
    }

    /// The clients.
    pub(super) fn clients(&self) -> Clients {
        self.clients.clone()
    }

    /// The status of the source.
    pub(super) fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Starts the source that reads the home cluster.
    pub(super) fn follow(&mut self, settings: &Settings, changes: ChangeSender, serving_status: ServingStatus) {
        let options = options(settings, self.clients.home.clone(), &self.address);
        self.following.spawn(sources::kubernetes::follow(options, changes, self.report.clone()));
        self.following.spawn(serving_status::show(self.report(), serving_status));
    }

    /// The other clusters that are not synced at the start, as text.
    pub(super) fn awaited(&self) -> watch::Receiver<String> {
        self.awaited.subscribe()
    }

    /// Authenticates tokens for these audiences, of this cluster and of the other ones.
    pub(super) fn token_reviews(
        &self,
        settings: &Settings,
        audiences: Vec<String>,
        mesh: watch::Receiver<Arc<MeshConfig>>,
    ) -> Reviews {
        let home_id = settings.cluster_id.as_str().into();
        Reviews::new(self.clients.home.clone(), home_id, self.ways.subscribe(), audiences, mesh)
    }

    /// Starts the source that reads the other clusters.
    pub(super) fn follow_others(&mut self, settings: &Settings, changes: ChangeSender, serving_status: ServingStatus) {
        let options = clusters::Options::new(settings, &self.address);
        let listeners =
            clusters::Listeners { changes, serving_status, awaited: self.awaited.clone(), ways: self.ways.clone() };
        self.following.spawn(clusters::run(self.clients.own.clone(), options, listeners, self.report()));
    }

    /// Starts the status writers. Only the holders of their leases write.
    pub(super) async fn start_status_writer(
        &mut self,
        settings: &Settings,
        pilot: WorldHandle,
        stopped: watch::Receiver<bool>,
    ) -> Result<()> {
        let intents = pilot.feedback(planning(settings)).await?;
        let (leads, leading) = watch::channel([false; 2]);
        let identity = identity(settings);
        // The name of a pod may be longer than a label.
        let unique: Arc<str> = identity.rsplit('_').next().unwrap_or_default().into();
        let board = ConfigMapBoard::new(self.clients.home.clone(), &settings.namespace, unique.clone());
        let ack_counts = AckCounts { board, identity: unique, interval: settings.status_interval };
        self.writing.spawn(ack_counts.run(pilot.clone(), leading, stopped.clone()));
        let options = crate::leadership::Options::new(identity);
        let channels = status_leases::SCOPES.map(|_| mpsc::channel(1));
        let [all, own] = &channels;
        self.writing.spawn(status_leases::divide(intents, [all.0.clone(), own.0.clone()]));
        for (scope, (_, intents)) in status_leases::SCOPES.into_iter().zip(channels) {
            let (pilot, leads) = (pilot.clone(), leads.clone());
            let led = async move |leading| {
                drop(pilot.lead_in(scope, leading).await);
                leads.send_modify(|leads| leads[scope as usize] = leading);
            };
            let writer = StatusWriter::new(self.clients.home.clone());
            let lease = status_leases::name(scope, settings.revision.as_str());
            let lock = LeaseLock::new(self.clients.home.clone(), &settings.namespace, &lease, self.report());
            let (lock, options) = (lock.of_revision(settings.revision.as_str()), options.clone());
            let stopped = stopped.clone();
            self.writing.spawn(async move {
                crate::leadership::run(intents, writer, lock, options, Arc::default(), led, stopped).await
            });
        }
        Ok(())
    }

    /// Starts the controllers. Each works while this replica holds its lease.
    pub(super) fn control(
        &mut self,
        settings: &Settings,
        inputs: controllers::Inputs,
        stopped: &watch::Receiver<bool>,
    ) {
        let others = self.ways.subscribe();
        self.controlling = controllers::start(&self.clients, (&self.report(), others), settings, inputs, stopped);
    }

    /// Starts asking which service accounts of proxies may list Secrets, if access to Secrets depends on it.
    pub(super) fn review_secret_readers(&mut self, settings: &Settings, pilot: WorldHandle) {
        if backend::secret_access(settings) == SecretAccess::Reviewed {
            let (home, ways) = (self.clients.home.clone(), self.ways.subscribe());
            self.following.spawn(secret_readers::run(pilot, home, ways));
        }
    }

    /// Follows what injection and the deployment of gateways need. If the webhooks are served, keeps their configurations; `signing`
    /// has the roots of their certificate.
    pub(super) fn follow_injection(
        &mut self,
        settings: &Settings,
        injection: watch::Sender<Arc<Injection>>,
        signing: Option<server::signing::Watched>,
    ) {
        let client = &self.clients.home;
        if signing.is_some() || settings.gateway_deployments.0 {
            self.following.spawn(injection::run(client.clone(), settings.clone(), injection));
        }
        if let Some(signing) = signing {
            self.following.spawn(webhook_configurations::run(client.clone(), settings.clone(), signing));
        }
    }

    /// Stops gracefully, after `stopped` became true.
    pub(super) async fn end(mut self) {
        self.following.shutdown().await;
        while self.writing.join_next().await.is_some() {}
        while self.controlling.join_next().await.is_some() {}
    }
}

/// The identity of this replica in leases: the pod name and a suffix that is unique to the process.
fn identity(settings: &Settings) -> String {
    match settings.pod_name.as_str() {
        "" => replica::identity(&replica::hostname()),
        name => replica::identity(name),
    }
}

fn options(settings: &Settings, client: Client, address: &str) -> Options {
    let revision = settings.revision.as_str();
    let name = match revision {
        "" | "default" => "istio".to_owned(),
        revision => format!("istio-{revision}"),
    };
    Options {
        filter: kinds(settings),
        credentials: backend::secret_access(settings) != SecretAccess::None,
        revision: Some(revision.to_owned()),
        mesh: Some(MeshOptions {
            namespace: settings.namespace.clone(),
            name,
            shared: settings.shared_mesh_config.0.clone(),
            file: Some(mesh_file(settings)),
        }),
        snapshot: (!settings.snapshot_interval.is_zero()).then(|| SnapshotOptions {
            file: settings.data_dir.join("kubernetes.snapshot"),
            of: format!("{address}, revision {revision:?}, namespace {}", settings.namespace),
            interval: settings.snapshot_interval,
            patience: PATIENCE,
        }),
        ..Options::new(client)
    }
}

fn kinds(settings: &Settings) -> Kinds {
    let imports = if settings.mcs_host.0 { "" } else { ",serviceimports.multicluster.x-k8s.io" };
    let ignored = format!("{}{imports}", settings.ignore_resources.as_str());
    Kinds::new(&ignored, settings.include_resources.as_str())
}

/// The mesh configuration file, which takes precedence over the ConfigMap if it exists.
pub(super) fn mesh_file(settings: &Settings) -> PathBuf {
    settings.mesh_config.clone().unwrap_or_else(|| Path::new(MOUNTED).to_owned())
}
