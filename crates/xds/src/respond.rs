//! What follows from a client's answer, and how watches come into being and change what they select.

use model::xds::ResourceType;

use crate::core::Core;
use crate::nack_attribution;
use crate::name_set::{Edit, NameSet};
use crate::stream::Stream;
use crate::watch::Watch;
use crate::{Moment, Name, Origin};

impl<O: Origin> Core<O> {
    /// The client answered its outstanding response of this type, if it has one.
    pub(crate) fn answered(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        error: Option<String>,
        now: Moment,
    ) {
        let Some(watch) = stream.watch_mut(kind) else { return };
        if watch.inflight.is_none() {
            return;
        }
        let accepted = error.is_none();
        let named = error.as_deref().map(|words| self.named_in(stream, kind, words));
        let Some(watch) = stream.watch_mut(kind) else { return };
        match error {
            None => {
                watch.accept(now);
                self.stats.accepted[kind as usize] += 1;
                self.news.answered = true;
            }
            Some(message) => {
                watch.refuse(message, named.unwrap_or_default(), now);
                self.stats.refused[kind as usize] += 1;
                self.news.refused = true;
            }
        }
        if kind == ResourceType::Cluster {
            stream.clusters_answered(accepted, now);
        }
        if kind == ResourceType::Route {
            self.follow_tables(origin, stream);
        }
        self.relocate(origin, stream, kind);
    }

    /// The resources of the outstanding response that a client's refusal names, each once.
    fn named_in(&self, stream: &Stream<O::Token>, kind: ResourceType, words: &str) -> Vec<Name> {
        let Some(watch) = stream.watch(kind) else {
            return Vec::new();
        };
        let (ledger, selection) = (&self.ledgers[watch.ledger], self.selection(watch));
        let owed = watch
            .inflight
            .as_ref()
            .map_or(&[][..], |inflight| &inflight.pending.owed);
        let sent = |name: &Name| ledger.epoch_of(name) > watch.ran || owed.binary_search(name).is_ok();
        let mut names: Vec<Name> = nack_attribution::candidates(words)
            .filter_map(|word| ledger.name(word))
            .filter(|name| selection.covers(name) && sent(name))
            .cloned()
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A new watch of these names, or of all; the stream is in its selection already.
    pub(crate) fn watch(
        &mut self,
        origin: &mut O,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        names: Option<Vec<Name>>,
    ) -> Watch {
        let audience = origin.audience(stream.token, kind);
        let ledger = self.ledger(origin, kind, audience);
        let selection = match names {
            None => self.ledgers[ledger].select_all(&self.cells, &mut self.serial, self.epoch),
            Some(names) => {
                let names = NameSet::new(self.share(ledger, names));
                self.select(origin, ledger, &names.edit(Vec::new(), &[]))
            }
        };
        let watch = Watch::new(kind, ledger, selection, self.epoch);
        self.enter(&watch, stream.id);
        watch
    }

    /// Makes the watch select these names, or all, of its ledger.
    pub(crate) fn reselect(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        names: Option<&NameSet>,
    ) {
        match names {
            Some(names) => self.reselect_edit(origin, stream, kind, &names.edit(Vec::new(), &[])),
            None => {
                let Some(watch) = stream.watch(kind) else { return };
                let ledger = watch.ledger;
                let selection = self.ledgers[ledger].select_all(&self.cells, &mut self.serial, self.epoch);
                self.switch(origin, stream, kind, selection);
            }
        }
    }

    /// Makes the watch select the names that an edit leaves.
    pub(crate) fn reselect_edit(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        edit: &Edit<'_>,
    ) {
        let Some(watch) = stream.watch(kind) else { return };
        let selection = self.select(origin, watch.ledger, edit);
        self.switch(origin, stream, kind, selection);
    }

    /// The same names, shared with the ledger where it has them.
    pub(crate) fn share(&self, ledger: usize, names: Vec<Name>) -> Vec<Name> {
        let ledger = &self.ledgers[ledger];
        names
            .into_iter()
            .map(|name| ledger.name(&name).cloned().unwrap_or(name))
            .collect()
    }

    pub(crate) fn select(&mut self, origin: &mut O, ledger: usize, edit: &Edit<'_>) -> usize {
        let id = ledger;
        let ledger = &mut self.ledgers[id];
        let selection = ledger.select(origin, &mut self.cells, edit, &mut self.serial, self.epoch);
        if ledger.kind.is_collected() {
            self.catalogues
                .extend(ledger.lists.values().map(|list| (list.cell, id)));
        }
        selection
    }

    fn switch(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType, selection: usize) {
        let id = stream.id;
        let Some(watch) = stream.watch_mut(kind) else { return };
        let old = std::mem::replace(&mut watch.selection, selection);
        if old != selection {
            self.enter(watch, id);
            let left = (watch.ledger, old);
            self.leave(origin, left, id);
        }
    }
}

impl<T> Stream<T> {
    /// Clusters were accepted or refused: what waited for that goes on.
    fn clusters_answered(&mut self, accepted: bool, now: Moment) {
        match &mut self.settling {
            Some(settling) if accepted => settling.answered = Some(now),
            settling => *settling = None,
        }
        // Had the client a new use for endpoints that it has, it would have said so before it accepted the clusters. It
        // may also have a new use without saying so.
        if let Some(endpoints) = self.watch_mut(ResourceType::Endpoints) {
            let rewarm = std::mem::take(&mut endpoints.rewarm);
            endpoints.pending.owe(rewarm);
        }
    }
}
