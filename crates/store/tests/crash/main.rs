//! Kills a writing process at random points, repeatedly, over one directory. Acknowledged writes are kept, no
//! transaction is applied partially, and the store opens.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The last acknowledged number and revision of each task, and the newest revision overall.
#[derive(Default)]
struct Answered {
    tasks: HashMap<u64, (u64, u64)>,
    newest: u64,
    count: u64,
}

#[test]
fn acknowledged_writes_survive_crashes() {
    let kills: u64 = std::env::var("STORE_CRASH_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let directory = tempfile::TempDir::new().expect("a directory");
    let mut answered = Answered::default();
    let (mut while_opening, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64);
    let began = Instant::now();
    for life in 0..kills {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (mut child, lines) = start(directory.path());
        let when = match life % 5 {
            0 => When::After(Duration::from_micros(random % 40_000)),
            _ => When::Answered(random as usize % 40, Duration::from_micros((random >> 32) % 3_000)),
        };
        let lines = until_killed(&mut child, &lines, when);
        let went = lines.iter().any(|line| line == "go");
        while_opening += u64::from(!went);
        for line in &lines {
            answered.take(line).unwrap_or_else(|what| panic!("life {life}: {what}: {line}"));
        }
    }
    let text = format!(
        "{kills} kills in {:.1?}, {while_opening} of them while opening; {} transactions answered",
        began.elapsed(),
        answered.count
    );
    println!("{text}");
    assert!(while_opening < kills / 2 && answered.count > 2 * kills, "too few were killed while writing: {text}");
    let (mut child, lines) = start(directory.path());
    let last: Vec<String> = lines.iter().take_while(|line| line != "go").collect();
    child.kill().expect("killed");
    child.wait().expect("waited");
    assert_eq!(last.len(), 1 + answered.tasks.len());
    for line in last {
        answered.take(&line).unwrap_or_else(|what| panic!("at the end: {what}: {line}"));
    }
}

/// Starts the writer. Its output lines are sent through the channel until it exits.
fn start(directory: &Path) -> (Child, Receiver<String>) {
    let program = env!("CARGO_BIN_EXE_store-crash-writer");
    let mut child = Command::new(program).arg(directory).stdout(Stdio::piped()).spawn().expect("started");
    let out = BufReader::new(child.stdout.take().expect("a pipe"));
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in out.lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    (child, lines)
}

/// The time to kill the writer.
enum When {
    /// This long after its start: on most machines while it opens the store.
    After(Duration),
    /// This long after this many acknowledged transactions: while it writes, however busy the machine is.
    Answered(usize, Duration),
}

/// Reads lines until it is time, kills the process, and reads the rest.
fn until_killed(child: &mut Child, lines: &Receiver<String>, when: When) -> Vec<String> {
    /// The time after which the store is open and in use, on any machine.
    const PATIENCE: Duration = Duration::from_secs(60);
    let (mut missing, after) = match when {
        When::After(after) => (0, after),
        // The line `go` counts too.
        When::Answered(count, after) => (count + 1, after),
    };
    let mut deadline = Instant::now() + if missing == 0 { after } else { PATIENCE };
    let mut taken = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if missing > 0 && (line == "go" || line.starts_with("ack ")) {
                    missing -= 1;
                    if missing == 0 {
                        deadline = Instant::now() + after;
                    }
                }
                taken.push(line);
            }
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => panic!("the writer ended by itself: {:?}", taken.last()),
        }
    }
    assert_eq!(missing, 0, "the writer did not start writing: {:?}", taken.last());
    child.kill().expect("killed");
    child.wait().expect("waited");
    taken.extend(lines.iter());
    taken
}

impl Answered {
    /// Records an acknowledged write, or compares a reported state with the acknowledged writes.
    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().map_err(|_| "not a number");
        match words[0] {
            "open" if number(1)? < self.newest => Err("the newest revision is lost"),
            "open" | "go" => Ok(()),
            "ack" => {
                let revision = number(3)?;
                self.newest = self.newest.max(revision);
                self.count += 1;
                let before = self.tasks.insert(number(1)?, (number(2)?, revision));
                let follows = before.is_none_or(|(_, last)| last < revision);
                if follows { Ok(()) } else { Err("revisions do not ascend") }
            }
            "state" => self.compare(number(1)?, &words[2..]),
            _ => Err("not a line that was expected"),
        }
    }

    /// Checks the state of a task: the last acknowledged transaction or the one after it, completely.
    fn compare(&mut self, task: u64, words: &[&str]) -> Result<(), &'static str> {
        let [a, a_revision, b, b_revision, c, c_revision] = words else {
            return Err("not a state");
        };
        if (a, a_revision) != (b, b_revision) {
            return Err("half a transaction: a and b differ");
        }
        let Ok(number) = a.parse::<u64>() else {
            let nothing = *a == "-" && *c == "-" && !self.tasks.contains_key(&task);
            return if nothing { Ok(()) } else { Err("it is not there") };
        };
        let third = if number % 2 == 1 { (*c, *c_revision) == (*a, *a_revision) } else { *c == "-" };
        if !third {
            return Err("half a transaction: c does not fit");
        }
        let revision = a_revision.parse().map_err(|_| "not a revision")?;
        let (last, last_revision) = self.tasks.get(&task).copied().unwrap_or((0, 0));
        let same = number == last && revision == last_revision;
        let next = number == last + 1 && revision > last_revision;
        self.tasks.insert(task, (number, revision));
        self.newest = self.newest.max(revision);
        if same || next { Ok(()) } else { Err("it is not what was answered") }
    }
}
