//! Another control plane as a source: its configuration over ADS, as in Istio's `configSources` with `xds://`.
//!
//! There is one SotW stream with one subscription per kind, by the type `GROUP/VERSION/Kind`. Resources are
//! `istio.mcp.v1alpha1.Resource`; the body is Istio's message of the kind, or a `google.protobuf.Struct` for kinds
//! without one (Gateway API). MeshConfig is a bare `istio.mesh.v1alpha1.MeshConfig`. Core kinds are not requested:
//! their content is not in a `spec`, and this form carries only a `spec`.
//!
//! While the other side is unavailable, the last state stays in effect. A malformed response is rejected with a NACK.
//! An invalid object keeps its last valid version, is reported as a diagnostic, and affects no other object.

mod address;
mod connection;
mod object;
mod state;

pub use address::{Address, AddressError, Location, Tls, locate};
pub use connection::{Node, Options, follow};
