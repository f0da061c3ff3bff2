//! Requests in state of the world: each names everything that the client wants.
//!
//! - Another nonce than the last response's: stale, ignored; the client will say the same again in answer to the last.
//! - No names: everything for clusters and listeners, as long as the client has never named one; otherwise nothing.
//! - The same names again: the client has a new use for what it has. If clusters were sent again, their endpoints are
//!   the answer (Envoy drops the endpoints of a cluster that changes); otherwise there is none.
//! - A client that returns with the version of everything that it asks for gets nothing. A version stands for the names
//!   that are asked for and all that they hold; a response that leaves something out for later says so in its version.
//!   (Should the stream break between a cluster that came back as it was and its endpoints, Envoy has not said that it
//!   dropped those: it goes on after its own time limit. The same holds in delta for a cluster that changed.)

use std::collections::BTreeSet;

use model::xds::ResourceType;

use crate::core::Core;
use crate::decode::{Body, Texts};
use crate::name_set::NameSet;
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
            // A client that has heard from this stream has not just returned, whatever version it shows.
            let version = if request.nonce.is_empty() {
                version
            } else {
                String::new()
            };
            self.sotw_first(origin, stream, kind, &version, &names);
            return Ok(());
        };
        match watch.nonce() {
            // The client begins anew: whatever it had is forgotten.
            Some(_) if request.nonce.is_empty() && watch.inflight.is_none() => {
                watch.start_over();
            }
            Some(last) if **last != *request.nonce => {
                self.stats.stale[kind as usize] += 1;
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
        let names_or_all = (!all).then(|| self.names(names));
        let mut watch = self.watch(origin, stream, kind, names_or_all);
        watch.named_once = !names.is_empty();
        stream.resumed |= !version.is_empty();
        // What was sent on this stream, or on the one before, may have made the client drop what it had.
        let left = self.unanswered.take(&stream.proxy.id, kind);
        let kept = left.is_empty()
            && match kind {
                ResourceType::Endpoints => stream.early_clusters.as_ref().is_some_and(BTreeSet::is_empty),
                ResourceType::Route => !stream.early_listeners,
                _ => true,
            };
        if kept && version == self.ledgers[watch.ledger].version(self.selection(&watch)) {
            watch.sent = self.epoch;
            watch.settled = self.epoch;
            watch.ran = self.epoch;
        } else {
            watch.must_answer = true;
        }
        if kind == ResourceType::Endpoints {
            stream.early_clusters = Some(BTreeSet::new());
        }
        stream.watches[kind as usize] = Some(Box::new(watch));
    }

    /// Follows a change of the names that the client wants, if there is one.
    fn sotw_names(&mut self, origin: &mut O, stream: &mut Stream<O::Token>, kind: ResourceType, texts: &Texts) {
        let Some(watch) = stream.watches[kind as usize].as_deref_mut() else {
            return;
        };
        watch.named_once |= !texts.is_empty();
        let all = kind.is_wildcard() && (texts.contains("*") || !watch.named_once);
        if texts.is_empty() && !all {
            self.unwatch(origin, stream, kind);
            return;
        }
        let rewarm = std::mem::take(&mut watch.rewarm);
        watch.pending.owe(rewarm);
        let current = self.selection(watch).names.clone();
        match current {
            None if all => {}
            Some(current) if !all => {
                if current.len() != texts.len() || current.digest() != NameSet::digest_of(texts.iter()) {
                    self.sotw_edit(origin, stream, kind, &current, texts);
                }
            }
            _ => {
                let names = (!all).then(|| self.names(texts));
                self.reselect(origin, stream, kind, names.map(NameSet::new).as_ref());
                if let Some(watch) = stream.watch_mut(kind) {
                    watch.start_over();
                }
            }
        }
    }

    fn sotw_edit(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        current: &NameSet,
        texts: &Texts,
    ) {
        let Some(ledger) = stream.watch(kind).map(|watch| watch.ledger) else {
            return;
        };
        let wanted = NameSet::new(self.share(ledger, self.names(texts)));
        let added: Vec<Name> = wanted.iter().filter(|name| !current.contains(name)).cloned().collect();
        let changed = !added.is_empty() || wanted.len() != current.len();
        self.reselect(origin, stream, kind, Some(&wanted));
        let Some(watch) = stream.watch_mut(kind) else { return };
        if kind.is_wildcard() {
            // Responses of these types are the whole set, so a smaller one must be said, too.
            watch.must_answer |= changed;
        } else {
            watch.pending.owed.retain(|name| wanted.contains(name));
            watch.pending.owe(added);
        }
    }

    fn names(&self, texts: &Texts) -> Vec<Name> {
        texts.iter().map(Name::from).collect()
    }
}

impl Watch {
    /// Everything is to be sent again.
    pub(crate) fn start_over(&mut self) {
        self.sent = 0;
        self.ran = 0;
        self.refused = None;
        self.complaint = None;
        self.must_answer = true;
    }
}
