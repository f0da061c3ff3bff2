//! One stream's place in one type: what it has been sent, what it has answered, and what it is owed.

use std::sync::Arc;

use model::xds::{Resource, ResourceType};

use crate::cells::LedgerId;
use crate::compose::Composed;
use crate::selection::{Selection, SelectionId};
use crate::status::{Exchange, Refusal};
use crate::{Epoch, Moment, Name};

pub(crate) struct Watch {
    pub(crate) kind: ResourceType,
    pub(crate) ledger: LedgerId,
    pub(crate) selection: SelectionId,
    /// When it came to this ledger: to its client, nothing in it is older.
    pub(crate) joined: Epoch,
    /// Names that the client asked for beside a wildcard.
    pub(crate) explicit: Vec<Name>,
    /// Whether the client ever named a resource: from then on no names mean none, not all (state of the world).
    pub(crate) named_once: bool,
    /// Its collections are the route tables that the client has (virtual hosts).
    pub(crate) follows: bool,
    /// What changed up to this epoch has been sent; 0: nothing has.
    pub(crate) sent: Epoch,
    /// What went up to this epoch has been sent as removed; wildcard types only.
    pub(crate) removals_sent: Epoch,
    /// The client has answered for everything up to this epoch.
    pub(crate) settled: Epoch,
    /// The client has accepted everything up to this epoch, but for what it is owed.
    pub(crate) ran: Epoch,
    /// What it refused, as long as that stands.
    pub(crate) complaint: Option<Box<Complaint>>,
    /// What it must be sent although its place in the ledger does not say so.
    pub(crate) pending: Pending,
    /// Endpoints whose cluster was sent again: the client's next request is answered with them (state of the world).
    pub(crate) rewarm: Vec<Name>,
    /// An answer is due even if there is nothing to say.
    pub(crate) must_answer: bool,
    /// How many responses were sent.
    pub(crate) responses: u64,
    pub(crate) inflight: Option<Inflight>,
    pub(crate) refused: Option<Refused>,
    /// Its audience differs from its ledger's; it moves when the outstanding response is answered.
    pub(crate) moving: bool,
    /// The last response, as the client sees it.
    pub(crate) last: Option<(Arc<Composed>, Arc<str>)>,
    pub(crate) sent_at: Option<Exchange>,
    pub(crate) acked_at: Option<Exchange>,
    pub(crate) error: Option<Refusal>,
}

/// What a client must be sent that its place in the ledger does not imply.
#[derive(Clone, Default)]
pub(crate) struct Pending {
    /// Names whose present content it needs.
    pub(crate) owed: Vec<Name>,
    /// Names that it may have and that are no longer there.
    pub(crate) gone: Vec<Gone>,
    /// When the latest of `gone` was noted.
    pub(crate) gone_at: Epoch,
}

/// A name that a client may have and that is no longer there.
#[derive(Clone)]
pub(crate) struct Gone {
    pub(crate) name: Name,
    /// What it held last, where that is known.
    pub(crate) last: Option<Resource>,
    /// Whether the client is sure to have exactly that.
    pub(crate) certain: bool,
}

impl Gone {
    pub(crate) fn unknown(name: Name) -> Gone {
        Gone {
            name,
            last: None,
            certain: false,
        }
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

    pub(crate) fn let_go(&mut self, gone: impl IntoIterator<Item = Gone>, epoch: Epoch) {
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
        self.let_go(other.gone, other.gone_at);
    }
}

/// A response that the client has not answered yet.
pub(crate) struct Inflight {
    pub(crate) nonce: Arc<str>,
    /// Where the watch was before it, should it be refused.
    pub(crate) sent_before: Epoch,
    pub(crate) removals_sent_before: Epoch,
    pub(crate) pending: Pending,
    /// Everything up to this epoch is in it or was before.
    pub(crate) upto: Epoch,
    pub(crate) sweep: Epoch,
    /// Whether it brings anything, and not only takes away.
    pub(crate) updates: bool,
}

/// A refused response. The client may have taken a part of it, so the next one starts where this one did; but it waits
/// until something changed after it.
pub(crate) struct Refused {
    pub(crate) upto: Epoch,
    pub(crate) sweep: Epoch,
    pub(crate) pending: Pending,
}

/// What a client refused, and has not accepted since.
pub(crate) struct Complaint {
    /// Everything up to this epoch was in the refused response or in one before.
    pub(crate) upto: Epoch,
    /// The resources that the client's words name; none: it may be any.
    pub(crate) names: Vec<Name>,
    /// Names that were in it although they are older.
    pub(crate) owed: Vec<Name>,
}

impl Complaint {
    /// Whether a resource, changed in this epoch, is among those that the client refused.
    pub(crate) fn is_about(&self, name: &Name) -> bool {
        self.names.is_empty() || self.names.contains(name)
    }
}

impl Watch {
    /// What went before `joined` is none of its business.
    pub(crate) fn new(kind: ResourceType, ledger: LedgerId, selection: SelectionId, joined: Epoch) -> Watch {
        Watch {
            kind,
            ledger,
            selection,
            joined,
            explicit: Vec::new(),
            named_once: false,
            follows: false,
            sent: 0,
            removals_sent: joined,
            settled: 0,
            ran: 0,
            complaint: None,
            pending: Pending::default(),
            rewarm: Vec::new(),
            must_answer: false,
            responses: 0,
            inflight: None,
            refused: None,
            moving: false,
            last: None,
            sent_at: None,
            acked_at: None,
            error: None,
        }
    }

    /// The nonce of the last response; `None` before the first.
    pub(crate) fn nonce(&self) -> Option<&Arc<str>> {
        self.last.as_ref().map(|(_, nonce)| nonce)
    }

    /// Only what changed after this epoch is a reason to send something.
    pub(crate) fn news_after(&self) -> Epoch {
        self.refused
            .as_ref()
            .map_or(self.sent, |refused| refused.upto.max(self.sent))
    }

    /// Only what went after this epoch is a reason to send something.
    pub(crate) fn sweeps_after(&self) -> Epoch {
        self.refused
            .as_ref()
            .map_or(self.removals_sent, |refused| refused.sweep.max(self.removals_sent))
    }

    /// Whether there is something that brings the client something and has not been sent.
    pub(crate) fn has_updates(&self, selection: &Selection) -> bool {
        self.must_answer || self.moving || !self.pending.owed.is_empty() || selection.changed > self.news_after()
    }

    /// Whether the client has answered so many responses, or there is nothing to wait for. `pending`: whether there is
    /// something to send.
    pub(crate) fn has_answered(&self, responses: u64, pending: bool) -> bool {
        let answered = self.responses - u64::from(self.inflight.is_some());
        answered >= responses || !pending && self.inflight.is_none()
    }

    /// Up to which epoch what it selects is in force at the client, but for what it is owed.
    pub(crate) fn in_force(&self, selection: &Selection) -> Epoch {
        if self.is_current(selection.changed) {
            Epoch::MAX
        } else {
            self.ran
        }
    }

    /// Whether the client has accepted what changed last, in this epoch.
    pub(crate) fn is_current(&self, changed: Epoch) -> bool {
        self.inflight.is_none() && self.refused.is_none() && self.sent > 0 && changed <= self.sent
    }

    /// Whether there is something to take away that has not been sent.
    pub(crate) fn has_removals(&self, selection: &Selection) -> bool {
        !self.pending.gone.is_empty() || selection.removed > self.sweeps_after()
    }

    /// The client has taken the outstanding response.
    pub(crate) fn accept(&mut self, now: Moment) {
        let Some(inflight) = self.inflight.take() else { return };
        self.settled = inflight.upto;
        self.ran = self.ran.max(inflight.upto);
        self.complaint = None;
        self.error = None;
        self.acked_at = self.sent_at.as_ref().map(|sent| Exchange {
            at: now,
            ..sent.clone()
        });
    }

    /// The client has refused the outstanding response.
    /// `names` are the resources that its words name.
    pub(crate) fn refuse(&mut self, message: String, names: Vec<Name>, now: Moment) {
        let Some(inflight) = self.inflight.take() else { return };
        self.settled = inflight.upto;
        self.complaint = Some(Box::new(Complaint {
            upto: inflight.upto,
            names,
            owed: inflight.pending.owed.clone(),
        }));
        self.sent = inflight.sent_before;
        self.removals_sent = inflight.removals_sent_before;
        self.refused = Some(Refused {
            upto: inflight.upto,
            sweep: inflight.sweep,
            pending: inflight.pending,
        });
        let (version, nonce) = self
            .last
            .as_ref()
            .map(|(c, nonce)| (c.version.clone(), nonce.clone()))
            .unzip();
        self.error = Some(Refusal {
            message: message.into(),
            version: version.unwrap_or_default(),
            nonce: nonce.unwrap_or_default(),
            at: now,
        });
    }
}
