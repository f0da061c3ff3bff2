//! Kubernetes controllers as state machines: observed objects go in, [`Write`]s come out. No I/O.
//!
//! ```text
//! watch events ─► Driver::see ─► Controller (machine) ─► plan ─► Write ─► API server
//!                                     ▲                                      │
//!                                     └────────────── watch events ◄─────────┘
//! ```
//!
//! Each controller is one file with two types: the machine ([`Controller`]) holds the state and plans writes; its [`Driver`]
//! lists what to watch and decodes objects for the machine. `runtime` runs a driver while this replica holds the lease of the
//! controller.
//!
//! Each machine remembers the writes it returned ([`Ledger`]) and does not return one again while it is in flight. A later
//! observation of the object takes precedence. Observations may be repeated and arrive in any order; a machine plans nothing
//! if the desired state is reached. [`Controller::restart`] clears the ledger, because another replica may have led in the
//! meantime, writes may be lost, or events were missed.

mod addresses;
mod driver;
pub mod gateways;
mod ingress;
mod ledger;
mod namespaces;
pub mod registration;
mod root_certificate;
mod service_exports;
mod untaint;
mod webhook_bundles;
mod write;

pub use addresses::{AddressDriver, Addresses, Allocation, Entry, Ranges};
pub use driver::{Driver, Origin, Watched};
pub(crate) use driver::{id, labels};
pub use ingress::{IngressDriver, IngressStatuses, SeenIngress};
pub use ledger::Ledger;
pub use root_certificate::{
    CONFIG_MAP, Found, KEY, PublishedRoots, REVOCATION_KEY, REVOCATION_MAP, RootCertificates, RootDriver, RootMap,
    RootMapNames,
};
pub use service_exports::{ExportDriver, ServiceExports};
pub use untaint::{SeenNode, TAINT, Untaint, UntaintDriver};
pub use webhook_bundles::{MUTATING, VALIDATING, WebhookBundles, WebhookNames};
pub use write::{Body, MANAGED, Resource, Target, Write};

use std::collections::BTreeMap;

/// Sets or removes an entry; returns the one before.
fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: impl Into<K>, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key.into(), value),
        None => map.remove(&key.into()),
    }
}

/// The state machine of a controller.
pub trait Controller {
    /// The writes that are needed now and were not returned before.
    fn plan(&mut self) -> Vec<Write>;

    /// Clears the ledger: everything that differs from the desired state is planned again.
    fn restart(&mut self);
}
