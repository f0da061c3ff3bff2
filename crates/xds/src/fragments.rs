//! Sends the changes of a long delta response in several responses (fragments), so that a change of another type does not wait
//! until the client has read all of them.
//!
//! The rest of the state machine sees one response. It is outstanding until the client has answered the last fragment, and
//! rejected if the client rejects any. The first response of a type is sent whole: Envoy takes it for all resources of the type.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::xds::{Resource, ResourceType};
use rustc_hash::FxHashMap;

use crate::compose::{Composed, Content, Envelope, Fresh, Reference, encode};
use crate::core::Core;
use crate::next::Response;
use crate::selection::Key;
use crate::status::Exchange;
use crate::stream::Stream;
use crate::{Moment, Name, Origin, Rope};

/// A part of a response that is sent as a response of its own.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub(crate) rope: Rope,
    pub(crate) nonce: Arc<str>,
    pub(crate) resources: usize,
    pub(crate) removed: usize,
    /// The references of its resources.
    pub(crate) fresh: Fresh,
}

/// The fragments of a response in order. Streams share them.
pub(crate) type Fragments = Arc<[Fragment]>;

/// The state of an outstanding response that is sent in fragments.
pub(crate) struct Rest {
    fragments: Fragments,
    /// The number of fragments that were sent.
    sent: usize,
    /// Whether the client has answered the last one that was sent, and another follows.
    due: bool,
    /// The errors of the fragments that the client rejected.
    errors: Vec<String>,
}

impl Rest {
    /// The state after the first fragment was sent.
    pub(crate) fn after_first(fragments: Fragments) -> Rest {
        Rest { fragments, sent: 1, due: false, errors: Vec::new() }
    }

    /// Whether the client rejected any fragment.
    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }
}

impl<O: Origin> Core<O> {
    /// The fragments in which a response is sent; `None` if it is sent whole.
    pub(crate) fn fragments(&self, kind: ResourceType, key: &Key, composed: &Composed) -> Option<Fragments> {
        let limit = self.limits.response_bytes;
        if !kind.divisible || !key.delta || key.from == 0 || composed.rope.len() <= limit {
            return None;
        }
        let envelope = self.envelope(kind, key, (&composed.version, &composed.nonce));
        let fragments = composed.derived.fragments.get_or_init(|| composed.divided(&envelope, limit));
        (fragments.len() > 1).then(|| fragments.clone())
    }

    /// The next fragment of the outstanding response, if it is to be sent now.
    pub(crate) fn next_fragment(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        now: Moment,
    ) -> Option<Response> {
        let watch = stream.watch_mut(kind)?;
        let inflight = watch.inflight.as_mut()?;
        let rest = inflight.rest.as_mut().filter(|rest| rest.due)?;
        let (fragments, at) = (rest.fragments.clone(), rest.sent);
        let fragment = fragments.get(at)?;
        (rest.due, rest.sent) = (false, at + 1);
        inflight.nonce = fragment.nonce.clone();
        let updates = inflight.updates;
        watch.sent_at = watch.sent_at.take().map(|sent| Exchange { nonce: fragment.nonce.clone(), at: now, ..sent });
        if updates {
            self.note_sent(stream, kind, &fragment.fresh);
        }
        let sent = (fragment.rope.clone(), fragment.nonce.clone());
        Some(self.response(stream, kind, sent, (fragment.resources, fragment.removed), now))
    }

    /// Handles an answer to the outstanding response, or to a fragment of it. Returns the client's error about the whole
    /// response once the last fragment was answered.
    pub(crate) fn whole_answer(
        &mut self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        error: Option<String>,
        now: Moment,
    ) -> ControlFlow<(), Option<String>> {
        let inflight = stream.watch_mut(kind).and_then(|watch| watch.inflight.as_mut());
        let Some(rest) = inflight.and_then(|inflight| inflight.rest.as_mut()) else {
            return ControlFlow::Continue(error);
        };
        let stats = self.stats.of_mut(kind);
        let is_last = rest.sent == rest.fragments.len();
        // The end of the response counts as one answer: as a NACK if there were errors.
        match &error {
            None => stats.accepted += u64::from(!is_last || rest.has_errors()),
            Some(_) => stats.rejected += u64::from(rest.has_errors()),
        }
        rest.errors.extend(error);
        if is_last {
            let errors = std::mem::take(&mut rest.errors);
            return ControlFlow::Continue((!errors.is_empty()).then(|| errors.join("; ")));
        }
        rest.due = true;
        // The limit of waits is for clients that do not answer.
        stream.prolong_holds(now);
        ControlFlow::Break(())
    }
}

impl<T> Stream<T> {
    /// Lets the waits of a stream begin now.
    fn prolong_holds(&mut self, now: Moment) {
        let removals = self.watches.iter_mut().filter_map(|watch| watch.removal_hold.as_mut());
        removals.chain(self.hold.as_mut()).for_each(|(_, since)| *since = now);
    }
}

impl Composed {
    /// Fragments with about this number of bytes of resources; more if a resource is longer. The last one has the removals.
    fn divided(&self, envelope: &Envelope<'_>, bytes: usize) -> Fragments {
        let mut groups: Vec<Content> = vec![Content::default()];
        let mut length = 0;
        for (name, resource) in self.contents.iter().flat_map(|some| some.iter()) {
            if length > 0 && length + resource.len() > bytes {
                groups.push(Content::default());
                length = 0;
            }
            length += resource.len();
            if let Some(group) = groups.last_mut() {
                group.resources.push((name.clone(), resource.clone()));
            }
        }
        if let Some(last) = groups.last_mut() {
            last.removed.clone_from(&self.removed);
        }
        let count = groups.len();
        let children = self.fresh.children();
        let fragment = |(at, content): (usize, Content)| {
            let nonce = format!("{}/{}", envelope.nonce, at + 1);
            let version = match at + 1 == count {
                true => envelope.version.to_owned(),
                false => format!("{}/{}", envelope.version, at + 1),
            };
            Fragment {
                rope: encode(&Envelope { nonce: &nonce, version: &version, ..*envelope }, &content),
                nonce: nonce.into(),
                resources: content.resources.len(),
                removed: content.removed.len(),
                fresh: children.as_ref().map_or(Fresh::All, |children| of_these(&content.resources, children)),
            }
        };
        groups.into_iter().enumerate().map(fragment).collect()
    }
}

impl Fresh {
    /// The child of each parent, if the references were determined.
    fn children(&self) -> Option<FxHashMap<&Name, &Reference>> {
        match self {
            Fresh::All => None,
            Fresh::Some(some) => Some(some.iter().map(|reference| (&reference.parent, reference)).collect()),
        }
    }
}

/// The references of these resources.
fn of_these(resources: &[(Name, Resource)], children: &FxHashMap<&Name, &Reference>) -> Fresh {
    Fresh::Some(resources.iter().filter_map(|(name, _)| children.get(name).map(|one| (*one).clone())).collect())
}
