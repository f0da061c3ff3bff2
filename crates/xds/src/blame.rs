//! Quarantine: reacts to NACKs by finding what the client rejects, and decides what streams are sent instead.

use std::sync::Arc;

use model::xds::{Parent, Resource, ResourceType, Version, collection_of};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::compose::Contents;
use crate::core::Core;
use crate::hunt::{Found, Hunt, Search, Unit};
use crate::ledger::Ledger;
use crate::nack_attribution;
use crate::parts::{Part, parts_of};
use crate::quarantine::{Culprit, Entry, Group, Lens, Substitute, Target, targets_of};
use crate::stream::Stream;
use crate::{Hub, Moment, Name, Origin, Quarantined, StreamId, subscription};

impl<O: Origin> Core<O> {
    /// The lens of a stream for a type.
    pub(crate) fn lens(&self, stream: &Stream<O::Token>, kind: ResourceType) -> Lens {
        let search = stream.watch(kind).and_then(|watch| watch.search.as_ref());
        if self.quarantine.is_empty() && search.is_none() {
            return Lens::default();
        }
        let suspended = search.map(|search| (search.id, search.suspended.clone()));
        self.quarantine.lens((stream.id, &Group::of(&stream.proxy)), kind, suspended)
    }

    /// Handles the ACK of a response with these resources.
    pub(crate) fn note_accepted(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        contents: &Contents,
        now: Moment,
    ) {
        if self.quarantine.has_trials() {
            let tried = self.quarantine.tried(stream.id, kind, &all_targets(kind, contents));
            tried.into_iter().for_each(|id| self.quarantine.remove(id));
        }
        let Some(watch) = stream.watch_mut(kind) else { return };
        watch.before.clear();
        watch.gave_up = None;
        if let Some(Search { mut hunt, .. }) = watch.search.take().map(|search| *search) {
            let found = hunt.accepted();
            self.continue_hunt(stream, kind, (hunt, found), now);
        } else if !self.quarantine.is_empty() {
            self.release_mended(stream, kind, contents);
        }
    }

    /// Removes entries of resources that the client has accepted with other bytes. These are the last good version if the rejected
    /// ones come back.
    fn release_mended(&mut self, stream: &Stream<O::Token>, kind: ResourceType, contents: &Contents) {
        let group = Group::of(&stream.proxy);
        let names: FxHashSet<&Name> = self.quarantine.of(&group, kind).map(|(_, entry)| &entry.culprit.name).collect();
        if names.is_empty() {
            return;
        }
        let accepted = contents.iter().flat_map(|some| some.iter()).map(|(name, _)| name);
        let accepted: FxHashSet<&Name> = accepted.filter(|name| names.contains(name)).collect();
        let is_mended = |(id, entry): &(u64, &Entry)| accepted.contains(&entry.culprit.name) && !self.is_in_use(*id);
        let mended: Vec<u64> = self.quarantine.of(&group, kind).filter(is_mended).map(|(id, _)| id).collect();
        mended.into_iter().for_each(|id| self.quarantine.remove(id));
    }

    /// Whether an entry of the quarantine changes a resource.
    fn is_in_use(&self, id: u64) -> bool {
        self.ledgers.iter().any(|(_, ledger)| ledger.substitutes_by(id))
    }

    /// Handles the NACK of a response with these resources; `named` are those that the error names.
    pub(crate) fn note_rejected(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        contents: &Contents,
        (message, named): (&str, &[Name]),
        now: Moment,
    ) {
        let Some(retry) = self.limits.quarantine else { return };
        if !self.quarantine.is_empty() && self.is_known(stream, kind, contents, (retry, now)) {
            // The stream was sent it before it was in quarantine, or to try it again.
            return;
        }
        let message: Arc<str> = message.into();
        if kind.partial_nack {
            // The client has accepted the others, and keeps what it had.
            let units = self.units(stream, kind, contents, |name| named.contains(name)).0;
            let culprits = units.into_iter().filter_map(|unit| {
                let Unit { name, part, target, options } = unit;
                let substitute = options.into_iter().next()?;
                Some(Culprit { name, part, target, substitute, message: message.clone() })
            });
            let culprits = culprits.collect();
            return self.quarantine(stream, kind, culprits, (now, retry));
        }
        let is_long = contents.iter().map(|some| some.len()).sum::<usize>() > self.limits.suspects;
        let is_suspect = |name: &Name| !is_long || named.contains(name);
        let Some(watch) = stream.watch_mut(kind) else { return };
        let hunt = watch.search.take().map(|search| search.hunt);
        let (hunt, found) = match hunt {
            Some(mut hunt) => {
                let (units, whole) = self.units(stream, kind, contents, is_suspect);
                let news: Vec<Unit> = units.into_iter().filter(|unit| !hunt.seen.contains(&unit.target)).collect();
                if news.is_empty() {
                    let found = hunt.rejected(&message);
                    (hunt, found)
                } else {
                    (hunt.widened(kind, (news, whole), message), Found::Continue)
                }
            }
            None => {
                let refused = digest(contents);
                if stream.watch(kind).is_some_and(|watch| watch.gave_up == Some(refused)) {
                    return;
                }
                let (units, whole) = self.units(stream, kind, contents, is_suspect);
                if units.is_empty() {
                    return;
                }
                let guesses = self.guesses(stream, (kind, contents), &units, (&message, named));
                if let Some(watch) = stream.watch_mut(kind) {
                    watch.gave_up = Some(refused);
                }
                (Hunt::new(kind, (units, whole), guesses, message), Found::Continue)
            }
        };
        self.continue_hunt(stream, kind, (hunt, found), now);
    }

    /// Whether any of these resources is in quarantine for the group of a stream. Ends the stream's trials of them.
    fn is_known(
        &mut self,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        contents: &Contents,
        (retry, now): (Moment, Moment),
    ) -> bool {
        let targets = all_targets(kind, contents);
        let concerned = self.quarantine.has_trials()
            && self.quarantine.end_trials(stream.id, retry, now, |entry| {
                entry.kind == kind && targets.contains(&entry.culprit.target)
            });
        let group = Group::of(&stream.proxy);
        concerned || self.quarantine.of(&group, kind).any(|(_, entry)| targets.contains(&entry.culprit.target))
    }

    fn continue_hunt(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        (hunt, found): (Hunt, Found),
        now: Moment,
    ) {
        match found {
            Found::Continue => {
                let id = self.quarantine.next_id();
                let suspended = Arc::new(hunt.suspended());
                if let Some(watch) = stream.watch_mut(kind) {
                    watch.search = Some(Box::new(Search { id, hunt, suspended }));
                }
            }
            Found::Culprits(culprits) => {
                let retry = self.limits.quarantine.unwrap_or(Moment::MAX);
                self.quarantine(stream, kind, culprits, (now, retry));
            }
            Found::Nothing => {}
        }
    }

    fn quarantine(
        &mut self,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        culprits: Vec<Culprit>,
        times: (Moment, Moment),
    ) {
        let group = Group::of(&stream.proxy);
        for culprit in culprits {
            self.quarantine.add((&group, kind), culprit, &stream.proxy.id, times);
        }
        self.news.rejected = true;
    }

    /// What a client may reject in a response: parts that changed, and resources. If there are parts, the resources that they
    /// are parts of are returned, too.
    fn units(
        &self,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        contents: &Contents,
        concerns: impl Fn(&Name) -> bool,
    ) -> (Vec<Unit>, Vec<Unit>) {
        let (mut units, mut whole) = (Vec::new(), Vec::new());
        for (name, resource) in contents.iter().flat_map(|some| some.iter()).filter(|(name, _)| concerns(name)) {
            let good = self.good(stream, kind, name).filter(|good| good.version() != resource.version());
            let parts = parts_of(kind, resource);
            let good_parts = self.good_parts(stream, kind, name, good);
            let same = |part: &Part| good_parts.get(&part.name).is_some_and(|good| good.version == part.version);
            let changed: Vec<&Part> = parts.iter().filter(|part| !same(part)).collect();
            let resource_unit = self.resource_unit(kind, (name, resource), good, !parts.is_empty());
            if changed.is_empty() {
                units.extend(resource_unit);
                continue;
            }
            whole.extend(resource_unit);
            for part in changed {
                let mut options: Vec<Substitute> = Vec::new();
                let target = Target::Part(part.version);
                options.extend(self.quarantine.known(kind, target).cloned());
                options.extend(good_parts.get(&part.name).map(|good| Substitute::Part(good.body.clone())));
                options.extend(kind.stub.map(|stub| Substitute::Part(stub(&part.body))));
                options.push(Substitute::Part(bytes::Bytes::new()));
                units.push(Unit { name: name.clone(), part: Some(part.name.clone()), target, options });
            }
        }
        (units, whole)
    }

    /// A resource as a unit. `None` if it can neither be replaced nor left out.
    fn resource_unit(
        &self,
        kind: ResourceType,
        (name, resource): (&Name, &Resource),
        good: Option<&Resource>,
        has_parts: bool,
    ) -> Option<Unit> {
        let target = Target::Resource(resource.version());
        let mut options: Vec<Substitute> = Vec::new();
        options.extend(self.quarantine.known(kind, target).cloned());
        // The parts of a resource without parts are sent separately, if at all.
        let good = good.filter(|good| !has_parts || !parts_of(kind, good).is_empty());
        options.extend(good.cloned().map(Substitute::Resource));
        if let Some(stub) = kind.stub.filter(|_| kind.parts.is_none()) {
            options.push(Substitute::Resource(Resource::new(name.clone(), stub(&resource.body()))));
        }
        if !kind.partial_nack {
            options.push(Substitute::Nothing);
        }
        (!options.is_empty()).then(|| Unit { name: name.clone(), part: None, target, options })
    }

    /// The last version of a resource that clients acknowledged, if it is not the current one.
    fn good<'a>(&'a self, stream: &'a Stream<O::Token>, kind: ResourceType, name: &Name) -> Option<&'a Resource> {
        let watch = stream.watches.get(kind)?;
        let moved = watch.before.get(name);
        let subscription = self.subscription(watch);
        let (shared, own) = (subscription.shared().ledger, subscription.own().map(|own| own.ledger));
        let kept_of = |ledger: &Ledger<O>| self.goods.get(ledger.cell_of(name)?);
        let kept = || match own.filter(|_| subscription.is_own(name)) {
            None => kept_of(shared).or_else(|| own?.tombs.get(name)?.last.as_ref()),
            // The row may be new, and replace a shared resource.
            Some(own) => kept_of(own)
                .or_else(|| shared.acknowledged(name, self.cells.get(shared.cell_of(name)?)))
                .or_else(|| kept_of(shared)),
        };
        let accepted = |good: &&Resource| self.quarantine.known(kind, Target::Resource(good.version())).is_none();
        moved.or_else(kept).filter(accepted)
    }

    /// The parts of the good version of a resource, by name. If its parts are sent separately, those that the client has.
    fn good_parts(
        &self,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        name: &Name,
        good: Option<&Resource>,
    ) -> FxHashMap<Name, Part> {
        let parts = good.map(|good| parts_of(kind, good)).unwrap_or_default();
        let mut found: FxHashMap<Name, Part> = parts.into_iter().map(|part| (part.name.clone(), part)).collect();
        let child = self.types.collections_in(kind).filter(|_| found.is_empty());
        if let Some(watch) = child.and_then(|child| stream.watches.get(child)) {
            let gone = watch.pending.gone.iter().filter_map(|gone| Some((&gone.name, gone.last.as_ref()?)));
            let tombs = self.subscription(watch).removed(&self.cells, 0, u64::MAX);
            let tombs = tombs.filter_map(|(name, last)| Some((name, last?)));
            for (full, resource) in gone.chain(tombs).filter(|(full, _)| collection_of(full) == Some(name)) {
                let (short, body) = (Name::from(&full[name.len() + 1..]), resource.body());
                let version = Version::of(&body);
                found.insert(short.clone(), Part { name: short, version, body });
            }
        }
        found
    }

    /// Sets of units that may be the culprits, the best guess first: what other groups rejected, what the error mentions,
    /// what no other client has accepted.
    fn guesses(
        &self,
        stream: &Stream<O::Token>,
        (kind, contents): (ResourceType, &Contents),
        units: &[Unit],
        (message, named): (&str, &[Name]),
    ) -> Vec<Vec<usize>> {
        let those = |is: &dyn Fn(&Unit) -> bool| -> Vec<usize> {
            units.iter().enumerate().filter(|(_, unit)| is(unit)).map(|(at, _)| at).collect()
        };
        let known = those(&|unit| self.quarantine.known(kind, unit.target).is_some());
        let is_named = |unit: &Unit| match &unit.part {
            None => named.contains(&unit.name),
            Some(part) => nack_attribution::candidates(message).any(|word| *word == **part),
        };
        let mentioned = self.mentioned((kind, contents), units, message);
        let Some(watch) = stream.watches.get(kind) else {
            return vec![known];
        };
        let subscription = self.subscription(watch);
        let (shared, own) = (self.plain(subscription.shared()), subscription.own().and_then(|own| self.plain(own)));
        let fresh = those(&|unit| {
            let plain = if subscription.is_own(&unit.name) { own } else { shared };
            !plain.is_some_and(|plain| plain.is_acknowledged(&unit.name))
        });
        vec![known, those(&is_named), mentioned, fresh]
    }

    /// The units whose bytes contain the longest word of an error that is not in all of them.
    fn mentioned(&self, (kind, contents): (ResourceType, &Contents), units: &[Unit], message: &str) -> Vec<usize> {
        let mut bodies: FxHashMap<Target, bytes::Bytes> = FxHashMap::default();
        for (_, resource) in contents.iter().flat_map(|some| some.iter()) {
            bodies.insert(Target::Resource(resource.version()), resource.body());
            bodies.extend(parts_of(kind, resource).into_iter().map(|part| (Target::Part(part.version), part.body)));
        }
        let bodies: Vec<&bytes::Bytes> = units.iter().filter_map(|unit| bodies.get(&unit.target)).collect();
        if bodies.len() < units.len() {
            return Vec::new();
        }
        nack_attribution::in_bodies(message, &bodies)
    }

    /// The ledger of the same audience that shows resources as they are.
    fn plain(&self, part: subscription::Part<'_, O>) -> Option<&Ledger<O>> {
        let ledger = part.ledger;
        self.known_ledger(ledger.kind, &ledger.audience).map(|plain| &*self.ledgers[plain])
    }

    /// Whether a table that a client was sent to replace its collections is rejected, so that it still uses them.
    pub(crate) fn is_parent_rejected(&self, stream: &Stream<O::Token>, kind: ResourceType) -> bool {
        let Parent::Collections { of } = kind.parent else {
            return false;
        };
        stream.watch(of).is_some_and(|watch| {
            watch.rejected.is_some()
                || watch.search.is_some()
                || watch.places().any(|place| self.part(place).ledger.replaces_any())
        })
    }
}

fn all_targets(kind: ResourceType, contents: &Contents) -> FxHashSet<Target> {
    let resources = contents.iter().flat_map(|some| some.iter());
    resources.flat_map(|(_, resource)| targets_of(kind, resource)).collect()
}

fn digest(contents: &Contents) -> u64 {
    let resources = contents.iter().flat_map(|some| some.iter());
    resources.fold(0, |sum, (_, resource)| sum.wrapping_add(resource.version().0))
}

impl<O: Origin> Hub<O> {
    /// The resources in quarantine.
    pub fn quarantined(&self) -> impl Iterator<Item = Quarantined> + '_ {
        self.core.quarantine.list()
    }

    /// The resources that were put in quarantine since the last call.
    pub fn take_quarantined(&mut self) -> Vec<Quarantined> {
        std::mem::take(&mut self.core.quarantine.added)
    }

    /// Lets one client of a group try what is due.
    pub(crate) fn retry_quarantined(&mut self, origin: &mut O, now: Moment) {
        if self.core.quarantine.deadline().is_none_or(|at| at > now) {
            return;
        }
        for (id, group, kind) in self.core.quarantine.due(now) {
            let stream = self.members(&group, kind).into_iter().next().filter(|_| self.core.is_in_use(id));
            match stream {
                Some(stream) => self.core.quarantine.begin_trial(id, stream),
                None => self.core.quarantine.remove(id),
            }
        }
        self.spread_quarantine(origin, now);
    }

    /// Moves the streams for which other entries hold than before.
    pub(crate) fn spread_quarantine(&mut self, origin: &mut O, now: Moment) {
        while let Some((group, kind)) = self.core.quarantine.changed.pop() {
            for id in self.members(&group, kind) {
                let Some(stream) = self.streams.get_mut(&id) else { continue };
                if let Some(watch) = stream.watch_mut(kind) {
                    watch.search = None;
                }
                self.core.relocate_or_wait(origin, stream, kind);
                self.wake(id, now);
            }
        }
        self.begin_waiting_moves();
    }

    /// The streams of a group that subscribe to a type.
    fn members(&self, group: &Group, kind: ResourceType) -> Vec<StreamId> {
        let is_member = |stream: &Stream<O::Token>| stream.watch(kind).is_some() && Group::of(&stream.proxy) == *group;
        let mut ids: Vec<StreamId> =
            self.streams.values().filter(|stream| is_member(stream)).map(|stream| stream.id).collect();
        ids.sort_unstable();
        ids
    }
}
