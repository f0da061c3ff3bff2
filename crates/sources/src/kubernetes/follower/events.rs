//! Handles the events of watches.

use tokio::time::Instant;

use super::{Follower, TAGS};
use crate::kubernetes::mesh;
use crate::kubernetes::table::ReadContext;
use crate::kubernetes::watch::Event;

impl Follower {
    pub(super) fn take_object(&mut self, at: usize, epoch: u32, event: Event) {
        let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.epoch == epoch) else {
            return;
        };
        let mut context = ReadContext {
            options: &self.options.parse,
            revision: self.revision.as_ref(),
            texts: &mut self.texts,
            cluster: &self.options.cluster,
        };
        match event {
            Event::Listing => {
                slot.progress.listing = true;
                slot.table.begin();
            }
            Event::Applied(raw) => slot.table.upsert(raw, &mut context),
            Event::Deleted(raw) => slot.table.delete(&raw.namespace, &raw.name, context.cluster),
            Event::Listed => {
                slot.table.listed();
                slot.progress.listed(&slot.name);
                // The server may have become available only now: other kinds may need time, too.
                if self.hold.is_some_and(|until| until <= Instant::now()) {
                    self.hold = None;
                }
                self.lists += 1;
            }
            Event::Failed(error) => slot.progress.failed(&slot.name, error),
            Event::Recovered => slot.progress.recovered(&slot.name),
        }
    }

    pub(super) fn take_crd(&mut self, event: Event) {
        for (name, crd) in self.crds_side.take("CustomResourceDefinition", event) {
            match crd {
                Some(crd) => self.crds.put(&name, &crd),
                None => self.crds.remove(&name),
            }
        }
        self.served |= self.crds_side.progress.synced;
        if !self.crds_side.known.is_listing() {
            self.choose_versions();
        }
    }

    pub(super) fn take_tag(&mut self, at: usize, event: Event) {
        let Some(revision) = &mut self.revision else { return };
        let mut changed = false;
        for (name, object) in self.tags[at].take(TAGS[at].0, event) {
            let labels = object.as_ref().map(|object| &object["metadata"]["labels"]);
            changed |= revision.tag(&format!("{at}/{name}").into(), labels);
        }
        if !changed {
            return;
        }
        // Objects of other revisions were not stored, so kinds with revision labels are relisted.
        for at in 0..self.slots.len() {
            if self.slots[at].table.is_labelled() {
                self.start(at);
            }
        }
    }

    pub(super) fn take_mesh(&mut self, place: mesh::ConfigMapRole, event: Event) {
        let (Some(mesh), Some((_, name, side))) =
            (&mut self.mesh, self.mesh_sides.iter_mut().find(|(of, _, _)| *of == place))
        else {
            return;
        };
        let listed = matches!(event, Event::Listed);
        for (_, map) in side.take(name, event) {
            mesh.take(place, map.as_ref(), &mut self.pending);
        }
        if listed && side.known.is_empty() {
            mesh.take(place, None, &mut self.pending);
        }
    }
}
