//! watch: a stream of events.
//!
//! A watcher is a position in the store's history. It encodes an event when the client reads one, so a slow client uses
//! no memory. When the history before its position is compacted, the watcher receives an error (410) and is closed.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use store::{At, Error, FieldSelector, Query, Seen, Stored, WatchEvent};
use tokio::time::Instant;

use super::Call;
use crate::answer::Answer;
use crate::api::{Api, stopped};
use crate::body::Body;
use crate::error::ApiError;
use crate::events::LineKey;
use crate::places::Place;
use crate::view::View;

/// Default range of a watch's duration, in seconds.
const LASTS: (u64, u64) = (1800, 3600);
/// Maximum duration that a client may request, in seconds.
const LASTS_LIMIT: u64 = 86_400;

impl Call<'_> {
    pub(super) async fn watch(&self) -> Result<Answer, ApiError> {
        let mut query = self.query()?;
        if let Some(name) = &self.target.name {
            query.fields = query.fields.and(FieldSelector::equal("metadata.name", name));
        }
        let version = self.version()?;
        let initial = self.initial_events()?;
        let permit = self.permit()?;
        let mut watcher = Watcher::new(self, query, permit)?;
        let started = match (initial, version) {
            // Without a version, a watch starts with the current objects.
            (Some(true), _) | (None, None | Some(0)) => {
                watcher.mark_initial = initial == Some(true);
                watcher.list(version.unwrap_or(0)).await
            }
            (Some(false), None | Some(0)) => {
                let newest = self.api.0.store.revision().await?;
                watcher.follow(newest).await
            }
            (_, Some(version)) => watcher.follow(version).await,
        };
        match started {
            Ok(()) => {}
            // The version is not in the history of this store: the client must list again.
            Err(Error::Compacted { requested, oldest }) => {
                watcher.fail(ApiError::expired(format!("too old resource version: {requested} ({oldest})")));
            }
            Err(Error::Future { requested, newest }) if initial != Some(true) => {
                let text = format!("too large resource version: {requested}, current: {newest}");
                watcher.fail(ApiError::expired(text));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Answer::of("application/json", StatusCode::OK, Body::stream(stream::unfold(watcher, Watcher::next))))
    }

    fn permit(&self) -> Result<Place, ApiError> {
        self.api.0.watches.try_take(&self.request.user).ok_or_else(|| {
            self.api.0.metrics.limited();
            ApiError::too_many_requests(5)
        })
    }
}

/// One watch.
struct Watcher {
    api: Api,
    view: View,
    query: Query,
    /// None after the last event.
    feed: Option<store::Watch>,
    /// Initial objects that are not sent yet.
    initial: std::vec::IntoIter<Stored>,
    /// Whether to send the bookmark after the initial objects.
    mark_initial: bool,
    /// Encoded lines of at most one transaction.
    ready: VecDeque<Bytes>,
    /// The revision up to which everything is sent.
    revision: u64,
    bookmarks: bool,
    bookmarked: Instant,
    ends: Instant,
    _open: Open,
    _permit: Place,
}

/// Counts open watches.
struct Open(Api);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.metrics.watch_closed();
    }
}

impl Watcher {
    fn new(call: &Call<'_>, query: Query, permit: Place) -> Result<Watcher, ApiError> {
        let api = call.api.clone();
        let lasts = match call.params.number("timeoutSeconds")? {
            None | Some(0) => {
                // Random, so that watches opened together do not end together.
                let (least, most) = LASTS;
                least + uuid::Uuid::new_v4().as_u64_pair().0 % (most - least)
            }
            Some(seconds) => seconds.min(LASTS_LIMIT),
        };
        let bookmarks = call.params.flag("allowWatchBookmarks")?;
        api.0.metrics.watch_opened();
        Ok(Watcher {
            _open: Open(api.clone()),
            api,
            view: call.view,
            query,
            feed: None,
            initial: Vec::new().into_iter(),
            mark_initial: false,
            ready: VecDeque::new(),
            revision: 0,
            bookmarks,
            bookmarked: Instant::now(),
            ends: Instant::now() + Duration::from_secs(lasts),
            _permit: permit,
        })
    }

    /// Starts with the current objects.
    async fn list(&mut self, not_older: u64) -> Result<(), Error> {
        self.query.at = At::NotOlderThan(not_older);
        if not_older == 0 {
            self.query.at = At::Latest;
        }
        let list = self.api.0.store.list(&self.query).await?;
        self.initial = list.items.into_iter();
        self.follow(list.revision).await
    }

    /// Continues after a revision.
    async fn follow(&mut self, revision: u64) -> Result<(), Error> {
        self.revision = revision;
        self.feed = Some(self.api.0.store.watch(&self.query.scope(), revision).await?);
        Ok(())
    }

    /// Sends an error and ends.
    fn fail(&mut self, failure: ApiError) {
        self.feed = None;
        let mut line = serde_json::json!({ "type": "ERROR", "object": failure.status() }).to_string();
        line.push('\n');
        self.ready.push_back(line.into());
    }

    /// The next line.
    async fn next(mut self) -> Option<(Bytes, Watcher)> {
        let mut stop = self.api.0.stop.subscribe();
        loop {
            if let Some(line) = self.take() {
                self.api.0.metrics.event_sent();
                return Some((line, self));
            }
            let Some(feed) = &mut self.feed else {
                return None;
            };
            tokio::select! {
                biased;
                // An error means that the API is gone, which also ends the watch.
                () = stopped(&mut stop) => self.end(),
                () = tokio::time::sleep_until(self.ends) => self.end(),
                moment = feed.next() => self.moment(moment),
            }
        }
    }

    /// A line that is ready to send.
    fn take(&mut self) -> Option<Bytes> {
        if let Some(stored) = self.initial.next() {
            return Some(self.view_now().event("ADDED", &stored));
        }
        if std::mem::take(&mut self.mark_initial) {
            return Some(self.view.bookmark(self.revision, true));
        }
        self.ready.pop_front()
    }

    /// Ends the watch with a bookmark, from which the client can continue.
    fn end(&mut self) {
        self.feed = None;
        if self.bookmarks {
            self.ready.push_back(self.view.bookmark(self.revision, false));
        }
    }

    fn moment(&mut self, moment: Result<WatchEvent, Error>) {
        match moment {
            Ok(WatchEvent::Changes(changes)) => {
                for change in changes {
                    let seen = match self.query.sees(&change) {
                        Some(Seen::Added(object)) => Some(("ADDED", object)),
                        Some(Seen::Modified(object)) => Some(("MODIFIED", object)),
                        Some(Seen::Deleted(object)) => Some(("DELETED", object)),
                        None => None,
                    };
                    if let Some((event, object)) = seen {
                        let line = self.line(event, object);
                        self.ready.push_back(line);
                    }
                    self.revision = change.revision;
                }
            }
            Ok(WatchEvent::Bookmark(revision)) => {
                self.revision = self.revision.max(revision);
                let due = self.bookmarked.elapsed() >= self.api.0.options.limits.bookmarks;
                if self.bookmarks && due {
                    self.bookmarked = Instant::now();
                    self.ready.push_back(self.view.bookmark(self.revision, false));
                }
            }
            Err(Error::Compacted { requested, oldest }) => {
                self.api.0.metrics.watch_dropped();
                self.fail(ApiError::expired(format!("too old resource version: {requested} ({oldest})")));
            }
            Err(error) => self.fail(error.into()),
        }
    }

    /// The line of a change, shared by all watchers.
    fn line(&self, event: &'static str, object: &Stored) -> Bytes {
        let key = LineKey {
            revision: object.revision,
            key: object.key.clone(),
            event,
            version: self.view.version,
            form: self.view.form,
        };
        self.api.0.lines.get(key, || self.view_now().event(event, object))
    }

    fn view_now(&self) -> View {
        View { now: self.api.now().unix_seconds(), ..self.view }
    }
}
