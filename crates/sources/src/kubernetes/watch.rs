//! Lists and watches one kind.
//!
//! A list is requested as a stream if the server supports it, else in pages. After a broken connection the watch
//! resumes from the last version, unless the server may have been restored from a backup, in which case known versions
//! occur a second time. So a kind is relisted after the server was unavailable, and if the server's version is behind
//! ours. It is also relisted after access was denied, because that may have lasted long: a resumed watch would send the
//! missed changes one by one without a defined end, but a list is applied as a whole.

mod backoff;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::Closed;

use super::event::{Line, Raw};
use super::request::{Lines, RequestError, Resource, classify};
pub(crate) use backoff::RecoverySignal;
use backoff::{random, wait};

/// The minimum duration of a watch, and the maximum random addition, in seconds.
const LASTS: (u64, u64) = (240, 240);
/// A watch that lasted this long was successful.
const WELL: Duration = Duration::from_secs(10);

/// An event of a watch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// A list starts: all objects follow, up to [`Event::Listed`].
    Listing,
    /// The object was added or modified.
    Applied(Raw),
    /// The object was deleted.
    Deleted(Raw),
    /// The list is complete.
    Listed,
    /// The request failed and is retried.
    Failed(RequestError),
    /// The server is available again.
    Recovered,
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    RequestError(#[from] RequestError),
    /// The receiver was dropped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Lists and watches a resource until the receiver is dropped. Events are tagged with `place`.
pub(crate) async fn run<P: Clone>(
    resource: Resource,
    place: P,
    events: mpsc::Sender<(P, Vec<Event>)>,
    pulse: RecoverySignal,
) {
    let mut watch =
        Watch { resource, place, events, version: None, streaming: true, failing: false, trust: Trust::Full, pulse };
    let mut failures = 0;
    loop {
        let begun = Instant::now();
        let ended = watch.go_on().await;
        if begun.elapsed() > WELL {
            failures = 0;
        }
        let error = match ended {
            Ok(()) => continue,
            Err(End::Closed(_)) => return,
            Err(End::RequestError(error)) => error,
        };
        let wait = wait(&error, failures);
        failures += 1;
        let away = matches!(error, RequestError::Unavailable(_) | RequestError::ServerError(_));
        if watch.failed(error).await.is_err() {
            return;
        }
        let gone = watch.events.clone();
        tokio::select! {
            () = sleep(wait) => {}
            () = watch.pulse.next(), if away => {}
            () = gone.closed() => return,
        }
    }
}

/// Whether resource versions of the server can be trusted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// They can.
    Full,
    /// The connection broke.
    Cut,
    /// The server was unavailable and may have been replaced.
    Lost,
}

struct Watch<P> {
    resource: Resource,
    place: P,
    events: mpsc::Sender<(P, Vec<Event>)>,
    /// The last resource version; `None` to relist.
    version: Option<String>,
    /// Whether to request lists as streams.
    streaming: bool,
    failing: bool,
    trust: Trust,
    pulse: RecoverySignal,
}

impl<P: Clone> Watch<P> {
    async fn say(&self, events: Vec<Event>) -> Result<(), Closed> {
        self.events.send((self.place.clone(), events)).await.map_err(|_| Closed)
    }

    /// Lists if necessary, then watches until the watch ends.
    async fn go_on(&mut self) -> Result<(), End> {
        let known = self.version.clone().filter(|_| self.trust != Trust::Lost);
        let lasts = Duration::from_secs(LASTS.0 + random() % LASTS.1);
        let Some(version) = known else {
            self.version = None;
            return self.list(lasts).await;
        };
        if self.trust == Trust::Cut {
            let now = self.resource.version().await.inspect_err(|error| self.doubt(error))?;
            if is_behind(&now, &version) {
                return Err(
                    RequestError::Expired(format!("the server is at version {now}, and was at {version}")).into()
                );
            }
        }
        let lines = self.resource.watch_from(&version, lasts).await;
        let lines = lines.inspect_err(|error| self.doubt(error))?;
        self.answered().await?;
        self.follow(lines, false, lasts).await
    }

    async fn list(&mut self, lasts: Duration) -> Result<(), End> {
        self.say(vec![Event::Listing]).await?;
        if self.streaming {
            let ended = match self.resource.watch_list(lasts).await {
                Ok(lines) => self.follow(lines, true, lasts).await,
                Err(error) => Err(error.into()),
            };
            // Servers on an old etcd report only with the first list that they do not support streaming.
            self.streaming &= !matches!(ended, Err(End::RequestError(RequestError::ServerError(_))));
            return ended;
        }
        let mut next = String::new();
        let mut version: Option<String> = None;
        loop {
            // If pages fail as well, streaming was not the cause.
            let page = self.resource.page(&next).await;
            self.streaming |= matches!(page, Err(RequestError::ServerError(_)));
            let page = page?;
            // All pages have the version of the first one.
            let version = version.get_or_insert(page.version);
            let mut events: Vec<Event> = page.items.into_iter().map(Event::Applied).collect();
            if page.next.is_empty() {
                events.push(Event::Listed);
                self.version = Some(version.clone());
                self.trust = Trust::Full;
            }
            self.say(events).await?;
            next = page.next;
            if next.is_empty() {
                return Ok(self.answered().await?);
            }
        }
    }

    /// Handles a watch until it ends. `listing`: it starts with a list.
    async fn follow(&mut self, mut lines: Lines, mut listing: bool, lasts: Duration) -> Result<(), End> {
        let begun = Instant::now();
        loop {
            let taken = match lines.next(listing).await {
                Some(Ok(taken)) => taken,
                Some(Err(error)) => {
                    self.trust = Trust::Cut;
                    // A server that never ends a streamed list does not support it.
                    self.streaming &= !listing;
                    return Err(error.into());
                }
                None if listing => {
                    self.streaming = false;
                    return Err(RequestError::Unavailable("the list ended too early".to_owned()).into());
                }
                None => {
                    // A server that shuts down also ends its watches regularly.
                    if begun.elapsed() + Duration::from_secs(5) < lasts {
                        self.trust = Trust::Cut;
                    }
                    return Ok(());
                }
            };
            let mut events = Vec::with_capacity(taken.len());
            let mut failure = None;
            for line in taken {
                match self.event(line, &mut listing) {
                    Ok(event) => events.extend(event),
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            let listed = events.contains(&Event::Listed);
            if !events.is_empty() {
                self.say(events).await?;
            }
            if let Some(error) = failure {
                return Err(error.into());
            }
            if listed {
                self.answered().await?;
            }
        }
    }

    fn event(&mut self, line: Line, listing: &mut bool) -> Result<Option<Event>, RequestError> {
        let event = match line {
            Line::Applied(raw) => {
                self.advance(&raw.version, *listing)?;
                Some(Event::Applied(raw))
            }
            Line::Deleted(raw) => {
                self.advance(&raw.version, *listing)?;
                Some(Event::Deleted(raw))
            }
            Line::Bookmark { version, end_of_list } => {
                let ends = *listing && end_of_list;
                if ends {
                    *listing = false;
                    self.version = None;
                    self.trust = Trust::Full;
                }
                self.advance(&version, *listing)?;
                ends.then_some(Event::Listed)
            }
            Line::Failed { code, message } => {
                let error = classify(code, message, None);
                if matches!(error, RequestError::Invalid(_)) && *listing {
                    self.streaming = false;
                }
                return Err(error);
            }
            Line::Other => None,
        };
        Ok(event)
    }

    /// Records the resource version. Versions only go back if the server was restored from a backup.
    fn advance(&mut self, version: &str, listing: bool) -> Result<(), RequestError> {
        if listing || version.is_empty() {
            return Ok(());
        }
        if let Some(before) = &self.version
            && is_behind(version, before)
        {
            let message = format!("version {version} came after {before}");
            self.version = None;
            return Err(RequestError::Expired(message));
        }
        self.version = Some(version.to_owned());
        Ok(())
    }

    /// After a request without an answer the server may have been replaced.
    fn doubt(&mut self, error: &RequestError) {
        if matches!(error, RequestError::Unavailable(_) | RequestError::ServerError(_)) {
            self.trust = Trust::Lost;
        }
    }

    async fn failed(&mut self, error: RequestError) -> Result<(), Closed> {
        match &error {
            RequestError::Expired(_)
            | RequestError::NotFound
            | RequestError::Malformed(_)
            | RequestError::Denied(_) => self.version = None,
            RequestError::Invalid(_) => {
                self.version = None;
                self.streaming = false;
            }
            RequestError::Unavailable(_) | RequestError::ServerError(_) | RequestError::Throttled(..) => {}
        }
        self.failing = true;
        self.say(vec![Event::Failed(error)]).await
    }

    async fn answered(&mut self) -> Result<(), Closed> {
        self.trust = Trust::Full;
        match std::mem::take(&mut self.failing) {
            true => {
                self.pulse.beat();
                self.say(vec![Event::Recovered]).await
            }
            false => Ok(()),
        }
    }
}

/// Whether a version is older. Versions of all known servers are numbers; others are only compared for equality.
fn is_behind(version: &str, other: &str) -> bool {
    match (version.parse::<u64>(), other.parse::<u64>()) {
        (Ok(version), Ok(other)) => version < other,
        _ => false,
    }
}
