//! Collections that are the names of another type's resources (VHDS).
//!
//! Envoy subscribes to virtual hosts once and without names. It expects the virtual hosts of every route table with
//! VHDS, after that table. So the collections of a stream are the tables that the client has been sent and has
//! answered. When a table is sent again, Envoy may rebuild it without virtual hosts.

use model::xds::{ResourceType, collection_of};

use crate::core::Core;
use crate::name_set::NameSet;
use crate::stream::Stream;
use crate::{Name, Origin};

impl<O: Origin> Core<O> {
    /// The resources of the parent type that a stream has been sent.
    pub(crate) fn sent_collections(&self, stream: &mut Stream<impl Sized>, parent: ResourceType) -> Vec<Name> {
        let Some(watch) = stream.watch_mut(parent) else {
            return Vec::new();
        };
        // The client has read the resources of the outstanding response before it subscribes.
        watch.unanswered.clear();
        if watch.sent == 0 {
            return Vec::new();
        }
        let (watch, unsent) = (&*watch, &watch.pending.owed);
        let names = self.names(watch);
        let names = names.iter().flat_map(NameSet::iter);
        names.filter(|name| unsent.binary_search(name).is_err()).cloned().collect()
    }

    /// Updates the collections after the client has answered for the parent type, or unsubscribed from some of its
    /// names.
    pub(crate) fn follow_parent(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        (parent, child): (ResourceType, ResourceType),
    ) {
        let (answered, wanted) = match stream.watch_mut(parent) {
            Some(watch) => {
                let answered = std::mem::take(&mut watch.unanswered);
                (answered, self.names(watch).unwrap_or_default())
            }
            None => Default::default(),
        };
        let Some(watch) = stream.watch(child).filter(|watch| watch.follows) else {
            return;
        };
        let Some(current) = self.names(watch) else {
            return;
        };
        let dropped: Vec<Name> = current.iter().filter(|name| !wanted.contains(name)).cloned().collect();
        let dropped: Vec<&str> = dropped.iter().map(|name| &**name).collect();
        let answered: Vec<Name> = answered.into_iter().filter(|name| wanted.contains(name)).collect();
        let edit = current.edit(answered.clone(), &dropped);
        if !edit.is_empty() {
            self.reselect_edit(origin, stream, child, &edit);
        }
        let Some(watch) = stream.watches.get_mut(child) else {
            return;
        };
        let is_kept = |name: &Name| !dropped.iter().any(|dropped| collection_of(name) == Some(dropped));
        watch.pending.owed.retain(is_kept);
        watch.pending.gone.retain(|gone| is_kept(&gone.name));
        watch.pending.owe(self.subscription(watch).in_collections(&self.cells, &answered));
    }
}
