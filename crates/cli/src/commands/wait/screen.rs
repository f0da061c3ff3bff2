//! Progress output of `wait`.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::goal::Goal;
use crate::io::Io;
use crate::targets::Target;

/// Progress bars on a terminal, else a line for each change.
pub(super) struct Screen {
    bars: Option<(MultiProgress, Vec<ProgressBar>)>,
    last: Vec<Option<String>>,
    open: Vec<bool>,
}

impl Screen {
    pub(super) fn new(targets: &[Target], terminal: bool) -> Screen {
        // More bars would not fit on a screen.
        let bars = (terminal && targets.len() <= 20).then(|| {
            let all = MultiProgress::new();
            let style = ProgressStyle::with_template("{prefix} {bar:24} {msg} {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = |target: &Target| {
                let bar = all.add(
                    ProgressBar::new(1)
                        .with_style(style.clone())
                        .with_prefix(target.label()),
                );
                bar.enable_steady_tick(Duration::from_millis(200));
                bar
            };
            let bars = targets.iter().map(bar).collect();
            (all, bars)
        });
        Screen {
            bars,
            last: vec![None; targets.len()],
            open: vec![true; targets.len()],
        }
    }

    pub(super) fn pending(&mut self, index: usize, label: &str, what: String, share: Option<(u64, u64)>, io: &mut Io) {
        if self.last[index].as_ref() == Some(&what) {
            return;
        }
        match &self.bars {
            Some((_, bars)) => {
                if let Some((running, total)) = share {
                    bars[index].set_length(total);
                    bars[index].set_position(running);
                }
                bars[index].set_message(what.clone());
            }
            None => io.eprint(format!("{label}: {what}")),
        }
        self.last[index] = Some(what);
    }

    pub(super) fn done(&mut self, index: usize) {
        self.open[index] = false;
        if let Some((_, bars)) = &self.bars {
            bars[index].finish_and_clear();
        }
    }

    /// Hides the bars while `print` runs.
    pub(super) fn pause(&self, print: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        match &self.bars {
            Some((all, _)) => all.suspend(print),
            None => print(),
        }
    }

    pub(super) fn clear(&mut self) {
        if let Some((all, bars)) = self.bars.take() {
            bars.iter().for_each(ProgressBar::finish_and_clear);
            let _ = all.clear();
        }
    }

    /// The objects that have not reached the goal, for the timeout message.
    pub(super) fn left(&self, targets: &[Target], goal: &Goal) -> String {
        let open = (0..targets.len()).filter(|index| self.open[*index]);
        let of = |index: usize| match &self.last[index] {
            Some(what) => format!("{}: {what}", targets[index].label()),
            None => targets[index].label(),
        };
        let all: Vec<String> = open.map(of).collect();
        let more = if all.len() > 5 {
            format!(" and {} more", all.len() - 5)
        } else {
            String::new()
        };
        format!("waiting for {goal}: {}{more}", all[..all.len().min(5)].join("; "))
    }
}
