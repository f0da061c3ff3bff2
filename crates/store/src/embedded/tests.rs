//! Failing disks, power loss, and damaged files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde_json::json;
use tempfile::TempDir;

use super::backend::Access;
use super::*;
use crate::{Expect, GroupResource, Operation};

fn key(name: &str) -> Key {
    Key::new(GroupResource::new("", "pods"), "default", name)
}

/// Writes a number into two objects in one transaction.
async fn write(store: &Embedded, number: u64) -> Result<Committed, Error> {
    let put = |part: &str| Operation::Put {
        key: key(&format!("{part}{}", number % 7)),
        value: json!({"spec": {"number": number, "text": "x".repeat(3000)}}),
        expect: Expect::Anything,
    };
    let operations = vec![put("a"), put("b")];
    store.commit(Transaction { operations }).await
}

/// All objects, by name.
async fn everything(store: &Embedded) -> BTreeMap<String, u64> {
    let all = store.snapshot(&Scope::default()).await.expect("a snapshot");
    let number = |object: &Stored| object.value()["spec"]["number"].as_u64().expect("a number");
    all.items.iter().map(|object| (object.key.name.to_string(), number(object))).collect()
}

/// The expected objects after these acknowledged writes.
fn expected(answered: impl IntoIterator<Item = u64>) -> BTreeMap<String, u64> {
    let parts = |number: u64| [(format!("a{}", number % 7), number), (format!("b{}", number % 7), number)];
    answered.into_iter().flat_map(parts).collect()
}

async fn open(directory: &TempDir, fault: Option<Fault>) -> Result<Embedded, Error> {
    Embedded::open_with(directory.path().to_owned(), Options::default(), fault).await
}

#[tokio::test]
async fn a_full_disk_is_reported_and_writes_resume_later() {
    let directory = TempDir::new().expect("a directory");
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let fault: Fault = {
        let room = room.clone();
        Arc::new(move |access| {
            let end = match access {
                Access::Resize(length) => length,
                Access::Write(offset, data) => offset + data.len() as u64,
                Access::Read | Access::Sync => 0,
            };
            if end > room.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    };
    let store = open(&directory, Some(fault.clone())).await.expect("opened");
    let mut answered: Vec<u64> = Vec::new();
    write(&store, 0).await.expect("written");
    answered.push(0);
    let length = fs::metadata(directory.path().join("store.redb")).expect("a file").len();
    room.store(length, Ordering::SeqCst);
    // Free pages within the file are used first.
    let mut number = 1;
    let error = loop {
        match write(&store, number).await {
            Ok(_) => answered.push(number),
            Err(error) => break error,
        }
        number += 1;
        assert!(number < 10_000, "the disk is never full");
    };
    let text = error.to_string();
    assert!(matches!(error, Error::Full(_)) && text.contains("store.redb"), "{text}");
    assert!(matches!(write(&store, number).await, Err(Error::Full(_))), "still full");
    assert_eq!(everything(&store).await, expected(answered.clone()), "reads continue");
    assert!(matches!(*store.write_failure().borrow(), Some(Error::Full(_))));
    // A restart while the disk is full.
    store.close().await;
    drop(store);
    let store = open(&directory, Some(fault)).await.expect("opened while the disk is full");
    assert_eq!(everything(&store).await, expected(answered.clone()), "nothing is lost");
    assert!(matches!(write(&store, number).await, Err(Error::Full(_))), "still full");
    assert!(matches!(*store.write_failure().borrow(), Some(Error::Full(_))));
    let mut watch = store.watch(&Scope::default(), 1).await.expect("a watch");
    let read = store.history(&key("a0"), 1).await.expect("reads of history continue");
    assert_eq!(read.len(), 1);

    room.store(u64::MAX, Ordering::SeqCst);
    for number in 20_000..20_010 {
        write(&store, number).await.expect("there is space now");
        answered.push(number);
    }
    assert_eq!(*store.write_failure().borrow(), None);
    let newest = store.revision().await.expect("a revision");
    assert_eq!(newest, 1 + answered.len() as u64, "failed writes use no revision");
    let mut seen = 0;
    while seen < 2 * answered.len() {
        if let crate::WatchEvent::Changes(changes) = watch.next().await.expect("a moment") {
            seen += changes.len();
        }
    }
    store.close().await;
    let store = open(&directory, None).await.expect("opened again");
    assert_eq!(everything(&store).await, expected(answered));
}

#[tokio::test]
async fn no_failed_access_loses_or_tears_writes() {
    for (run, kind) in (0..90).zip([io::ErrorKind::Other, io::ErrorKind::StorageFull].into_iter().cycle()) {
        let directory = TempDir::new().expect("a directory");
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let fault: Fault = {
            let left = left.clone();
            Arc::new(move |_| if left.fetch_sub(1, Ordering::SeqCst) == 0 { Err(kind.into()) } else { Ok(()) })
        };
        let store = open(&directory, Some(fault)).await.expect("opened");
        write(&store, 0).await.expect("written");
        let (mut answered, mut failed) = (vec![0], 0);
        left.store(run, Ordering::SeqCst);
        for number in 1..9 {
            match write(&store, number).await {
                Ok(_) => answered.push(number),
                Err(Error::Full(_) | Error::Unavailable(_)) => failed += 1,
                Err(error) => panic!("access {run}: {error}"),
            }
        }
        assert!(failed <= 1, "access {run}: one fault caused {failed} failures");
        assert_eq!(everything(&store).await, expected(answered.clone()), "access {run}");
        store.close().await;
        let store = open(&directory, None).await.expect("opened again");
        assert_eq!(everything(&store).await, expected(answered), "access {run}");
    }
}

#[tokio::test]
async fn a_write_with_unknown_outcome_is_resolved_later() {
    for fails_from_sync in [false, true] {
        let directory = TempDir::new().expect("a directory");
        let broken = Arc::new(AtomicU64::new(0));
        let fault: Fault = {
            let broken = broken.clone();
            Arc::new(move |access| match (broken.load(Ordering::SeqCst), access) {
                // The whole write reaches the file, and then every access fails.
                (1, Access::Sync) => {
                    broken.store(2, Ordering::SeqCst);
                    Err(io::Error::other("gone"))
                }
                (2, _) => Err(io::Error::other("gone")),
                _ => Ok(()),
            })
        };
        let store = open(&directory, Some(fault)).await.expect("opened");
        write(&store, 0).await.expect("written");
        broken.store(if fails_from_sync { 1 } else { 2 }, Ordering::SeqCst);
        let error = write(&store, 1).await.expect_err("broken");
        assert!(matches!(error, Error::Unknown(_)), "{error}");
        assert!(matches!(write(&store, 2).await, Err(Error::Unavailable(_))), "no write is attempted");
        assert!(matches!(store.history(&key("a0"), 1).await, Err(Error::Unavailable(_))));
        assert_eq!(everything(&store).await, expected([0]), "reads of current objects continue");
        broken.store(0, Ordering::SeqCst);
        write(&store, 3).await.expect("written again");
        let there = everything(&store).await;
        assert!(there == expected([0, 3]) || there == expected([0, 1, 3]), "{there:?}");
        store.close().await;
        let store = open(&directory, None).await.expect("opened again");
        assert_eq!(everything(&store).await, there, "memory and disk agree");
    }
}

/// The accesses to a file, and the number of them at each acknowledgement.
#[derive(Default)]
struct Journal {
    done: Vec<Done>,
    answered: Vec<usize>,
}

enum Done {
    Resize(u64),
    Write(u64, Vec<u8>),
    Sync,
}

#[tokio::test]
async fn a_power_loss_keeps_all_acknowledged_writes() {
    let journal = Arc::new(Mutex::new(Journal::default()));
    let fault: Fault = {
        let journal = journal.clone();
        Arc::new(move |access| {
            let done = match access {
                Access::Read => return Ok(()),
                Access::Resize(length) => Done::Resize(length),
                Access::Write(offset, data) => Done::Write(offset, data.to_vec()),
                Access::Sync => Done::Sync,
            };
            journal.lock().expect("a lock").done.push(done);
            Ok(())
        })
    };
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, Some(fault)).await.expect("opened");
    let begun = journal.lock().expect("a lock").done.len();
    for number in 0..12 {
        write(&store, number).await.expect("written");
        let mut journal = journal.lock().expect("a lock");
        let done = journal.done.len();
        journal.answered.push(done);
    }
    let journal = std::mem::take(&mut *journal.lock().expect("a lock"));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for cut in begun..journal.answered[11] {
        let image = image(&journal.done[..cut], &mut next);
        let directory = TempDir::new().expect("a directory");
        fs::write(directory.path().join("store.redb"), image).expect("written");
        let store = open(&directory, None).await.unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        let least = journal.answered.iter().filter(|answered| **answered <= cut).count() as u64;
        let there = everything(&store).await;
        let whole = there == expected(0..least) || there == expected(0..=least);
        assert!(whole, "cut {cut}: {there:?} after {least} acknowledgements");
        store.close().await;
    }
}

/// The file as it may be after a power loss: everything up to the last sync, and any sectors written after it.
fn image(done: &[Done], next: &mut impl FnMut() -> u64) -> Vec<u8> {
    let synced = done.iter().rposition(|done| matches!(done, Done::Sync)).unwrap_or(0);
    let mut image = Vec::new();
    for (index, done) in done.iter().enumerate() {
        match done {
            Done::Resize(length) => image.resize(*length as usize, 0),
            Done::Write(offset, data) => {
                for (sector, data) in data.chunks(512).enumerate() {
                    let start = *offset as usize + sector * 512;
                    if index <= synced || next().is_multiple_of(2) {
                        image[start..start + data.len()].copy_from_slice(data);
                    }
                }
            }
            Done::Sync => {}
        }
    }
    image
}

#[tokio::test]
async fn damage_is_reported_or_harmless() {
    let origin = TempDir::new().expect("a directory");
    let store = open(&origin, None).await.expect("opened");
    for number in 0..30 {
        write(&store, number).await.expect("written");
    }
    let all = everything(&store).await;
    store.close().await;
    let bytes = fs::read(origin.path().join("store.redb")).expect("read");
    let note = fs::read(origin.path().join("store.newest")).expect("read");
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut refused = 0;
    for run in 0..160_u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut damaged = bytes.clone();
        // The header is small but the most important part, so every third run damages it.
        let within = if run % 3 == 0 { 400 } else { bytes.len() as u64 };
        let at = (random % within) as usize;
        match run % 8 {
            6 => damaged.truncate(at),
            7 => {
                let end = (at + 4096).min(damaged.len());
                damaged[at..end].fill(random as u8);
            }
            _ => damaged[at] ^= 1 << (random >> 60 & 7),
        }
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("store.redb");
        fs::write(&path, &damaged).expect("written");
        fs::write(directory.path().join("store.newest"), &note).expect("written");
        match open(&directory, None).await {
            Ok(store) => {
                assert_eq!(everything(&store).await, all, "run {run}: silently changed at {at}");
                store.close().await;
            }
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(matches!(error, Error::Damaged(_)), "run {run}, at {at}: {text}");
                assert!(text.contains("store.redb") && text.contains("copy"), "{text}");
            }
        }
    }
    assert!((20..160).contains(&refused), "{refused} of 160 were refused");
}

#[tokio::test]
async fn an_older_copy_is_detected() {
    let directory = TempDir::new().expect("a directory");
    let (path, copy) = (directory.path().join("store.redb"), directory.path().join("copy"));
    let store = open(&directory, None).await.expect("opened");
    write(&store, 1).await.expect("written");
    store.close().await;
    fs::copy(&path, &copy).expect("copied");
    let store = open(&directory, None).await.expect("opened");
    write(&store, 2).await.expect("written");
    store.close().await;
    fs::copy(&copy, &path).expect("copied");
    let error = open(&directory, None).await.err().expect("detected");
    assert!(matches!(&error, Error::Damaged(text) if text.contains("revision 2, but revision 3")), "{error}");
    fs::remove_file(&path).expect("removed");
    let error = open(&directory, None).await.err().expect("detected");
    assert!(matches!(&error, Error::Damaged(text) if text.contains("is missing")), "{error}");
    fs::copy(&copy, &path).expect("copied");
    fs::remove_file(directory.path().join("store.newest")).expect("removed");
    let store = open(&directory, None).await.expect("opened");
    assert_eq!(everything(&store).await, expected([1]));
}

#[tokio::test]
async fn a_file_of_another_format_is_not_modified() {
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, None).await.expect("opened");
    store.close().await;
    let path = directory.path().join("store.redb");
    let database = redb::Database::open(&path).expect("a database");
    let transaction = database.begin_write().expect("begun");
    transaction.open_table(format::META).expect("a table").insert(format::META_FORMAT, 7).expect("inserted");
    transaction.commit().expect("committed");
    drop(database);
    let error = open(&directory, None).await.err().expect("refused");
    assert!(
        matches!(&error, Error::Damaged(text) if text.contains("format 7") && text.contains("format 1")),
        "{error}"
    );
    fs::write(&path, "not a database").expect("written");
    let error = open(&directory, None).await.err().expect("refused");
    assert!(matches!(&error, Error::Damaged(_)), "{error}");
    fs::write(&path, "").expect("written");
    let error = open(&directory, None).await.err().expect("refused");
    assert!(matches!(&error, Error::Damaged(text) if text.contains("it is empty")), "{error}");
}
