//! Whether the world can be used after a panic that may have left it inconsistent.

use std::time::{Duration, Instant};

use crate::core::Health;

/// The least time between two repairs: each of them derives everything again, and all proxies connect again.
const BETWEEN_REPAIRS: Duration = Duration::from_secs(60);

/// The repairs so far.
#[derive(Default)]
pub(crate) struct Repairs {
    last: Option<Instant>,
    /// The step that panicked and could not be repaired.
    failed: Option<&'static str>,
}

impl Repairs {
    /// Whether a repair may be tried now. Records it.
    pub(crate) fn may_begin(&mut self) -> bool {
        let is_late = self.last.is_none_or(|last| last.elapsed() >= BETWEEN_REPAIRS);
        if is_late {
            self.last = Some(Instant::now());
        }
        is_late && !self.has_failed()
    }

    /// Records that this panicked and cannot be repaired.
    pub(crate) fn fail(&mut self, what: &'static str) {
        self.failed.get_or_insert(what);
    }

    /// Whether the world cannot be used any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The reason for which the world cannot be used, if so.
    pub(crate) fn health(&self) -> Health {
        let reason = |what| Err(format!("{what} panicked, see the log; restart the control plane"));
        self.failed.map_or(Ok(()), reason)
    }
}
