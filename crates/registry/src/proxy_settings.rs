//! Settings of proxies that differ from the mesh's `defaultConfig`. Each proxy reports the settings it was started with.

use std::sync::Arc;

use config::mesh::{ProxyConfig, ProxyConfigOverride};
use flow::{Reads, Relation, Rule};

use crate::inputs::{Mesh, MeshSettings};

/// The settings that proxies report, decoded from JSON. Most proxies report the same.
pub struct ReportedSettings;

impl Relation for ReportedSettings {
    const NAME: &'static str = "reported settings of proxies";
    type Key = Arc<str>;
    type Row = Arc<ProxyConfig>;
}

impl Rule for ReportedSettings {
    fn derive(_: &Reads<'_>, text: &Arc<str>) -> Option<Arc<ProxyConfig>> {
        ProxyConfig::parse(text).map(Arc::new)
    }
}

/// The mesh's settings with the overrides of a proxy.
pub struct OverriddenMeshes;

impl Relation for OverriddenMeshes {
    const NAME: &'static str = "mesh settings with overrides of proxies";
    type Key = Arc<ProxyConfigOverride>;
    type Row = Arc<MeshSettings>;
}

impl Rule for OverriddenMeshes {
    fn derive(cx: &Reads<'_>, overrides: &Arc<ProxyConfigOverride>) -> Option<Arc<MeshSettings>> {
        let mut mesh = (**cx.get::<Mesh>(&())?).clone();
        overrides.apply(&mut mesh.config.default_config);
        Some(Arc::new(mesh))
    }
}

/// The mesh's settings for proxies with these overrides.
pub fn mesh_of(cx: &Reads<'_>, overrides: Option<&Arc<ProxyConfigOverride>>) -> Option<Arc<MeshSettings>> {
    let mesh = match overrides {
        Some(overrides) => cx.get::<OverriddenMeshes>(overrides),
        None => cx.get::<Mesh>(&()),
    };
    Some((*mesh?).clone())
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ReportedSettings>();
    b.view::<OverriddenMeshes>();
}
