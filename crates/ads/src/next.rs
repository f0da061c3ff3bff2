//! What a stream is sent next.

use std::sync::Arc;

use bytes::Bytes;
use model::proxy::ProxyKind;
use model::xds::{ResourceType, Version};
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::config::route::v3::RouteConfiguration;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::compose::{Composed, Content, Envelope, Fresh, encode, renamed};
use crate::gate::{Settling, Window};
use crate::hub::{Core, Stream};
use crate::ledger::Ledger;
use crate::selection::{Key, Selection};
use crate::status::Exchange;
use crate::watch::{Debt, Inflight, Watch};
use crate::{Epoch, Hub, Moment, Name, Origin, Rope, Status, StreamId, Variant};

/// What to do for a stream now.
#[derive(Debug)]
pub enum Next {
    /// Send this, then ask again.
    Send(Response),
    /// Nothing, until the stream is woken.
    Idle,
    /// End it with this status, and call [`Hub::disconnect`].
    End(Status),
}

/// A response, encoded.
#[derive(Clone, Debug)]
pub struct Response {
    /// The type of its resources.
    pub kind: ResourceType,
    /// The message.
    pub rope: Rope,
    /// What the client will answer with.
    pub nonce: Arc<str>,
    /// How many resources it brings.
    pub resources: usize,
    /// How many names it takes away.
    pub removed: usize,
    /// How long it has been since the stream was last idle.
    pub waited: Moment,
}

impl<O: Origin> Hub<O> {
    /// What to do for a stream now. Ask again until it is idle.
    pub fn next(&mut self, id: StreamId, now: Moment) -> Next {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Next::Idle;
        };
        if let Some(status) = stream.doomed.take() {
            return Next::End(status);
        }
        loop {
            self.core.check_settling(stream, now);
            let mut advanced = false;
            for kind in ResourceType::ALL {
                match self.core.attempt(stream, kind, now) {
                    Attempt::Nothing => {}
                    Attempt::Advanced => advanced = true,
                    Attempt::Send(response) => return Next::Send(response),
                }
            }
            // What turned out to be no news to the client may be what something else waited for.
            if !advanced {
                break;
            }
        }
        stream.busy_since = None;
        let timer = self.core.update_holds(stream, now);
        if timer != stream.timer {
            let old = std::mem::replace(&mut stream.timer, timer);
            old.map(|at| self.timers.remove(&(at, id)));
            timer.map(|at| self.timers.insert((at, id)));
        }
        Next::Idle
    }
}

/// What came of looking at one type.
enum Attempt {
    Nothing,
    /// There was news, but nothing in it for this client.
    Advanced,
    Send(Response),
}

/// What a response will be made of, and where it leaves the watch.
struct Plan {
    key: Key,
    /// What of the debt is paid with it.
    paid: Debt,
    /// What is not.
    left: Debt,
    /// Whether there is a reason to send it besides removals.
    news: bool,
}

impl<O: Origin> Core<O> {
    fn attempt(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType, now: Moment) -> Attempt {
        let full = stream.variant == Variant::Sotw && kind.is_wildcard();
        let Some(watch) = stream.watch(kind).filter(|watch| watch.inflight.is_none()) else {
            return Attempt::Nothing;
        };
        let Some(window) = self.window(stream, kind, now) else {
            return Attempt::Nothing;
        };
        let Some(plan) = self.plan(stream, watch, window, full) else {
            return Attempt::Nothing;
        };
        let composed = self.composed(stream, watch, &plan, full);
        let nothing = composed.resources == 0 && composed.removed == 0 && !full;
        if !nothing || watch.must_answer && plan.news {
            return Attempt::Send(self.send(stream, kind, window, plan, &composed, now));
        }
        if let Some(watch) = stream.watch_mut(kind) {
            watch.sent = plan.key.upto;
            watch.swept = plan.key.sweep;
            watch.debt = plan.left;
            watch.refused = None;
        }
        Attempt::Advanced
    }

    /// What may and should be sent; `None` if there is no reason to send anything.
    fn plan(&self, stream: &Stream<O::Token>, watch: &Watch, window: Window, full: bool) -> Option<Plan> {
        let ledger = &self.ledgers[watch.ledger];
        let selection = self.selection(watch);
        if window.upto < watch.joined || full && selection.changed > window.upto {
            return None;
        }
        let payable = |name: &Name| ledger.epoch_of(name) <= window.upto;
        let changed = |after: Epoch| match selection.changed {
            at if at <= after => false,
            at => at <= window.upto || !ledger.changed(selection, after, window.upto).is_empty(),
        };
        let news = watch.must_answer || watch.debt.owed.iter().any(payable) || changed(watch.news_after());
        let may_sweep = |at: Epoch| !watch.kind.is_wildcard() || at <= window.sweep;
        let gone = !watch.debt.gone.is_empty() && may_sweep(watch.debt.gone_at);
        let after = watch.sweeps_after();
        let tombs = selection.removed > after && ledger.removed(selection, after, window.sweep).next().is_some();
        if !news && !gone && !tombs {
            return None;
        }

        let (owed, later): (Vec<Name>, Vec<Name>) = watch.debt.owed.iter().cloned().partition(payable);
        let (mut paid, mut left) = (Debt::default(), Debt::default());
        paid.owe(owed);
        left.owe(later);
        let whose = if gone { &mut paid } else { &mut left };
        whose.let_go(watch.debt.gone.iter().cloned(), watch.debt.gone_at);
        if let Some(refused) = &watch.refused {
            paid.add(refused.debt.clone());
        }
        let key = Key {
            delta: stream.variant == Variant::Delta,
            from: watch.sent,
            upto: selection.changed.min(window.upto).max(watch.sent),
            swept: watch.swept,
            sweep: selection.removed.min(window.sweep).max(watch.swept),
            newest_first: watch.refused.is_some(),
            // Envoy keeps a cluster or listener from use while it waits for these. Of a gateway, a route that is not
            // there is left out, as istiod does: one that it had before stays in use.
            placeholders: match watch.kind {
                ResourceType::Endpoints => true,
                ResourceType::Route => stream.proxy.kind == ProxyKind::Sidecar,
                ResourceType::Cluster | ResourceType::Listener => false,
            },
        };
        Some(Plan { key, paid, left, news })
    }

    /// The response of a plan: one that was composed before, if it is the same for all.
    fn composed(&mut self, stream: &Stream<O::Token>, watch: &Watch, plan: &Plan, full: bool) -> Arc<Composed> {
        let shared = plan.paid.is_empty() && plan.left.gone.is_empty();
        if shared && let Some(composed) = self.selection(watch).cached(&plan.key) {
            return composed;
        }
        let ledger = &self.ledgers[watch.ledger];
        let selection = self.selection(watch);
        let (content, fresh) = if full {
            (
                self.whole(ledger, selection, plan),
                changed_names(ledger, selection, plan),
            )
        } else {
            let content = self.partial(ledger, selection, plan);
            let names = content.resources.iter().map(|(name, ..)| name.clone());
            let fresh = if plan.key.from == 0 {
                Fresh::All
            } else {
                Fresh::Names(names.collect())
            };
            (content, fresh)
        };
        let version = match selection.names {
            // The version that a client shows when it returns stands for the set without what went.
            None if plan.key.sweep >= selection.removed && plan.left.gone.is_empty() => ledger.version(),
            None => format!("{}.{:x}", ledger.version(), plan.key.sweep),
            Some(_) => digest(&content),
        };
        let Key { from, upto, sweep, .. } = plan.key;
        let mut nonce = format!("{:x}.{from:x}.{upto:x}.{sweep:x}", selection.serial);
        if !shared {
            nonce = format!("{nonce}.{:x}", stream.sequence);
        }
        let envelope = Envelope {
            kind: watch.kind,
            delta: plan.key.delta,
            version: &version,
            nonce: &nonce,
            identifier: &self.limits.identifier,
        };
        let composed = Arc::new(Composed {
            rope: encode(&envelope, &content),
            version: version.as_str().into(),
            nonce: nonce.as_str().into(),
            resources: content.resources.len(),
            removed: content.removed.len(),
            fresh,
        });
        self.stats.composed[watch.kind as usize] += 1;
        if shared {
            self.ledgers[watch.ledger].selections[watch.selection].cache(plan.key, composed.clone());
        }
        composed
    }

    /// Everything that there is, and what went but must not be said to have gone yet.
    fn whole(&self, ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Content {
        let mut resources: Vec<(Name, Version, Bytes)> = Vec::new();
        for (name, resource) in ledger.live(&self.cells, selection) {
            resources.push((name.clone(), resource.version(), resource.body().clone()));
        }
        let live = resources.len();
        for (name, tomb) in ledger.removed(selection, plan.key.sweep, Epoch::MAX) {
            resources.push((name.clone(), tomb.last.version(), tomb.last.body().clone()));
        }
        for gone in &plan.left.gone {
            let there = ledger.resource(&self.cells, &gone.name).is_some();
            if let Some(last) = gone.last.as_ref().filter(|_| !there) {
                resources.push((gone.name.clone(), last.version(), last.body().clone()));
            }
        }
        if resources.len() > live {
            resources.sort_by(|(one, ..), (other, ..)| one.cmp(other));
            resources.dedup_by(|(one, ..), (other, ..)| one == other);
        }
        Content {
            resources,
            removed: Vec::new(),
        }
    }

    /// What changed, and what the client is owed.
    fn partial(&self, ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Content {
        let key = plan.key;
        let mut names = ledger.changed(selection, key.from, key.upto);
        if !plan.paid.owed.is_empty() {
            names.extend(plan.paid.owed.iter().cloned());
            names.sort_unstable();
            names.dedup();
        }
        if key.newest_first {
            // What stopped the client from taking the rest may still be there: what is new must come before it.
            names.sort_by_key(|name| std::cmp::Reverse(ledger.epoch_of(name)));
        }
        let (mut resources, mut removed) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            let owed = || plan.paid.owed.binary_search(&name).is_ok();
            match ledger.resource(&self.cells, &name) {
                Some(resource) => resources.push((name, resource.version(), resource.body().clone())),
                None if ledger.kind.is_wildcard() && !owed() => {}
                None if key.placeholders && (key.from == 0 || owed()) => {
                    let body = placeholder(ledger.kind, &name);
                    resources.push((name, Version::of(&body), body));
                }
                None => removed.push(name),
            }
        }
        let absent = |name: &&Name| ledger.resource(&self.cells, name).is_none();
        removed.extend(
            ledger
                .removed(selection, key.swept, key.sweep)
                .map(|(name, _)| name)
                .cloned(),
        );
        removed.extend(plan.paid.gone.iter().map(|gone| &gone.name).filter(absent).cloned());
        removed.sort_unstable();
        removed.dedup();
        if !key.delta {
            removed.clear();
        }
        Content { resources, removed }
    }

    fn send(
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
                swept_before: watch.swept,
                debt: plan.paid,
                upto: window.upto,
                sweep: window.sweep,
                updates,
            });
            watch.sent = plan.key.upto;
            watch.swept = plan.key.sweep;
            watch.debt = plan.left;
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
        let endpoints: Option<Vec<Name>> = match fresh {
            Fresh::All => None,
            Fresh::Names(names) => Some(self.endpoints_of(stream, names).collect()),
        };
        let subscribed = stream
            .watch(ResourceType::Endpoints)
            .and_then(|watch| self.selection(watch).names.clone());
        let delta = stream.variant == Variant::Delta;
        if let Some(watch) = stream.watch_mut(ResourceType::Endpoints) {
            let subscribed = subscribed.iter().flat_map(|names| names.iter());
            let again = subscribed.filter(|name| endpoints.as_ref().is_none_or(|names| names.contains(name)));
            if delta {
                watch.debt.owe(again.cloned());
            } else {
                watch.rewarm.extend(again.cloned());
            }
        } else {
            stream.early_clusters = match (stream.early_clusters.take(), endpoints) {
                (Some(mut early), Some(names)) if early.len() + names.len() <= EARLY_CLUSTERS => {
                    early.extend(names);
                    Some(early)
                }
                _ => None,
            };
        }
        let watch = stream.watch(ResourceType::Cluster);
        let wildcard = watch.is_some_and(|watch| self.selection(watch).names.is_none());
        if let (Fresh::Names(names), true, true) = (fresh, wildcard, from > 0) {
            let before = watch.map_or(0, |watch| watch.settled);
            stream.settling = Some(Settling {
                fresh: names.clone(),
                before,
                answered: None,
                target: None,
            });
        }
    }

    fn count_overdue(&mut self, stream: &Stream<O::Token>, kind: ResourceType, window: Window) {
        let held = match kind {
            ResourceType::Listener | ResourceType::Route => stream.hold,
            ResourceType::Cluster => stream.sweep_hold,
            ResourceType::Endpoints => None,
        };
        let forced = held.is_some_and(|(epoch, _)| window.sweep == self.epoch && epoch <= window.sweep)
            && !self.is_open(stream, kind);
        self.stats.overdue[kind as usize] += u64::from(forced);
    }
}

/// Clusters that are remembered for a stream that has not asked for endpoints yet; of more, all count as sent.
const EARLY_CLUSTERS: usize = 1024;

/// What a whole set brings that the client has not had in this form.
fn changed_names<O: Origin>(ledger: &Ledger<O>, selection: &Selection, plan: &Plan) -> Fresh {
    if plan.key.from == 0 {
        return Fresh::All;
    }
    let mut names = ledger.changed(selection, plan.key.from, plan.key.upto);
    names.extend(plan.paid.owed.iter().cloned());
    names.sort_unstable();
    names.dedup();
    Fresh::Names(names.into())
}

/// What a client gets for a name that means nothing, so that it does not wait: no endpoints, no routes.
fn placeholder(kind: ResourceType, name: &str) -> Bytes {
    if kind == ResourceType::Endpoints {
        protos::encode(&ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..ClusterLoadAssignment::default()
        })
    } else {
        let validate_clusters = Some(false);
        protos::encode(&RouteConfiguration {
            name: name.to_owned(),
            validate_clusters,
            ..RouteConfiguration::default()
        })
    }
}

fn digest(content: &Content) -> String {
    let digest = content.resources.iter().fold(0u64, |sum, (name, version, _)| {
        sum.wrapping_add(xxh3_64_with_seed(name.as_bytes(), version.0))
    });
    format!("{digest:016x}")
}
