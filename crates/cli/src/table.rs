//! Tables with aligned columns.

use unicode_width::UnicodeWidthStr;

use crate::style::{self, Paint};

/// Spaces between columns.
const GAP: usize = 3;
/// Maximum width of a column: wider cells do not widen the whole column.
const WIDEST: usize = 120;

/// Rows of cells under headings. Column widths are kept, so that later rows align with earlier ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    headings: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        Table { headings: Some(headings.into_iter().map(Into::into).collect()), rows: Vec::new(), widths: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let clean = |cell: S| style::printable(&cell.into(), false);
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// The number of rows not yet printed.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The lines of the rows added since the last call. The first call starts with the headings.
    pub(crate) fn lines(&mut self, headings: bool, color: bool) -> Vec<String> {
        let headings = self.headings.take().filter(|_| headings);
        let (rows, widths) = (std::mem::take(&mut self.rows), &mut self.widths);
        for row in headings.iter().chain(&rows) {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width().min(WIDEST));
            }
        }
        let bold = headings.map(|headings| Paint::Bold.apply(&line(&headings, widths, |_| None, false), color));
        let rows = rows.iter().map(|row| line(row, widths, style::of_state, color));
        bold.into_iter().chain(rows).collect()
    }
}

fn line(cells: &[String], widths: &[usize], paint: impl Fn(&str) -> Option<Paint>, color: bool) -> String {
    let mut line = String::new();
    for (index, cell) in cells.iter().enumerate() {
        // The first cell is a name, even if the name is `Ready`.
        match paint(cell).filter(|_| index > 0) {
            Some(paint) => line.push_str(&paint.apply(cell, color)),
            None => line.push_str(cell),
        }
        if index + 1 < cells.len() {
            let pad = widths[index].saturating_sub(cell.width()) + GAP;
            line.extend(std::iter::repeat_n(' ', pad));
        }
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn later_rows_align_with_earlier_ones() {
        let mut table = Table::new(["NAME", "AGE"]);
        table.row(["reviews", "5s"]);
        table.row(["日本", "1d"]);
        assert_eq!(table.lines(true, false), ["NAME      AGE", "reviews   5s", "日本      1d"]);
        table.row(["a"]);
        table.row(["b", "2d"]);
        assert_eq!(table.lines(true, false), ["a", "b         2d"]);
    }

    #[test]
    fn colours_do_not_change_the_layout() {
        let mut table = Table::new(["NAME", "READY", "AGE"]);
        table.row(["a", "True", "5s"]);
        let lines = table.lines(true, true);
        assert_eq!(lines[0], "\x1b[1mNAME   READY   AGE\x1b[0m");
        assert_eq!(lines[1], "a      \x1b[32mTrue\x1b[0m    5s");
    }

    proptest! {
        #[test]
        fn every_second_cell_starts_in_the_same_column(
            rows in prop::collection::vec(("\\PC{1,20}", "[a-z]{1,5}"), 1..20)
        ) {
            let mut table = Table::new(["A", "B"]);
            for (first, second) in &rows {
                table.row([first.clone(), format!("|{second}")]);
            }
            let lines = table.lines(false, false);
            let start = |line: &String| line.rfind('|').map(|at| line[..at].width());
            let starts: std::collections::BTreeSet<_> = lines.iter().map(start).collect();
            prop_assert_eq!(starts.len(), 1);
        }
    }
}
