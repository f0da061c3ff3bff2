//! State-of-the-world (SotW) requests: each lists all names that the client subscribes to.
//!
//! - A nonce that is not that of the last response: stale, ignored. The client repeats its list in answer to the last
//!   response.
//! - No names: a wildcard for wildcard types, as long as the client has never named a resource; otherwise no subscription.
//! - The same names again: the client needs its resources again. If their parent was sent again (Envoy drops the
//!   endpoints of a cluster that changes), they are sent again; otherwise there is no response.
//! - A client that reconnects with the version of its whole subscription gets nothing. A version covers the names and their
//!   resources; a response that defers something has another version. (If a stream breaks between a cluster that changed
//!   back and its endpoints, Envoy does not report that it dropped them: it continues after its timeout. The same holds
//!   in delta for a cluster that changed.)

use model::xds::ResourceType;

use crate::core::Core;
use crate::decode::{Body, Texts};
use crate::stream::Stream;
use crate::watch::Watch;
use crate::{Moment, Name, Origin, Request, Status};

impl<O: Origin> Core<O> {
    pub(crate) fn sotw(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        request: Request,
        now: Moment,
    ) -> Result<(), Status> {
        let Body::Sotw { version, names } = request.body else {
            return Ok(());
        };
        let Some(watch) = stream.watch_mut(kind) else {
            // A client that answers a response of this stream has not just reconnected.
            let version = if request.nonce.is_empty() { version } else { String::new() };
            self.sotw_first(origin, stream, kind, &version, &names);
            return Ok(());
        };
        match watch.nonce() {
            // The client starts over: it has nothing.
            Some(_) if request.nonce.is_empty() && watch.inflight.is_none() => {
                watch.start_over();
            }
            Some(last) if **last != *request.nonce => {
                self.stats.of_mut(kind).stale += 1;
                return Ok(());
            }
            _ => self.answered(origin, stream, kind, request.error, now),
        }
        self.sotw_names(origin, stream, kind, &names);
        Ok(())
    }

    fn sotw_first(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        version: &str,
        names: &Texts,
    ) {
        let all = kind.is_wildcard() && (names.is_empty() || names.contains("*"));
        if names.is_empty() && !all {
            return;
        }
        let names_or_all = (!all).then(|| self.name_set(origin, stream, kind, names));
        let mut watch = self.watch(origin, stream, kind, names_or_all.as_ref());
        watch.named_once = !names.is_empty();
        stream.resumed |= !version.is_empty();
        // Parents that were sent on this stream, or on the previous one, may have made the client drop its resources.
        let left = self.unanswered.take(&stream.proxy.id, kind);
        let kept = left.is_empty() && !stream.has_dropped(kind);
        if kept && version == self.subscription(&watch).version(&self.cells) {
            watch.sent = self.epoch;
            watch.settled = self.epoch;
            watch.acked = self.epoch;
        } else {
            watch.must_answer = true;
        }
        stream.claim(kind);
        stream.watches.insert(watch);
        self.note_in_place(stream, kind);
    }

    /// Applies a changed list of names.
    fn sotw_names(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType, texts: &Texts) {
        let Some(watch) = stream.watches.get_mut(kind) else {
            return;
        };
        watch.named_once |= !texts.is_empty();
        let all = kind.is_wildcard() && (texts.contains("*") || !watch.named_once);
        if texts.is_empty() && !all {
            self.unwatch(stream, kind);
            return;
        }
        let rewarm = std::mem::take(&mut watch.rewarm);
        watch.pending.owe(rewarm);
        match self.identity(watch) {
            None if all => {}
            Some(current) if !all => {
                if current != texts.identity() {
                    self.sotw_edit(origin, stream, kind, texts);
                }
            }
            _ => {
                let names = (!all).then(|| self.name_set(origin, stream, kind, texts));
                self.reselect(origin, stream, kind, names.as_ref());
                if let Some(watch) = stream.watch_mut(kind) {
                    watch.start_over();
                }
            }
        }
    }

    fn sotw_edit(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType, texts: &Texts) {
        let current = stream.watch(kind).and_then(|watch| self.names(watch)).unwrap_or_default();
        let wanted = self.name_set(origin, stream, kind, texts);
        let added: Vec<Name> = wanted.iter().filter(|name| !current.contains(name)).cloned().collect();
        let changed = !added.is_empty() || wanted.len() != current.len();
        self.reselect(origin, stream, kind, Some(&wanted));
        let Some(watch) = stream.watch_mut(kind) else { return };
        if kind.is_wildcard() {
            // Responses of these types are complete, so that a smaller set must be sent, too.
            watch.must_answer |= changed;
        } else {
            watch.pending.owed.retain(|name| wanted.contains(name));
            watch.pending.owe(added);
        }
    }
}

impl Watch {
    /// Schedules everything to be sent again.
    pub(crate) fn start_over(&mut self) {
        self.sent = 0;
        self.acked = 0;
        self.rejected = None;
        self.rejection = None;
        self.must_answer = true;
    }
}
