//! The channel from sources to the intake.

use std::sync::Arc;

use config::ChangeSet;
use tokio::sync::mpsc;

/// A change set with its source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceChange {
    /// The rank of the source. Of sources that define the same object, the one with the lowest rank takes precedence.
    pub rank: usize,
    /// The changes.
    pub change: ChangeSet,
    /// If set, the change set contains all objects that the source has in this cluster: others are deleted.
    pub replaces: Option<Arc<str>>,
    /// Whether the source has sent its complete state with this change set or before.
    pub complete: bool,
}

/// The receiver was dropped: the control plane is shutting down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the control plane is shutting down")]
pub struct Closed;

/// Sends the changes of one source. Sending waits while the channel is full.
#[derive(Clone, Debug)]
pub struct ChangeSender {
    rank: usize,
    channel: mpsc::Sender<SourceChange>,
}

impl ChangeSender {
    /// A sender for the source of this rank.
    pub fn new(rank: usize, channel: mpsc::Sender<SourceChange>) -> ChangeSender {
        ChangeSender { rank, channel }
    }

    /// Sends a change set. The first one must contain the complete state, unless [`ChangeSender::send_partial`] sent the
    /// rest of it.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub async fn send(&self, change: ChangeSet) -> Result<(), Closed> {
        self.channel.send(self.complete(change)).await.map_err(|_| Closed)
    }

    /// As [`ChangeSender::send`], from a thread that may block.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub fn send_blocking(&self, change: ChangeSet) -> Result<(), Closed> {
        self.channel.blocking_send(self.complete(change)).map_err(|_| Closed)
    }

    /// Sends a part of the initial state, or a later change.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub async fn send_partial(&self, change: ChangeSet) -> Result<(), Closed> {
        let partial = SourceChange { complete: false, ..self.complete(change) };
        self.channel.send(partial).await.map_err(|_| Closed)
    }

    /// Sends all objects that the source has in a cluster.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub async fn replace_cluster(&self, cluster: &Arc<str>, change: ChangeSet) -> Result<(), Closed> {
        let all = SourceChange { replaces: Some(cluster.clone()), complete: false, ..self.complete(change) };
        self.channel.send(all).await.map_err(|_| Closed)
    }

    /// Completes when the receiver is dropped.
    pub(crate) async fn closed(&self) {
        self.channel.closed().await;
    }

    fn complete(&self, change: ChangeSet) -> SourceChange {
        SourceChange { rank: self.rank, change, replaces: None, complete: true }
    }
}
