//! The figures, as a table for people and for docs/performance.md.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use test_harness::run::Protocol;

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
    /// Bytes that the proxies received.
    pub bytes: u64,
    /// Responses that the proxies received.
    pub responses: u64,
}

impl Measured {
    /// The median by the time of the last proxy; `None` for an empty list.
    pub fn median(mut rows: Vec<Measured>) -> Measured {
        rows.sort_by_key(|row| row.last);
        rows.swap_remove(rows.len() / 2)
    }
}

/// All figures of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The measured value.
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
}

impl Report {
    /// An empty one.
    pub fn default_for(plan: Plan) -> Report {
        Report { plan, rows: Vec::new(), resident_idle: 0, resident: 0, peak: 0, per_proxy: 0, per_pod: None }
    }

    /// A heading that describes the mesh.
    pub fn title(&self) -> String {
        let size = &self.plan.size;
        format!(
            "{} services × {} ports × {} endpoints in {} namespaces{}, {} proxies, {}{}",
            size.services,
            size.ports,
            size.endpoints,
            size.namespaces,
            if size.rules { ", with rules" } else { "" },
            self.plan.proxies,
            if self.plan.protocol == Protocol::Delta { "delta" } else { "state of the world" },
            if self.plan.kubernetes { ", in Kubernetes" } else { "" }
        )
    }

    /// A table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title());
        // The API server has a column only if there is one.
        let (name, line) = match self.plan.kubernetes {
            true => (" API server |", "---:|"),
            false => ("", ""),
        };
        let _ = writeln!(
            text,
            "| work |{name} first proxy | last proxy | control plane | sent | responses |\n\
             |---|{line}---:|---:|---:|---:|---:|"
        );
        for row in &self.rows {
            let told = match (self.plan.kubernetes, row.told) {
                (false, _) => String::new(),
                (true, None) => " |".to_owned(),
                (true, Some(told)) => format!(" {} |", shown(told)),
            };
            let _ = writeln!(
                text,
                "| {} |{told} {} | {} | {} CPU | {} | {} |",
                row.work,
                shown(row.first),
                shown(row.last),
                shown(row.processor),
                size(row.bytes),
                row.responses
            );
        }
        let _ = write!(
            text,
            "\nResident memory: {} before the first proxy, {} with all of them (highest so far: {}), {} for one more.\n",
            size(self.resident_idle),
            size(self.resident),
            size(self.peak),
            size(self.per_proxy)
        );
        if let Some(pod) = self.per_pod {
            let _ = writeln!(text, "One more pod: {pod} bytes.");
        }
        text
    }

    /// Puts the table into a page: in place of one with the same title, otherwise at the end.
    pub fn write_into(&self, page: &Path) -> Result<()> {
        let old = fs::read_to_string(page).unwrap_or_default();
        let heading = format!("### {}\n", self.title());
        let new = match old.split_once(&heading) {
            Some((before, after)) => {
                let end = after.find("\n#").map_or(after.len(), |at| at + 1);
                format!("{before}{}{}{}", self.markdown(), if end < after.len() { "\n" } else { "" }, &after[end..])
            }
            None => format!("{}\n\n{}", old.trim_end(), self.markdown()),
        };
        Ok(fs::write(page, new)?)
    }
}

fn shown(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1000.0;
    match millis {
        m if m >= 10_000.0 => format!("{:.1} s", m / 1000.0),
        m if m >= 10.0 => format!("{m:.0} ms"),
        m => format!("{m:.1} ms"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        b => format!("{} KiB", b.div_ceil(1 << 10)),
    }
}
