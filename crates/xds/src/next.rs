//! The next response of a stream.

use std::sync::Arc;

use model::xds::ResourceType;

use crate::content::Plan;
use crate::core::Core;
use crate::forgetting::Forgetting;
use crate::gate::Window;
use crate::ledger::Failure;
use crate::selection::Key;
use crate::stream::Stream;
use crate::watch::{Pending, Watch};
use crate::{Code, Epoch, Hub, Moment, Name, Origin, Rope, Status, StreamId, Variant};

/// The next step for a stream.
#[derive(Debug)]
pub enum Next {
    /// Send this, then call [`Hub::next`] again.
    Send(Response),
    /// A part of a response was encoded. The stream is woken, so that others can have their turn before it goes on.
    More,
    /// Wait until the stream is woken.
    Idle,
    /// End it with this status, and call [`Hub::disconnect`].
    End(Status),
}

/// An encoded response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The type of its resources.
    pub kind: ResourceType,
    /// The message.
    pub rope: Rope,
    /// The nonce that the client answers with.
    pub nonce: Arc<str>,
    /// The number of resources in it.
    pub resources: usize,
    /// The number of removed names in it.
    pub removed: usize,
    /// The time for which the stream has had something to send.
    pub waited: Moment,
}

impl<O: Origin> Hub<O> {
    /// The next step for a stream. Call it again until the stream is idle. A response with more than
    /// [`Limits::encoded_together`](crate::Limits::encoded_together) resources takes several.
    pub fn next(&mut self, id: StreamId, now: Moment) -> Next {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Next::Idle;
        };
        if let Some(status) = stream.close_with.take() {
            return Next::End(status);
        }
        if self.moving.contains(&id) {
            return Next::Idle;
        }
        match self.core.outlook(stream) {
            Outlook::Underived(status) => return Next::End(status),
            Outlook::Ahead => return Next::Idle,
            Outlook::Quiet => {
                stream.busy_since = None;
                return Next::Idle;
            }
            Outlook::Busy => {}
        }
        let types = self.core.types.clone();
        loop {
            self.core.check_settling(stream, now);
            let mut advanced = false;
            for kind in types.iter() {
                match self.core.attempt(stream, kind, now) {
                    Attempt::Nothing => {}
                    Attempt::Advanced => advanced = true,
                    Attempt::Encoding => {
                        self.woken.insert(id);
                        return Next::More;
                    }
                    Attempt::Send(response) => {
                        let idle = self.core.limits.idle_responses;
                        self.forgetting.get_or_insert_with(|| Forgetting::begin(now + idle));
                        return Next::Send(response);
                    }
                }
            }
            // A type without changes for this client may be one that another type waited for.
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

/// What there may be to do for a stream.
enum Outlook {
    /// It cannot be served without removing what could not be derived, and ends with this status. Its client keeps what it has.
    Underived(Status),
    /// Nothing until a commit is applied, of which its resources have changes.
    Ahead,
    /// Nothing.
    Quiet,
    /// Its types must be examined.
    Busy,
}

/// The result for one type.
enum Attempt {
    Nothing,
    /// There were changes, but none for this client.
    Advanced,
    /// A part of the response was encoded.
    Encoding,
    Send(Response),
}

impl<O: Origin> Core<O> {
    /// Examines all watches of a stream once. Most calls of [`Hub::next`] are after a response or an ACK, and have nothing to do.
    fn outlook(&self, stream: &Stream<O::Token>) -> Outlook {
        let mut is_quiet = stream.hold.is_none() && stream.timer.is_none();
        let mut underived = None;
        for watch in stream.watches.iter() {
            let subscription = self.subscription(watch);
            // A SotW response of these types removes what is not in it.
            let must_be_complete = stream.variant == Variant::Sotw && watch.kind.is_wildcard();
            let is_underived = match subscription.failure() {
                Some(Failure::Whole) => true,
                Some(Failure::Part) => must_be_complete,
                None => must_be_complete && subscription.lacks_any(),
            };
            if is_underived {
                underived.get_or_insert(watch.kind.short_name);
            }
            let latest = subscription.latest();
            if latest.changed.max(latest.removed) > self.epoch {
                return Outlook::Ahead;
            }
            is_quiet &= watch.is_quiet(latest);
        }
        match underived {
            Some(kind) => {
                let text = format!("{kind} resources cannot be derived, because of an internal error; see the log");
                Outlook::Underived(Status::new(Code::Unavailable, text))
            }
            None if is_quiet => Outlook::Quiet,
            None => Outlook::Busy,
        }
    }

    fn attempt(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType, now: Moment) -> Attempt {
        if let Some(response) = self.next_fragment(stream, kind, now) {
            return Attempt::Send(response);
        }
        let full = stream.variant == Variant::Sotw && kind.is_wildcard();
        let Some(watch) = stream.watch(kind).filter(|watch| watch.inflight.is_none() && !watch.compares) else {
            return Attempt::Nothing;
        };
        let Some(window) = self.window(stream, kind, now) else {
            return Attempt::Nothing;
        };
        let Some(plan) = self.plan(stream, watch, window, full) else {
            return self.pass_over(stream, kind, window, full);
        };
        let Some(composed) = self.composed(stream, watch, &plan, full) else {
            return Attempt::Encoding;
        };
        let nothing = composed.resources == 0 && composed.removed.is_empty() && !full;
        if !nothing || watch.must_answer && plan.updates {
            return Attempt::Send(self.send(stream, kind, window, plan, &composed, now));
        }
        if let Some(watch) = stream.watch_mut(kind) {
            watch.sent = plan.key.upto;
            watch.removals_sent = plan.key.sweep;
            watch.pending = plan.deferred;
            watch.rejected = None;
            watch.rejection = None;
            watch.acked = watch.acked.max(window.upto);
            self.news.answered = true;
        }
        Attempt::Advanced
    }

    /// Advances a stream past changes of shared resources that its own ones hide. There is nothing to send for it.
    fn pass_over(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType, window: Window, full: bool) -> Attempt {
        let Some(watch) = stream.watches.get_mut(kind) else {
            return Attempt::Nothing;
        };
        let subscription = self.subscription(watch);
        let latest = subscription.latest();
        let too_early = window.upto < watch.joined || full && latest.changed > window.upto;
        if too_early || watch.sent == 0 || subscription.overlay().is_none() {
            return Attempt::Nothing;
        }
        let (rejected, sent, removals_sent) = match &mut watch.rejected {
            Some(rejected) => (true, &mut rejected.upto, &mut rejected.sweep),
            None => (false, &mut watch.sent, &mut watch.removals_sent),
        };
        let (upto, sweep) = (latest.changed.min(window.upto), latest.removed.min(window.sweep));
        if *sent >= upto && *removals_sent >= sweep {
            return Attempt::Nothing;
        }
        *sent = upto.max(*sent);
        *removals_sent = sweep.max(*removals_sent);
        if !rejected {
            watch.acked = watch.acked.max(upto);
            self.news.answered = true;
        }
        Attempt::Advanced
    }

    /// The response that may be sent; `None` if there is nothing to send.
    fn plan(&self, stream: &Stream<O::Token>, watch: &Watch, window: Window, full: bool) -> Option<Plan> {
        let subscription = self.subscription(watch);
        let latest = subscription.latest();
        if window.upto < watch.joined || full && latest.changed > window.upto {
            return None;
        }
        let sendable = |name: &Name| subscription.epoch_of(name) <= window.upto;
        let is_certain = |at: Epoch| at <= window.upto && subscription.overlay().is_none();
        let changed = |after: Epoch| match latest.changed {
            at if at <= after => false,
            at => is_certain(at) || subscription.has_changed(&self.cells, after, window.upto),
        };
        let updates = watch.must_answer || watch.pending.owed.iter().any(sendable) || changed(watch.news_after());
        let may_sweep = |at: Epoch| !watch.kind.is_listed() || at <= window.sweep;
        let gone = !watch.pending.gone.is_empty() && may_sweep(watch.pending.gone_at);
        let after = watch.sweeps_after();
        let tombs = latest.removed > after && subscription.removed(&self.cells, after, window.sweep).next().is_some();
        if !updates && !gone && !tombs {
            return None;
        }

        let (owed, later): (Vec<Name>, Vec<Name>) = watch.pending.owed.iter().cloned().partition(sendable);
        let (mut included, mut deferred) = (Pending::default(), Pending::default());
        included.owe(owed);
        deferred.owe(later);
        let target = if gone { &mut included } else { &mut deferred };
        // Names that exist again are part of the updates.
        let back = |name: &Name| sendable(name) && subscription.resource(&self.cells, name).is_some();
        let gone_for_good = watch.pending.gone.iter().filter(|gone| !back(&gone.name));
        target.add_gone(gone_for_good.cloned(), watch.pending.gone_at);
        if let Some(rejected) = &watch.rejected {
            included.add(rejected.pending.clone());
        }
        let key = Key {
            delta: stream.variant == Variant::Delta,
            from: watch.sent,
            upto: latest.changed.min(window.upto).max(watch.sent),
            removals_sent: watch.removals_sent,
            sweep: latest.removed.min(window.sweep).max(watch.removals_sent),
            newest_first: watch.rejected.is_some(),
            placeholders: watch.kind.placeholder.is_some_and(|placeholder| (placeholder.applies)(&stream.proxy)),
        };
        Some(Plan { key, included, deferred, updates })
    }
}
