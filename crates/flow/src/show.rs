//! Bounded `Debug` output of keys and rows.

use std::fmt::{self, Debug, Write};

/// Formats a value with `Debug` and cuts it after `limit` bytes. Formatting stops at the cut.
pub(crate) fn shown(value: &dyn Debug, limit: usize) -> String {
    let mut shown = Bounded { text: String::new(), room: limit, cut: false };
    // The only error is that of `Bounded`, which stops the formatting.
    let _ = write!(shown, "{value:?}");
    if shown.cut {
        shown.text.push('…');
    }
    shown.text
}

struct Bounded {
    text: String,
    room: usize,
    cut: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if more.len() <= self.room {
            self.text.push_str(more);
            self.room -= more.len();
            return Ok(());
        }
        let fits = (0..=self.room).rev().find(|end| more.is_char_boundary(*end));
        self.text.push_str(&more[..fits.unwrap_or(0)]);
        self.room = 0;
        self.cut = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(shown(&"äöü", 100), "\"äöü\"");
        assert_eq!(shown(&vec![1; 10], 8), "[1, 1, 1…");
        assert_eq!(shown(&"äöü", 4), "\"ä…");
    }
}
