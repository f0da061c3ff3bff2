//! Work with the world on another thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{ALONE, Core};
use crate::ahead::Running;
use crate::clients::Clients;
use crate::gathered::Gathered;
use crate::inbox::Inbox;
use crate::served_world::ServedWorld;

impl Core {
    /// Does work that can take long on another thread, and serves clients from the hub meanwhile. Nothing else reads the world
    /// before the work is complete. If there is a fork of the world, waiting changes of endpoints are committed to it.
    ///
    /// # Errors
    /// The work panicked.
    pub(super) fn beside<T: Send>(
        &mut self,
        inbox: &mut Inbox,
        work: impl FnOnce(&mut ServedWorld) -> T + Send,
    ) -> std::thread::Result<T> {
        let Core { served, hub, streams, counters, started, gathered, ahead, paces, pace, .. } = self;
        let (job, done) = (Mutex::new(Some((served, work))), Mutex::new(None));
        let run = || {
            if let Some((served, work)) = lock(&job).take() {
                served.world.limit_threads(usize::MAX);
                let worked = catch_unwind(AssertUnwindSafe(|| work(&mut *served)));
                served.world.limit_threads(ALONE);
                *lock(&done) = Some(worked);
            }
        };
        let thread = std::thread::current();
        let beside = || {
            run();
            thread.unpark();
        };
        std::thread::scope(|scope| {
            let mut running: Option<Running<'_>> = None;
            let between = |clients: &mut Clients<'_>, gathered: &mut Gathered| {
                let is_done = lock(&done).is_some();
                let Some(ahead) = ahead else { return is_done };
                if let Some(committed) = running.take_if(|running| running.is_finished()) {
                    clients.send_ahead(ahead.finish(committed.join()));
                }
                if running.is_none() && !is_done {
                    running = ahead.start(scope, gathered, (paces, pace), &thread);
                }
                is_done && running.is_none()
            };
            match std::thread::Builder::new().name("settle".into()).spawn_scoped(scope, beside) {
                Ok(_) => {
                    let mut clients = Clients { hub, streams, counters, started: *started };
                    clients.serve_until(between, inbox, gathered);
                }
                // There are too many threads.
                Err(_) => run(),
            }
        });
        lock(&done).take().unwrap_or_else(|| Err(Box::new("the work was not done")))
    }
}

/// Locks a mutex. What it holds is replaced as a whole, so that a panic leaves it consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
