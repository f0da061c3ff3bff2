//! Another control plane as a source: its configuration API over aggregated discovery, as Istio's `configSources` with
//! `xds://` mean it.
//!
//! One stream, state of the world, one subscription per kind by the type `GROUP/VERSION/Kind`. Resources come as
//! `istio.mcp.v1alpha1.Resource`; the body of one is Istio's message of the kind, or a `google.protobuf.Struct` for the
//! kinds that Istio has no message of (those of the Gateway API). MeshConfig comes as `istio.mesh.v1alpha1.MeshConfig` by
//! itself. The core kinds are not asked for: their content is not in a `spec`, which is all that this form carries.
//!
//! While the other side is away, what was there stays. An answer that cannot be read is refused whole, with the reason; an
//! object that is not valid keeps its last good version, stops no other, and is a diagnostic.

mod address;
mod connection;
mod object;
mod state;

pub use address::{Address, AddressError, Location, Tls, locate};
pub use connection::{Node, Options, follow};
