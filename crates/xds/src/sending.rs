//! Records a response that is sent: in its watch, and in the types that depend on its type.

use model::xds::{Parent, ResourceType};

use crate::compose::{Composed, Envelope, Fresh, renamed};
use crate::content::Plan;
use crate::core::Core;
use crate::gate::Window;
use crate::next::Response;
use crate::settling::Settling;
use crate::status::Exchange;
use crate::stream::Stream;
use crate::unanswered::Names;
use crate::watch::Inflight;
use crate::{Epoch, Moment, Name, Origin, Variant};

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
        if updates {
            self.note_sent(stream, kind, &composed.fresh, plan.key.from);
            if let Some(watch) = stream.watch_mut(kind) {
                watch.unanswered.extend_from_slice(&composed.names);
            }
        }
        stream.sequence += 1;
        let sequence = stream.sequence;
        let waited = now.saturating_sub(stream.busy_since.unwrap_or(now));
        let (mut rope, mut nonce) = (composed.rope.clone(), composed.nonce.clone());
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
            }));
            watch.sent = plan.key.upto;
            watch.removals_sent = plan.key.sweep;
            watch.pending = plan.deferred;
            watch.rejected = None;
            watch.must_answer = false;
            watch.responses += 1;
            watch.sent_at = Some(Exchange { version: composed.version.clone(), nonce: nonce.clone(), at: now });
        }
        let stats = self.stats.of_mut(kind);
        stats.responses += 1;
        stats.resources += composed.resources as u64;
        stats.bytes += rope.len() as u64;
        Response { kind, rope, nonce, resources: composed.resources, removed: composed.removed, waited }
    }

    /// Records a response in the types that depend on its type.
    fn note_sent(&self, stream: &mut Stream<O::Token>, kind: ResourceType, fresh: &Fresh, from: Epoch) {
        for child in self.types.children(kind) {
            match child.parent {
                Parent::Reference { .. } => self.note_references(stream, (kind, child), fresh, from),
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
        from: Epoch,
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
        if let (Fresh::Some(fresh), None, true) = (fresh, &self.part(watch.shared).selection.names, from > 0) {
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
