//! The content of a response: the whole state, or the changes.

use std::sync::Arc;

use model::xds::{Resource, ResourceType};

use crate::compose::{Composed, Content, Derived, Envelope, Fresh, encode, encode_some};
use crate::core::Core;
use crate::selection::{Below, Key};
use crate::stream::Stream;
use crate::subscription::{Part, Place, Subscription};
use crate::watch::{Pending, Watch};
use crate::{Epoch, Name, Origin};

/// The content of a response to be composed, and the state of the watch after it.
pub(crate) struct Plan {
    pub(crate) key: Key,
    /// The pending changes that the response includes.
    pub(crate) included: Pending,
    /// The pending changes that are deferred to a later response.
    pub(crate) deferred: Pending,
    /// Whether there are updates, and not only removals.
    pub(crate) updates: bool,
}

impl<O: Origin> Core<O> {
    /// The response of a plan. Uses cached parts if it does not depend on the stream. `None`: a part of its resources was
    /// encoded; call it again.
    pub(crate) fn composed(
        &mut self,
        stream: &Stream<O::Token>,
        watch: &Watch,
        plan: &Plan,
        full: bool,
    ) -> Option<Arc<Composed>> {
        if plan.included.is_empty() && plan.deferred.is_empty() {
            return self.shared(watch, plan.key, full);
        }
        if !self.encode_some((watch.shared, watch.own), &plan.key, full) {
            return None;
        }
        let subscription = self.subscription(watch);
        let nonce = format!("{}.{:x}", nonce(&[subscription.serial()], &plan.key), stream.sequence);
        let composed = Arc::new(self.compose(watch.kind, subscription, plan, full, nonce));
        self.stats.of_mut(watch.kind).composed += 1;
        Some(composed)
    }

    /// Encodes some of the resources of a response for all streams. Returns whether there were so few that the response can be
    /// composed.
    fn encode_some(&mut self, (shared, own): (Place, Option<Place>), key: &Key, full: bool) -> bool {
        let subscription = Subscription::new(self.part(shared), own.map(|own| self.part(own)));
        let limit = self.limits.encoded_together;
        let whole = full || key.from == 0;
        let few = |part: Part<'_, O>| {
            part.ledger.len() <= limit || !whole && part.ledger.few_changes(key.from, limit).is_some()
        };
        if subscription.parts().all(few) {
            return true;
        }
        let Part { ledger, selection } = subscription.shared();
        let encoded = selection.encoded.as_deref().filter(|_| whole).unwrap_or_default();
        let resources = subscription.live_from(&self.cells, encoded);
        let unsent = |name: &Name| whole || subscription.epoch_of(name) > key.from;
        let last = encode_some(ledger.kind, resources.filter(|(name, _)| unsent(name)), limit).cloned();
        let is_encoded = last.is_none();
        self.ledgers[shared.ledger].selections[shared.selection].encoded = last.filter(|_| whole);
        is_encoded
    }

    /// A response that does not depend on the stream: that of the audience, with the proxy's own resources if they are part
    /// of it.
    fn shared(&mut self, watch: &Watch, key: Key, full: bool) -> Option<Arc<Composed>> {
        let Some(place) = watch.own else {
            return self.cached(watch.kind, watch.shared, key, full);
        };
        if self.is_entangled(watch, &key, full) {
            return self.overlaid(watch, place, key, full);
        }
        let shared = self.cached(watch.kind, watch.shared, key, full)?;
        if key.delta && key.within(self.part(place).selection).is_empty() {
            return Some(shared);
        }
        let own = self.cached(watch.kind, place, key, full)?;
        // A client reports the version of a SotW response of names when it reconnects: it must be that of both ledgers.
        if (key.delta || full) && own.resources == 0 && own.removed.is_empty() {
            return Some(shared);
        }
        let subscription = self.subscription(watch);
        let latest = subscription.latest();
        let version = self.version(subscription, key.upto < latest.changed || key.sweep < latest.removed, &key);
        let serials = [self.part(watch.shared).selection.serial, self.part(place).selection.serial];
        let nonce = nonce(&serials, &key);
        let envelope = self.envelope(watch.kind, &key, (&version, &nonce));
        Some(Arc::new(Composed::joined(&envelope, &shared, &own)))
    }

    /// The response with the resources of one ledger.
    fn cached(&mut self, kind: ResourceType, place: Place, key: Key, full: bool) -> Option<Arc<Composed>> {
        let selection = &mut self.ledgers[place.ledger].selections[place.selection];
        let key = key.within(selection);
        if let Some(composed) = selection.cached(&key, None) {
            return Some(composed);
        }
        if !self.encode_some((place, None), &key, full) {
            return None;
        }
        let subscription = Subscription::of(self.part(place));
        let nonce = nonce(&[subscription.serial()], &key);
        let plan = Plan { key, included: Pending::default(), deferred: Pending::default(), updates: true };
        let composed = Arc::new(self.compose(kind, subscription, &plan, full, nonce));
        self.stats.of_mut(kind).composed += 1;
        self.ledgers[place.ledger].selections[place.selection].cache(key, None, composed.clone());
        Some(composed)
    }

    /// Whether a response depends on which shared resources the proxy's own ones hide.
    fn is_entangled(&self, watch: &Watch, key: &Key, full: bool) -> bool {
        let Some(overlay) = self.subscription(watch).overlay() else {
            return false;
        };
        match full {
            true => overlay.meets(),
            false => overlay.interferes((key.from, key.removals_sent), (key.upto, key.sweep)),
        }
    }

    /// The response with the resources of an own ledger over a shared one, for all streams of both.
    fn overlaid(&mut self, watch: &Watch, own: Place, key: Key, full: bool) -> Option<Arc<Composed>> {
        let subscription = self.subscription(watch);
        let latest = subscription.latest();
        let key = key.between(latest, subscription.changed_before(latest.changed));
        let shared = self.part(watch.shared).selection;
        let below = Some(Below { serial: shared.serial, changed: shared.changed, removed: shared.removed });
        let selection = &mut self.ledgers[own.ledger].selections[own.selection];
        if let Some(composed) = selection.cached(&key, below) {
            return Some(composed);
        }
        let serials = [watch.shared, own].map(|place| self.part(place).selection.serial);
        let nonce = nonce(&serials, &key);
        let composed = match self.is_whole(watch, &key, full) {
            true => {
                let (shared, own) = (watch.shared, own);
                let parts = (self.cached(watch.kind, shared, key, full)?, self.cached(watch.kind, own, key, full)?);
                self.overlay(watch, &parts, (&key, &nonce))
            }
            false => None,
        };
        let composed = match composed {
            Some(composed) => composed,
            None if !self.encode_some((watch.shared, watch.own), &key, full) => return None,
            None => {
                let plan = Plan { key, included: Pending::default(), deferred: Pending::default(), updates: true };
                self.compose(watch.kind, self.subscription(watch), &plan, full, nonce)
            }
        };
        let composed = Arc::new(composed);
        self.stats.of_mut(watch.kind).composed += 1;
        self.ledgers[own.ledger].selections[own.selection].cache(key, below, composed.clone());
        Some(composed)
    }

    /// Whether a response of both ledgers has their whole state and nothing else, so that it follows from those of each.
    fn is_whole(&self, watch: &Watch, key: &Key, full: bool) -> bool {
        let subscription = self.subscription(watch);
        let has_all = key.from == 0 && key.upto >= subscription.latest().changed && !key.newest_first;
        let removals = if full { (key.sweep, Epoch::MAX) } else { (key.removals_sent, key.sweep) };
        let removes = |part: Part<'_, O>| part.ledger.removed(part.selection, removals.0, removals.1).next().is_some();
        let is_listed_by_name = |part: Part<'_, O>| part.ledger.by_name() && part.ledger.kind.is_listed();
        (full || has_all)
            && subscription.parts().all(|part| !is_listed_by_name(part) && !removes(part))
            && subscription.removed(&self.cells, removals.0, removals.1).next().is_none()
    }

    /// The response with the whole state of an own ledger over a shared one, if it follows from those of each.
    fn overlay(
        &self,
        watch: &Watch,
        (shared, own): &(Arc<Composed>, Arc<Composed>),
        (key, nonce): (&Key, &str),
    ) -> Option<Composed> {
        let subscription = self.subscription(watch);
        let latest = subscription.latest();
        let version = self.version(subscription, key.upto < latest.changed || key.sweep < latest.removed, key);
        let envelope = self.envelope(watch.kind, key, (&version, nonce));
        Composed::overlaid(&envelope, (shared, own), subscription.overlay()?.own.decided())
    }

    fn compose(
        &self,
        kind: ResourceType,
        subscription: Subscription<'_, O>,
        plan: &Plan,
        full: bool,
        nonce: String,
    ) -> Composed {
        let content = if full { self.whole(subscription, plan) } else { self.partial(kind, subscription, plan) };
        let fresh = match self.types.reference_from(kind) {
            None => Fresh::Some(Arc::default()),
            Some(_) if plan.key.from == 0 => Fresh::All,
            Some((_, reference)) => {
                Fresh::Some(self.references(subscription, &self.unsent(subscription, plan), reference))
            }
        };
        let (key, latest) = (&plan.key, subscription.latest());
        let partial = key.upto < latest.changed || key.sweep < latest.removed || !plan.deferred.is_empty();
        let version = self.version(subscription, partial, key);
        let envelope = self.envelope(kind, key, (&version, &nonce));
        Composed {
            rope: encode(&envelope, &content),
            version: version.as_str().into(),
            nonce: nonce.as_str().into(),
            resources: content.resources.len(),
            removed: content.removed,
            names: match self.types.collections_in(kind) {
                Some(_) => content.resources.iter().map(|(name, _)| name.clone()).collect(),
                None => Vec::new(),
            },
            fresh,
            derived: Derived::default(),
            contents: Arc::new([content.resources.into()]),
        }
    }

    pub(crate) fn envelope<'a>(
        &'a self,
        kind: ResourceType,
        key: &Key,
        (version, nonce): (&'a str, &'a str),
    ) -> Envelope<'a> {
        Envelope { kind, delta: key.delta, version, nonce, identifier: &self.limits.identifier }
    }

    /// The whole state, including resources whose removal is deferred.
    fn whole(&self, subscription: Subscription<'_, O>, plan: &Plan) -> Content {
        let live = subscription.live(&self.cells);
        let mut resources: Vec<(Name, Resource)> =
            live.map(|(name, resource)| (name.clone(), resource.clone())).collect();
        let live = resources.len();
        for (name, last) in subscription.removed(&self.cells, plan.key.sweep, Epoch::MAX) {
            resources.extend(last.map(|last| (name.clone(), last.clone())));
        }
        for gone in &plan.deferred.gone {
            let there = subscription.resource(&self.cells, &gone.name).is_some();
            if let Some(last) = gone.last.as_ref().filter(|_| !there) {
                resources.push((gone.name.clone(), last.clone()));
            }
        }
        if resources.len() > live {
            resources.sort_by(|(one, _), (other, _)| one.cmp(other));
            resources.dedup_by(|(one, _), (other, _)| one == other);
        }
        Content { resources, removed: Vec::new() }
    }

    /// The changes, and the pending resources.
    fn partial(&self, kind: ResourceType, subscription: Subscription<'_, O>, plan: &Plan) -> Content {
        let key = plan.key;
        let found = self.found(subscription, plan);
        let (mut resources, mut removed) = (Vec::with_capacity(found.len()), Vec::new());
        for (name, resource) in found {
            let owed = || plan.included.owed.binary_search(&name).is_ok();
            match resource {
                Some(resource) => resources.push((name, resource)),
                None if subscription.withholds(&name) => {}
                None if kind.is_listed() && !owed() => {}
                None => match kind.placeholder.filter(|_| key.placeholders && (key.from == 0 || owed())) {
                    Some(placeholder) => {
                        let empty = Resource::new(name.clone(), (placeholder.encode)(&name));
                        resources.push((name, empty));
                    }
                    None => removed.push(name),
                },
            }
        }
        let absent = |name: &&Name| subscription.resource(&self.cells, name).is_none();
        removed.extend(subscription.removed(&self.cells, key.removals_sent, key.sweep).map(|(name, _)| name).cloned());
        let gone = plan.included.gone.iter().map(|gone| &gone.name).filter(absent);
        removed.extend(gone.filter(|name| !subscription.withholds(name)).cloned());
        removed.sort_unstable();
        removed.dedup();
        if !key.delta {
            removed.clear();
        }
        Content { resources, removed }
    }

    /// The names whose current resource the client has not been sent, and the resources. Of a listed type, names without a
    /// resource may be missing.
    fn found(&self, subscription: Subscription<'_, O>, plan: &Plan) -> Vec<(Name, Option<Resource>)> {
        let Plan { key, included, .. } = plan;
        let has_nothing = key.from == 0 && key.upto >= subscription.latest().changed;
        if has_nothing && included.owed.is_empty() && !key.newest_first {
            return subscription.all(&self.cells);
        }
        let mut names = self.unsent(subscription, plan);
        if key.newest_first {
            // The resource that the client rejected may still be in the response: changes must come before it.
            names.sort_by_key(|name| std::cmp::Reverse(subscription.epoch_of(name)));
        }
        let found = names.iter().map(|name| subscription.resource(&self.cells, name).cloned()).collect::<Vec<_>>();
        names.into_iter().zip(found).collect()
    }

    /// Names whose current resource the client has not been sent.
    fn unsent(&self, subscription: Subscription<'_, O>, plan: &Plan) -> Vec<Name> {
        let mut names = subscription.changed(&self.cells, plan.key.from, plan.key.upto);
        names.extend(plan.included.owed.iter().cloned());
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The version of a response. A client that reconnects with a version must have exactly the state of that version, so a
    /// `partial` response has another one.
    fn version(&self, subscription: Subscription<'_, O>, partial: bool, key: &Key) -> String {
        let version = subscription.version(&self.cells);
        match partial {
            true => format!("{version}.{:x}.{:x}", key.upto, key.sweep),
            false => version,
        }
    }
}

fn nonce(serials: &[u64], Key { from, upto, sweep, .. }: &Key) -> String {
    let serials: Vec<String> = serials.iter().map(|serial| format!("{serial:x}")).collect();
    format!("{}.{from:x}.{upto:x}.{sweep:x}", serials.join("."))
}
