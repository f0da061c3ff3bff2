//! The values that the other parts of the agent send to this crate and receive from it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use agent_core::exchange::Event;
use tokio::sync::{mpsc, watch};

/// The configuration of Envoy. Envoy restarts if it changes.
#[derive(Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The file. Envoy tells YAML from JSON by its extension.
    pub path: PathBuf,
    /// The text that is written to the file; none if the file is the operator's.
    pub text: Option<Arc<str>>,
    /// JSON that Envoy merges over it (`--config-yaml`).
    pub overlay: Option<Arc<str>>,
}

/// Shows no content: operators may put secrets there.
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The channels from which the supervisor receives.
#[derive(Debug)]
pub struct Inputs {
    /// The configuration.
    pub configurations: watch::Receiver<Configuration>,
    /// Requests of the status port.
    pub events: mpsc::Receiver<Event>,
    /// True when the agent is asked to end (SIGTERM, SIGINT). A dropped sender means the same.
    pub stop: watch::Receiver<bool>,
}

/// The state of Envoy, for health checks and the status port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The process; none if there is none.
    pub pid: Option<u32>,
    /// The number of restarts after crashes so far.
    pub restarts: u32,
    /// The number of restarts with a new configuration so far.
    pub reloads: u32,
    /// Whether Envoy drains.
    pub draining: bool,
    /// The reason of the last failure. A crash is removed when Envoy has run for a while, a refusal with the next configuration that
    /// Envoy accepts.
    pub failure: Option<String>,
}

/// The end of the supervisor.
#[derive(Debug)]
pub enum Exit {
    /// The agent was asked to end.
    Terminated,
    /// Envoy ended by itself, without an error.
    Finished,
    /// There is no Envoy that could be started.
    CannotStart(std::io::Error),
}

impl Exit {
    /// The exit code of the agent.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Exit::Terminated | Exit::Finished => 0,
            Exit::CannotStart(_) => 1,
        }
    }
}
