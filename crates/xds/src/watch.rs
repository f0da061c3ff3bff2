//! The state of one stream's subscription to one type: sent, acknowledged and pending.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::xds::{Resource, ResourceType};

use crate::compose::Contents;
use crate::fragments::Rest;
use crate::hunt::Search;
use crate::settling::Settling;
use crate::status::{Exchange, LastNack};
use crate::subscription::{Latest, Place};
use crate::unanswered::Names;
use crate::{Epoch, Moment, Name};

/// Streams are many, and each has a few of these: it holds what is rarely there in boxes.
pub(crate) struct Watch {
    pub(crate) kind: ResourceType,
    /// The ledger of the audience.
    pub(crate) shared: Place,
    /// The ledger of the proxy's own resources, if it has any. It has a selection of the same names.
    pub(crate) own: Option<Place>,
    /// The epoch at which the stream entered these ledgers.
    pub(crate) joined: Epoch,
    /// Names that the client subscribed to in addition to a wildcard.
    pub(crate) explicit: Vec<Name>,
    /// Whether the client ever named a resource. From then on, an empty list is not a wildcard (SotW).
    pub(crate) named_once: bool,
    /// Its collections are the resources of the parent type that the client has.
    pub(crate) follows: bool,
    /// Updates up to this epoch were sent; 0: none.
    pub(crate) sent: Epoch,
    /// Removals up to this epoch were sent. Listed types only.
    pub(crate) removals_sent: Epoch,
    /// The client has answered (ACK or NACK) all changes up to this epoch.
    pub(crate) settled: Epoch,
    /// The client has acknowledged all changes up to this epoch, except for `pending`.
    pub(crate) acked: Epoch,
    /// The NACK of the client, until it accepts the resources.
    pub(crate) rejection: Option<Box<Rejection>>,
    /// Changes to be sent that do not follow from the stream's place in the ledger.
    pub(crate) pending: Pending,
    /// Resources whose parent was sent again. They are sent in answer to the client's next request (SotW).
    pub(crate) rewarm: Vec<Name>,
    /// The resources that the client has are compared in a later step. Until then it is sent nothing.
    pub(crate) compares: bool,
    /// A response must be sent, even an empty one.
    pub(crate) must_answer: bool,
    /// The number of responses sent.
    pub(crate) responses: u64,
    pub(crate) inflight: Option<Box<Inflight>>,
    /// Resources that were sent and whose references are not in place yet ([`Parent::Reference`](model::xds::Parent)).
    pub(crate) settling: Option<Box<Settling>>,
    /// References of resources that were sent before the client subscribed to the child type.
    pub(crate) unclaimed: Names,
    /// Names in the outstanding response that are collections of a child type.
    pub(crate) unanswered: Vec<Name>,
    /// The epoch and time at which removals began to wait.
    pub(crate) removal_hold: Option<(Epoch, Moment)>,
    pub(crate) rejected: Option<Box<RejectedResponse>>,
    /// Whether the audience of the proxy differs from that of the ledger. The watch moves when the outstanding response
    /// is answered.
    pub(crate) moving: bool,
    /// The last response.
    pub(crate) sent_at: Option<Exchange>,
    pub(crate) acked_at: Option<Exchange>,
    pub(crate) error: Option<Box<LastNack>>,
    /// The search for what the client rejects.
    pub(crate) search: Option<Box<Search>>,
    /// A digest of the response for which a search was made. It is not repeated until the client accepts a response.
    pub(crate) gave_up: Option<u64>,
    /// The resources that the client had before it moved to other ledgers, until it accepts those.
    pub(crate) before: BTreeMap<Name, Resource>,
}

/// Changes to be sent to a client that do not follow from the stream's place in the ledger.
#[derive(Clone, Default)]
pub(crate) struct Pending {
    /// Names whose current resource must be sent.
    pub(crate) owed: Vec<Name>,
    /// Removed names that it may have.
    pub(crate) gone: Vec<Gone>,
    /// The epoch at which the latest of `gone` was added.
    pub(crate) gone_at: Epoch,
}

/// A removed name that a client may have.
#[derive(Clone)]
pub(crate) struct Gone {
    pub(crate) name: Name,
    /// Its last resource, if known.
    pub(crate) last: Option<Resource>,
    /// Whether the client certainly has this resource.
    pub(crate) certain: bool,
}

impl Gone {
    pub(crate) fn unknown(name: Name) -> Gone {
        Gone { name, last: None, certain: false }
    }
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.owed.is_empty() && self.gone.is_empty()
    }

    pub(crate) fn owe(&mut self, names: impl IntoIterator<Item = Name>) {
        self.owed.extend(names);
        self.owed.sort_unstable();
        self.owed.dedup();
    }

    pub(crate) fn add_gone(&mut self, gone: impl IntoIterator<Item = Gone>, epoch: Epoch) {
        let before = self.gone.len();
        self.gone.extend(gone);
        if self.gone.len() > before {
            self.gone_at = epoch;
        }
        self.gone.sort_by(|one, other| one.name.cmp(&other.name));
        self.gone.dedup_by(|later, first| later.name == first.name);
    }

    pub(crate) fn add(&mut self, other: Pending) {
        self.owe(other.owed);
        self.add_gone(other.gone, other.gone_at);
    }
}

/// A response that has not been answered.
pub(crate) struct Inflight {
    pub(crate) nonce: Arc<str>,
    /// The state of the watch before the response, for a NACK.
    pub(crate) sent_before: Epoch,
    pub(crate) removals_sent_before: Epoch,
    pub(crate) pending: Pending,
    /// The response completes the updates up to this epoch.
    pub(crate) upto: Epoch,
    pub(crate) sweep: Epoch,
    /// Whether it has updates, and not only removals.
    pub(crate) updates: bool,
    /// Its resources.
    pub(crate) contents: Contents,
    /// The fragments that follow, if it is sent in fragments.
    pub(crate) rest: Option<Box<Rest>>,
}

/// A rejected response. The client may have accepted a part of it, so that the next response starts at the same place,
/// but it is only sent after another change.
pub(crate) struct RejectedResponse {
    pub(crate) upto: Epoch,
    pub(crate) sweep: Epoch,
    pub(crate) pending: Pending,
}

/// The resources that a client rejected and has not accepted since.
pub(crate) struct Rejection {
    /// The rejected response completed the updates up to this epoch.
    pub(crate) upto: Epoch,
    /// The resources that the client's error names; empty: unknown.
    pub(crate) names: Vec<Name>,
    /// Older names that were in the response.
    pub(crate) owed: Vec<Name>,
}

impl Rejection {
    /// Whether the client may have rejected this resource.
    pub(crate) fn concerns(&self, name: &Name) -> bool {
        self.names.is_empty() || self.names.contains(name)
    }
}

impl Watch {
    /// A watch that has not been sent anything. Removals before `joined` do not concern it.
    pub(crate) fn new(kind: ResourceType, shared: Place, own: Option<Place>, joined: Epoch) -> Watch {
        Watch {
            kind,
            shared,
            own,
            joined,
            explicit: Vec::new(),
            named_once: false,
            follows: false,
            sent: 0,
            removals_sent: joined,
            settled: 0,
            acked: 0,
            rejection: None,
            pending: Pending::default(),
            rewarm: Vec::new(),
            compares: false,
            must_answer: false,
            responses: 0,
            inflight: None,
            settling: None,
            unclaimed: Names::default(),
            unanswered: Vec::new(),
            removal_hold: None,
            rejected: None,
            moving: false,
            sent_at: None,
            acked_at: None,
            error: None,
            search: None,
            gave_up: None,
            before: BTreeMap::new(),
        }
    }

    /// Its selections in ledgers.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + use<> {
        std::iter::once(self.shared).chain(self.own)
    }

    /// The nonce of the last response; `None` before the first.
    pub(crate) fn nonce(&self) -> Option<&Arc<str>> {
        self.sent_at.as_ref().map(|sent| &sent.nonce)
    }

    /// The version and the nonce of the last response; empty before the first.
    pub(crate) fn last(&self) -> (Arc<str>, Arc<str>) {
        let last = self.sent_at.as_ref().map(|sent| (sent.version.clone(), sent.nonce.clone()));
        last.unwrap_or_default()
    }

    /// Updates after this epoch are a reason to send a response.
    pub(crate) fn news_after(&self) -> Epoch {
        self.rejected.as_ref().map_or(self.sent, |rejected| rejected.upto.max(self.sent))
    }

    /// Removals after this epoch are a reason to send a response.
    pub(crate) fn sweeps_after(&self) -> Epoch {
        self.rejected.as_ref().map_or(self.removals_sent, |rejected| rejected.sweep.max(self.removals_sent))
    }

    /// Whether there are unsent updates.
    pub(crate) fn has_updates(&self, latest: Latest) -> bool {
        self.must_answer || self.moving || !self.pending.owed.is_empty() || latest.changed > self.news_after()
    }

    /// Whether the client has answered so many responses, or has nothing to answer. `pending`: whether there are unsent
    /// updates.
    pub(crate) fn has_answered(&self, responses: u64, pending: bool) -> bool {
        let answered = self.responses - u64::from(self.inflight.is_some());
        answered >= responses || !pending && self.inflight.is_none()
    }

    /// The epoch up to which the client uses the resources of a selection that last changed in the epoch `changed`, except
    /// for `pending`.
    pub(crate) fn in_force(&self, changed: Epoch) -> Epoch {
        if self.is_current(changed) { Epoch::MAX } else { self.acked }
    }

    /// Whether the client has acknowledged the last change, which was in this epoch.
    pub(crate) fn is_current(&self, changed: Epoch) -> bool {
        self.inflight.is_none() && self.rejected.is_none() && self.sent > 0 && changed <= self.sent
    }

    /// Whether there are unsent removals.
    pub(crate) fn has_removals(&self, latest: Latest) -> bool {
        !self.pending.gone.is_empty() || latest.removed > self.sweeps_after()
    }

    /// Whether there is nothing to send, and nothing that other types wait for but the answer to the last response.
    pub(crate) fn is_quiet(&self, latest: Latest) -> bool {
        let rest = self.inflight.as_ref().and_then(|inflight| inflight.rest.as_ref());
        let waits = self.settling.is_some() || self.removal_hold.is_some() || self.rejected.is_some();
        rest.is_none() && !waits && !self.has_updates(latest) && !self.has_removals(latest)
    }

    /// Handles an ACK of the outstanding response.
    pub(crate) fn accept(&mut self, now: Moment) {
        let Some(inflight) = self.inflight.take() else { return };
        self.settled = inflight.upto;
        self.acked = self.acked.max(inflight.upto);
        self.rejection = None;
        self.error = None;
        self.acked_at = self.sent_at.as_ref().map(|sent| Exchange { at: now, ..sent.clone() });
    }

    /// Handles a NACK of the outstanding response. `names` are the resources that its error names.
    pub(crate) fn reject(&mut self, message: String, names: Vec<Name>, now: Moment) {
        let Some(inflight) = self.inflight.take() else { return };
        self.settled = inflight.upto;
        self.rejection = Some(Box::new(Rejection { upto: inflight.upto, names, owed: inflight.pending.owed.clone() }));
        self.sent = inflight.sent_before;
        self.removals_sent = inflight.removals_sent_before;
        let Inflight { upto, sweep, pending, .. } = *inflight;
        self.rejected = Some(Box::new(RejectedResponse { upto, sweep, pending }));
        let (version, nonce) = self.last();
        self.error = Some(Box::new(LastNack { message: message.into(), version, nonce, at: now }));
    }
}
