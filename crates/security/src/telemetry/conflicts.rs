//! Conflicts of the mesh's telemetry settings with existing services.

use std::sync::Arc;

use config::{Diagnostic, FieldPath, Kind, ObjectKey};
use flow::Reads;
use model::service::ObjectId;
use registry::inputs::Mesh;

use super::provider;
use crate::backend::Flaw;

flow::rule! {
    /// The conflicts of the mesh's settings, by their MeshConfig; none if there are none.
    pub TelemetryConflicts: ObjectId => Arc<[Diagnostic]> = "conflicts on telemetry", derive_telemetry_conflicts;
}

fn derive_telemetry_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Diagnostic]>> {
    let mesh = cx.get::<Mesh>(&())?;
    let mesh = &mesh.config;
    let defaults = FieldPath::spec().field("defaultProviders");
    let mut all = Vec::new();
    let mut note = |list: &str, index: usize, name: &str, flaw: Option<Flaw>| {
        let path = defaults.field(list.to_owned()).index(index);
        all.extend(flaw.map(|flaw| conflict(key, path, name, flaw)));
    };
    // The first tracer is used. Validation reports providers that do not exist.
    for (index, name) in mesh.default_providers.tracing.iter().take(1).enumerate() {
        let flaw = provider::named(mesh, name)
            .and_then(|found| provider::tracer(cx, found).err().or_else(|| provider::port_flaw(cx, found)));
        note("tracing", index, name, flaw);
    }
    for (index, name) in mesh.default_providers.access_logging.iter().enumerate() {
        let flaw = provider::named(mesh, name).and_then(|found| {
            let flaw = provider::log(cx, mesh, found).err();
            flaw.or_else(|| provider::port_flaw(cx, found))
        });
        note("accessLogging", index, name, flaw);
    }
    (!all.is_empty()).then(|| all.into())
}

fn conflict(key: &ObjectId, path: FieldPath, name: &str, flaw: Flaw) -> Diagnostic {
    let field = flaw.place();
    let object = ObjectKey::new(Kind::MeshConfig, &*key.namespace, &*key.name);
    let message = format!("extension provider {name:?}{field}: {}", flaw.message);
    Diagnostic::warning(object, flaw.code, path, message, flaw.hint)
}
