//! The part of a proxy's catalogue that a list has.

/// The part of the resources of a type that a catalogue lists.
///
/// Sidecars that serve different ports share the catalogue of everything else: each has a [`Section::Shared`] catalogue,
/// whose size depends on the mesh and whose audience has no inbound facts, and a small [`Section::Own`] one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Section {
    /// All resources: of gateways, and of the few sidecars that share nothing.
    All,
    /// The resources for outbound traffic, which do not depend on the ports of the workload.
    Shared,
    /// The other resources: those for inbound traffic, and those that replace or hide shared ones.
    Own,
}
