//! Handles ACKs and NACKs, and creates and changes the selections of watches.

use std::ops::ControlFlow;

use model::xds::ResourceType;

use crate::cells::LedgerId;
use crate::core::Core;
use crate::decode::{Body, Texts};
use crate::divisions::{Dated, Division};
use crate::nack_attribution;
use crate::name_set::{Edit, Identity, NameSet};
use crate::stream::Stream;
use crate::subscription::Place;
use crate::watch::Watch;
use crate::{Moment, Name, Origin, Request, Variant};

impl<O: Origin> Core<O> {
    /// Handles an answer to the outstanding response of this type, if there is one.
    pub(crate) fn answered(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        error: Option<String>,
        now: Moment,
    ) {
        if stream.watch(kind).is_none_or(|watch| watch.inflight.is_none()) {
            return;
        }
        let ControlFlow::Continue(error) = self.whole_answer(stream, kind, error, now) else { return };
        match error {
            None => self.accepted(stream, kind, now),
            Some(message) => {
                let Some(watch) = stream.watch(kind) else { return };
                let contents = watch.inflight.as_ref().map(|inflight| inflight.contents.clone()).unwrap_or_default();
                let named = self.named_in(stream, kind, &message);
                if let Some(watch) = stream.watch_mut(kind) {
                    watch.reject(message.clone(), named.clone(), now);
                }
                self.note_rejected(stream, kind, &contents, (&message, &named), now);
                self.stats.of_mut(kind).rejected += 1;
                self.news.rejected = true;
                if let Some((child, _)) = self.types.reference_from(kind) {
                    stream.parent_answered((kind, child), false, now);
                }
            }
        }
        if let Some(child) = self.types.collections_in(kind) {
            self.follow_parent(origin, stream, (kind, child));
        }
        self.relocate_or_wait(origin, stream, kind);
    }

    /// Whether a request does nothing but accept the outstanding response of its type, and nothing follows from that.
    pub(crate) fn is_acceptance(&self, stream: &Stream<O::Token>, kind: ResourceType, request: &Request) -> bool {
        let Some(watch) = stream.watch(kind) else { return false };
        let accepts = watch.inflight.as_ref().is_some_and(|inflight| {
            let earlier_errors = inflight.rest.as_ref().is_some_and(|rest| rest.has_errors());
            *inflight.nonce == *request.nonce && !earlier_errors
        });
        let changes_names = match (&request.body, stream.variant) {
            (Body::Delta { subscribe, unsubscribe, .. }, Variant::Delta) => {
                !subscribe.is_empty() || !unsubscribe.is_empty()
            }
            (Body::Sotw { names, .. }, Variant::Sotw) => match self.identity(watch) {
                Some(current) => names.is_empty() || current != names.identity(),
                None => watch.named_once || !names.is_empty(),
            },
            _ => true,
        };
        let searches = watch.search.is_some() || self.quarantine.has_trials();
        let leads_to = watch.moving || searches || self.types.collections_in(kind).is_some();
        accepts && request.error.is_none() && !changes_names && !leads_to
    }

    /// Records that the client accepted the outstanding response.
    pub(crate) fn accepted(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType, now: Moment) {
        let Some(watch) = stream.watch_mut(kind) else { return };
        let contents = watch.inflight.as_ref().map(|inflight| inflight.contents.clone()).unwrap_or_default();
        watch.accept(now);
        for Place { ledger, .. } in watch.places() {
            self.ledgers[ledger].acked = self.ledgers[ledger].acked.max(watch.acked);
        }
        // A client that repeats its names needs the resources again whose parent was sent again (SotW).
        let rewarm = std::mem::take(&mut watch.rewarm);
        watch.pending.owe(rewarm);
        self.note_accepted(stream, kind, &contents, now);
        self.stats.of_mut(kind).accepted += 1;
        self.news.answered = true;
        if let Some((child, _)) = self.types.reference_from(kind) {
            stream.parent_answered((kind, child), true, now);
        }
    }

    /// The resources of the outstanding response that a NACK names, each once.
    pub(crate) fn named_in(&self, stream: &Stream<O::Token>, kind: ResourceType, error: &str) -> Vec<Name> {
        let Some(watch) = stream.watch(kind) else {
            return Vec::new();
        };
        let subscription = self.subscription(watch);
        let owed = watch.inflight.as_ref().map_or(&[][..], |inflight| &inflight.pending.owed);
        let sent = |name: &Name| subscription.epoch_of(name) > watch.acked || owed.binary_search(name).is_ok();
        let mut names: Vec<Name> = nack_attribution::candidates(error)
            .filter_map(|word| subscription.name(word))
            .filter(|name| subscription.covers(name) && sent(name))
            .cloned()
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// A new watch of these names, or of all. Adds the stream to its selections.
    pub(crate) fn watch(
        &mut self,
        origin: &mut O,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        names: Option<&NameSet>,
    ) -> Watch {
        let (shared, own) = self.keys(origin, stream, kind);
        let (shared, own) = (self.ledger(origin, &shared), own.map(|own| self.ledger(origin, &own)));
        let (shared, own) = self.places(origin, (shared, own), names);
        let watch = Watch::new(kind, shared, own, self.epoch);
        self.enter(&watch, stream.id);
        watch
    }

    /// The selections of these names, or of all, in a shared ledger and a proxy's own one.
    pub(crate) fn places(
        &mut self,
        origin: &mut O,
        (shared, own): (LedgerId, Option<LedgerId>),
        names: Option<&NameSet>,
    ) -> (Place, Option<Place>) {
        let (Some(own), Some(names)) = (own, names) else {
            return (self.place(origin, shared, names), own.map(|own| self.place(origin, own, names)));
        };
        if !self.divides(own) {
            return (self.place(origin, shared, Some(names)), Some(self.place(origin, own, Some(names))));
        }
        if let Some([others, theirs]) = self.division((shared, own), names.identity()) {
            return (others.place, Some(theirs.place));
        }
        let theirs = self.names_of_own(origin, (self.ledgers[own].kind, &self.ledgers[own].audience), names);
        let may_hide = self.may_hide(theirs.len());
        let without = theirs.filter(|name| !may_hide || !self.ledgers[shared].is_selected(name));
        let others = self.place(origin, shared, Some(&names.without(&without)));
        let theirs = self.place(origin, own, Some(&theirs));
        self.note_may_hide(theirs);
        let division = [others, theirs].map(|place| Dated { place, serial: self.part(place).selection.serial });
        self.divisions.note((shared, own), names, division);
        (others, Some(theirs))
    }

    /// The selections into which these names were divided, if they still exist.
    pub(crate) fn division(&self, ledgers: (LedgerId, LedgerId), names: Identity) -> Option<Division> {
        let exists = |Dated { place, serial }: &Dated| {
            let selection = self.ledgers.get(place.ledger).and_then(|ledger| ledger.selections.get(place.selection));
            selection.is_some_and(|selection| selection.serial == *serial)
        };
        self.divisions.find(ledgers, names).filter(|division| division.iter().all(exists))
    }

    /// Whether a name of this own ledger's type is decided either by it or by the shared one.
    fn divides(&self, own: LedgerId) -> bool {
        !self.ledgers[own].kind.is_listed()
    }

    /// Whether a shared selection may have so many names of an own one.
    fn may_hide(&self, own_names: usize) -> bool {
        own_names <= self.limits.hidden_names
    }

    /// Records whether shared selections may have the names of a selection of an own ledger.
    fn note_may_hide(&mut self, place: Place) {
        let may_hide = self.may_hide(self.own_names(place));
        self.ledgers[place.ledger].selections[place.selection].may_hide = may_hide;
    }

    /// The number of names of a selection of an own ledger.
    fn own_names(&self, place: Place) -> usize {
        self.part(place).selection.names.as_ref().map_or(0, NameSet::len)
    }

    /// Whether a name of a named type is in this own ledger.
    fn is_own(&self, origin: &O, own: LedgerId, name: &Name) -> bool {
        let ledger = &self.ledgers[own];
        origin.resolve(ledger.kind, &ledger.audience, name).is_some()
    }

    /// The names, among these of a named type, that an own audience has.
    pub(crate) fn names_of_own(
        &self,
        origin: &O,
        (kind, audience): (ResourceType, &O::Audience),
        names: &NameSet,
    ) -> NameSet {
        let is_own = |name: &Name| origin.resolve(kind, audience, name).is_some();
        let Some(required) = origin.own_required(kind, audience) else { return names.filter(is_own) };
        let possible = names.requiring(kind, |name| origin.requires(kind, name), &required);
        NameSet::new(possible.filter(|name| is_own(name)).cloned().collect())
    }

    /// The selection of these names of a ledger, or of all.
    fn place(&mut self, origin: &mut O, ledger: LedgerId, names: Option<&NameSet>) -> Place {
        let selection = match names {
            None => self.ledgers[ledger].select_all(&self.cells, &mut self.serial, self.epoch),
            Some(names) => self.select(origin, ledger, &names.edit(Vec::new(), &[])),
        };
        Place { ledger, selection }
    }

    /// Changes a watch to these names, or to all.
    pub(crate) fn reselect(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        names: Option<&NameSet>,
    ) {
        let Some(watch) = stream.watch(kind) else { return };
        let ledgers = (watch.shared.ledger, watch.own.map(|own| own.ledger));
        let places = self.places(origin, ledgers, names);
        self.switch(stream, kind, places);
    }

    /// Changes a watch to the result of an edit.
    pub(crate) fn reselect_edit(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        edit: &Edit<'_>,
    ) {
        let Some(watch) = stream.watch(kind) else { return };
        let (shared, own) = (watch.shared, watch.own);
        let places = match own.filter(|own| self.divides(own.ledger)) {
            None => {
                let mut place = |Place { ledger, .. }| Place { ledger, selection: self.select(origin, ledger, edit) };
                (place(shared), own.map(place))
            }
            Some(own) => {
                let (theirs, mut others): (Vec<Name>, Vec<Name>) =
                    edit.added.iter().cloned().partition(|name| self.is_own(origin, own.ledger, name));
                let may_hide = self.may_hide(self.own_names(own) + theirs.len());
                if self.part(own).selection.may_hide && !may_hide {
                    let names = edit.build();
                    return self.reselect(origin, stream, kind, Some(&names));
                }
                let is_shared = |name: &&Name| may_hide && self.ledgers[shared.ledger].is_selected(name);
                others.extend(theirs.iter().filter(is_shared).cloned());
                let own = self.edited(origin, own, theirs, edit);
                self.note_may_hide(own);
                (self.edited(origin, shared, others, edit), Some(own))
            }
        };
        self.switch(stream, kind, places);
    }

    /// The selection at a place with these names, and without those that an edit removes.
    fn edited(&mut self, origin: &mut O, place: Place, added: Vec<Name>, edit: &Edit<'_>) -> Place {
        let names = self.part(place).selection.names.clone().unwrap_or_default();
        let selection = self.select(origin, place.ledger, &names.edit(added, &edit.removed));
        Place { ledger: place.ledger, selection }
    }

    /// The set of these names for a stream. Shares memory with an equal set of another stream, or names with the ledger.
    pub(crate) fn name_set(&self, origin: &O, stream: &Stream<O::Token>, kind: ResourceType, names: &Texts) -> NameSet {
        let ledger = match stream.watch(kind) {
            Some(watch) => Some(watch.shared.ledger),
            None => self.known_ledger(kind, &origin.audience(stream.token, kind)),
        };
        if let Some(known) = self.known_set(ledger, names) {
            return known.clone();
        }
        NameSet::new(match ledger {
            Some(id) => self.ledgers[id].shared_names(names.iter()).collect(),
            None => names.iter().map(Name::from).collect(),
        })
    }

    /// The set of these names, if a stream is subscribed to them in this ledger, or if they were divided, or if it was built for
    /// the request that is handled.
    pub(crate) fn known_set(&self, ledger: Option<LedgerId>, names: &Texts) -> Option<&NameSet> {
        let selected = ledger.and_then(|id| Some(self.ledgers[id].selected(names.identity())?.1));
        let built = || self.built.as_ref().filter(|set| set.is_set_of(names));
        selected.or_else(|| self.divisions.names(names)).or_else(built)
    }

    pub(crate) fn select(&mut self, origin: &mut O, ledger: usize, edit: &Edit<'_>) -> usize {
        let id = ledger;
        let ledger = &mut self.ledgers[id];
        let selection = ledger.select(origin, &mut self.cells, edit, &mut self.serial, self.epoch);
        if ledger.kind.is_collected() {
            self.note_catalogues(id);
        }
        selection
    }

    /// Moves a watch to these places. Leaves its former ones.
    pub(crate) fn switch(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        (shared, own): (Place, Option<Place>),
    ) {
        let id = stream.id;
        let Some(watch) = stream.watch_mut(kind) else { return };
        let old: Vec<Place> = watch.places().collect();
        (watch.shared, watch.own) = (shared, own);
        self.enter(watch, id);
        let left = old.into_iter().filter(|old| !watch.places().any(|new| new == *old));
        left.for_each(|place| self.leave(place, id));
    }
}

impl<T> Stream<T> {
    /// Handles an answer to a response of a type whose resources refer to others.
    fn parent_answered(&mut self, (parent, child): (ResourceType, ResourceType), accepted: bool, now: Moment) {
        match self.watch_mut(parent).map(|watch| &mut watch.settling) {
            Some(Some(settling)) if accepted => settling.answered = Some(now),
            Some(settling) => *settling = None,
            None => {}
        }
        // A client that needs a child again requests it before it accepts the parent, or never.
        if let Some(watch) = self.watch_mut(child) {
            let rewarm = std::mem::take(&mut watch.rewarm);
            watch.pending.owe(rewarm);
        }
    }
}
