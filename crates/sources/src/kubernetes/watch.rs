//! One kind, listed and watched for as long as somebody listens.
//!
//! A list comes as a stream where the server can do that, else by pages. After a cut the watch goes on from the version
//! that was seen last, unless the server may be another one by then: its data may have been put back to an older state
//! (a restored backup), in which versions that we know come a second time. So after a server that was away, and where its
//! version is behind ours, everything is listed anew. So is a kind that could not be read for want of a right: that may have
//! lasted for long, and a watch that catches up tells of what was missed one object after the other, without saying where
//! it ends, but a list is taken in as a whole.

mod again;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::event::{Line, Raw};
use super::request::{Lines, Resource, Trouble, trouble};
pub(crate) use again::Pulse;
use again::{random, wait};

/// How long a watch lasts at least, and how much longer at most; then it is made anew.
const LASTS: (u64, u64) = (240, 240);
/// A watch that lasted so long was well.
const WELL: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// From here to [`Event::Listed`] everything is told of that there is.
    Listing,
    /// The object is so now.
    Put(Raw),
    /// The object is gone.
    Gone(Raw),
    /// The list is complete.
    Listed,
    /// It failed, and is tried again.
    Failed(Trouble),
    /// The server answers again.
    Well,
}

/// Nobody listens any more.
#[derive(Debug)]
struct Closed;

/// Why it did not go on.
enum End {
    Trouble(Trouble),
    Closed,
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> End {
        End::Trouble(trouble)
    }
}

impl From<Closed> for End {
    fn from(_: Closed) -> End {
        End::Closed
    }
}

/// Follows a resource until nobody takes the events any more. Each piece has the place that its receiver knows it by.
pub(crate) async fn run<P: Clone>(resource: Resource, place: P, events: mpsc::Sender<(P, Vec<Event>)>, pulse: Pulse) {
    let mut watch = Watch {
        resource,
        place,
        events,
        version: None,
        streaming: true,
        failing: false,
        trust: Trust::Full,
        pulse,
    };
    let mut failures = 0;
    loop {
        let begun = Instant::now();
        let ended = watch.go_on().await;
        if begun.elapsed() > WELL {
            failures = 0;
        }
        let trouble = match ended {
            Ok(()) => continue,
            Err(End::Closed) => return,
            Err(End::Trouble(trouble)) => trouble,
        };
        let wait = wait(&trouble, failures);
        failures += 1;
        let away = matches!(trouble, Trouble::Away(_) | Trouble::Failed(_));
        if watch.failed(trouble).await.is_err() {
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

/// Whether the server is the one that we know.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// It is.
    Full,
    /// The connection broke.
    Cut,
    /// It was away, and may have come back as another one.
    Lost,
}

struct Watch<P> {
    resource: Resource,
    place: P,
    events: mpsc::Sender<(P, Vec<Event>)>,
    /// What was seen last; none: everything is to be listed.
    version: Option<String>,
    /// Whether lists are asked for as streams.
    streaming: bool,
    failing: bool,
    trust: Trust,
    pulse: Pulse,
}

impl<P: Clone> Watch<P> {
    async fn say(&self, events: Vec<Event>) -> Result<(), Closed> {
        self.events.send((self.place.clone(), events)).await.map_err(|_| Closed)
    }

    /// Lists if that is due, then watches until the watch ends.
    async fn go_on(&mut self) -> Result<(), End> {
        let known = self.version.clone().filter(|_| self.trust != Trust::Lost);
        let lasts = Duration::from_secs(LASTS.0 + random() % LASTS.1);
        let Some(version) = known else {
            self.version = None;
            return self.list(lasts).await;
        };
        if self.trust == Trust::Cut {
            let now = self
                .resource
                .version()
                .await
                .inspect_err(|trouble| self.doubt(trouble))?;
            if is_behind(&now, &version) {
                return Err(Trouble::Gone(format!("the server is at version {now}, and was at {version}")).into());
            }
        }
        let lines = self.resource.watch_from(&version, lasts).await;
        let lines = lines.inspect_err(|trouble| self.doubt(trouble))?;
        self.answered().await?;
        self.follow(lines, false, lasts).await
    }

    async fn list(&mut self, lasts: Duration) -> Result<(), End> {
        self.say(vec![Event::Listing]).await?;
        if self.streaming {
            let ended = match self.resource.watch_list(lasts).await {
                Ok(lines) => self.follow(lines, true, lasts).await,
                Err(trouble) => Err(trouble.into()),
            };
            // Servers on an old etcd say only with the first list that they cannot stream it.
            self.streaming &= !matches!(ended, Err(End::Trouble(Trouble::Failed(_))));
            return ended;
        }
        let mut next = String::new();
        let mut version: Option<String> = None;
        loop {
            // Where pages fail, too, it was not the streaming.
            let page = self.resource.page(&next).await;
            self.streaming |= matches!(page, Err(Trouble::Failed(_)));
            let page = page?;
            // The version of the first page is that of all of them.
            let version = version.get_or_insert(page.version);
            let mut events: Vec<Event> = page.items.into_iter().map(Event::Put).collect();
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

    /// Takes in a watch until it ends. `listing`: it begins with a list.
    async fn follow(&mut self, mut lines: Lines, mut listing: bool, lasts: Duration) -> Result<(), End> {
        let begun = Instant::now();
        loop {
            let taken = match lines.next(listing).await {
                Some(Ok(taken)) => taken,
                Some(Err(trouble)) => {
                    self.trust = Trust::Cut;
                    // A server that begins a list and never ends it cannot stream after all.
                    self.streaming &= !listing;
                    return Err(trouble.into());
                }
                None if listing => {
                    self.streaming = false;
                    return Err(Trouble::Away("the list ended too early".to_owned()).into());
                }
                None => {
                    // A server that shuts down ends its watches in good order, too.
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
                    Err(trouble) => {
                        failure = Some(trouble);
                        break;
                    }
                }
            }
            let listed = events.contains(&Event::Listed);
            if !events.is_empty() {
                self.say(events).await?;
            }
            if let Some(trouble) = failure {
                return Err(trouble.into());
            }
            if listed {
                self.answered().await?;
            }
        }
    }

    fn event(&mut self, line: Line, listing: &mut bool) -> Result<Option<Event>, Trouble> {
        let event = match line {
            Line::Put(raw) => {
                self.advance(&raw.version, *listing)?;
                Some(Event::Put(raw))
            }
            Line::Gone(raw) => {
                self.advance(&raw.version, *listing)?;
                Some(Event::Gone(raw))
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
                let trouble = trouble(code, message, None);
                if matches!(trouble, Trouble::Refused(_)) && *listing {
                    self.streaming = false;
                }
                return Err(trouble);
            }
            Line::Other => None,
        };
        Ok(event)
    }

    /// Notes the version that was seen last. Versions never go back but where the server itself was put back.
    fn advance(&mut self, version: &str, listing: bool) -> Result<(), Trouble> {
        if listing || version.is_empty() {
            return Ok(());
        }
        if let Some(before) = &self.version
            && is_behind(version, before)
        {
            let message = format!("version {version} came after {before}");
            self.version = None;
            return Err(Trouble::Gone(message));
        }
        self.version = Some(version.to_owned());
        Ok(())
    }

    /// After a request that got no answer the server may be another one.
    fn doubt(&mut self, trouble: &Trouble) {
        if matches!(trouble, Trouble::Away(_) | Trouble::Failed(_)) {
            self.trust = Trust::Lost;
        }
    }

    async fn failed(&mut self, trouble: Trouble) -> Result<(), Closed> {
        match &trouble {
            Trouble::Gone(_) | Trouble::Missing | Trouble::Garbled(_) | Trouble::Denied(_) => self.version = None,
            Trouble::Refused(_) => {
                self.version = None;
                self.streaming = false;
            }
            Trouble::Away(_) | Trouble::Failed(_) | Trouble::Busy(..) => {}
        }
        self.failing = true;
        self.say(vec![Event::Failed(trouble)]).await
    }

    async fn answered(&mut self) -> Result<(), Closed> {
        self.trust = Trust::Full;
        match std::mem::take(&mut self.failing) {
            true => {
                self.pulse.beat();
                self.say(vec![Event::Well]).await
            }
            false => Ok(()),
        }
    }
}

/// Whether a version is older than another. They are numbers in every server that there is; others are told apart by
/// whether they are the same.
fn is_behind(version: &str, other: &str) -> bool {
    match (version.parse::<u64>(), other.parse::<u64>()) {
        (Ok(version), Ok(other)) => version < other,
        _ => false,
    }
}
