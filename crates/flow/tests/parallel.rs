//! Rules on several threads produce the same rows as on one.

mod common;
use common::*;

use std::sync::{Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use flow::{Engine, Members, Rule};

input!(Word, "word", u32, String);
index!(ByLength, "by length", usize, Word, |_key, row| vec![row.len(), row.len() / 2]);
rule!(Upper, "upper", u32, String, |cx, key| cx.get::<Word>(key).map(|word| word.to_uppercase()));
rule!(Encoded, "encoded", (u32, u32), Vec<u8>, |cx, key| {
    let (from, to) = *key;
    let words = (from..to).filter_map(|key| cx.get::<Upper>(&key));
    Some(words.flat_map(|word| word.bytes().chain([0]).collect::<Vec<_>>()).collect())
});
rule!(Digest, "digest", usize, Vec<u8>, |cx, length| {
    let members: Option<_> = cx.get::<ByLength>(length);
    // Several cells read the same views for the first time.
    let parts = members.iter().flat_map(|members| members.iter()).map(|key| (key / 8 * 4, key / 8 * 4 + 9));
    let mut sum = vec![0_u8; 32];
    for bytes in parts.filter_map(|part| cx.get::<Encoded>(&part)) {
        for (at, byte) in bytes.iter().enumerate() {
            sum[at % 32] = sum[at % 32].wrapping_mul(31).wrapping_add(*byte);
        }
    }
    Some(sum)
});

fn engine(threads: usize) -> Engine {
    let mut builder = Engine::builder();
    builder.threads(threads).parallel_from(4);
    builder.input::<Word>().index::<ByLength>().world::<Upper, Word>().view::<Encoded>().world::<Digest, ByLength>();
    builder.build()
}

#[test]
fn serial_and_parallel_runs_are_equal() {
    let mut random = Random::new(5);
    let mut engines = [1, 2, 5].map(engine);
    for _ in 0..30 {
        let edits: Vec<_> = (0..200)
            .map(|_| {
                let word = (!random.once_in(5)).then(|| "abcd".repeat(random.below(12)) + &"e".repeat(random.below(4)));
                (random.below(2_000) as u32, word)
            })
            .collect();
        let deltas = engines.each_mut().map(|engine| engine.commit(batch::<Word>(edits.clone())));
        let [serial, others @ ..] = deltas;
        for other in &others {
            assert_eq!(format!("{serial:?}"), format!("{other:?}"));
            assert_eq!(serial.cells(), other.cells());
            assert!(serial.runs().eq(other.runs()));
        }
    }
    let [serial, others @ ..] = &engines;
    for other in others {
        assert_eq!(other.agree(serial), Ok(()));
        sound(other);
        assert_eq!(serial.stats(), other.stats());
        let keys: Members<usize> = other.keys::<Digest>();
        assert!(keys.iter().all(|key| other.get::<Digest>(key) == serial.get::<Digest>(key)));
    }
}

#[test]
fn parallel_subscriptions_equal_serial_ones() {
    let mut engines = [1, 4].map(engine);
    let keys: Vec<(u32, u32)> = (0..500).map(|at| (at % 300, at % 300 + 20)).collect();
    let [serial, parallel] = engines.each_mut().map(|engine| {
        engine.commit(batch::<Word>((0..400).map(|key| (key, Some(format!("w{key}"))))));
        engine.subscribe_all::<Encoded>(&keys)
    });
    assert_eq!(serial, parallel);
    assert_eq!(engines[0].stats().relation("encoded").map(|encoded| (encoded.cells, encoded.runs)), Some((350, 350)));
    assert_eq!(engines[0].stats(), engines[1].stats());
    sound(&engines[1]);
}

/// An engine with one view.
fn engine_of<V: Rule>(threads: usize) -> Engine {
    let mut builder = Engine::builder();
    builder.threads(threads).parallel_from(2).view::<V>();
    builder.build()
}

/// The threads that derived words.
static THREADS: Mutex<Vec<ThreadId>> = Mutex::new(Vec::new());

rule!(Noted, "noted", u32, u32, |_cx, key| {
    THREADS.lock().ok()?.push(std::thread::current().id());
    Some(*key)
});

#[test]
fn a_caller_that_limits_threads_has_no_helpers() {
    let mut engine = engine_of::<Noted>(4);
    engine.limit_threads(1);
    engine.subscribe_all::<Noted>(&(0..300).collect::<Vec<u32>>());
    let this = std::thread::current().id();
    assert_eq!(std::mem::take(&mut *THREADS.lock().unwrap()), vec![this; 300]);
}

static WAITING: Mutex<usize> = Mutex::new(0);
static ARRIVED: Condvar = Condvar::new();

rule!(Meeting, "meeting", u32, bool, |_cx, _key| {
    // Waits until another rule runs at the same time.
    let mut waiting = WAITING.lock().ok()?;
    *waiting += 1;
    ARRIVED.notify_all();
    let (waiting, _) = ARRIVED.wait_timeout_while(waiting, Duration::from_secs(60), |waiting| *waiting < 2).ok()?;
    Some(*waiting >= 2)
});

#[test]
fn rules_run_concurrently() {
    let mut engine = engine_of::<Meeting>(2);
    engine.limit_threads(1);
    engine.limit_threads(usize::MAX);
    let cells = engine.subscribe_all::<Meeting>(&[1, 2]);
    assert!(cells.iter().all(|cell| engine.row::<Meeting>(*cell).as_deref() == Some(&true)));
}
