//! Requests of streams, which are handled at once or in parts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use status::Elapsed;
use xds::{Opened, Progress, StreamId, Wanted};

use super::{Core, QueuedRequest, SHARE};
use crate::clients::name_of;
use crate::grpc::Status;
use crate::inbox::Inbox;
use crate::served_world::{Hub, ServedWorld};
use crate::stalls::Step;
use crate::xds_log;

/// The number of parts of one request that are handled before those of another stream.
const PARTS_IN_TURN: usize = 32;

impl Core {
    /// Handles a request, or begins to.
    pub(super) fn request(&mut self, id: StreamId, (request, _place): QueuedRequest) {
        if !self.streams.open.contains_key(&id) {
            return;
        }
        if let Err(reason) = self.repairs.health() {
            // An ACK needs no world.
            let now = self.now();
            if !self.hub.accept(id, &request, now) {
                self.clients().end(id, Status::new(Status::UNAVAILABLE, reason));
            }
            return;
        }
        if request.error.is_some() {
            xds_log::rejected(&self.hub, &self.served, id, &request);
        } else if xds_log::logs_acks()
            && let Some(kind) = self.hub.answers(id, &request)
        {
            xds_log::acknowledged(&self.hub, id, kind, &request.nonce);
        }
        let kind = self.hub.types().find(&request.type_url).map_or("unserved", |kind| kind.short_name);
        self.step(id, kind, |core, now| core.hub.request(&mut core.served, id, *request, now));
    }

    /// Continues requests that are handled in parts. Most streams need the same: the others find it open when the first one is
    /// done.
    pub(super) fn proceed(&mut self, inbox: &mut Inbox) {
        let begun = Instant::now();
        while begun.elapsed() < SHARE
            && let Some(id) = self.streams.partial.pop_front()
        {
            let wanted = self.hub.wanted(&self.served, id);
            self.open_beside((id, wanted), inbox, |hub, opened| hub.opened(id, opened));
            if !self.streams.open.contains_key(&id) {
                continue;
            }
            self.step(id, "in parts", |core, now| core.hub.proceed(&mut core.served, id, now));
            self.streams.parts += 1;
            if self.streams.partial.back() == Some(&id) && self.streams.parts < PARTS_IN_TURN {
                self.streams.partial.rotate_right(1);
                continue;
            }
            self.streams.parts = 0;
            self.resume(id);
        }
    }

    /// Handles the requests of a stream that waited for an earlier one, or for the stream to move.
    pub(super) fn resume(&mut self, id: StreamId) {
        while !self.streams.partial.contains(&id)
            && !self.hub.is_moving(id)
            && let Some(waiting) = self.streams.waiting.get_mut(&id)
        {
            match waiting.pop_front() {
                Some(request) => self.request(id, request),
                None => drop(self.streams.waiting.remove(&id)),
            }
        }
    }

    /// Opens on another thread what the next step for a stream needs, if that takes long, and passes it on.
    pub(super) fn open_beside(
        &mut self,
        (id, wanted): (StreamId, Option<Wanted<ServedWorld>>),
        inbox: &mut Inbox,
        pass: impl FnOnce(&mut Hub, Opened<ServedWorld>),
    ) {
        let Some(wanted) = wanted else { return };
        match self.beside(inbox, |served| wanted.open(served)) {
            Ok(opened) => pass(&mut self.hub, opened),
            Err(panic) => self.clients().fail(id, panic),
        }
    }

    /// Does a part of a request, and ends the stream if that fails.
    fn step(
        &mut self,
        id: StreamId,
        kind: &'static str,
        part: impl FnOnce(&mut Core, Elapsed) -> Result<Progress, xds::Status>,
    ) {
        let (now, begun) = (self.now(), Instant::now());
        match catch_unwind(AssertUnwindSafe(|| part(self, now))) {
            Ok(Ok(Progress::Done)) => {}
            Ok(Ok(Progress::More)) => {
                self.streams.partial.push_back(id);
                self.streams.waiting.entry(id).or_default();
            }
            Ok(Err(status)) => self.clients().end(id, status.into()),
            Err(panic) => self.clients().fail(id, panic),
        }
        let Core { counters, hub, .. } = self;
        counters.stalls.note(Step::Request, begun, || format!("{kind} of {}", name_of(hub, id)));
    }
}
