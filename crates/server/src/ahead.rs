//! Changes of endpoints that do not wait for a commit that takes long.
//!
//! While a commit runs, nothing else can be committed to the world. Before a commit that is expected to take long, a copy of the world
//! is made (a fork). Changes of endpoints that arrive meanwhile are committed to the fork, and the resources that they change are
//! sent. After the long commit, the same changes are committed to the world, which then changes no resource any more, unless the
//! long commit changed it, too.

use std::thread::{Scope, ScopedJoinHandle, Thread};
use std::time::Duration;

use flow::CellId;
use model::xds::Resource;
use world::{Batch, Changes, World};

use crate::gathered::{Gathered, Lane, Paces};
use crate::pace::Pace;

/// The least time of a commit before which a fork is made. Pages that the world shares with a fork are copied when they change, so
/// that short commits would take longer.
const LONG: Duration = Duration::from_millis(20);

/// The time that the next commit may take.
#[derive(Default)]
pub(crate) struct Expected(Duration);

impl Expected {
    /// Records how long a commit took. Short commits make the next one seem shorter, but only slowly: a long one may follow.
    pub(crate) fn took(&mut self, time: Duration) {
        self.0 = time.max(self.0 - self.0 / 8);
    }

    pub(crate) fn is_long(&self) -> bool {
        self.0 >= LONG
    }
}

/// A fork of the world, and the changes that were committed to it.
pub(crate) struct Ahead {
    /// `None` while changes are committed to it.
    fork: Option<World>,
    /// The changes whose resources were sent.
    sent: Lane,
    /// The changes that are being committed, or whose effect must wait for that of the long commit. As long as there are any, no more
    /// are committed to the fork.
    taken: Lane,
}

/// A commit to the fork that runs on a thread.
pub(crate) type Running<'s> = ScopedJoinHandle<'s, (World, Changes)>;

impl Ahead {
    /// Whether changes of endpoints may be sent before those of this batch. An endpoint whose pod is not known yet is left out, so
    /// endpoints must not overtake their pods.
    pub(crate) fn is_safe_during(batch: &Batch) -> bool {
        !batch.has_pods()
    }

    /// Takes a fork to which nothing was committed yet.
    pub(crate) fn new(fork: World) -> Ahead {
        Ahead { fork: Some(fork), sent: Lane::default(), taken: Lane::default() }
    }

    /// Commits waiting changes of endpoints to the fork if they are due. Wakes the thread `waiting` at the end.
    pub(crate) fn start<'s>(
        &mut self,
        scope: &'s Scope<'s, '_>,
        gathered: &mut Gathered,
        (paces, pace): (&mut Paces, &Pace),
        waiting: &Thread,
    ) -> Option<Running<'s>> {
        if !self.taken.is_empty() {
            return None;
        }
        self.taken = gathered.take_endpoints(paces, pace)?;
        let batch = self.taken.batch.as_ref().and_then(Batch::copy_of_workloads);
        let (Some(batch), Some(mut fork)) = (batch, self.fork.take()) else { return None };
        paces.start(&batch);
        let waiting = waiting.clone();
        let commit = move || {
            let changes = fork.commit(batch);
            waiting.unpark();
            (fork, changes)
        };
        std::thread::Builder::new().name("ahead".into()).spawn_scoped(scope, commit).ok()
    }

    /// Takes the result of a commit to the fork: resources that can be sent before what the long commit changes. If anything else
    /// changed, or a rule panicked, nothing is sent, and nothing more is committed to the fork.
    pub(crate) fn finish(&mut self, outcome: std::thread::Result<(World, Changes)>) -> Vec<(CellId, Resource)> {
        // The world's own commit reports a panic.
        let Ok((fork, changes)) = outcome else { return Vec::new() };
        self.fork = Some(fork);
        let removed = changes.resources.iter().any(|(_, resource)| resource.is_none());
        if removed || !changes.catalogues.is_empty() || !changes.moved.is_empty() || !changes.panics.is_empty() {
            return Vec::new();
        }
        self.sent.append(std::mem::take(&mut self.taken));
        changes.resources.into_iter().filter_map(|(cell, resource)| Some((cell, resource?))).collect()
    }

    /// The fork, the changes whose resources were sent, and those that wait for the next commit.
    pub(crate) fn end(self) -> (Option<World>, Lane, Lane) {
        (self.fork, self.sent, self.taken)
    }
}

#[cfg(test)]
mod tests {
    use config::{Kind, ObjectKey};
    use model::audience::ResourceKey;
    use registry::inputs::{MeshSettings, ProxyToken};

    use super::*;
    use crate::status_tracker::Observations;

    #[test]
    fn only_resources_are_sent_ahead() {
        let mut world = World::new(MeshSettings::default(), 1);
        let (cell, _) = world.open(&ResourceKey::TrustBundle);
        let resources = |resource| Changes { resources: vec![(cell, resource)], ..Changes::default() };
        let some = || Some(Resource::new("name", vec![1]));
        let cases = [
            (Ok(resources(some())), true),
            (Ok(Changes::default()), true),
            (Ok(resources(None)), false),
            (Ok(Changes { moved: vec![ProxyToken(1)], ..resources(some()) }), false),
            (Ok(Changes { catalogues: vec![(cell, Default::default())], ..resources(some()) }), false),
            (Ok(Changes { panics: vec!["bang".into()], ..resources(some()) }), false),
            (Err("bang"), false),
        ];
        for (number, (changes, is_sent)) in cases.into_iter().enumerate() {
            let mut ahead = Ahead::new(world.fork());
            let mut batch = Batch::new();
            batch.remove(&ObjectKey::new(Kind::EndpointSlice, "shop", "a"));
            ahead.taken.append(Lane { batch: Some(batch), observed: Observations::new(), since: None });
            let fork = ahead.fork.take().expect("a fork");
            let sent = ahead.finish(changes.map(|changes| (fork, changes)).map_err(|text| Box::new(text) as _));
            let is_open = ahead.taken.is_empty();
            let (_, done, waiting) = ahead.end();
            assert_eq!(
                (is_open, done.batch.is_some(), waiting.batch.is_none()),
                (is_sent, is_sent, is_sent),
                "{number}"
            );
            assert!(is_sent || sent.is_empty());
            assert_eq!(!sent.is_empty(), number == 0);
        }
    }

    #[test]
    fn short_commits_forget_a_long_one_slowly() {
        let ms = Duration::from_millis;
        let mut expected = Expected::default();
        assert!(!expected.is_long());
        expected.took(ms(30));
        expected.took(ms(1));
        assert!(expected.is_long());
        (0..4).for_each(|_| expected.took(ms(1)));
        assert!(!expected.is_long());
        expected.took(LONG);
        assert!(expected.is_long());
    }
}
