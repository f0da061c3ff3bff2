//! VirtualServices: delegates merged in, names made full, and found by the hosts and gateways that they are for.
//!
//! Three relations keep changes narrow. [`EffectiveVirtualServices`] has everything, for those who encode routes.
//! [`VirtualServiceSummaries`] has what decides *whether and where* a VirtualService applies; a change of a weight or of
//! a time-out does not reach it, and so no table. [`MeshHosts`] has the hosts alone.

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
pub use summary::{Binding, DestinationUse, Guard, Summary, VirtualServiceSummaries};

use registry::VirtualServices;

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<EffectiveVirtualServices, VirtualServices>();
    b.world::<VirtualServiceSummaries, EffectiveVirtualServices>();
    b.index::<MeshVirtualServicesByExport>();
    b.index::<VirtualServicesByGateway>();
    b.view::<MeshHosts>();
}
