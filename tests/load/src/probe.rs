//! The resource usage of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The processor time of a process so far: that of all its threads, also of those that have ended. Commits run on threads of
/// their own, and the counters in `/proc` either leave out ended threads or have a resolution of 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage(Duration);

/// Processor time that was used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// All of it.
    pub processor: Duration,
    /// The part in the kernel. In steps of 10 ms.
    pub kernel: Duration,
}

/// The unit of the times in `/proc/PID/stat`.
const TICK: Duration = Duration::from_millis(10);

impl Usage {
    /// The usage of a process of the same user.
    pub fn of(pid: u32) -> Result<Usage> {
        let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid)?)).context("the process's clock")?;
        Ok(Usage(clock_gettime(clock).context("the process's clock")?.into()))
    }

    /// The usage since `earlier`.
    pub fn since(&self, earlier: &Usage) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Spent {
    /// The time that a process has used so far.
    pub fn by(pid: u32) -> Result<Spent> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may contain spaces. The time in the kernel is the 15th field.
        let ticks = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(12)?.parse::<u32>().ok());
        let kernel = TICK * ticks.context("no processor time in the kernel")?;
        Ok(Spent { processor: Usage::of(pid)?.0, kernel })
    }

    /// The time that was used since `earlier`.
    pub fn since(&self, earlier: &Spent) -> Spent {
        let since = |now: Duration, before| now.saturating_sub(before);
        Spent { processor: since(self.processor, earlier.processor), kernel: since(self.kernel, earlier.kernel) }
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
