//! What the demo shows: a live table on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};

use test_harness::run::Counts;

/// How wide the bar of a split is.
const BAR: usize = 30;

/// Standard output.
pub(super) struct Screen {
    terminal: bool,
    /// How many lines of the live table stand below the last plain line.
    live: usize,
}

impl Screen {
    pub(super) fn new() -> Screen {
        Screen {
            terminal: io::stdout().is_terminal(),
            live: 0,
        }
    }

    /// A line that stays.
    pub(super) fn say(&mut self, line: &str) {
        self.close();
        self.write(&format!("{line}\n"));
    }

    /// Shows what went through since the last change, at the same place; only on a terminal.
    pub(super) fn live(&mut self, rows: &[(&str, &Counts)]) {
        if self.terminal {
            self.close();
            let lines: Vec<String> = rows.iter().map(|(name, counts)| row(name, counts)).collect();
            self.write(&format!("{}\n", lines.join("\n")));
            self.live = lines.len();
        }
    }

    /// The same as lines that stay.
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
        // Whoever closes the other end of a pipe does not want to read more.
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
