//! Handles the events of watches.

use std::sync::Arc;

use tokio::time::Instant;

use super::slot::Found;
use super::{Follower, TAGS};
use crate::kubernetes::event::Raw;
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
            Event::Failed(error) => slot.progress.fails(&slot.name, error),
            Event::Recovered => slot.progress.goes_well(&slot.name),
        }
    }

    pub(super) fn take_crd(&mut self, event: Event) {
        match self.crds_side.take("CustomResourceDefinition", event) {
            Some(Found::Applied(raw)) => self.crds.put(&raw.name, &raw.value),
            Some(Found::Deleted(raw)) => self.crds.remove(&raw.name),
            Some(Found::All(names)) => {
                self.crds.retain(&|name| names.contains(name));
                self.served = true;
            }
            None => return,
        }
        // Not while the list is incomplete.
        if self.crds_side.found.is_none() {
            self.choose_versions();
        }
    }

    pub(super) fn take_tag(&mut self, at: usize, event: Event) {
        let Some(revision) = &mut self.revision else { return };
        let (name, ..) = TAGS[at];
        let key = |raw: &Raw| -> Arc<str> { format!("{at}/{}", raw.name).into() };
        let changed = match self.tags[at].take(name, event) {
            Some(Found::Applied(raw)) => revision.tag(&key(&raw), Some(&raw.value["metadata"]["labels"])),
            Some(Found::Deleted(raw)) => revision.tag(&key(&raw), None),
            Some(Found::All(names)) => revision.retain(&|key| match key.split_once('/') {
                Some((of, name)) if of == at.to_string() => names.contains(name),
                _ => true,
            }),
            None => false,
        };
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
        let (Some(mesh), Some((_, name, side))) = (
            &mut self.mesh,
            self.mesh_sides.iter_mut().find(|(of, _, _)| *of == place),
        ) else {
            return;
        };
        match side.take(name, event) {
            Some(Found::Applied(raw)) => mesh.take(place, Some(&raw.value), &mut self.pending),
            Some(Found::Deleted(_)) => mesh.take(place, None, &mut self.pending),
            Some(Found::All(names)) if names.is_empty() => mesh.take(place, None, &mut self.pending),
            Some(Found::All(_)) | None => {}
        }
    }
}
