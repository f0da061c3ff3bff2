//! Limits of the process: file descriptors, which the listeners share so that none can use up those of another, and core files.

use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::ConnectionLimits;
use tokio::sync::Semaphore;

/// The descriptors that are not for connections of clients: files, the store, connections to other servers, and the
/// connection that each listener accepts before it closes another one.
const RESERVE: usize = 256;
/// The most connections of readiness probes, which have a share of their own.
const READINESS: usize = 64;
/// The most connections to the monitoring address.
const MONITORING: usize = 256;
/// The most connections to the API.
const API: usize = 10_000;
/// The most connections of proxies to one listener, without those in places that all share.
const XDS: usize = 100_000;
/// The share of the places for proxies that each of the three xDS listeners (two ports and the Unix socket) has for itself: an
/// eighth. Most proxies of an installation use the same one, which takes the rest.
const OWN_SHARE: usize = 8;

/// Raises the limit of open files to the hard limit: every proxy uses one.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_err() {
        tracing::warn!(limit = ?limit.current, "cannot raise the limit of open files");
    }
}

/// Prevents core files, which would contain the private key of the authority.
pub(super) fn forbid_core_files() {
    let limit = getrlimit(Resource::Core);
    if setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum }).is_err() {
        tracing::warn!("cannot prevent core files, which would contain private keys");
    }
}

/// The number of connections of each listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Budget {
    readiness: usize,
    monitoring: usize,
    pub(super) api: usize,
    /// Of each xDS listener.
    xds: usize,
    /// Of all xDS listeners together.
    shared_xds: usize,
}

impl Budget {
    /// The budget of this process.
    pub(super) fn of_process() -> Budget {
        let limit = getrlimit(Resource::Nofile).current;
        Budget::of(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    /// Divides this number of descriptors.
    fn of(descriptors: usize) -> Budget {
        let left = descriptors.saturating_sub(RESERVE).max(descriptors / 2).max(16);
        let readiness = READINESS.min(left / 16);
        let monitoring = MONITORING.min(left / 16);
        let api = API.min(left / 4);
        let proxies = left - readiness - monitoring - api;
        let xds = XDS.min(proxies / OWN_SHARE);
        let shared_xds = XDS.min(proxies - 3 * xds);
        Budget { readiness, monitoring, api, xds, shared_xds }
    }

    /// The limits of the server's listeners.
    pub(super) fn server(self) -> ConnectionLimits {
        let of = listeners::Limits::of;
        let shared = Some(Arc::new(Semaphore::new(self.shared_xds)));
        let grpc = listeners::Limits { shared, ..of(self.xds) };
        ConnectionLimits { grpc, http: of(self.readiness), monitoring: of(self.monitoring) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listeners_together_leave_descriptors_for_everything_else() {
        for descriptors in [64, 256, 512, 1024, 4096, 65_536, 1 << 20, usize::MAX] {
            let Budget { readiness, monitoring, api, xds, shared_xds } = Budget::of(descriptors);
            assert!(readiness > 0 && monitoring > 0 && api > 0 && xds > 0, "{descriptors}");
            let reserve = descriptors - (readiness + monitoring + api + 3 * xds + shared_xds);
            assert!(reserve >= RESERVE.min(descriptors / 2), "{descriptors}: {reserve}");
        }
        let large = Budget { readiness: 64, monitoring: 256, api: 10_000, xds: 100_000, shared_xds: 100_000 };
        assert_eq!(Budget::of(1 << 20), large);
        let usual = Budget::of(20_000);
        assert!(usual.xds + usual.shared_xds > 10_000, "one port takes 10,000 proxies");
    }
}
