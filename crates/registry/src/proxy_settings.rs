//! Settings of proxies that differ from the mesh's `defaultConfig`. Each proxy reports the settings it was started with.

use std::sync::Arc;

use config::mesh::{ProxyConfig, ProxyConfigOverride};
use flow::Reads;

use crate::inputs::{Mesh, MeshSettings};

flow::rule! {
    /// The settings that proxies report, decoded from JSON. Most proxies report the same.
    pub ReportedSettings: Arc<str> => Arc<ProxyConfig> = "reported settings of proxies", derive_reported_settings;
}

fn derive_reported_settings(_: &Reads<'_>, text: &Arc<str>) -> Option<Arc<ProxyConfig>> {
    ProxyConfig::parse(text).map(Arc::new)
}

flow::rule! {
    /// The mesh's settings with the overrides of a proxy.
    pub OverriddenMeshes: Arc<ProxyConfigOverride> => Arc<MeshSettings> = "mesh settings with overrides of proxies", derive_overridden_meshes;
}

fn derive_overridden_meshes(cx: &Reads<'_>, overrides: &Arc<ProxyConfigOverride>) -> Option<Arc<MeshSettings>> {
    let mut mesh = (**cx.get::<Mesh>(&())?).clone();
    overrides.apply(&mut mesh.config.default_config);
    Some(Arc::new(mesh))
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
