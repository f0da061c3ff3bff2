//! Writes into a store with many concurrent tasks and prints acknowledgements, until it is killed.
//!
//! Usage: `store-crash-writer DIRECTORY [REVISIONS]`, with the number of retained revisions. It prints the initial
//! state (`open REVISION`, and for each task `state TASK A REVISION B REVISION C`, with numbers or `-`), then `go`,
//! then `ack TASK NUMBER REVISION` per acknowledged transaction. A transaction writes the number n into two objects; a
//! third one exists if n is odd.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use store::embedded::{Embedded, Options};
use store::{Error, Expect, GroupResource, Key, Limits, Operation, Store, Stored, Transaction};

const TASKS: u64 = 12;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next() else {
        return ExitCode::from(2);
    };
    // Few revisions, so that compactions run often.
    let keep_revisions = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(150);
    match run(&directory, keep_revisions).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(directory: &str, keep_revisions: u64) -> Result<(), Error> {
    let limits = Limits { ring_revisions: 50, ..Limits::default() };
    let options = Options { limits, keep_revisions, ..Options::default() };
    let store: Arc<dyn Store> = Arc::new(Embedded::open(directory, options).await?);
    say(&format!("open {}", store.revision().await?));
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let mut objects = Vec::new();
        for part in ["a", "b", "c"] {
            objects.push(store.get(&key(task, part)).await?);
        }
        let shown = objects.iter().map(|object| match object {
            Some(object) => format!(" {} {}", number(object), object.revision),
            None => " - -".to_owned(),
        });
        say(&format!("state {task}{}", shown.collect::<String>()));
        let next = objects[0].as_ref().map_or(1, |object| number(object) + 1);
        tasks.push((task, next, objects[0].as_ref().map(|object| object.revision)));
    }
    say("go");
    let mut running = Vec::new();
    for (task, next, last) in tasks {
        running.push(tokio::spawn(write(store.clone(), task, next, last)));
    }
    for task in running {
        match task.await {
            Ok(result) => result?,
            Err(error) => return Err(Error::Unavailable(error.to_string())),
        }
    }
    Ok(())
}

async fn write(store: Arc<dyn Store>, task: u64, mut next: u64, mut last: Option<u64>) -> Result<(), Error> {
    loop {
        let expect = last.map_or(Expect::Absent, Expect::Revision);
        let put = |part, expect| Operation::Put {
            key: key(task, part),
            value: json!({"spec": {"number": next, "text": "x".repeat(200)}}),
            expect,
        };
        let third = match next % 2 {
            1 => put("c", Expect::Absent),
            _ => Operation::Delete { key: key(task, "c"), expect: Expect::Present },
        };
        let operations = vec![put("a", expect), third, put("b", Expect::Anything)];
        let committed = store.commit(Transaction { operations }).await?;
        say(&format!("ack {task} {next} {}", committed.revision));
        last = Some(committed.revision);
        next += 1;
    }
}

fn key(task: u64, part: &str) -> Key {
    Key::new(GroupResource::new("example.com", "things"), format!("task-{task}"), part)
}

fn number(object: &Stored) -> u64 {
    object.value()["spec"]["number"].as_u64().unwrap_or(0)
}

/// Prints one line at once. Ignores a closed pipe.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}
