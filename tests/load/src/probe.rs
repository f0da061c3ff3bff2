//! The resource usage of a process, from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The CPU time of each thread so far, in nanoseconds. (The counter of the process has a resolution of 10 ms.)
#[derive(Clone, Debug, Default)]
pub struct Usage(BTreeMap<String, u64>);

impl Usage {
    /// The usage of the threads of this process.
    pub fn of(pid: u32) -> Result<Usage> {
        let mut threads = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?;
            // A thread that has ended in the meantime has no file any more.
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else {
                continue;
            };
            let nanos = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            threads.insert(task.file_name().to_string_lossy().into_owned(), nanos);
        }
        Ok(Usage(threads))
    }

    /// The usage since `earlier`, without threads that have ended in the meantime.
    pub fn since(&self, earlier: &Usage) -> Duration {
        let before = |thread: &String| earlier.0.get(thread).copied().unwrap_or(0);
        Duration::from_nanos(self.0.iter().map(|(thread, nanos)| nanos.saturating_sub(before(thread))).sum())
    }
}

/// Resident memory and its highest value so far, in bytes.
pub fn memory(pid: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
    };
    Ok((value("VmRSS:").context("no VmRSS")?, value("VmHWM:").context("no VmHWM")?))
}

/// Raises the limit of open files to the maximum: each proxy needs one.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, the connections that do not fit will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
