//! The catalogue of the trust bundle that agents receive (PCDS).

use std::sync::Arc;

use flow::Reads;
use model::audience::ResourceKey;
use registry::inputs::TrustBundle;

use crate::Catalogue;

flow::rule! {
    /// The catalogue of trust bundles: one resource, without a name, if the mesh has a bundle.
    pub TrustBundleCatalogue: () => Catalogue = "trust bundle catalogue", derive_trust_bundle_catalogue;
}

fn derive_trust_bundle_catalogue(cx: &Reads<'_>, (): &()) -> Option<Catalogue> {
    cx.get::<TrustBundle>(&())?;
    Some(Catalogue::new(vec![(Arc::default(), ResourceKey::TrustBundle)]))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<TrustBundleCatalogue>();
}
