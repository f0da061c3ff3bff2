//! Periodic DNS resolution of hostnames.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The hostnames to resolve.
pub type Names = Arc<BTreeSet<Arc<str>>>;

/// The interval between lookups. The system's resolver does not return TTLs; istiod uses the same minimum.
const INTERVAL: Duration = Duration::from_secs(30);
/// The timeout of a lookup.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The number of concurrent lookups.
const CONCURRENCY: usize = 16;

/// The changes of a round: hostnames with all their addresses, ascending; no addresses if the name is unknown or no
/// longer needed. Empty if nothing changed.
pub type Found = Vec<(Arc<str>, Vec<IpAddr>)>;

/// Resolves the hostnames until the receiver is dropped. Sends one answer per round; the first after every name was
/// tried. A name whose lookup fails keeps its addresses; the failure is logged once.
pub async fn follow<L>(mut wanted: watch::Receiver<Names>, lookup: L, found: mpsc::Sender<Found>)
where
    L: AsyncFn(&str) -> io::Result<Vec<IpAddr>>,
{
    let mut book = Book::default();
    let mut rounds = interval(INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let names = tokio::select! {
            _ = rounds.tick() => wanted.borrow_and_update().clone(),
            changed = wanted.changed() => match changed {
                Ok(()) => {
                    let names = wanted.borrow_and_update().clone();
                    book.unknown(&names)
                }
                Err(_) => return,
            },
        };
        let answers = look_up(&names, &lookup).await;
        let mut changes = book.write(answers);
        changes.extend(book.forget(&wanted.borrow()));
        if found.send(changes).await.is_err() {
            return;
        }
    }
}

/// Resolves a name with the system's resolver.
///
/// # Errors
/// The name is unknown, or the resolver does not answer.
pub async fn ask(name: &str) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((name, 0)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

type Answer = (Arc<str>, io::Result<Vec<IpAddr>>);

async fn look_up<L>(names: &BTreeSet<Arc<str>>, lookup: &L) -> Vec<Answer>
where
    L: AsyncFn(&str) -> io::Result<Vec<IpAddr>>,
{
    let one = async |name: Arc<str>| {
        let answer = timeout(TIMEOUT, lookup(&name)).await;
        let answer = answer.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")));
        (name, answer)
    };
    stream::iter(names.iter().cloned()).map(one).buffer_unordered(CONCURRENCY).collect().await
}

/// The known addresses.
#[derive(Default)]
struct Book {
    addresses: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// Names whose failure was logged.
    failing: BTreeSet<Arc<str>>,
}

impl Book {
    /// The names that were not tried yet.
    fn unknown(&self, names: &BTreeSet<Arc<str>>) -> Names {
        let tried = |name: &Arc<str>| self.addresses.contains_key(name) || self.failing.contains(name);
        Arc::new(names.iter().filter(|name| !tried(name)).cloned().collect())
    }

    /// Records answers and returns the changes.
    fn write(&mut self, mut answers: Vec<Answer>) -> Found {
        answers.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut changes = Vec::new();
        for (name, answer) in answers {
            match answer {
                Ok(mut addresses) if !addresses.is_empty() => {
                    addresses.sort_unstable();
                    addresses.dedup();
                    if self.failing.remove(&name) {
                        tracing::info!(%name, "the hostname resolves again");
                    }
                    if self.addresses.get(&name) != Some(&addresses) {
                        self.addresses.insert(name.clone(), addresses.clone());
                        changes.push((name, addresses));
                    }
                }
                failed => {
                    let error = failed.err().map(|error| error.to_string());
                    if self.failing.insert(name.clone()) {
                        let kept = self.addresses.contains_key(&name);
                        tracing::warn!(
                            %name,
                            error = error.unwrap_or_else(|| "the hostname has no addresses".into()),
                            kept,
                            "the hostname of a network gateway does not resolve; keeping its last addresses"
                        );
                    }
                }
            }
        }
        changes
    }

    /// Removes names that are no longer needed; returns those that had addresses.
    fn forget(&mut self, wanted: &BTreeSet<Arc<str>>) -> Found {
        self.failing.retain(|name| wanted.contains(name));
        let gone = self.addresses.extract_if(.., |name, _| !wanted.contains(name));
        gone.map(|(name, _)| (name, Vec::new())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A resolver whose answers tests change. It does not answer for unknown names.
    #[derive(Clone, Default)]
    struct Zone(Arc<Mutex<BTreeMap<&'static str, Vec<IpAddr>>>>);

    impl Zone {
        fn set(&self, name: &'static str, addresses: &[&str]) {
            let addresses = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
            self.0.lock().expect("no panic").insert(name, addresses);
        }

        fn answer(&self, name: &str) -> io::Result<Vec<IpAddr>> {
            let zone = self.0.lock().expect("no panic");
            zone.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }

    fn names(names: &[&str]) -> Names {
        Arc::new(names.iter().map(|name| Arc::from(*name)).collect())
    }

    fn texts(found: &Found) -> Vec<String> {
        let one = |(name, addresses): &(Arc<str>, Vec<IpAddr>)| format!("{name} {addresses:?}");
        found.iter().map(one).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_resolved_periodically_while_they_are_needed() {
        let zone = Zone::default();
        zone.set("a.example", &["10.0.0.2", "10.0.0.1", "10.0.0.2"]);
        let (wanted, seen) = watch::channel(names(&["a.example", "b.example"]));
        let (sender, mut found) = mpsc::channel(1);
        let asked = zone.clone();
        let following = follow(seen, async |name: &str| asked.answer(name), sender);
        let checks = async {
            let first = found.recv().await.expect("an answer");
            assert_eq!(texts(&first), ["a.example [10.0.0.1, 10.0.0.2]"]);

            // A failed lookup keeps the addresses; later answers come with the next round.
            zone.0.lock().expect("no panic").remove("a.example");
            zone.set("b.example", &["10.0.0.3"]);
            let second = found.recv().await.expect("an answer");
            assert_eq!(texts(&second), ["b.example [10.0.0.3]"]);
            zone.set("a.example", &[]);
            assert_eq!(texts(&found.recv().await.expect("an answer")), [""; 0]);

            // A new name does not delay the round, and a name that is no longer needed is removed.
            zone.set("c.example", &["2001:db8::1"]);
            let before = tokio::time::Instant::now();
            wanted.send_replace(names(&["b.example", "c.example"]));
            let third = found.recv().await.expect("an answer");
            assert_eq!(texts(&third), ["c.example [2001:db8::1]", "a.example []"]);
            assert_eq!(before.elapsed(), Duration::ZERO);
            drop(wanted);
        };
        tokio::join!(following, checks);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unresponsive_resolver_delays_the_first_round_only_briefly() {
        let (_wanted, seen) = watch::channel(names(&["a.example"]));
        let (sender, mut found) = mpsc::channel(1);
        let following = follow(seen, async |_: &str| std::future::pending().await, sender);
        let before = tokio::time::Instant::now();
        tokio::select! {
            () = following => panic!("resolution ended"),
            first = found.recv() => assert_eq!(texts(&first.expect("an answer")), [""; 0]),
        }
        assert_eq!(before.elapsed(), TIMEOUT);
    }
}
