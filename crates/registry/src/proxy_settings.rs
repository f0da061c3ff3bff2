//! Settings of proxies that differ from the mesh's `defaultConfig`: each proxy tells of those that it was started with.

use std::sync::Arc;

use config::mesh::ProxyConfig;
use flow::{Reads, Relation, Rule};

use crate::inputs::{Mesh, MeshSettings};

/// What proxies say of their settings, read: as JSON to typed. Most say the same.
pub struct OwnSettings;

impl Relation for OwnSettings {
    const NAME: &'static str = "own settings of proxies";
    type Key = Arc<str>;
    type Row = Arc<ProxyConfig>;
}

impl Rule for OwnSettings {
    fn derive(_: &Reads<'_>, text: &Arc<str>) -> Option<Arc<ProxyConfig>> {
        ProxyConfig::parse(text).map(Arc::new)
    }
}

/// The mesh as proxies see it that have these settings of their own, as JSON: those that shape what is served stand where
/// the mesh's do.
pub struct MeshOfProxies;

impl Relation for MeshOfProxies {
    const NAME: &'static str = "mesh of proxies with own settings";
    type Key = Arc<str>;
    type Row = Arc<MeshSettings>;
}

impl Rule for MeshOfProxies {
    fn derive(cx: &Reads<'_>, text: &Arc<str>) -> Option<Arc<MeshSettings>> {
        let own = cx.get::<OwnSettings>(text)?;
        let mut mesh = (**cx.get::<Mesh>(&())?).clone();
        let settings = &mut mesh.config.default_config;
        settings.proxy_headers = own.proxy_headers.clone();
        settings.gateway_topology = own.gateway_topology.clone();
        // As with Istio these alone are the mesh's where the proxy tells of none.
        if let Some(own) = &own.connection_settings {
            settings.connection_settings = Some(own.clone());
        }
        settings.tracing = own.tracing.clone();
        Some(Arc::new(mesh))
    }
}

/// The mesh as proxies with these settings see it; empty: as all do.
pub fn mesh_of(cx: &Reads<'_>, settings: &Arc<str>) -> Option<Arc<MeshSettings>> {
    let own = (!settings.is_empty())
        .then(|| cx.get::<MeshOfProxies>(settings))
        .flatten();
    let mesh = own.or_else(|| cx.get::<Mesh>(&()))?;
    Some((*mesh).clone())
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<OwnSettings>();
    b.view::<MeshOfProxies>();
}
