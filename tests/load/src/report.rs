//! The figures, as a table for people and for docs/performance.md.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use test_harness::run::Protocol;

use crate::mesh::Location;
use crate::probe::Spent;
use crate::run::Plan;

/// The cost of one piece of work.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The work.
    pub work: String,
    /// The time until another client of the API server, if there is one, received the last change.
    pub told: Option<Duration>,
    /// The time until the first proxy had everything.
    pub first: Duration,
    /// The time until the last proxy had everything.
    pub last: Duration,
    /// The CPU time of the control plane.
    pub processor: Duration,
    /// The part of it that it spent in the kernel, mostly to copy to sockets. In steps of 10 ms.
    pub kernel: Duration,
    /// Bytes that the proxies received.
    pub bytes: u64,
    /// Responses that the proxies received.
    pub responses: u64,
}

impl Measured {
    /// Work that no proxy receives anything of.
    pub fn quiet(work: &str, took: Duration, used: Spent) -> Measured {
        let Spent { processor, kernel } = used;
        Measured {
            work: work.to_owned(),
            told: None,
            first: took,
            last: took,
            processor,
            kernel,
            bytes: 0,
            responses: 0,
        }
    }

    /// The median by the time of the last proxy; `None` for an empty list.
    pub fn median(mut rows: Vec<Measured>) -> Measured {
        rows.sort_by_key(|row| row.last);
        rows.swap_remove(rows.len() / 2)
    }
}

/// The resident memory of a process in which the mesh was filled, and of one that started with the same mesh, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    /// Filled while it ran, with all proxies.
    pub running: u64,
    /// From a start, with all proxies.
    pub from_start: u64,
    /// From a start, before the first proxy.
    pub from_start_idle: u64,
}

/// How long one kind of work held up all others.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    /// The kind of work.
    pub step: String,
    /// How often it was done.
    pub count: u64,
    /// How often it took more than 50 ms.
    pub long: u64,
    /// The upper bound, in seconds, of the longest one: that of its bucket in the histogram.
    pub longest: f64,
    /// The same of the processor time of a step, which does not contain the time of other threads.
    pub processor: f64,
}

impl Stall {
    /// The stalls in a page of metrics, by the kind of work.
    pub fn read(metrics: &str) -> Vec<Stall> {
        let mut stalls = Stall::read_family(metrics, "rutter_world_step_seconds");
        for one in Stall::read_family(metrics, "rutter_world_step_processor_seconds") {
            if let Some(stall) = stalls.iter_mut().find(|stall| stall.step == one.step) {
                stall.processor = one.longest;
            }
        }
        stalls
    }

    fn read_family(metrics: &str, name: &str) -> Vec<Stall> {
        let mut stalls: Vec<Stall> = Vec::new();
        for line in metrics.lines() {
            let bucket = line.strip_prefix(name).and_then(|rest| rest.strip_prefix("_bucket{"));
            let Some(rest) = bucket else { continue };
            let label = |name: &str| rest.split_once(&format!("{name}=\""))?.1.split_once('"').map(|(value, _)| value);
            let (Some(step), Some(bound)) = (label("step"), label("le")) else { continue };
            let count = rest.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            if stalls.last().is_none_or(|last| last.step != step) {
                stalls.push(Stall { step: step.to_owned(), ..Stall::default() });
            }
            if let Some(stall) = stalls.last_mut()
                && count > stall.count
            {
                // Buckets are cumulative.
                stall.long += if bound > 0.05 { count - stall.count } else { 0 };
                (stall.count, stall.longest) = (count, bound);
            }
        }
        stalls.retain(|stall| stall.count > 0);
        stalls
    }

    /// The longest step, as a text.
    pub fn shown(&self) -> String {
        let long = if self.long > 0 { format!(" ({} above 50 ms)", self.long) } else { String::new() };
        let processor = match self.processor {
            used if used < self.longest => format!(", {} ms of processor time", used * 1000.0),
            _ => String::new(),
        };
        format!("{} {} ms{long}{processor}", self.step, self.longest * 1000.0)
    }

    /// Adds the stalls of another process.
    pub fn merge(all: &mut Vec<Stall>, more: Vec<Stall>) {
        for stall in more {
            match all.iter_mut().find(|one| one.step == stall.step) {
                Some(one) => {
                    one.count += stall.count;
                    one.long += stall.long;
                    one.longest = one.longest.max(stall.longest);
                    one.processor = one.processor.max(stall.processor);
                }
                None => all.push(stall),
            }
        }
    }
}

/// All figures of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was measured.
    pub plan: Plan,
    /// One row for each piece of work.
    pub rows: Vec<Measured>,
    /// Resident memory before the first proxy connected, in bytes.
    pub resident_idle: u64,
    /// Resident memory with all proxies, in bytes.
    pub resident: u64,
    /// Its highest value up to then, in bytes.
    pub peak: u64,
    /// Resident memory that one more proxy adds, in bytes.
    pub per_proxy: u64,
    /// Resident memory that one more pod of a cluster adds, in bytes.
    pub per_pod: Option<u64>,
    /// How much the way in which the mesh was filled matters.
    pub filled: Option<Filled>,
    /// How long each kind of work held up all others.
    pub stalls: Vec<Stall>,
}

impl Report {
    /// An empty one.
    pub fn default_for(plan: Plan) -> Report {
        Report {
            plan,
            rows: Vec::new(),
            resident_idle: 0,
            resident: 0,
            peak: 0,
            per_proxy: 0,
            per_pod: None,
            filled: None,
            stalls: Vec::new(),
        }
    }

    /// A heading that describes the mesh.
    pub fn title(&self) -> String {
        let size = &self.plan.size;
        format!(
            "{} services × {} ports × {} endpoints in {} namespaces{}, {} proxies, {}{}{}",
            size.services,
            size.ports,
            size.endpoints,
            size.namespaces,
            match (size.rules, size.private) {
                (false, false) => "",
                (true, false) => ", with rules",
                (false, true) => ", with private services",
                (true, true) => ", with rules and private services",
            },
            self.plan.proxies,
            if self.plan.protocol == Protocol::Delta { "delta" } else { "state of the world" },
            if self.plan.tls { ", TLS" } else { "" },
            match self.plan.location {
                Location::Files => "",
                Location::Embedded => ", embedded store",
                Location::Kubernetes => ", in Kubernetes",
            }
        )
    }

    /// A table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title());
        // The API server has a column only if there is one.
        let has_server = self.plan.location == Location::Kubernetes;
        let (name, line) = if has_server { (" API server |", "---:|") } else { ("", "") };
        let _ = writeln!(
            text,
            "| work |{name} first proxy | last proxy | control plane | sent | responses |\n\
             |---|{line}---:|---:|---:|---:|---:|"
        );
        for row in &self.rows {
            let told = match (has_server, row.told) {
                (false, _) => String::new(),
                (true, None) => " |".to_owned(),
                (true, Some(told)) => format!(" {} |", shown(told)),
            };
            let _ = writeln!(
                text,
                "| {} |{told} {} | {} | {} CPU{} | {} | {} |",
                row.work,
                shown(row.first),
                shown(row.last),
                shown(row.processor),
                in_kernel(row),
                size(row.bytes),
                row.responses
            );
        }
        let _ = write!(
            text,
            "\nResident memory: {} before the first proxy, {} with all of them (at most {}), {} for one more.\n",
            size(self.resident_idle),
            size(self.resident),
            size(self.peak),
            size(self.per_proxy)
        );
        if let Some(Filled { running, from_start, from_start_idle }) = self.filled {
            let _ = writeln!(
                text,
                "With all proxies: {} in the process in which the mesh was filled, {} in one that started with the same \
                 mesh ({} before the first proxy).",
                size(running),
                size(from_start),
                size(from_start_idle)
            );
        }
        if let Some(pod) = self.per_pod {
            let _ = writeln!(text, "One more pod: {pod} bytes.");
        }
        let longest: Vec<String> = self.stalls.iter().map(Stall::shown).collect();
        let _ = writeln!(text, "\n{LAST_PARAGRAPH} {}.", longest.join("; "));
        text
    }

    /// Puts the table into a page: in place of one with the same title, otherwise at the end. What follows the old table's last
    /// paragraph stays.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn write_into(&self, page: &Path) -> Result<()> {
        let old = fs::read_to_string(page).unwrap_or_default();
        Ok(fs::write(page, self.inserted(&old))?)
    }

    fn inserted(&self, page: &str) -> String {
        let heading = format!("### {}\n", self.title());
        let Some((before, after)) = page.split_once(&heading) else {
            return format!("{}\n\n{}", page.trim_end(), self.markdown());
        };
        let section = after.find("\n#").map_or(after.len(), |at| at + 1);
        let last = after[..section].find(LAST_PARAGRAPH);
        let kept = last.and_then(|at| Some(at + after[at..section].find('\n')? + 1)).unwrap_or(section);
        let gap = if kept == section && section < after.len() { "\n" } else { "" };
        format!("{before}{}{gap}{}", self.markdown(), &after[kept..])
    }
}

/// The begin of the last paragraph of a table.
const LAST_PARAGRAPH: &str = "Longest steps of the world's thread:";

/// The processor time in the kernel, where it is long enough to be exact.
fn in_kernel(row: &Measured) -> String {
    match row.kernel >= Duration::from_millis(500) {
        true => format!(", {} in the kernel", shown(row.kernel)),
        false => String::new(),
    }
}

pub(crate) fn shown(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    match millis {
        m if m >= 10_000.0 => format!("{:.1} s", m / 1000.0),
        m if m >= 10.0 => format!("{m:.0} ms"),
        m => format!("{m:.1} ms"),
    }
}

pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        b => format!("{} KiB", b.div_ceil(1 << 10)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_a_page_stay() {
        let size = crate::objects::Size {
            services: 1,
            ports: 1,
            endpoints: 1,
            namespaces: 1,
            rules: false,
            private: false,
            cluster_ips: true,
        };
        let (protocol, location) = (Protocol::Delta, Location::Files);
        let report = Report::default_for(Plan { size, proxies: 1, protocol, location, tls: false });
        let page = |table: &str, note: &str| format!("# Page\n\n{table}\n{note}### Another\n\ntext\n");
        let old = format!("### {}\n\n| old |\n\n{LAST_PARAGRAPH} old.\n", report.title());
        let note = "A note.\n\n";
        assert_eq!(report.inserted(&page(&old, note)), page(&report.markdown(), note));
        assert_eq!(report.inserted(&page(&report.markdown(), "")), page(&report.markdown(), ""));
        let without = format!("### {}\n\n| old |\n", report.title());
        assert_eq!(report.inserted(&page(&without, "")), page(&report.markdown(), ""));
        assert_eq!(report.inserted("# Page\n"), format!("# Page\n\n{}", report.markdown()));
    }

    #[test]
    fn stalls_are_read_from_a_histogram() {
        let of = |family: &str, step: &str, bound: &str, count: u32| {
            format!("rutter_world_step_{family}_bucket{{le=\"{bound}\",step=\"{step}\"}} {count}\n")
        };
        let line = |step: &str, bound: &str, count: u32| of("seconds", step, bound, count);
        let page = ["# EOF\n".to_owned()].into_iter().chain([
            line("push", "0.01", 3),
            line("push", "0.05", 4),
            line("push", "0.1", 6),
            line("push", "+Inf", 6),
            line("count", "0.01", 0),
            line("commit", "0.01", 1),
            of("processor_seconds", "push", "0.01", 5),
            of("processor_seconds", "push", "0.02", 6),
        ]);
        let stalls = Stall::read(&page.collect::<String>());
        let shown: Vec<String> =
            stalls.iter().map(|s| format!("{} {} {} {} {}", s.step, s.count, s.long, s.longest, s.processor)).collect();
        assert_eq!(shown, ["push 6 2 0.1 0.02", "commit 1 0 0.01 0"]);
    }
}
