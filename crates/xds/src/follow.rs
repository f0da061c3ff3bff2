//! Virtual hosts follow route tables.
//!
//! Envoy asks for virtual hosts once, without a name: it takes those of every table that says that its virtual hosts are
//! discovered singly, and expects them after that table. So the collections of a stream are the tables that it has been
//! sent and has answered. A table that is sent again is one that Envoy may have made anew, without virtual hosts.

use model::xds::ResourceType;

use crate::core::Core;
use crate::name_set::NameSet;
use crate::stream::Stream;
use crate::{Name, Origin};

impl<O: Origin> Core<O> {
    /// The tables that a stream has been sent: what its virtual hosts are in when it asks for them without a name.
    pub(crate) fn tables_sent(&self, stream: &mut Stream<impl Sized>) -> Vec<Name> {
        // Who asks has read the tables of the outstanding response, too.
        stream.tables.clear();
        let Some(routes) = stream.watch(ResourceType::Route).filter(|routes| routes.sent > 0) else {
            return Vec::new();
        };
        let unsent = &routes.pending.owed;
        let names = self.selection(routes).names.iter().flat_map(NameSet::iter);
        names
            .filter(|name| unsent.binary_search(name).is_err())
            .cloned()
            .collect()
    }

    /// The client has answered for these route tables, or dropped some.
    pub(crate) fn follow_tables(&mut self, origin: &mut O, stream: &mut Stream<O::Token>) {
        let answered = std::mem::take(&mut stream.tables);
        let Some(hosts) = stream.watch(ResourceType::VirtualHost).filter(|hosts| hosts.follows) else {
            return;
        };
        let Some(current) = self.selection(hosts).names.clone() else {
            return;
        };
        let routes = stream.watch(ResourceType::Route);
        let wanted = routes
            .and_then(|routes| self.selection(routes).names.clone())
            .unwrap_or_default();
        let dropped: Vec<Name> = current.iter().filter(|name| !wanted.contains(name)).cloned().collect();
        let dropped: Vec<&str> = dropped.iter().map(|name| &**name).collect();
        let answered: Vec<Name> = answered.into_iter().filter(|name| wanted.contains(name)).collect();
        let edit = current.edit(answered.clone(), &dropped);
        if !edit.is_empty() {
            self.reselect_edit(origin, stream, ResourceType::VirtualHost, &edit);
        }
        let Some(hosts) = stream.watches[ResourceType::VirtualHost as usize].as_deref_mut() else {
            return;
        };
        let still = |name: &Name| {
            !dropped
                .iter()
                .any(|table| model::xds::collection_of(name) == Some(table))
        };
        hosts.pending.owed.retain(still);
        hosts.pending.gone.retain(|gone| still(&gone.name));
        hosts.pending.owe(self.ledgers[hosts.ledger].in_collections(&answered));
    }
}
