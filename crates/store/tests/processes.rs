//! The embedded store with restrictions of the system: a second process, a read-only directory, no space.
//!
//! The other process is the writer of the crash test; its errors are those that a user would see.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use store::embedded::{Embedded, Options};
use store::{Error, GroupResource, Key, Store};
use tempfile::TempDir;

const WRITER: &str = env!("CARGO_BIN_EXE_store-crash-writer");

/// Starts a process. Returns it with the lines of its standard output.
fn start(mut command: Command) -> (Child, impl Iterator<Item = String>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, out.lines().map_while(Result::ok))
}

/// Runs a process that must fail. Returns its output lines and the error.
fn fails(command: Command) -> (Vec<String>, String) {
    let (mut child, lines) = start(command);
    let mut lines: Vec<String> = lines.collect();
    assert!(!child.wait().expect("waited").success(), "{lines:?}");
    let error = lines.pop().expect("an error");
    (lines, error)
}

#[tokio::test]
async fn the_error_of_a_second_process_names_the_first() {
    let directory = TempDir::new().expect("a directory");
    let mut command = Command::new(WRITER);
    command.arg(directory.path());
    let (mut first, mut lines) = start(command);
    assert!(lines.any(|line| line == "go"), "the writer is running");
    let error = Embedded::open(directory.path(), Options::default()).await.err().expect("locked");
    let text = error.to_string();
    assert!(matches!(error, Error::Locked(_)), "{text}");
    assert!(text.contains(&format!("process {}", first.id())), "{text}");
    let mut second = Command::new(WRITER);
    second.arg(directory.path());
    let (output, error) = fails(second);
    assert!(output.is_empty() && error.contains("is in use by process"), "{error}");
    // The first process is undisturbed, and the lock ends with it.
    assert!(lines.any(|line| line.starts_with("ack")), "the first process continues");
    first.kill().expect("killed");
    first.wait().expect("waited");
    Embedded::open(directory.path(), Options::default()).await.expect("free again");
}

#[tokio::test]
async fn a_file_size_limit_loses_no_writes() {
    let directory = TempDir::new().expect("a directory");
    // 512-byte blocks: room for a new file and some more. The signal would end the process; without it the system call
    // fails as on a full disk.
    const LIMITED: &str = "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$1\" 1000000";
    let mut command = Command::new("sh");
    command.args(["-c", LIMITED, WRITER]).arg(directory.path());
    let (output, error) = fails(command);
    assert!(error.contains("store.redb") && error.contains("when there is space again"), "{error}");
    let length = fs::metadata(directory.path().join("store.redb")).expect("a file").len();
    assert!(length <= 4096 * 512, "{length}");
    let store = Embedded::open(directory.path(), Options::default()).await.expect("opened");
    let mut answered = 0;
    for task in 0..12 {
        let acks = output.iter().filter_map(|line| line.strip_prefix("ack "));
        let numbers = acks.filter_map(|line| line.strip_prefix(&format!("{task} ")));
        let last = numbers.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).next_back();
        answered += last.unwrap_or(0);
        let resource = GroupResource::new("example.com", "things");
        let mut there = Vec::new();
        for part in ["a", "b"] {
            let key = Key::new(resource.clone(), format!("task-{task}"), part);
            let object = store.get(&key).await.expect("read");
            there.push(object.map_or(0, |object| object.value()["spec"]["number"].as_u64().unwrap_or(0)));
        }
        let last = last.unwrap_or(0);
        assert_eq!(there[0], there[1], "task {task}: half a transaction");
        assert!((last..=last + 1).contains(&there[0]), "task {task}: {there:?} after {last}");
    }
    assert!(answered > 0, "no write was acknowledged before the limit");
}

/// The files in a directory and their contents.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut all: Vec<_> = paths.map(|path| (path.clone(), fs::read(&path).expect("read"))).collect();
    all.sort();
    all
}

/// The writer as another user than root, whom permissions do not restrict.
fn unprivileged(place: &Path, directory: &Path) -> Command {
    let probe = place.join("probe");
    fs::create_dir(&probe).expect("a directory");
    fs::set_permissions(&probe, Permissions::from_mode(0o555)).expect("set");
    if fs::write(probe.join("file"), "").is_err() {
        let mut command = Command::new(WRITER);
        command.arg(directory);
        return command;
    }
    // Other users may be unable to reach the program's directory.
    let program = place.join("writer");
    fs::copy(WRITER, &program).expect("copied");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("set");
    fs::set_permissions(place, Permissions::from_mode(0o755)).expect("set");
    let mut command = Command::new(program);
    command.arg(directory).uid(65534).gid(65534);
    command
}

#[tokio::test]
async fn a_read_only_directory_is_named_and_not_modified() {
    let place = TempDir::new().expect("a directory");
    let directory = place.path().join("data");
    fs::create_dir(&directory).expect("a directory");
    fs::set_permissions(&directory, Permissions::from_mode(0o555)).expect("set");
    let (output, error) = fails(unprivileged(place.path(), &directory));
    let named = |error: &str| error.contains("data/store.lock") && error.contains("must be writable by this user");
    assert!(output.is_empty() && named(&error), "{error}");
    assert!(contents(&directory).is_empty());

    fs::set_permissions(&directory, Permissions::from_mode(0o755)).expect("set");
    Embedded::open(&directory, Options::default()).await.expect("opened").close().await;
    let before = contents(&directory);
    for (path, _) in &before {
        fs::set_permissions(path, Permissions::from_mode(0o444)).expect("set");
    }
    fs::set_permissions(&directory, Permissions::from_mode(0o555)).expect("set");
    fs::remove_dir_all(place.path().join("probe")).expect("removed");
    let (output, error) = fails(unprivileged(place.path(), &directory));
    assert!(output.is_empty() && named(&error), "{error}");
    assert_eq!(contents(&directory), before, "nothing was changed");
    // Allows removing the directory.
    fs::set_permissions(&directory, Permissions::from_mode(0o755)).expect("set");
}
