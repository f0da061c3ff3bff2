//! A handle to the thread that owns the world and the hub.
//!
//! All accesses are messages of a bounded channel. Messages that arrive while the thread works are processed together,
//! and the batches among them become one commit. Under a storm of changes, commits are paced ([`Pace`]); an idle system
//! waits for no timer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::MeshConfig;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use world::{Batch, World};
use xds::Limits;

use crate::core::{Core, Look, Message};
use crate::inbox::Inbox;
use crate::mcp::Configuration;
use crate::pace::Pace;
use crate::pods::PodIndex;
use crate::status_tracker::Observations;
use crate::watched::{Accounts, InEffect, Keys, Names, Watched};

/// The number of queued messages; senders wait when the queue is full.
const QUEUE: usize = 4096;
/// The least time from a turn without work to the next one. Messages that arrive meanwhile, such as the ACKs of many clients, are processed
/// together, and do not wake the thread one by one.
const BETWEEN_TURNS: Duration = Duration::from_millis(1);
/// The time in which the thread must answer [`WorldHandle::check`]. It is less than that of Kubernetes' readiness probe.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// The thread has ended.
#[derive(Debug, thiserror::Error)]
#[error("the control plane is shutting down")]
pub struct Closed;

/// A handle to the thread that owns the world. Cheap to clone.
#[derive(Clone)]
pub struct WorldHandle {
    messages: mpsc::Sender<Message>,
    names: watch::Receiver<Names>,
    keys: watch::Receiver<Keys>,
    readers: watch::Receiver<Accounts>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    objects: InEffect,
    down_queue: usize,
}

impl WorldHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(world: World, limits: Limits, pace: Pace) -> std::io::Result<WorldHandle> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let started = Instant::now();
        let (wanted, names) = watch::channel(world.wanted_names());
        let (wanted_keys, keys) = watch::channel(world.wanted_keys());
        let (accounts, readers) = watch::channel(Accounts::default());
        let (mesh, mesh_in_effect) = watch::channel(Arc::new(world.mesh_settings().config.clone()));
        let objects = InEffect::default();
        objects.configuration.set_mesh(MeshConfig::default());
        let down_queue = down_queue(world.types().iter().count());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let watched = Watched { names: wanted, keys: wanted_keys, readers: accounts, mesh, objects: objects.clone() };
        let core = Core::new(world, limits, pace, started, watched);
        // A separate thread, because derivation must not block sockets.
        std::thread::Builder::new().name("world".into()).spawn(move || runtime.block_on(run(core, receiver)))?;
        Ok(WorldHandle { messages: sender, names, keys, readers, mesh: mesh_in_effect, objects, down_queue })
    }

    /// Commits a batch. Returns when it is queued.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn commit(&self, batch: Batch) -> Result<(), Closed> {
        self.commit_observed(batch, Observations::new()).await
    }

    /// Commits a batch with observations of its objects and of invalid objects that are not in it. Their statuses are
    /// sent through [`WorldHandle::feedback`].
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn commit_observed(&self, batch: Batch, observed: Observations) -> Result<(), Closed> {
        self.send(Message::Commit(batch, observed)).await
    }

    /// The hostnames whose addresses derivation needs, after all earlier commits. The addresses are set with
    /// [`Batch::set_addresses`].
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn wanted_names(&self) -> Result<watch::Receiver<Names>, Closed> {
        self.inspect(|_| ()).await?;
        Ok(self.names.clone())
    }

    /// The sources of keys that derivation needs, after all earlier commits. The keys are set with [`Batch::set_keys`].
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn wanted_keys(&self) -> Result<watch::Receiver<Keys>, Closed> {
        self.inspect(|_| ()).await?;
        Ok(self.keys.clone())
    }

    /// The service accounts of connected proxies that get Secrets only if they may list them. The answers are set with
    /// [`Batch::set_secret_reader`].
    pub fn wanted_readers(&self) -> watch::Receiver<Accounts> {
        self.readers.clone()
    }

    /// Batches of statuses to write, while this replica leads ([`WorldHandle::lead`]). A slow receiver delays only
    /// statuses. A new receiver replaces an earlier one.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn feedback(&self, settings: status::Settings) -> Result<mpsc::Receiver<Vec<status::Intent>>, Closed> {
        self.inspect(move |core| core.tracker.attach(settings)).await
    }

    /// Sets whether this replica writes statuses. Initially it does not.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn lead(&self, leading: bool) -> Result<(), Closed> {
        self.inspect(move |core| core.tracker.planner.lead(leading, core.now())).await
    }

    /// Sets whether this replica writes the statuses of the objects of a scope.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn lead_in(&self, scope: status::Scope, leading: bool) -> Result<(), Closed> {
        self.inspect(move |core| core.tracker.planner.lead_in(scope, leading, core.now())).await
    }

    /// Asks the thread whether it works. The answer comes within [`ANSWER_WITHIN`].
    ///
    /// # Errors
    /// The reason for which it does not.
    pub async fn check(&self) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.send(Message::Check(reply)).await.ok()?;
            answer.await.ok()
        };
        match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(Some(health)) => health,
            Ok(None) => {
                Err("the thread that serves proxies has ended, see the log; restart the control plane".to_owned())
            }
            Err(_) => Err(format!("the thread that serves proxies does not answer within {ANSWER_WITHIN:?}")),
        }
    }

    /// The mesh configuration in effect.
    pub fn mesh(&self) -> watch::Receiver<Arc<MeshConfig>> {
        self.mesh.clone()
    }

    /// The objects in effect, for other control planes.
    pub fn configuration(&self) -> Configuration {
        self.objects.configuration.clone()
    }

    /// The pods of all clusters, if it is enabled.
    pub fn pods(&self) -> PodIndex {
        self.objects.pods.clone()
    }

    /// The number of queued responses of one stream.
    pub(crate) fn down_queue(&self) -> usize {
        self.down_queue
    }

    /// Ends all streams and the thread.
    pub async fn end(&self) {
        let _ = self.send(Message::End).await;
    }

    pub(crate) async fn send(&self, message: Message) -> Result<(), Closed> {
        match self.messages.try_send(message) {
            Err(TrySendError::Full(message)) => self.messages.send(message).await.map_err(|_| Closed),
            sent => sent.map_err(|_| Closed),
        }
    }

    /// Runs a function on the thread, when all earlier messages have had their effect. It holds up all else.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        self.ask(Message::Inspect, look).await
    }

    /// The same, but changes may wait for their commit.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        self.ask(Message::Look, look).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        message: fn(Look) -> Message,
        look: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (reply, answer) = oneshot::channel();
        self.send(message(Box::new(move |core| drop(reply.send(look(core)))))).await?;
        answer.await.map_err(|_| Closed)
    }

    /// A fork of the world in which all earlier messages have had their effect.
    pub(crate) async fn fork(&self) -> Result<World, Closed> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Fork(reply)).await?;
        answer.await.map_err(|_| Closed)
    }
}

async fn run(mut core: Core, messages: mpsc::Receiver<Message>) {
    let mut inbox = Inbox::new(messages);
    while !core.has_ended() {
        if inbox.is_empty() && !core.is_busy() {
            let ended = Instant::now();
            tokio::select! {
                is_open = inbox.wait() => if !is_open { return },
                () = until(core.deadline()) => {}
            }
            // Nothing else uses the thread, and its timer is more exact than that of the runtime.
            std::thread::sleep(BETWEEN_TURNS.saturating_sub(ended.elapsed()));
        }
        inbox.fill();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| core.turn(&mut inbox))) {
            core.repair("a turn", panic);
        }
    }
}

/// The number of queued responses of one stream that is served so many types. At most one of each is unanswered, and the end
/// of the stream follows.
pub(crate) fn down_queue(types: usize) -> usize {
    types + 1
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use registry::inputs::MeshSettings;

    use super::*;

    fn start() -> WorldHandle {
        let mesh = MeshSettings::default();
        WorldHandle::start(World::new(mesh, 1), Limits::default(), Pace::UNLIMITED).expect("a thread")
    }

    /// The clock is paused: it advances to the time limit as soon as only the thread's answer is missing.
    #[tokio::test(start_paused = true)]
    async fn a_thread_that_hangs_fails_the_check_until_it_goes_on() {
        let world = start();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (entered, has_entered) = oneshot::channel();
        let hanging = world.clone();
        let hanging = tokio::spawn(async move {
            let hang = move |_: &mut Core| {
                let _ = entered.send(());
                let _ = released.recv();
            };
            hanging.inspect(hang).await.expect("the thread runs");
        });
        has_entered.await.expect("the thread runs");
        let reason = world.check().await.expect_err("it hangs");
        assert!(reason.contains("does not answer within 3s"), "{reason}");
        drop(release);
        hanging.await.expect("released");
        assert_eq!(world.inspect(|core| core.repairs.health()).await.expect("the thread runs"), Ok(()));
    }

    #[tokio::test]
    async fn a_thread_that_has_ended_fails_the_check() {
        let world = start();
        assert_eq!(world.check().await, Ok(()));
        world.end().await;
        world.messages.closed().await;
        let reason = world.check().await.expect_err("it has ended");
        assert!(reason.contains("has ended"), "{reason}");
    }
}
