//! What follows from sending a response: for its stream, and for the types that come after its own.

use std::sync::Arc;

use model::xds::ResourceType;

use crate::compose::{Composed, Envelope, Fresh, renamed};
use crate::content::Plan;
use crate::core::Core;
use crate::gate::{Settling, Window};
use crate::next::Response;
use crate::status::Exchange;
use crate::stream::Stream;
use crate::watch::Inflight;
use crate::{Epoch, Moment, Name, Origin, Variant};

/// Clusters that are remembered for a stream that has not asked for endpoints yet; of more, all count as sent.
const EARLY_CLUSTERS: usize = 1024;

impl<O: Origin> Core<O> {
    /// Makes a planned response the one that is outstanding.
    pub(crate) fn send(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        window: Window,
        plan: Plan,
        composed: &Arc<Composed>,
        now: Moment,
    ) -> Response {
        self.count_overdue(stream, kind, window);
        let updates = plan.news && composed.resources > 0;
        if updates {
            self.note_sent(stream, kind, &composed.fresh, plan.key.from);
            self.note_collections(stream, &composed.collections, &plan.paid.owed, now);
            if kind == ResourceType::Route {
                stream.tables.extend_from_slice(&composed.tables);
            }
        }
        stream.sequence += 1;
        let sequence = stream.sequence;
        let waited = now.saturating_sub(stream.busy_since.unwrap_or(now));
        let (mut rope, mut nonce) = (composed.rope.clone(), composed.nonce.clone());
        let watch = stream.watches[kind as usize].as_deref_mut();
        if watch
            .as_ref()
            .and_then(|watch| watch.nonce())
            .is_some_and(|last| *last == nonce)
        {
            // The client could not tell the two apart, nor we its answers.
            nonce = format!("{nonce}.{sequence:x}").into();
            let (version, identifier) = (&composed.version, &self.limits.identifier);
            let delta = plan.key.delta;
            rope = renamed(
                &Envelope {
                    kind,
                    delta,
                    version,
                    nonce: &nonce,
                    identifier,
                },
                &rope,
            );
        }
        if let Some(watch) = watch {
            watch.inflight = Some(Inflight {
                nonce: nonce.clone(),
                sent_before: watch.sent,
                removals_sent_before: watch.removals_sent,
                pending: plan.paid,
                upto: window.upto,
                sweep: window.sweep,
                updates,
            });
            watch.sent = plan.key.upto;
            watch.removals_sent = plan.key.sweep;
            watch.pending = plan.left;
            watch.refused = None;
            watch.must_answer = false;
            watch.responses += 1;
            watch.last = Some((composed.clone(), nonce.clone()));
            watch.sent_at = Some(Exchange {
                version: composed.version.clone(),
                nonce: nonce.clone(),
                at: now,
            });
        }
        let stats = &mut self.stats;
        stats.responses[kind as usize] += 1;
        stats.resources[kind as usize] += composed.resources as u64;
        stats.bytes[kind as usize] += rope.len() as u64;
        Response {
            kind,
            rope,
            nonce,
            resources: composed.resources,
            removed: composed.removed,
            waited,
        }
    }

    /// Notes what a response that is about to be sent means for the types that come after its own.
    fn note_sent(&self, stream: &mut Stream<O::Token>, kind: ResourceType, fresh: &Fresh, from: Epoch) {
        if kind == ResourceType::Listener && stream.watch(ResourceType::Route).is_none() {
            stream.early_listeners = true;
        }
        if kind != ResourceType::Cluster {
            return;
        }
        // Envoy drops the endpoints of a cluster that it is sent, whether they changed or not.
        let subscribed = stream
            .watch(ResourceType::Endpoints)
            .map(|watch| self.selection(watch).names.clone());
        let delta = stream.variant == Variant::Delta;
        if let Some(watch) = stream.watch_mut(ResourceType::Endpoints) {
            let subscribed = subscribed.flatten().unwrap_or_default();
            let again: Vec<Name> = match fresh {
                Fresh::All => subscribed.iter().cloned().collect(),
                Fresh::Some(fresh) => {
                    let names = fresh.iter().map(|fresh| &fresh.endpoints);
                    names.filter(|name| subscribed.contains(name)).cloned().collect()
                }
            };
            if delta {
                watch.pending.owe(again);
            } else {
                watch.rewarm.extend(again);
            }
        } else {
            stream.early_clusters = match (stream.early_clusters.take(), fresh) {
                (Some(mut early), Fresh::Some(fresh)) if early.len() + fresh.len() <= EARLY_CLUSTERS => {
                    early.extend(fresh.iter().map(|fresh| fresh.endpoints.clone()));
                    Some(early)
                }
                _ => None,
            };
        }
        let watch = stream.watch(ResourceType::Cluster);
        let wildcard = watch.is_some_and(|watch| self.selection(watch).names.is_none());
        if let (Fresh::Some(fresh), true, true) = (fresh, wildcard, from > 0) {
            let before = watch.map_or(0, |watch| watch.settled);
            stream.settling = Some(Settling {
                fresh: fresh.clone(),
                before,
                answered: None,
                target: None,
                singly: None,
            });
        }
    }

    fn count_overdue(&mut self, stream: &Stream<O::Token>, kind: ResourceType, window: Window) {
        let held = match kind {
            ResourceType::Listener | ResourceType::Route | ResourceType::VirtualHost => stream.hold,
            ResourceType::Cluster => stream.sweep_hold,
            ResourceType::Endpoints | ResourceType::LbEndpoint => None,
            ResourceType::Secret | ResourceType::Extension | ResourceType::NameTable => None,
        };
        let forced = held.is_some_and(|(epoch, _)| window.sweep == self.epoch && epoch <= window.sweep)
            && !self.is_open(stream, kind);
        self.stats.overdue[kind as usize] += u64::from(forced);
    }
}
