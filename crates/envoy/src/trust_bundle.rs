//! The root certificates of the mesh for agents (PCDS), as a `ProxyConfig` of Istio in which only `caCertificatesPem` is set.

use flow::Reads;
use model::xds::Resource;
use registry::inputs::TrustBundle;

use crate::wire::Writer;

/// The number of the field `caCertificatesPem`.
const CERTIFICATES: u32 = 34;

flow::rule! {
    /// The encoded trust bundle.
    pub TrustBundles: () => Resource = "trust bundles", derive_trust_bundles;
}

fn derive_trust_bundles(cx: &Reads<'_>, (): &()) -> Option<Resource> {
    let roots = cx.get::<TrustBundle>(&())?;
    let mut message = Writer::with_capacity(roots.iter().map(|root| root.len() + 4).sum());
    roots.iter().for_each(|root| message.text(CERTIFICATES, root));
    Some(Resource::new("", message.finish()))
}
