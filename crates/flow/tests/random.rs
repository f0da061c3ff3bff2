//! At least 100,000 epochs of random programs, edits, subscriptions and forks. After each, the engine must have the
//! rows that follow from its inputs by definition and agree with a recomputation, and the delta must be the exact
//! difference between the epochs.

mod common;
#[path = "random/program.rs"]
mod program;

use std::collections::BTreeMap;

use common::*;
use flow::{Batch, CellId, Delta, Engine};
use program::*;

/// Epochs of each of the eight tests.
const EPOCHS: usize = 12_500;

/// An engine and the expected state.
struct Run {
    engine: Engine,
    plain: Plain,
    /// Live subscriptions: cell, relation and key.
    subscribed: Vec<(CellId, u8, u8)>,
    random: Random,
}

impl Run {
    fn new(seed: u64, threads: usize) -> Self {
        let random = Random::new(seed);
        Self { engine: engine(threads), plain: Plain::default(), subscribed: Vec::new(), random }
    }

    fn epoch(&mut self) {
        self.subscribe_or_not();
        let batch = self.edits();
        if self.random.once_in(16) {
            self.try_on_a_fork();
        }
        let before = rows(&self.engine);
        let delta = self.engine.commit(batch);
        let after = rows(&self.engine);
        self.check_delta(&delta, &before, &after);
        self.check(&after);
    }

    /// At most three edits, which are applied to the plain inputs, too.
    fn edits(&mut self) -> Batch {
        let mut batch = Batch::new();
        for _ in 0..self.random.below(4) {
            if self.random.once_in(3) {
                let key = ([3, 4, 6, 8, 9, 10][self.random.below(6)], self.random.below(PROGRAMS.into()) as u8);
                let program = (!self.random.once_in(8)).then(|| random_program(&mut self.random));
                match program.clone() {
                    Some(program) => batch.put::<Program>(key, program),
                    None => batch.remove::<Program>(key),
                }
                write(&mut self.plain.programs, key, program);
            } else {
                let key = self.random.below(KEYS.into()) as u8;
                let value = (!self.random.once_in(3)).then(|| self.random.below(8) as i64);
                match value {
                    Some(value) => batch.put::<Value>(key, value),
                    None => batch.remove::<Value>(key),
                }
                write(&mut self.plain.values, key, value);
            }
        }
        self.plain.forget();
        batch
    }

    fn subscribe_or_not(&mut self) {
        if self.random.once_in(3) {
            let key = self.random.below(KEYS.into()) as u8;
            let (cell, relation) = match self.random.below(3) {
                0 => (self.engine.subscribe::<Early>(key), 4),
                1 => (self.engine.subscribe::<Middle>(key), 9),
                _ => (self.engine.subscribe::<Late>(key), 10),
            };
            self.subscribed.push((cell, relation, key));
        }
        if self.subscribed.len() > 5 || !self.subscribed.is_empty() && self.random.once_in(4) {
            let at = self.random.below(self.subscribed.len());
            let (cell, _, _) = self.subscribed.swap_remove(at);
            assert!(self.engine.unsubscribe(cell));
        }
    }

    /// Commits and subscribes on a fork, which must not affect the original.
    fn try_on_a_fork(&mut self) {
        let before = rows(&self.engine);
        let (values, programs) = (self.plain.values.clone(), self.plain.programs.clone());
        let mut fork = self.engine.fork();
        fork.commit(self.edits());
        let cell = fork.subscribe::<Late>(self.random.below(KEYS.into()) as u8);
        fork.commit(self.edits());
        sound(&fork);
        fork.unsubscribe(cell);
        assert_eq!(rows(&self.engine), before);
        (self.plain.values, self.plain.programs) = (values, programs);
        self.plain.forget();
    }

    fn check(&mut self, rows: &Rows) {
        let world = WORLD.into_iter().flat_map(|relation| (0..KEYS).map(move |key| (relation, key)));
        for (relation, key) in world.chain(self.subscribed.iter().map(|(_, relation, key)| (*relation, *key))) {
            let row = rows[relation as usize][key as usize];
            assert_eq!(row, self.plain.get(relation, key), "relation {relation}, key {key}");
        }
        let again = self.engine.recompute();
        assert_eq!(self.engine.agree(&again), Ok(()));
        // Cells and edges do not depend on the past: nothing is left over.
        let held = |engine: &Engine| (engine.stats().cells(), engine.stats().edges());
        assert_eq!(held(&self.engine), held(&again));
        if self.random.once_in(8) {
            assert_eq!(self.engine.audit(), Ok(()));
        }
    }

    /// Checks that the delta is the exact difference. A view that only other cells read is in the delta only if it was
    /// live before and after the commit. That cannot be observed, so such views are not checked.
    fn check_delta(&self, delta: &Delta, before: &Rows, after: &Rows) {
        let changed = changed_keys(delta);
        assert_eq!(changed.len() + delta.changes::<Program>().count(), delta.cells().len());
        for relation in 0..RELATIONS {
            for key in 0..KEYS {
                let subscribed = self.subscribed.iter().any(|(_, r, k)| (*r, *k) == (relation, key));
                if WORLD.contains(&relation) || subscribed {
                    let differs = before[relation as usize][key as usize] != after[relation as usize][key as usize];
                    assert_eq!(changed.contains(&(relation, key)), differs, "relation {relation}, key {key}");
                }
            }
        }
    }
}

/// The changed relations and keys of a delta.
fn changed_keys(delta: &Delta) -> Vec<(u8, u8)> {
    let mut changed = Vec::new();
    changed.extend(delta.changed::<Value>().map(|(key, _)| (0, key)));
    changed.extend(delta.changed::<ByValue>().map(|(key, _)| (2, key)));
    changed.extend(delta.changed::<First>().map(|(key, _)| (3, key)));
    changed.extend(delta.changed::<Early>().map(|(key, _)| (4, key)));
    changed.extend(delta.changed::<ByFirst>().map(|(key, _)| (5, key)));
    changed.extend(delta.changed::<Second>().map(|(key, _)| (6, key)));
    changed.extend(delta.changed::<BySize>().map(|(key, _)| (7, key)));
    changed.extend(delta.changed::<Third>().map(|(key, _)| (8, key)));
    changed.extend(delta.changed::<Middle>().map(|(key, _)| (9, key)));
    changed.extend(delta.changed::<Late>().map(|(key, _)| (10, key)));
    changed
}

fn write<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

fn random_program(random: &mut Random) -> Vec<Op> {
    let length = random.below(6);
    let mut op = || {
        let (of, offset) = (random.below(RELATIONS.into()) as u8, random.below(KEYS.into()) as u8);
        match random.below(8) {
            0..4 => Op::Get(of, offset),
            4 => Op::Contains(of, offset),
            5 => Op::Keys(of),
            6 => Op::StopIfOdd,
            _ => Op::Coarsen(offset),
        }
    };
    (0..length).map(|_| op()).collect()
}

macro_rules! epochs {
    ($($name:ident $seed:literal),*) => {$(
        #[test]
        fn $name() {
            let mut run = Run::new($seed, 1);
            for _ in 0..EPOCHS {
                run.epoch();
            }
            for (cell, _, _) in std::mem::take(&mut run.subscribed) {
                assert!(run.engine.unsubscribe(cell));
            }
            assert_eq!(run.engine.audit(), Ok(()));
            let (stats, inputs) = (run.engine.stats(), run.plain.values.len());
            assert_eq!(stats.relation("first").map(|first| first.cells >= inputs), Some(true));
            assert_eq!(["early", "middle", "late"].map(|view| stats.relation(view).map(|view| view.subscriptions)), [Some(0); 3]);
        }
    )*};
}

epochs!(a 11, b 12, c 13, d 14, e 15, f 16, g 17, h 18);

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (mut serial, mut parallel) = (Run::new(99, 1), Run::new(99, 3));
    for _ in 0..1_000 {
        serial.subscribe_or_not();
        parallel.subscribe_or_not();
        let (a, b) = (serial.edits(), parallel.edits());
        let (a, b) = (serial.engine.commit(a), parallel.engine.commit(b));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        assert_eq!(a.cells(), b.cells(), "the numbers of cells are the same");
        assert!(a.runs().eq(b.runs()));
        assert_eq!(rows(&serial.engine), rows(&parallel.engine));
    }
    assert_eq!(serial.subscribed, parallel.subscribed);
    assert_eq!(parallel.engine.audit(), Ok(()));
    assert_eq!(serial.engine.agree(&parallel.engine), Ok(()));
}
