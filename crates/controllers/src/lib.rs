//! What the controllers want to be written, each a machine of its own: what there is goes in, [`Write`]s come out.
//!
//! Each remembers what it handed out ([`Ledger`]), so that the same is not handed out twice while it is under way; what is
//! seen of the object itself later counts more than that. A machine may be told everything again, in any order, and says
//! nothing if all is as it should be. [`Controller::restart`] forgets what was handed out: another replica led meanwhile,
//! writes were lost, or changes were not seen one by one.

mod addresses;
mod driver;
mod ingress;
mod ledger;
mod namespaces;
mod root_certificate;
mod service_exports;
mod untaint;
mod write;

pub use addresses::{AddressDriver, Addresses, Allocation, Entry, Ranges};
pub use driver::{Driver, Origin, Watched};
pub(crate) use driver::{id, labels};
pub use ingress::{IngressDriver, IngressStatuses, SeenIngress};
pub use ledger::Ledger;
pub use root_certificate::{CONFIG_MAP, Found, KEY, RootCertificates, RootDriver, root_of};
pub use service_exports::{ExportDriver, ServiceExports};
pub use untaint::{SeenNode, TAINT, Untaint, UntaintDriver};
pub use write::{Body, Target, Write};

/// What all controllers have in common.
pub trait Controller {
    /// What is to be written now, and was not handed out before.
    fn plan(&mut self) -> Vec<Write>;

    /// Forgets what was handed out: all that is not as it should be is planned anew.
    fn restart(&mut self);
}
