//! Runs Envoy as a child process: start, restart with backoff, restart with a new configuration, drain and
//! termination, as Istio's agent does it.
//!
//! ```text
//! Configuration (watch) ─┐            ┌─► Envoy ◄─ admin interface (drain, connections)
//! Event (mpsc, bounded) ─┼─► run ─────┼─► Status (watch): process, restarts, failure
//! stop (watch) ──────────┘            └─► Exit
//! ```
//!
//! [`run`] is one loop. It writes the configuration to its file, starts Envoy, and then handles events:
//!
//! | event | action |
//! |---|---|
//! | Envoy crashes | a new Envoy after a backoff; the [`Status`] has the failure until the new one has run for a minute |
//! | Envoy exits with status 0, as after `/quitquitquit` of Envoy, with which a `Job` ends its sidecar | [`Exit::Finished`] |
//! | a configuration that differs | Envoy checks it; if it is valid, a hot restart or else a drained restart |
//! | [`Event::Drain`](agent_core::exchange::Event::Drain) | Envoy drains and continues to serve; a later stop does not drain again |
//! | [`Event::Quit`](agent_core::exchange::Event::Quit) | Envoy is killed without draining |
//! | stop | Envoy drains; it is killed after `terminationDrainDuration`, or when it has no more connections |
//!
//! Envoy's *hot restart* is right for a container, too: traffic is captured as long as the pod exists, so that each moment without
//! Envoy fails requests. The agent is the parent of both processes. The old one passes its listeners to the new one and ends after the
//! drain time. This needs shared memory (`/dev/shm`); without it, and if Envoy fails at once with it, restarts are drained. Both
//! processes need memory meanwhile; `ENVOY_HOT_RESTART=false` selects drained restarts.
//!
//! Envoy ends with the agent: it is killed when [`run`] ends or is dropped, and with the container or the control group
//! (`KillMode=control-group` of systemd) if the agent is killed. It has a process group of its own, so that a signal of the terminal
//! reaches the agent, which drains first.

mod admin;
mod arguments;
mod exchange;
mod process;
mod run;
mod settings;

pub use admin::{Admin, AdminError, Listeners};
pub use exchange::{Configuration, Exit, Inputs, Status};
pub use run::run;
pub use settings::{Backoff, Proxy, Settings};
