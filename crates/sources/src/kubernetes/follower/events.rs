//! Handles the events of watches.

use std::sync::Arc;

use config::Kind;
use tokio::time::Instant;

use super::{Follower, TAGS};
use crate::kubernetes::mesh;
use crate::kubernetes::revision::Revision;
use crate::kubernetes::table::ReadContext;
use crate::kubernetes::watch::Event;

impl Follower {
    pub(super) fn take_object(&mut self, at: usize, epoch: u32, event: Event) {
        let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.epoch == epoch) else {
            return;
        };
        let is_namespace = slot.definition.mesh == Some(Kind::Namespace);
        if is_namespace && let Some(revision) = &mut self.revision {
            self.relabelled.extend(relabelled(revision, &event));
        }
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
        if is_namespace && !slot.progress.listing {
            self.list_relabelled();
        }
    }

    /// Lists kinds again whose objects are in namespaces with a changed revision, and may now be selected or not.
    fn list_relabelled(&mut self) {
        let namespaces = std::mem::take(&mut self.relabelled);
        if namespaces.is_empty() {
            return;
        }
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            let shares = slot.definition.mesh.is_some_and(Revision::shares);
            if !shares || !slot.table.has_objects_in(&namespaces) {
                continue;
            }
            self.list_again(at);
        }
    }

    /// Lists a kind again. The first change set waits for it.
    fn list_again(&mut self, at: usize) {
        self.slots[at].progress.synced &= self.complete;
        self.start(at);
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
            let slot = &self.slots[at];
            let kind = slot.definition.mesh;
            let by_namespace = kind.zip(self.revision.as_ref()).is_some_and(|(kind, ours)| ours.reads_namespaces(kind));
            if slot.table.is_labelled() || by_namespace {
                self.list_again(at);
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

/// The namespace of an event if its revision changed. Labels of namespaces that a new list does not have stay: nothing is in them.
fn relabelled(revision: &mut Revision, event: &Event) -> Option<Arc<str>> {
    let (raw, labels) = match event {
        Event::Applied(raw) => (raw, Some(&raw.value["metadata"]["labels"])),
        Event::Deleted(raw) => (raw, None),
        _ => return None,
    };
    revision.namespace(&raw.name, labels).then(|| raw.name.clone())
}
