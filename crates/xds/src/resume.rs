//! A reconnecting delta client: compares the resources that it has with the current ones.
//!
//! That takes time, so that a long list is compared in a step of its own ([`Unfinished`](crate::hub::Unfinished)). Until then the
//! client is sent nothing of the type.
//!
//! Clients of one audience have the same shared resources, so the difference from those is found by the first of them, and
//! kept with the selection until it changes. Resources that the own ledger decides are compared for each client: they are few.

use std::sync::Arc;

use model::xds::{ResourceType, Version};
use rustc_hash::FxHashMap;

use crate::cells::Cells;
use crate::core::Core;
use crate::decode::Held;
use crate::name_set;
use crate::stream::Stream;
use crate::subscription::{Part, Subscription};
use crate::unanswered::Names;
use crate::watch::{Gone, Pending, Watch};
use crate::{Name, Origin};

/// Identifies a difference between the resources of a client and those of a selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Compared {
    /// The fingerprint of the resources that the client has, without those that the own ledger decides.
    held: u64,
    /// The digest of the resources of the selection that the own ledger hides.
    hidden: u64,
    /// Whether missing names are removed.
    is_complete: bool,
}

impl<O: Origin> Core<O> {
    /// Whether a client has many resources, and not the current ones.
    pub(crate) fn takes_long_to_resume(&self, watch: &Watch, held: &Held) -> bool {
        held.len() > self.limits.opened_at_once && held.digest() != self.subscription(watch).digest(&self.cells)
    }

    /// Resumes a type that the stream watches already. It may have moved since the request.
    pub(crate) fn resume_watched(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType, held: &Held) {
        let Some(mut watch) = stream.watches.remove(kind) else { return };
        watch.compares = false;
        self.resume(stream, &mut watch, held);
        stream.watches.insert(watch);
        self.note_in_place(stream, kind);
    }

    /// Owes a client the changes since its earlier stream, of which it has these resources.
    pub(crate) fn resume(&mut self, stream: &Stream<O::Token>, watch: &mut Watch, held: &Held) {
        watch.sent = self.epoch;
        watch.acked = self.epoch;
        let left = self.unanswered.take(&stream.proxy.id, watch.kind);
        let subscription = self.subscription(watch);
        let again = [Some(&left), stream.dropped(watch.kind)];
        for names in again.into_iter().flatten().filter(|names| !names.is_empty()) {
            watch.pending.owe(self.live_among(subscription, names));
        }
        if held.digest() == subscription.digest(&self.cells) {
            return;
        }
        // A name that is missing because of a failure is not removed.
        let is_complete = subscription.failure().is_none();
        let (own, decided) = self.own_difference(subscription, held, is_complete);
        let compared = Compared {
            held: held.fingerprint().wrapping_sub(decided),
            hidden: subscription.overlay().map_or(0, |overlay| overlay.hidden_digest(&self.cells)),
            is_complete,
        };
        let shared = self.common_difference(watch, held, compared);
        for difference in [&own, &*shared] {
            watch.pending.owe(difference.owed.iter().cloned());
            watch.pending.add_gone(difference.gone.iter().cloned(), self.epoch);
        }
    }

    /// The names, among these, that have a resource.
    fn live_among(&self, subscription: Subscription<'_, O>, names: &Names) -> Vec<Name> {
        let is_live = |name: &&Name| subscription.covers(name) && subscription.resource(&self.cells, name).is_some();
        match names {
            Names::All => subscription.live(&self.cells).map(|(name, _)| name.clone()).collect(),
            Names::Some(names) => names.iter().filter(is_live).cloned().collect(),
        }
    }

    /// The difference in the names that the own ledger decides, and the share of the client's resources of these names in its
    /// fingerprint.
    fn own_difference(&self, subscription: Subscription<'_, O>, held: &Held, is_complete: bool) -> (Pending, u64) {
        let Some(own) = subscription.own() else {
            return (Pending::default(), 0);
        };
        let mut had: FxHashMap<u64, (&Name, Option<Option<Version>>)> =
            own.decided().map(|name| (name_set::hash(name), (name, None))).collect();
        let mut share = 0u64;
        for one in held.iter() {
            if let Some((name, version)) = had.get_mut(&one.hash)
                && ***name == *one.name
            {
                *version = Some(one.version);
                share = share.wrapping_add(one.mark());
            }
        }
        let mut difference = Pending::default();
        for (name, version) in had.into_values() {
            match (own.ledger.resource(&self.cells, name), version) {
                (Some(resource), Some(Some(version))) if version == resource.version() => {}
                (Some(_), _) => difference.owed.push(name.clone()),
                (None, Some(_)) if is_complete => difference.gone.push(Gone::unknown(name.clone())),
                (None, None) if own.selection.names_one(name) => difference.owed.push(name.clone()),
                (None, _) => {}
            }
        }
        (difference, share)
    }

    /// The difference in the names that the own ledger does not decide.
    fn common_difference(&mut self, watch: &Watch, held: &Held, compared: Compared) -> Arc<Pending> {
        let place = watch.shared;
        let Part { ledger, selection } = self.part(place);
        // Otherwise it also depends on the names that are selected in the own ledger.
        let is_common = match watch.kind.is_listed() {
            true => watch.own.is_none() || !watch.kind.is_collected() && !ledger.by_name(),
            false => true,
        };
        if let Some(known) = selection.resumed(&compared).filter(|_| is_common) {
            return known;
        }
        let found = Arc::new(difference(&self.cells, self.subscription(watch), held, compared.is_complete));
        if is_common {
            self.ledgers[place.ledger].selections[place.selection].keep_resumed(compared, found.clone());
        }
        found
    }
}

/// The difference in the names that the own ledger does not decide.
fn difference<O: Origin>(
    cells: &Cells<O::Cell>,
    subscription: Subscription<'_, O>,
    held: &Held,
    is_complete: bool,
) -> Pending {
    let shared = subscription.shared();
    // Most resources are the same, and to look one up takes most of the time.
    let had: FxHashMap<u64, usize> = held.iter().enumerate().map(|(index, one)| (one.hash, index)).collect();
    // Whether the shared ledger has a resource of the name.
    let mut live = vec![false; held.len()];
    let mut difference = Pending::default();
    for (name, resource) in shared.ledger.live(cells, shared.selection) {
        let had = had.get(&name_set::hash(name)).map(|index| (*index, held.get(*index)));
        let is_same = had.filter(|(_, one)| *one.name == **name).is_some_and(|(index, one)| {
            live[index] = true;
            one.version == Some(resource.version())
        });
        if !is_same && !subscription.is_own(name) {
            difference.owed.push(name.clone());
        }
    }
    let is_missing = |name: &str| !subscription.is_own(name) && subscription.resource(cells, name).is_none();
    let dead = held.iter().zip(live).filter(|(_, is_live)| is_complete && !is_live).map(|(one, _)| one.name);
    let gone = dead.filter(|name| subscription.covers(name) && is_missing(name));
    difference.gone.extend(gone.map(|name| Gone::unknown(name.into())));
    let is_new = |name: &&Name| !had.contains_key(&name_set::hash(name)) && is_missing(name);
    difference.owed.extend(subscription.parts().flat_map(|part| part.selection.named()).filter(is_new).cloned());
    difference
}
