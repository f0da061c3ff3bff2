//! Runs Envoy as a child process: start, restart with backoff, hot restart, drain and termination, as Istio's agent does it.
//!
//! ```text
//! Configuration (watch) ─┐            ┌─► Envoy ◄─ admin interface (drain, connections)
//! Event (mpsc, bounded) ─┼─► run ─────┼─► Status (watch): process, restarts, failure
//! stop (watch) ──────────┘            └─► Exit
//! ```
//!
//! [`run`] is one loop. It writes the configuration to its file, starts Envoy, and then reacts:
//!
//! | what happens | reaction |
//! |---|---|
//! | Envoy crashes | a new Envoy after a backoff; the [`Status`] has the [`Failure`] until the new one has run for a minute |
//! | Envoy exits with status 0, which is how jobs end their sidecar (`/quitquitquit` of Envoy) | [`Exit::Finished`] |
//! | a configuration that differs | Envoy checks it; if it is valid, a hot restart or else a drained restart |
//! | [`Event::Drain`] | Envoy drains and continues to serve; a later stop does not drain again |
//! | [`Event::Quit`] | Envoy is killed without draining |
//! | stop | Envoy drains; it is killed after `terminationDrainDuration`, or when it has no more connections |
//!
//! A hot restart is right for a container, too: traffic is captured for as long as the pod lives, so that each moment without Envoy
//! fails requests. The agent is the parent of both processes, hands the listeners over through Envoy's own protocol, and the old one
//! ends after the drain time. It needs shared memory (`/dev/shm`); without it, and if Envoy fails at once with it, restarts are drained.
//! Both processes need memory meanwhile; `ENVOY_HOT_RESTART=false` selects drained restarts.
//!
//! Envoy does not outlive the agent: it is killed when the agent ends in any orderly way, and with the agent's container or
//! control group (`KillMode=control-group` of systemd) otherwise. It has a process group of its own, so that a signal of the
//! terminal reaches the agent, which drains first.

mod admin;
mod arguments;
mod exchange;
mod process;
mod run;
mod settings;

pub use admin::{Admin, AdminError};
pub use exchange::{Configuration, Event, Exit, Failure, Inputs, Status};
pub use run::run;
pub use settings::{Backoff, Proxy, Settings};
