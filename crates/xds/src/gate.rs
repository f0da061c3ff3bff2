//! Make before break: a change is sent when the types that it waits for are in place at the client.
//!
//! Types are processed in sending order. Each rule depends on one stream only (with the types of Envoy as an example):
//!
//! - **Listeners and routes wait for clusters and endpoints** ([`TypeSpec::waits_for`](model::xds::TypeSpec)). A
//!   listener or route that changed in epoch *e* is sent once the client has answered for all changes of clusters and
//!   endpoints up to *e*. Older changes do not wait for newer clusters, so constant changes delay routes by a round
//!   trip and do not starve them. In SotW, listeners are sent, and wait, as a whole.
//! - **New clusters wait for their endpoints** ([`settling`](crate::settling)). Accepted clusters with EDS are in place
//!   once the client has subscribed to all their endpoints and answered for them. A client that has not subscribed to
//!   endpoints is not waited for.
//! - **Clusters are removed last** ([`TypeSpec::removed_after`](model::xds::TypeSpec)): when the client has answered
//!   for all listeners and routes of the epoch of the removal. Virtual hosts are sent and removed after their route
//!   tables, in one response, because a domain may move from one to another. A client that reconnects with resources has
//!   yet to subscribe to these types, and is waited for, too. In SotW, responses meanwhile still contain the removed
//!   clusters, unchanged.
//! - **A NACK is an answer**: it ends the wait.
//! - **No wait is longer than [`Limits::hold`](crate::Limits::hold)**, counted from the first waiting change, or from the last
//!   answer to a fragment of a long response: a client that never answers or subscribes gets the rest anyway.
//!   [`Stats::overdue`](crate::Stats::overdue) counts this.

use model::xds::{Parent, ResourceType};

use crate::core::Core;
use crate::stream::Stream;
use crate::watch::Watch;
use crate::{Epoch, Moment, Origin};

/// The changes of a type that may be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// Updates up to this epoch.
    pub(crate) upto: Epoch,
    /// Removals up to this epoch.
    pub(crate) sweep: Epoch,
}

impl<O: Origin> Core<O> {
    /// The changes of a type that may be sent now; `None`: none.
    pub(crate) fn window(&self, stream: &Stream<O::Token>, kind: ResourceType, now: Moment) -> Option<Window> {
        let expired = |hold: Option<(Epoch, Moment)>| hold.is_some_and(|(_, since)| now >= since + self.limits.hold);
        let watch = stream.watch(kind)?;
        if watch.settling.is_some() {
            return None;
        }
        let upto = match expired(stream.hold) {
            true => self.epoch,
            false => self.in_place_for(stream, kind),
        };
        let sweep = match expired(watch.removal_hold) {
            _ if self.is_parent_rejected(stream, kind) => 0,
            // Collections are needed as long as the client has not been sent their parent.
            true if !matches!(kind.parent, Parent::Collections { .. }) => self.epoch,
            _ => self.removable(stream, kind),
        };
        let sweep = sweep.min(upto);
        (upto > 0).then_some(Window { upto, sweep })
    }

    /// Whether all changes of this type may be sent.
    pub(crate) fn is_open(&self, stream: &Stream<O::Token>, kind: ResourceType) -> bool {
        self.in_place_for(stream, kind).min(self.removable(stream, kind)) == self.epoch
    }

    /// Starts and ends the waits of a stream. Returns the time of the first one that expires.
    pub(crate) fn update_holds(&mut self, stream: &mut Stream<O::Token>, now: Moment) -> Option<Moment> {
        stream.hold = self.is_held(stream).then(|| match stream.hold {
            Some((epoch, since)) if !self.sent_since(stream, epoch) => (epoch, since),
            _ => (self.epoch, now),
        });
        let mut starts: Vec<Moment> = stream.hold.iter().map(|(_, since)| *since).collect();
        for watch in stream.watches.iter_mut() {
            let waits = !watch.kind.removed_after.is_empty() && watch.has_removals(self.latest(watch));
            watch.removal_hold = waits.then_some(match watch.removal_hold {
                Some((epoch, since)) if watch.removals_sent < epoch => (epoch, since),
                _ => (self.epoch, now),
            });
            starts.extend(watch.removal_hold.map(|(_, since)| since));
            starts.extend(watch.settling.as_ref().and_then(|settling| settling.answered));
        }
        // An expired wait ends when the client answers.
        let ends = starts.into_iter().map(|since| since + self.limits.hold);
        ends.filter(|at| *at > now).min()
    }

    /// The epoch up to which the types that this one waits for are in place at the client.
    fn in_place_for(&self, stream: &Stream<O::Token>, kind: ResourceType) -> Epoch {
        let in_place = |needed: &ResourceType| match stream.watch(*needed).and_then(|watch| watch.settling.as_ref()) {
            Some(settling) => settling.before,
            // Their own removals may wait for this type.
            None => self.reached(stream, *needed, needed.removed_after.is_empty()),
        };
        kind.waits_for.iter().map(in_place).min().unwrap_or(self.epoch)
    }

    /// The epoch up to which removals of a type may be sent.
    fn removable(&self, stream: &Stream<O::Token>, kind: ResourceType) -> Epoch {
        let reached = |user: &ResourceType| match user.is_wildcard() && stream.resumed && stream.watch(*user).is_none()
        {
            // A client that reconnects will subscribe to it.
            true => 0,
            false => self.reached(stream, *user, true),
        };
        kind.removed_after.iter().map(reached).min().unwrap_or(self.epoch)
    }

    /// The epoch up to which the client has answered for a type, with or without removals. The current epoch if the
    /// client has not subscribed to it.
    fn reached(&self, stream: &Stream<O::Token>, kind: ResourceType, removals: bool) -> Epoch {
        let Some(watch) = stream.watch(kind) else {
            return self.epoch;
        };
        let latest = self.latest(watch);
        let inflight = watch.inflight.as_ref();
        let waiting = inflight.is_some_and(|inflight| inflight.updates || removals);
        let pending = watch.has_updates(latest) || removals && watch.has_removals(latest);
        if waiting || pending { watch.settled } else { self.epoch }
    }

    /// Whether changes wait for the types that they need.
    fn is_held(&self, stream: &Stream<O::Token>) -> bool {
        let waits = |watch: &Watch| {
            !watch.kind.waits_for.is_empty()
                && watch.has_updates(self.latest(watch))
                && self.in_place_for(stream, watch.kind) < self.epoch
        };
        stream.watches.iter().any(waits)
    }

    /// Whether the changes that waited at `epoch` have been sent.
    fn sent_since(&self, stream: &Stream<O::Token>, epoch: Epoch) -> bool {
        let mut waiting = stream.watches.iter().filter(|watch| !watch.kind.waits_for.is_empty());
        waiting.all(|watch| watch.sent >= epoch || !watch.has_updates(self.latest(watch)))
    }
}
