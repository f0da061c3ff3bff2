//! At least 100,000 random epochs: random programs, edits, subscriptions and forks. After each the engine must have what
//! follows from its inputs by definition, agree with an engine that derives everything anew, and its delta must be the
//! difference between the epochs, no more and no less.

mod common;
#[path = "random/program.rs"]
mod program;

use std::collections::BTreeMap;

use common::*;
use flow::{Batch, CellId, Delta, Engine};
use program::*;

/// Epochs of each test; there are eight.
const EPOCHS: usize = 12_500;

/// An engine with what is known of it from outside.
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
        Self {
            engine: engine(threads),
            plain: Plain::default(),
            subscribed: Vec::new(),
            random,
        }
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

    /// Between none and three edits, noted in the plain inputs.
    fn edits(&mut self) -> Batch {
        let mut batch = Batch::new();
        for _ in 0..self.random.below(4) {
            if self.random.once_in(3) {
                let key = (
                    [3, 4, 6, 8, 9, 10][self.random.below(6)],
                    self.random.below(PROGRAMS.into()) as u8,
                );
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

    /// Commits and subscribes on a fork, which must not be felt here.
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
        let world = WORLD
            .into_iter()
            .flat_map(|relation| (0..KEYS).map(move |key| (relation, key)));
        for (relation, key) in world.chain(self.subscribed.iter().map(|(_, relation, key)| (*relation, *key))) {
            let row = rows[relation as usize][key as usize];
            assert_eq!(row, self.plain.get(relation, key), "relation {relation}, key {key}");
        }
        let again = self.engine.recompute();
        assert_eq!(self.engine.agree(&again), Ok(()));
        // What is remembered does not depend on the past either: neither cells nor edges are left over.
        let held = |engine: &Engine| (engine.stats().cells(), engine.stats().edges());
        assert_eq!(held(&self.engine), held(&again));
        if self.random.once_in(8) {
            assert_eq!(self.engine.audit(), Ok(()));
        }
    }

    /// The delta is exactly what differs. A view that only other cells read is in it only if it lived before and after,
    /// which cannot be seen from outside, so those are not checked.
    fn check_delta(&self, delta: &Delta, before: &Rows, after: &Rows) {
        let told = told(delta);
        assert_eq!(told.len() + delta.changes::<Program>().len(), delta.cells().len());
        for relation in 0..RELATIONS {
            for key in 0..KEYS {
                let subscribed = self.subscribed.iter().any(|(_, r, k)| (*r, *k) == (relation, key));
                if WORLD.contains(&relation) || subscribed {
                    let differs = before[relation as usize][key as usize] != after[relation as usize][key as usize];
                    assert_eq!(
                        told.contains(&(relation, key)),
                        differs,
                        "relation {relation}, key {key}"
                    );
                }
            }
        }
    }
}

/// What a delta says has changed: relations and keys.
fn told(delta: &Delta) -> Vec<(u8, u8)> {
    let mut told = Vec::new();
    told.extend(delta.changed::<Value>().map(|(key, _)| (0, key)));
    told.extend(delta.changed::<ByValue>().map(|(key, _)| (2, key)));
    told.extend(delta.changed::<First>().map(|(key, _)| (3, key)));
    told.extend(delta.changed::<Early>().map(|(key, _)| (4, key)));
    told.extend(delta.changed::<ByFirst>().map(|(key, _)| (5, key)));
    told.extend(delta.changed::<Second>().map(|(key, _)| (6, key)));
    told.extend(delta.changed::<BySize>().map(|(key, _)| (7, key)));
    told.extend(delta.changed::<Third>().map(|(key, _)| (8, key)));
    told.extend(delta.changed::<Middle>().map(|(key, _)| (9, key)));
    told.extend(delta.changed::<Late>().map(|(key, _)| (10, key)));
    told
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
fn threads_make_no_difference() {
    let (mut serial, mut parallel) = (Run::new(99, 1), Run::new(99, 3));
    for _ in 0..1_000 {
        serial.subscribe_or_not();
        parallel.subscribe_or_not();
        let (a, b) = (serial.edits(), parallel.edits());
        let (a, b) = (serial.engine.commit(a), parallel.engine.commit(b));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        assert_eq!(a.cells(), b.cells(), "even the numbers of cells are the same");
        assert!(a.runs().eq(b.runs()));
        assert_eq!(rows(&serial.engine), rows(&parallel.engine));
    }
    assert_eq!(serial.subscribed, parallel.subscribed);
    assert_eq!(parallel.engine.audit(), Ok(()));
    assert_eq!(serial.engine.agree(&parallel.engine), Ok(()));
}
