//! Delta requests: each subscribes to and unsubscribes from names.
//!
//! - Subscriptions take effect whatever the nonce; only ACKs and NACKs depend on it.
//! - A name that the client subscribes to is answered with its resource even if it was sent before: the client may have
//!   dropped it. The exception is the first request of a stream, which lists what the client has: equal resources are not
//!   sent again, unless their parent was sent again on this stream, or on the previous one without an answer.
//! - An unknown name is answered with a placeholder if the type has one, and as removed otherwise.
//! - The first request of a type is always answered, if need be with an empty response.

use std::collections::HashSet;

use model::xds::{Parent, ResourceType, collection_of};

use crate::core::Core;
use crate::decode::{Body, Held, Texts};
use crate::name_set::NameSet;
use crate::stream::Stream;
use crate::watch::{Gone, Watch};
use crate::{Code, Moment, Name, Origin, Request, Status};

impl<O: Origin> Core<O> {
    /// Handles a request. Returns the client's resources if they are to be compared in the next step
    /// ([`Core::resume_watched`]).
    pub(crate) fn delta(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        mut request: Request,
        now: Moment,
    ) -> Result<Option<Held>, Status> {
        let Body::Delta { subscribe, unsubscribe, initial } = std::mem::take(&mut request.body) else {
            return Ok(None);
        };
        match stream.watch(kind) {
            None => self.delta_first(origin, stream, kind, (&subscribe, &unsubscribe), initial),
            Some(_) => self.delta_next(origin, stream, kind, (&subscribe, &unsubscribe), (request, now)).map(|()| None),
        }
    }

    fn delta_next(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        (subscribe, unsubscribe): (&Texts, &Texts),
        (request, now): (Request, Moment),
    ) -> Result<(), Status> {
        if !request.nonce.is_empty() {
            let last = stream.watch(kind).and_then(Watch::nonce);
            if last.is_some_and(|last| **last == *request.nonce) {
                self.answered(origin, stream, kind, request.error, now);
            } else {
                self.stats.of_mut(kind).stale += 1;
            }
        }
        if subscribe.is_empty() && unsubscribe.is_empty() {
            return Ok(());
        }
        self.delta_wildcard(origin, stream, kind, subscribe, unsubscribe);
        let all = stream.watch(kind).is_some_and(|watch| self.identity(watch).is_none());
        if all {
            self.delta_beside_wildcard(stream, kind, subscribe, unsubscribe)
        } else {
            self.delta_names(origin, stream, kind, subscribe, unsubscribe)
        }
    }

    fn delta_first(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        (subscribe, unsubscribe): (&Texts, &Texts),
        initial: Held,
    ) -> Result<Option<Held>, Status> {
        let explicit = subscribe.contains("*") && !unsubscribe.contains("*");
        let all = kind.is_wildcard() && (explicit || subscribe.is_empty() && unsubscribe.is_empty());
        let followed = match kind.parent {
            Parent::Collections { of } if subscribe.is_empty() => Some(of),
            _ => None,
        };
        let names = match followed {
            Some(parent) => NameSet::new(self.sent_collections(stream, parent)),
            None if all && subscribe.is_empty() => NameSet::default(),
            None => self.first_names(origin, stream, kind, (subscribe, unsubscribe), initial.names(), all),
        };
        self.check_count(names.len())?;

        let mut watch = self.watch(origin, stream, kind, (!all).then_some(&names));
        watch.must_answer = true;
        watch.follows = followed.is_some();
        if all {
            watch.explicit = names.iter().cloned().collect();
        }
        stream.resumed |= !initial.is_empty();
        watch.compares = self.takes_long_to_resume(&watch, &initial);
        if initial.is_empty() {
            self.unanswered.take(&stream.proxy.id, kind);
        } else if !watch.compares {
            self.resume(stream, &mut watch, &initial);
        }
        let compared = watch.compares.then_some(initial);
        if !all && kind.is_wildcard() {
            let missing: Vec<Name> = names.iter().filter(|name| !self.is_live(&watch, name)).cloned().collect();
            watch.pending.owe(missing);
        }
        let missing: Vec<Name> = watch.explicit.iter().filter(|name| !self.is_live(&watch, name)).cloned().collect();
        watch.pending.add_gone(missing.into_iter().map(Gone::unknown), self.epoch);
        stream.claim(kind);
        stream.watches.insert(watch);
        self.note_in_place(stream, kind);
        Ok(compared)
    }

    /// The names that the first request of a type subscribes to, besides all (`all`).
    fn first_names(
        &mut self,
        origin: &O,
        stream: &Stream<O::Token>,
        kind: ResourceType,
        (subscribe, unsubscribe): (&Texts, &Texts),
        had: &Texts,
        all: bool,
    ) -> NameSet {
        // Older clients do not repeat the names that they have as a subscription.
        let repeats = !kind.is_collected() && had.identity() == subscribe.identity();
        if (repeats || had.is_empty()) && unsubscribe.is_empty() && !subscribe.contains("*") {
            return self.name_set(origin, stream, kind, subscribe);
        }
        let not_wanted: HashSet<&str> = unsubscribe.iter().chain(["*"]).collect();
        let had = had.iter().filter(|_| !all && !repeats);
        let had = had.filter_map(|name| if kind.is_collected() { collection_of(name) } else { Some(name) });
        let wanted = subscribe.iter().chain(had).filter(|name| !not_wanted.contains(name));
        self.name_set(origin, stream, kind, &wanted.collect())
    }

    /// Subscribes to or unsubscribes from the wildcard.
    fn delta_wildcard(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        subscribe: &Texts,
        unsubscribe: &Texts,
    ) {
        if !kind.is_wildcard() {
            return;
        }
        let Some(watch) = stream.watch(kind) else { return };
        let current = self.names(watch);
        if subscribe.contains("*") {
            self.reselect(origin, stream, kind, None);
            if let Some(watch) = stream.watch_mut(kind) {
                watch.explicit = current.iter().flat_map(NameSet::iter).cloned().collect();
                watch.start_over();
            }
        } else if unsubscribe.contains("*") && current.is_none() {
            let explicit = NameSet::new(watch.explicit.clone());
            self.reselect(origin, stream, kind, Some(&explicit));
            if let Some(watch) = stream.watch_mut(kind) {
                watch.explicit.clear();
                watch.pending.owed.retain(|name| explicit.contains(name));
                watch.pending.gone.retain(|gone| explicit.contains(&gone.name));
            }
        }
    }

    /// Names in addition to a wildcard do not change the selection, but are answered: with the resource or as removed.
    fn delta_beside_wildcard(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        subscribe: &Texts,
        unsubscribe: &Texts,
    ) -> Result<(), Status> {
        let named: Vec<Name> = subscribe.iter().filter(|name| *name != "*").map(Name::from).collect();
        let dropped: Vec<Name> = unsubscribe.iter().filter(|name| *name != "*").map(Name::from).collect();
        let Some(watch) = stream.watches.get_mut(kind) else {
            return Ok(());
        };
        let without: HashSet<&Name> = dropped.iter().collect();
        watch.explicit.retain(|name| !without.contains(name));
        watch.explicit.extend(named.iter().cloned());
        watch.explicit.sort_unstable();
        watch.explicit.dedup();
        self.check_count(watch.explicit.len())?;
        let (live, missing): (Vec<Name>, Vec<Name>) =
            named.into_iter().chain(dropped).partition(|name| self.is_live(watch, name));
        watch.pending.owe(live);
        watch.pending.add_gone(missing.into_iter().map(Gone::unknown), self.epoch);
        Ok(())
    }

    fn delta_names(
        &mut self,
        origin: &mut O,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        subscribe: &Texts,
        unsubscribe: &Texts,
    ) -> Result<(), Status> {
        let Some(watch) = stream.watch(kind) else { return Ok(()) };
        let Some(current) = self.names(watch) else {
            return Ok(());
        };
        let subscription = self.subscription(watch);
        let wanted = subscribe.iter().filter(|name| *name != "*");
        let wanted: Vec<Name> =
            wanted.map(|name| subscription.name(name).cloned().unwrap_or_else(|| name.into())).collect();
        let dropped: Vec<&str> = unsubscribe.iter().collect();
        let edit = current.edit(wanted.clone(), &dropped);
        self.check_count(edit.len())?;
        let empty = edit.is_empty();
        if !empty {
            self.reselect_edit(origin, stream, kind, &edit);
        }
        let Some(watch) = stream.watches.get_mut(kind) else {
            return Ok(());
        };
        let wanted = match kind.is_collected() {
            true => self.subscription(watch).in_collections(&self.cells, &wanted),
            false => wanted,
        };
        if !empty {
            let dropped = &edit.removed;
            let subscribed = |name: &Name| {
                let name = if kind.is_collected() { collection_of(name) } else { Some(&**name) };
                name.is_some_and(|name| dropped.binary_search(&name).is_err())
            };
            watch.pending.owed.retain(|name| subscribed(name));
            watch.pending.gone.retain(|gone| subscribed(&gone.name));
        }
        watch.pending.owe(wanted);
        let owed = &watch.pending.owed;
        watch.pending.gone.retain(|gone| owed.binary_search(&gone.name).is_err());
        if let Some(child) = self.types.collections_in(kind).filter(|_| !unsubscribe.is_empty())
            && stream.watch(kind).is_some_and(|watch| watch.unanswered.is_empty())
        {
            self.follow_parent(origin, stream, (kind, child));
        }
        Ok(())
    }

    fn check_count(&self, names: usize) -> Result<(), Status> {
        let limit = self.limits.names;
        if names > limit {
            return Err(Status::new(Code::ResourceExhausted, format!("more than {limit} names are subscribed to")));
        }
        Ok(())
    }

    fn is_live(&self, watch: &Watch, name: &str) -> bool {
        self.subscription(watch).resource(&self.cells, name).is_some()
    }
}
