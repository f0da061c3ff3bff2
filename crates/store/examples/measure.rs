//! Measures the embedded store: `cargo run -p store --release --example measure [DIRECTORY]`.
//!
//! Lists of 10,000 objects, durable writes from 16 writers at once, and 1,000 watches of one type.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use store::embedded::{Embedded, Options};
use store::{Error, Expect, GroupResource, Key, Operation, Query, Scope, Store, Transaction, WatchEvent};

const OBJECTS: usize = 10_000;
const WRITERS: usize = 16;
const WATCHES: usize = 1_000;
const EVENTS: usize = 200;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
async fn main() -> Result<(), Error> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "store-measure".to_owned());
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&directory, Options::default()).await?);

    let began = Instant::now();
    for chunk in (0..OBJECTS).collect::<Vec<_>>().chunks(500) {
        let operations = chunk.iter().map(|n| put(*n, 0)).collect();
        store.commit(Transaction { operations }).await?;
    }
    println!("{OBJECTS} objects written in batches of 500: {:.1?}", began.elapsed());

    let query = Query::of(things());
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let began = Instant::now();
        let list = store.list(&query).await?;
        assert_eq!(list.items.len(), OBJECTS, "use an empty directory");
        best = best.min(began.elapsed());
    }
    println!("list of {OBJECTS} objects: {best:.1?}");

    let rate = write(&store, Duration::from_secs(3)).await?;
    println!("durable writes a second from {WRITERS} writers: {rate:.0}");

    watch(&store).await?;

    let (began, revision) = (Instant::now(), store.revision().await?);
    store.close().await;
    drop(store);
    let store = Embedded::open(&directory, Options::default()).await?;
    println!("closed and opened again at revision {revision}: {:.1?}", began.elapsed());
    assert_eq!(store.revision().await?, revision, "all writes were recovered");
    Ok(())
}

/// Runs concurrent writers, each with one write at a time. Returns the total rate.
async fn write(store: &Arc<dyn Store>, time: Duration) -> Result<f64, Error> {
    let began = Instant::now();
    let writer = |writer: usize| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut count = 0;
            while began.elapsed() < time {
                store.commit(Transaction::one(put(writer * 100 + count % 100, count))).await?;
                count += 1;
            }
            Ok::<usize, Error>(count)
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(writer).collect();
    let mut sum = 0;
    for writer in writers {
        sum += writer.await.map_err(|error| Error::Unavailable(error.to_string()))??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = sum as f64 / began.elapsed().as_secs_f64();
    Ok(rate)
}

/// Runs many watches of one type, with events for all of them.
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
async fn watch(store: &Arc<dyn Store>) -> Result<(), Error> {
    let scope = Scope { resource: Some(things()), ..Scope::default() };
    let start = store.revision().await?;
    let mut readers = Vec::new();
    for _ in 0..WATCHES {
        let mut watch = store.watch(&scope, start).await?;
        readers.push(tokio::spawn(async move {
            let mut seen = 0;
            while seen < EVENTS {
                if let WatchEvent::Changes(changes) = watch.next().await? {
                    seen += changes.len();
                }
            }
            Ok::<usize, Error>(seen)
        }));
    }
    let began = Instant::now();
    for n in 0..EVENTS {
        store.commit(Transaction::one(put(n, n + 1))).await?;
    }
    let written = began.elapsed();
    let mut seen = 0;
    for reader in readers {
        seen += reader.await.map_err(|error| Error::Unavailable(error.to_string()))??;
    }
    println!(
        "{EVENTS} writes to {WATCHES} watches: {written:.1?} to write, {:.1?} until all saw all ({seen} events)",
        began.elapsed()
    );
    Ok(())
}

fn things() -> GroupResource {
    GroupResource::new("example.com", "things")
}

/// An object of about 1 KiB.
fn put(n: usize, number: usize) -> Operation {
    Operation::Put {
        key: Key::new(things(), format!("namespace-{}", n % 20), format!("thing-{n}")),
        value: json!({
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": format!("thing-{n}"), "labels": {"app": "thing", "number": number.to_string()}},
            "spec": {"number": number, "text": "x".repeat(800)},
        }),
        expect: Expect::Anything,
    }
}
