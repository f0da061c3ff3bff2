//! The Envoys of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;

use config::mesh::ProxyConfig;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{self, JoinSet};

use crate::exchange::{Event, Publication, Request, Settings};
use crate::gateway::{Classes, Gateway, Id, Refusal};
use crate::machine::{self, Folder};
use crate::parameters::Sources;
use crate::ports::{Sets, programmed_ports};
use crate::run::Running;

/// The capacity of the queue of events. One that does not fit is reported again later.
const EVENTS: usize = 64;

/// Events of Gateways: both ends of their queue.
type Events = (mpsc::Sender<(Id, Event)>, mpsc::Receiver<(Id, Event)>);

/// The Envoys of this machine, and the Gateways for which they run.
#[derive(Debug)]
pub struct Fleet {
    pub(crate) settings: Settings,
    pub(crate) folder: Folder,
    pub(crate) machine: String,
    pub(crate) outward: IpAddr,
    classes: Classes,
    sources: Sources,
    pub(crate) sets: Sets,
    pub(crate) gateways: BTreeMap<Id, Known>,
    pub(crate) running: BTreeMap<Id, Running>,
    pub(crate) tasks: JoinSet<()>,
    /// Envoys start one after the other.
    pub(crate) starting: Arc<Semaphore>,
    pub(crate) events: Events,
    requests: Vec<Request>,
}

/// A Gateway that was seen.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) gateway: Gateway,
    /// The reason why it does not run here.
    refusal: Option<Refusal>,
    /// The condition that was logged last.
    pub(crate) programmed: Option<(bool, String)>,
    /// The addresses that were published last.
    shown: Option<String>,
    /// The number of restarts because of lost ports.
    restarts: u32,
    /// The ports of its own listeners that its proxy acknowledged.
    acknowledged: BTreeSet<u16>,
    /// The settings without an effect that were logged last.
    ignored: BTreeSet<String>,
}

impl Fleet {
    /// Without Gateways. Files of the Envoys are in this folder.
    #[must_use]
    pub fn new(settings: Settings, folder: Folder) -> Fleet {
        Fleet {
            sources: Sources::new(&settings.root_namespace),
            settings,
            folder,
            machine: machine::name(),
            outward: machine::outward(),
            classes: Classes::default(),
            sets: Sets::default(),
            gateways: BTreeMap::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            starting: Arc::new(Semaphore::new(1)),
            events: mpsc::channel(EVENTS),
            requests: Vec::new(),
        }
    }

    /// Sets all GatewayClasses.
    pub fn classes(&mut self, all: &[Value]) {
        self.classes.clear();
        all.iter().for_each(|object| self.classes.see(object, true));
        self.reconcile_all();
    }

    /// Handles a GatewayClass that was added, changed or deleted.
    pub fn class(&mut self, object: &Value, there: bool) {
        self.classes.see(object, there);
        self.reconcile_all();
    }

    /// Sets all ListenerSets.
    pub fn listener_sets(&mut self, all: &[Value]) {
        self.sets.clear();
        let gateways: BTreeSet<Id> = all.iter().map(|object| self.sets.see(object, true)).collect();
        gateways.iter().for_each(|id| self.expect_ports(id));
    }

    /// Handles a ListenerSet that was added, changed or deleted.
    pub fn listener_set(&mut self, object: &Value, there: bool) {
        let gateway = self.sets.see(object, there);
        self.expect_ports(&gateway);
    }

    /// Sets the ProxyConfigs of a namespace, or of all.
    pub fn proxy_configs(&mut self, namespace: Option<&str>, all: &[Value]) {
        self.sources.forget_configs(namespace);
        all.iter().for_each(|object| self.sources.config(object, true));
        self.reconcile_all();
    }

    /// Handles a ProxyConfig that was added, changed or deleted.
    pub fn proxy_config(&mut self, object: &Value, there: bool) {
        self.sources.config(object, there);
        self.reconcile_all();
    }

    /// Sets all ConfigMaps.
    pub fn config_maps(&mut self, all: &[Value]) {
        self.sources.forget_config_maps();
        for object in all {
            self.sources.config_map(object, true);
        }
        self.reconcile_all();
    }

    /// Handles a ConfigMap that was added, changed or deleted.
    pub fn config_map(&mut self, object: &Value, there: bool) {
        // Most ConfigMaps have no parameters, and some change every second.
        if self.sources.config_map(object, there) {
            self.reconcile_all();
        }
    }

    /// Sets all Gateways.
    pub fn gateways(&mut self, all: &[Value]) {
        let present: BTreeSet<Id> = all.iter().map(Id::of).collect();
        let gone: Vec<Id> = self.gateways.keys().filter(|id| !present.contains(*id)).cloned().collect();
        gone.iter().for_each(|id| self.gone(id));
        all.iter().for_each(|object| self.gateway(object, true));
    }

    /// Handles a Gateway that was added, changed or deleted.
    pub fn gateway(&mut self, object: &Value, there: bool) {
        let id = Id::of(object);
        if !self.settings.names.is_empty() && !self.settings.names.contains(&id.name) {
            return;
        }
        if !there || object["metadata"]["deletionTimestamp"].is_string() {
            return self.gone(&id);
        }
        let gateway = Gateway::of(object);
        match self.gateways.get_mut(&id) {
            Some(known) => known.gateway = gateway,
            None => {
                let known = Known {
                    gateway,
                    refusal: None,
                    programmed: None,
                    shown: None,
                    restarts: 0,
                    acknowledged: BTreeSet::new(),
                    ignored: BTreeSet::new(),
                };
                self.gateways.insert(id.clone(), known);
            }
        }
        self.reconcile(&id);
        if let Some(known) = self.gateways.get_mut(&id) {
            known.acknowledged = programmed_ports(object);
        }
        self.expect_ports(&id);
        self.report(&id, object);
    }

    /// The requests since the last call.
    pub fn requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    /// The names of Gateways that were selected and do not exist.
    pub fn missing(&self) -> impl Iterator<Item = &String> {
        self.settings.names.iter().filter(|name| !self.gateways.keys().any(|id| id.name == **name))
    }

    /// Handles the next event of an Envoy. The future may be dropped.
    pub async fn event(&mut self) {
        let ended = async {
            match self.tasks.join_next_with_id().await {
                None => pending().await,
                Some(Ok((task, ()))) => task,
                Some(Err(error)) => {
                    tracing::error!(%error, "the supervisor of an Envoy failed");
                    error.id()
                }
            }
        };
        tokio::select! {
            task = ended => self.ended(task),
            Some((id, event)) = self.events.1.recv() => match event {
                Event::Lost(ports) => self.lost(&id, &ports),
                Event::NeedsToken(request) => self.requests.push(Request::Token(request)),
            },
        }
    }

    /// Starts the next Envoy of a Gateway, if there should be one.
    fn ended(&mut self, task: task::Id) {
        let found = self.running.iter().find(|(_, running)| running.task == task).map(|(id, _)| id.clone());
        if let Some(id) = found {
            let ended = self.running.remove(&id);
            tracing::info!(gateway = %id, "its Envoy has ended");
            if !self.gateways.contains_key(&id)
                && let Some(member) = ended.and_then(|running| running.member)
                && let Err(error) = std::fs::remove_dir_all(&member.folder)
            {
                tracing::warn!(gateway = %id, %error, "cannot remove its certificate");
            }
            self.reconcile(&id);
        }
    }

    /// Restarts an Envoy that does not listen at ports that it acknowledged. The new process rejects them.
    fn lost(&mut self, id: &Id, ports: &BTreeSet<u16>) {
        let Some(known) = self.gateways.get_mut(id) else { return };
        known.restarts += 1;
        tracing::warn!(
            gateway = %id,
            ?ports,
            "another process got the ports at the same moment: Envoy restarts, so that the status of the Gateway shows it"
        );
        self.reconcile(id);
    }

    /// Drains and ends all Envoys.
    pub async fn stop(mut self) {
        for running in self.running.values() {
            running.stop.send_replace(true);
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// Has the ports checked that the Envoy of a Gateway acknowledged.
    fn expect_ports(&self, id: &Id) {
        if let (Some(known), Some(running)) = (self.gateways.get(id), self.running.get(id)) {
            let [_, of_sets] = self.sets.of(id);
            running.ports.send_replace(&known.acknowledged | &of_sets);
        }
    }

    fn gone(&mut self, id: &Id) {
        if self.gateways.remove(id).is_some() {
            tracing::info!(gateway = %id, "the Gateway is gone");
            self.drain(id);
        }
    }

    pub(crate) fn drain(&self, id: &Id) {
        if let Some(running) = self.running.get(id)
            && !running.stop.send_replace(true)
        {
            tracing::info!(gateway = %id, "its Envoy drains and ends");
        }
    }

    fn reconcile_all(&mut self) {
        let ids: Vec<Id> = self.gateways.keys().cloned().collect();
        ids.iter().for_each(|id| self.reconcile(id));
    }

    fn reconcile(&mut self, id: &Id) {
        let Some(known) = self.gateways.get_mut(id) else { return };
        let requested = match known.gateway.requested(&self.classes, machine::is_own) {
            Ok(requested) => requested,
            Err(refusal) => {
                if known.refusal.as_ref() != Some(&refusal) {
                    tracing::warn!(gateway = %id, "the Gateway does not run here: {refusal}");
                    known.refusal = Some(refusal);
                }
                return self.drain(id);
            }
        };
        known.refusal = None;
        let addresses = if requested.is_empty() { self.settings.addresses.clone() } else { requested };
        let shown: Vec<String> = match &addresses[..] {
            [] => vec![self.outward.to_string()],
            some => some.iter().map(ToString::to_string).collect(),
        };
        // A value that somebody else wrote later stays, so that two machines do not overwrite each other's forever.
        let is_missing = known.gateway.published.is_none();
        let shown = shown.join(",");
        let is_new = known.shown.as_ref() != Some(&shown);
        if known.gateway.published.as_ref() != Some(&shown) && (is_missing || is_new) {
            self.requests.push(Request::Publish(Publication { id: id.clone(), addresses: shown.clone() }));
        }
        known.shown = Some(shown);
        let (mut gateway, restarts) = (known.gateway.clone(), known.restarts);
        let tuning = self.sources.of(&mut gateway, &defaults(&self.settings));
        if known.ignored != tuning.ignored {
            let ignored: Vec<&str> = tuning.ignored.iter().map(String::as_str).collect();
            if !ignored.is_empty() {
                tracing::warn!(gateway = %id, "settings without an effect here: {}", ignored.join(", "));
            }
            known.ignored.clone_from(&tuning.ignored);
        }
        self.run(&gateway, &addresses, restarts, &tuning);
    }
}

/// The settings of a proxy for which no object has any.
fn defaults(settings: &Settings) -> ProxyConfig {
    ProxyConfig {
        concurrency: settings.concurrency.try_into().ok(),
        drain_duration: settings.drain,
        termination_drain_duration: settings.drain,
        ..ProxyConfig::default()
    }
}
