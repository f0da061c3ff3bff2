//! The snapshot: used if the server is unavailable at the start, written periodically.

use config::{ChangeSet, Kind};
use tokio::time::Instant;

use super::Follower;
use crate::kubernetes::mesh::Mesh;
use crate::kubernetes::progress::Progress;
use crate::kubernetes::snapshot::{self, Entry};
use crate::kubernetes::table::Table;

impl Follower {
    /// Reads the snapshot once the server has been unavailable for too long at the start. Later lists are compared with
    /// it.
    pub(super) async fn recall(&mut self) -> Option<ChangeSet> {
        let options = self.options.snapshot.clone()?;
        let progresses = self.slots.iter().map(|slot| &slot.progress);
        let sides = self.mesh_sides.iter().map(|(_, _, side)| &side.progress);
        let away = progresses.chain(sides).chain([&self.crds_side.progress]).any(Progress::is_away);
        if self.complete || self.recalled.0 || !away || self.begun.elapsed() < options.patience {
            return None;
        }
        self.recalled.0 = true;
        let file = options.file.clone();
        let read = tokio::task::spawn_blocking(move || snapshot::read(&options)).await.ok()?;
        let entries = match read {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(file = %file.display(), "no usable snapshot: {error}");
                return None;
            }
        };
        tracing::warn!(
            objects = entries.len(),
            "the Kubernetes API is unavailable: serving the snapshot of an earlier run until it answers"
        );
        self.recalled.1 = true;
        Some(self.seed(entries))
    }

    fn seed(&mut self, entries: Vec<Entry>) -> ChangeSet {
        let mut change = ChangeSet::default();
        // Incomplete lists are restarted.
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if let Some(kind) = slot.definition.mesh {
                slot.table = Table::new(kind, slot.definition);
            }
            slot.progress.synced = false;
            self.start(at);
        }
        for (hash, object) in entries {
            let object = self.texts.trim(object, &self.options.cluster);
            let kind = object.kind();
            let slot = self.slots.iter_mut().find(|slot| slot.definition.mesh == Some(kind));
            let counts = match (&mut self.mesh, slot) {
                (Some(mesh), _) if matches!(kind, Kind::MeshConfig | Kind::MeshNetworks) => mesh.seed(&object),
                (_, Some(slot)) => {
                    slot.table.seed(hash, object.clone());
                    true
                }
                _ => false,
            };
            if counts {
                change.upsert(object);
            }
        }
        change
    }

    /// Writes a snapshot of the objects in effect, if it is due.
    pub(super) fn keep(&mut self) {
        let Some(options) = &self.options.snapshot else { return };
        let due = self.kept.is_none_or(|kept| kept.elapsed() >= options.interval);
        let busy = self.keeping.as_ref().is_some_and(|keeping| !keeping.is_finished());
        if !self.complete || !self.outdated || !due || busy {
            return;
        }
        let objects = self.slots.iter().flat_map(|slot| slot.table.objects());
        let mut entries: Vec<Entry> = objects.map(|(hash, object)| (hash, object.clone())).collect();
        let settings = self.mesh.iter().flat_map(Mesh::objects);
        entries.extend(settings.map(|object| (0, object.clone())));
        let options = options.clone();
        self.keeping = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = snapshot::write(&options, &entries) {
                let file = options.file.display();
                tracing::warn!(%file, "cannot write the snapshot: {error}");
            }
        }));
        (self.kept, self.outdated) = (Some(Instant::now()), false);
    }
}
