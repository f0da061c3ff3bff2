//! VirtualServices: delegates merged, names expanded, indexed by host and gateway.
//!
//! Three relations keep changes narrow. [`EffectiveVirtualServices`] has everything, for encoders of routes.
//! [`VirtualServiceSummaries`] has the fields that decide *whether and where* a VirtualService applies, so that a
//! changed weight or timeout does not reach route tables. [`MeshHosts`] has the hosts only.

mod delegate;
mod effective;
mod lookup;
mod summary;

pub use effective::EffectiveVirtualServices;
pub(crate) use effective::missing_delegates;
pub(crate) use lookup::precedence;
pub use lookup::{
    MeshEntry, MeshHostTable, MeshHosts, MeshLookup, MeshVirtualServicesByExport, VirtualServicesByGateway, for_gateway,
};
pub use summary::{Binding, DestinationUse, Guard, L4VirtualServices, Summary, VirtualServiceSummaries};

use registry::VirtualServices;

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<EffectiveVirtualServices, VirtualServices>();
    b.world::<VirtualServiceSummaries, EffectiveVirtualServices>();
    b.index::<L4VirtualServices>();
    b.index::<MeshVirtualServicesByExport>();
    b.index::<VirtualServicesByGateway>();
    b.view::<MeshHosts>();
}
