//! Watches: one etcd watch at a time. When it ends, a new one starts after the last yielded revision.

use std::sync::Arc;
use std::time::Duration;

use protos::etcdserverpb as pb;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::client::{Failure, is_closed, number, revision};
use super::keys::Range;
use super::read::stored;
use crate::{Change, Error, Feed, Revision, Scope, Watch, WatchEvent};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// Requests queued on a stream: the first one, and one progress request at a time.
const REQUESTS: usize = 2;
/// The wait before a lost stream is opened again for the first time; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub(super) async fn watch(shared: Arc<Shared>, scope: &Scope, after: Revision) -> Result<Watch, Error> {
    if *shared.client.closing().borrow() {
        return Err(Error::Closed);
    }
    if after > shared.client.newest() {
        let newest = shared.revision().await?;
        if after > newest {
            return Err(Error::Future { requested: after, newest });
        }
    }
    shared.check_kept(after).await?;
    Ok(Watch::new(Follow {
        range: shared.layout.range(scope),
        closing: shared.client.closing(),
        shared,
        scope: scope.clone(),
        // etcd starts at 1, and revision 1 contains no change.
        seen: after.max(1),
        place: Place::Waiting(Instant::now()),
        wait: Duration::ZERO,
    }))
}

struct Follow {
    shared: Arc<Shared>,
    scope: Scope,
    range: Range,
    closing: watch::Receiver<bool>,
    /// All changes up to this revision were yielded.
    seen: Revision,
    place: Place,
    /// How long to wait when the stream is lost again.
    wait: Duration,
}

/// The state of the connection.
enum Place {
    /// A stream is to be opened at this time.
    Waiting(Instant),
    /// A stream is being opened, in a separate task: canceling `next` must not restart it.
    Opening(Task),
    /// The stream is open.
    Open(Box<Stream>),
}

/// A task that is aborted when dropped.
struct Task(JoinHandle<Result<Stream, Error>>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream to one member with its watch.
struct Stream {
    requests: mpsc::Sender<pb::WatchRequest>,
    responses: tonic::Streaming<pb::WatchResponse>,
    member: usize,
    /// When to request progress; `None` if the member does not answer correctly.
    ask: Option<Instant>,
    /// The fragments of a fragmented answer so far.
    parts: Vec<pb::Event>,
    /// No change had happened after the start revision.
    caught_up: bool,
}

#[async_trait::async_trait]
impl Feed for Follow {
    async fn next(&mut self) -> Result<WatchEvent, Error> {
        let mut closing = self.closing.clone();
        tokio::select! {
            biased;
            () = is_closed(&mut closing) => Err(Error::Closed),
            moment = self.next_event() => moment,
        }
    }
}

impl Follow {
    /// Cancel safe: everything received is stored in `self` before the next await.
    async fn next_event(&mut self) -> Result<WatchEvent, Error> {
        loop {
            let stream = match &mut self.place {
                Place::Open(stream) => stream,
                Place::Waiting(at) => {
                    sleep_until(*at).await;
                    self.open();
                    continue;
                }
                Place::Opening(task) => {
                    let opened = (&mut task.0).await;
                    self.opened(opened.unwrap_or_else(|e| Err(Error::Unavailable(e.to_string()))))?;
                    continue;
                }
            };
            if std::mem::take(&mut stream.caught_up) {
                return Ok(WatchEvent::Bookmark(self.seen));
            }
            let quiet = stream.ask;
            let received = tokio::select! {
                received = stream.responses.message() => received,
                () = until(quiet) => {
                    stream.ask(self.shared.options.bookmarks);
                    continue;
                }
            };
            match received {
                Ok(Some(response)) => {
                    if let Some(moment) = self.take(response)? {
                        return Ok(moment);
                    }
                }
                Ok(None) => self.lost("the stream ended"),
                Err(status) => self.lost(status.message()),
            }
        }
    }

    fn open(&mut self) {
        let (shared, range, seen) = (self.shared.clone(), self.range.clone(), self.seen);
        self.place = Place::Opening(Task(tokio::spawn(async move {
            let mut stream = Stream::open(&shared, &range, seen + 1).await?;
            let newest = shared.revision().await?;
            if newest < seen {
                // etcd was restored from a backup: revisions yielded since are gone.
                return Err(Error::Compacted { requested: seen, oldest: newest });
            }
            stream.caught_up = newest == seen;
            Ok(stream)
        })));
    }

    fn opened(&mut self, opened: Result<Stream, Error>) -> Result<(), Error> {
        match opened {
            Ok(stream) => self.place = Place::Open(Box::new(stream)),
            Err(error @ Error::Compacted { .. }) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, after = self.seen, "an etcd watch cannot be opened yet");
                self.pause();
            }
        }
        Ok(())
    }

    fn lost(&mut self, why: &str) {
        tracing::debug!(why, after = self.seen, "an etcd watch was lost; reconnecting");
        if let Place::Open(stream) = &self.place {
            self.shared.client.avoid(stream.member);
        }
        self.pause();
    }

    fn pause(&mut self) {
        self.place = Place::Waiting(Instant::now() + self.wait);
        self.wait = (self.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
    }

    /// Handles a response. Returns an event, if one is complete.
    fn take(&mut self, response: pb::WatchResponse) -> Result<Option<WatchEvent>, Error> {
        let header = self.shared.client.note(response.header.as_ref());
        if response.canceled {
            if response.compact_revision > 0 {
                return Err(Error::Compacted { requested: self.seen, oldest: revision(response.compact_revision) });
            }
            self.lost(&response.cancel_reason);
            return Ok(None);
        }
        let Place::Open(stream) = &mut self.place else {
            return Ok(None);
        };
        if response.created {
            return Ok(None);
        }
        self.wait = Duration::ZERO;
        stream.postpone_ask(self.shared.options.bookmarks);
        if response.fragment || !stream.parts.is_empty() {
            stream.parts.extend(response.events);
            if response.fragment {
                return Ok(None);
            }
            let events = std::mem::take(&mut stream.parts);
            return self.changes(events);
        }
        if response.events.is_empty() {
            self.seen = self.seen.max(header);
            return Ok(Some(WatchEvent::Bookmark(self.seen)));
        }
        self.changes(response.events)
    }

    fn changes(&mut self, events: Vec<pb::Event>) -> Result<Option<WatchEvent>, Error> {
        let mut changes = Vec::with_capacity(events.len());
        let mut newest = self.seen;
        for event in events {
            let deleted = event.r#type() == pb::event::EventType::Delete;
            let Some(kv) = event.kv else { continue };
            let at = revision(kv.mod_revision);
            if at <= self.seen {
                continue;
            }
            newest = newest.max(at);
            let Some(key) = self.shared.layout.parse(&kv.key).filter(|key| self.scope.contains(key)) else {
                continue;
            };
            if event.prev_kv.is_none() && (deleted || kv.version > 1) {
                // The previous version is already compacted.
                return Err(Error::Compacted { requested: self.seen, oldest: at });
            }
            let before = event.prev_kv.map(|kv| stored(key.clone(), &kv)).transpose()?;
            let after = if deleted { None } else { Some(stored(key.clone(), &kv)?) };
            changes.push(Arc::new(Change::new(key, at, before, after)));
        }
        self.seen = newest;
        Ok((!changes.is_empty()).then_some(WatchEvent::Changes(changes)))
    }
}

impl Stream {
    async fn open(shared: &Shared, range: &Range, from: Revision) -> Result<Stream, Error> {
        let (requests, outgoing) = mpsc::channel(REQUESTS);
        let create = pb::WatchCreateRequest {
            key: range.from.clone(),
            range_end: range.end.clone(),
            start_revision: number(from),
            progress_notify: true,
            prev_kv: true,
            fragment: true,
            ..Default::default()
        };
        // etcd sends response headers only after the first request, and the call waits for them.
        let create = request(pb::watch_request::RequestUnion::CreateRequest(create));
        requests.try_send(create).map_err(|e| Error::Unavailable(e.to_string()))?;
        let (member, responses) = shared.client.stream(WATCH, outgoing).await?;
        let asks = shared.client.status(member).await.is_ok_and(|status| answers_progress(&status.version));
        Ok(Stream {
            requests,
            responses,
            member,
            ask: asks.then(|| Instant::now() + shared.options.bookmarks),
            parts: Vec::new(),
            caught_up: false,
        })
    }

    /// Requests progress.
    fn ask(&mut self, interval: Duration) {
        let progress = pb::watch_request::RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
        // If the last request was not sent yet, this one is redundant.
        let _ = self.requests.try_send(request(progress));
        self.postpone_ask(interval);
    }

    /// Postpones the next progress request.
    fn postpone_ask(&mut self, interval: Duration) {
        if self.ask.is_some() {
            self.ask = Some(Instant::now() + interval);
        }
    }
}

impl Shared {
    /// Checks that all changes after a revision are retained.
    pub(super) async fn check_kept(&self, after: Revision) -> Result<(), Error> {
        let request = pb::RangeRequest {
            key: self.layout.unused(),
            count_only: true,
            revision: number(after.max(1)),
            ..Default::default()
        };
        match self.range(request).await {
            Ok(_) => Ok(()),
            Err(Failure::Compacted) => Err(Error::Compacted { requested: after, oldest: self.oldest(after).await }),
            Err(failure) => Err(failure.into()),
        }
    }

    /// The oldest available revision, given a compacted one. etcd reports it only to watches.
    pub(super) async fn oldest(&self, compacted: Revision) -> Revision {
        let known = async {
            let unused = Range { from: self.layout.unused(), end: Default::default() };
            let mut stream = Stream::open(self, &unused, 1).await.ok()?;
            while let Ok(Some(response)) = stream.responses.message().await {
                if response.compact_revision > 0 {
                    return Some(revision(response.compact_revision));
                }
            }
            None
        };
        let known = tokio::time::timeout(self.options.timeout, known).await;
        known.ok().flatten().unwrap_or(compacted + 1)
    }
}

fn request(union: pb::watch_request::RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(union) }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether a member of this version answers a progress request after, not before, the changes that the answer covers.
fn answers_progress(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(3), Some(4), Some(patch)) => patch >= 25,
        (Some(3), Some(5), Some(patch)) => patch >= 8,
        (Some(3), Some(minor), _) => minor > 5,
        (Some(major), ..) => major > 3,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_correct_progress_notifications() {
        let right = ["3.4.25", "3.5.8", "3.6.0", "3.6.0-rc.1", "4.0.0", "3.10"];
        let wrong = ["3.3.30", "3.4.24", "3.5.1", "3.5.7", "", "x", "3"];
        assert!(right.into_iter().all(answers_progress));
        assert!(!wrong.into_iter().any(answers_progress));
    }
}
