//! The output of the demo: a live table on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal, Write};

use test_harness::run::Counts;

/// The width of the bar of a split.
const BAR: usize = 30;

/// Standard output.
pub(super) struct Screen {
    terminal: bool,
    /// The number of lines of the live table below the last plain line.
    live: usize,
}

impl Screen {
    pub(super) fn new() -> Screen {
        Screen { terminal: io::stdout().is_terminal(), live: 0 }
    }

    /// Prints a permanent line.
    pub(super) fn say(&mut self, line: &str) {
        self.close();
        self.write(&format!("{line}\n"));
    }

    /// Shows the traffic since the last change in place. Does nothing unless on a terminal.
    pub(super) fn live(&mut self, rows: &[(&str, &Counts)]) {
        if self.terminal {
            self.close();
            let lines: Vec<String> = rows.iter().map(|(name, counts)| row(name, counts)).collect();
            self.write(&format!("{}\n", lines.join("\n")));
            self.live = lines.len();
        }
    }

    /// Prints the same as permanent lines.
    pub(super) fn result(&mut self, rows: &[(&str, &Counts)]) {
        for (name, counts) in rows {
            self.say(&row(name, counts));
        }
    }

    /// Removes the live table.
    pub(super) fn close(&mut self) {
        if self.live > 0 {
            self.write(&format!("\x1b[{}A\x1b[J", self.live));
            self.live = 0;
        }
    }

    fn write(&self, text: &str) {
        // A closed pipe means that the reader wants no more output.
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

fn row(name: &str, counts: &Counts) -> String {
    let v2 = counts.share("v2");
    let filled = (v2 * BAR as f64).round() as usize;
    let bar = format!("{}{}", "▒".repeat(BAR - filled.min(BAR)), "█".repeat(filled.min(BAR)));
    format!(
        "     {name:<8} v1 {:5.1} % {bar} {:5.1} % v2   {:6} requests, {} errors",
        counts.share("v1") * 100.0,
        v2 * 100.0,
        counts.requests,
        counts.errors
    )
}
