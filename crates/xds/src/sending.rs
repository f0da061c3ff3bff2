//! Records a response that is sent: in its watch, and in the types that depend on its type.

use std::sync::Arc;

use model::xds::{Parent, ResourceType};

use crate::compose::{Composed, Envelope, Fresh, renamed};
use crate::content::Plan;
use crate::core::Core;
use crate::fragments::Rest;
use crate::gate::Window;
use crate::next::Response;
use crate::settling::Settling;
use crate::status::Exchange;
use crate::stream::Stream;
use crate::unanswered::Names;
use crate::watch::Inflight;
use crate::{Epoch, Moment, Name, Origin, Rope, Variant};

/// The maximum number of references recorded for a stream that has not subscribed to their type yet; more count as all.
const UNCLAIMED: usize = 1024;

impl<O: Origin> Core<O> {
    /// Makes a composed response the outstanding one.
    pub(crate) fn send(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        window: Window,
        plan: Plan,
        composed: &Composed,
        now: Moment,
    ) -> Response {
        self.count_overdue(stream, kind, window);
        let updates = plan.updates && composed.resources > 0;
        let fragments = self.fragments(kind, &plan.key, composed);
        let first = fragments.as_ref().and_then(|fragments| fragments.first());
        if updates {
            self.note_sent(stream, kind, first.map_or(&composed.fresh, |first| &first.fresh));
            self.settle(stream, kind, &composed.fresh, plan.key.from);
            if let Some(watch) = stream.watch_mut(kind) {
                watch.unanswered.extend_from_slice(&composed.names);
            }
        }
        stream.sequence += 1;
        let sequence = stream.sequence;
        let whole = (&composed.rope, &composed.nonce, (composed.resources, composed.removed.len()));
        let first = first.map(|first| (&first.rope, &first.nonce, (first.resources, first.removed)));
        let (rope, nonce, counts) = first.unwrap_or(whole);
        let (mut rope, mut nonce) = (rope.clone(), nonce.clone());
        let watch = stream.watches.get_mut(kind);
        if watch.as_ref().and_then(|watch| watch.nonce()).is_some_and(|last| *last == nonce) {
            // Two responses must not have the same nonce.
            nonce = format!("{nonce}.{sequence:x}").into();
            let (version, identifier) = (&composed.version, &self.limits.identifier);
            let delta = plan.key.delta;
            rope = renamed(&Envelope { kind, delta, version, nonce: &nonce, identifier }, &rope);
        }
        if let Some(watch) = watch {
            watch.inflight = Some(Box::new(Inflight {
                nonce: nonce.clone(),
                sent_before: watch.sent,
                removals_sent_before: watch.removals_sent,
                pending: plan.included,
                upto: window.upto,
                sweep: window.sweep,
                updates,
                contents: composed.contents.clone(),
                rest: fragments.map(|fragments| Box::new(Rest::after_first(fragments))),
            }));
            watch.sent = plan.key.upto;
            watch.removals_sent = plan.key.sweep;
            watch.pending = plan.deferred;
            watch.rejected = None;
            watch.must_answer = false;
            watch.responses += 1;
            watch.sent_at = Some(Exchange { version: composed.version.clone(), nonce: nonce.clone(), at: now });
        }
        self.response(stream, kind, (rope, nonce), counts, now)
    }

    /// Counts a response with these numbers of resources and removed names.
    pub(crate) fn response(
        &mut self,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        (rope, nonce): (Rope, Arc<str>),
        (resources, removed): (usize, usize),
        now: Moment,
    ) -> Response {
        let waited = now.saturating_sub(stream.busy_since.unwrap_or(now));
        let stats = self.stats.of_mut(kind);
        stats.responses += 1;
        stats.resources += resources as u64;
        stats.bytes += rope.len() as u64;
        Response { kind, rope, nonce, resources, removed, waited }
    }

    /// Records a response in the types that depend on its type.
    pub(crate) fn note_sent(&self, stream: &mut Stream<O::Token>, kind: ResourceType, fresh: &Fresh) {
        for child in self.types.children(kind) {
            match child.parent {
                Parent::Reference { .. } => self.note_references(stream, (kind, child), fresh),
                Parent::Any { .. } if stream.watch(child).is_none() => {
                    if let Some(watch) = stream.watch_mut(kind) {
                        watch.unclaimed = Names::All;
                    }
                }
                Parent::Any { .. } | Parent::Collections { .. } | Parent::None => {}
            }
        }
    }

    fn note_references(
        &self,
        stream: &mut Stream<O::Token>,
        (parent, child): (ResourceType, ResourceType),
        fresh: &Fresh,
    ) {
        // Envoy drops the endpoints of a cluster that it is sent, whether they changed or not.
        let subscribed = stream.watch(child).map(|watch| self.subscription(watch));
        let delta = stream.variant == Variant::Delta;
        if let (Some(watch), Some(subscribed)) = (stream.watch_mut(child), subscribed) {
            let again: Vec<Name> = match fresh {
                Fresh::All => subscribed.parts().flat_map(|part| part.selection.named()).cloned().collect(),
                Fresh::Some(fresh) => {
                    let names = fresh.iter().map(|fresh| &fresh.child);
                    names.filter(|name| subscribed.names_one(name)).cloned().collect()
                }
            };
            if delta {
                watch.pending.owe(again);
            } else {
                watch.rewarm.extend(again);
            }
        }
        let Some(watch) = stream.watch_mut(parent) else { return };
        if subscribed.is_none() {
            watch.unclaimed = match (std::mem::take(&mut watch.unclaimed), fresh) {
                (Names::Some(mut names), Fresh::Some(fresh)) if names.len() + fresh.len() <= UNCLAIMED => {
                    names.extend(fresh.iter().map(|fresh| fresh.child.clone()));
                    Names::Some(names)
                }
                _ => Names::All,
            };
        }
    }

    /// Waits for the references of a response to be in place, if the client had resources of the type before.
    fn settle(&self, stream: &mut Stream<O::Token>, kind: ResourceType, fresh: &Fresh, from: Epoch) {
        if from == 0 || self.types.reference_from(kind).is_none() {
            return;
        }
        let Some(watch) = stream.watch_mut(kind) else { return };
        if let (Fresh::Some(fresh), None) = (fresh, &self.part(watch.shared).selection.names) {
            let settling = Settling { fresh: fresh.clone(), before: watch.settled, answered: None, target: None };
            watch.settling = Some(Box::new(settling));
        }
    }

    fn count_overdue(&mut self, stream: &Stream<O::Token>, kind: ResourceType, window: Window) {
        let waits = stream.hold.filter(|_| !kind.waits_for.is_empty());
        let held = waits.or_else(|| stream.watch(kind)?.removal_hold);
        let forced = held.is_some_and(|(epoch, _)| window.sweep == self.epoch && epoch <= window.sweep)
            && !self.is_open(stream, kind);
        self.stats.of_mut(kind).overdue += u64::from(forced);
    }
}
