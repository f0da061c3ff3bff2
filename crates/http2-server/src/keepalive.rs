//! Finds out whether the client of an idle connection still exists.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// When an idle connection is checked.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// The time without a frame of the client after which it is asked for an answer.
    pub interval: Duration,
    /// The time within which it must answer.
    pub timeout: Duration,
}

/// The check of a connection.
pub(crate) struct Check {
    settings: Keepalive,
    timer: Pin<Box<Sleep>>,
    received: Instant,
    /// Whether the client was asked, and has sent nothing since.
    is_asked: bool,
}

impl Check {
    pub(crate) fn new(settings: Keepalive) -> Check {
        Check { settings, timer: Box::pin(sleep(settings.interval)), received: Instant::now(), is_asked: false }
    }

    /// The client has sent something.
    pub(crate) fn received(&mut self) {
        self.received = Instant::now();
        self.is_asked = false;
    }

    /// Completes when the client does not answer. Calls `ask` when it must be asked.
    pub(crate) fn poll_dead(&mut self, cx: &mut Context<'_>, mut ask: impl FnMut()) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.is_asked {
                return Poll::Ready(());
            }
            let (now, idle) = (Instant::now(), self.received + self.settings.interval);
            self.is_asked = idle <= now;
            if self.is_asked {
                ask();
            }
            self.timer.as_mut().reset(if self.is_asked { now + self.settings.timeout } else { idle });
        }
        Poll::Pending
    }
}
