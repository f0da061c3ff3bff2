//! From what the sources say to what is committed.

use std::sync::{Arc, Mutex, PoisonError};

use registry::inputs::MeshSettings;
use resources::{AnyObject, Diagnostic, Kind, MeshConfig, Severity};
use server::Pilot;
use settings::Settings;
use sources::Change;
use world::Batch;

/// Where the mesh configuration may come from. The file that a setting names wins over an object in the directory, and
/// that over the defaults.
#[derive(Default)]
struct Mesh {
    file: Option<MeshConfig>,
    object: Option<MeshConfig>,
}

/// Turns what the sources say into batches, and hands them on.
pub(super) struct Intake {
    pilot: Pilot,
    domain: Arc<str>,
    cluster_id: Arc<str>,
    mesh: Mutex<Mesh>,
}

impl Intake {
    pub(super) fn new(pilot: Pilot, settings: &Settings, file: Option<MeshConfig>) -> Intake {
        Intake {
            pilot,
            domain: settings.domain.as_str().into(),
            cluster_id: settings.cluster_id.as_str().into(),
            mesh: Mutex::new(Mesh { file, object: None }),
        }
    }

    /// What files of the directory said. Waits while the queue is full; fails when the control plane is shutting down.
    pub(super) fn change(&self, change: Change) -> Result<(), server::Closed> {
        change.diagnostics.values().flatten().for_each(log_diagnostic);
        for (file, problems) in &change.diagnostics {
            if problems.is_empty() {
                tracing::info!(%file, "nothing is wrong any more");
            }
        }
        let (upserts, deletes) = (change.upserts.len(), change.deletes.len());
        let mut batch = Batch::new();
        for key in change.deletes {
            if key.kind == Kind::MeshConfig {
                batch.set_mesh(self.settings(|mesh| mesh.object = None));
            }
            batch.remove(&key);
        }
        for object in change.upserts {
            if let AnyObject::MeshConfig(config) = &object {
                batch.set_mesh(self.settings(|mesh| mesh.object = Some(config.spec.clone())));
            }
            batch.put(object);
        }
        if batch.is_empty() {
            return Ok(());
        }
        tracing::info!(upserts, deletes, "configuration changed");
        self.pilot.commit_blocking(batch)
    }

    /// What the file with the mesh configuration says now.
    pub(super) async fn mesh_file(&self, config: MeshConfig) -> Result<(), server::Closed> {
        let mut batch = Batch::new();
        batch.set_mesh(self.settings(|mesh| mesh.file = Some(config)));
        self.pilot.commit(batch).await
    }

    fn settings(&self, change: impl FnOnce(&mut Mesh)) -> MeshSettings {
        let mut mesh = self.mesh.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut mesh);
        let config = mesh.file.as_ref().or(mesh.object.as_ref()).cloned().unwrap_or_default();
        MeshSettings {
            config,
            domain: self.domain.clone(),
            cluster_id: self.cluster_id.clone(),
        }
    }
}

/// One line of the log for a diagnostic.
pub(super) fn log_diagnostic(diagnostic: &Diagnostic) {
    match diagnostic.severity {
        Severity::Error => tracing::error!(code = diagnostic.code, "{diagnostic}"),
        Severity::Warning => tracing::warn!(code = diagnostic.code, "{diagnostic}"),
        Severity::Info => tracing::info!(code = diagnostic.code, "{diagnostic}"),
    }
}
