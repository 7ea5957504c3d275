//! Rows under a heading, in columns that line up.

use super::out::{Ink, Out};

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// One field of a row.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    ink: Ink,
}

/// A field in plain ink.
pub(crate) fn cell(text: impl Into<String>) -> Cell {
    inked(text, Ink::Plain)
}

/// A field in this ink.
pub(crate) fn inked(text: impl Into<String>, ink: Ink) -> Cell {
    Cell { text: text.into(), ink }
}

/// A heading and rows.
pub(crate) struct Table<const N: usize> {
    head: [(&'static str, Align); N],
    rows: Vec<[Cell; N]>,
}

/// What stands between two columns.
const BETWEEN: &str = "  ";

impl<const N: usize> Table<N> {
    pub(crate) fn new(head: [(&'static str, Align); N]) -> Self {
        Self { head, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    /// The lines of the table. On a terminal none is longer than it is wide.
    pub(crate) fn lines(&self, out: &Out) -> Vec<String> {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let head = self.head[column].0.chars().count();
            let cells = self.rows.iter().map(|row| row[column].text.chars().count());
            cells.fold(head, usize::max)
        });
        let head = self.head.map(|(name, _)| inked(name, Ink::Dim));
        let rows = std::iter::once(&head).chain(&self.rows);
        rows.map(|row| self.line(row, &widths, out)).collect()
    }

    fn line(&self, row: &[Cell; N], widths: &[usize; N], out: &Out) -> String {
        let (mut line, mut room) = (String::new(), out.width().unwrap_or(usize::MAX));
        for (column, cell) in row.iter().enumerate() {
            let between = if column == 0 { "" } else { BETWEEN };
            let text = match self.head[column].1 {
                Align::Left if column + 1 == N => format!("{between}{}", cell.text),
                Align::Left => format!("{between}{:<width$}", cell.text, width = widths[column]),
                Align::Right => format!("{between}{:>width$}", cell.text, width = widths[column]),
            };
            let fits: String = text.chars().take(room).collect();
            room -= fits.chars().count();
            line.push_str(&out.paint(cell.ink, &fits));
        }
        if out.is_terminal() { line } else { line.trim_end().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_a_pipe_gets_no_blanks_at_the_end() {
        let mut table =
            Table::new([("id", Align::Left), ("seq", Align::Right), ("who", Align::Left)]);
        table.add([cell("ä"), cell("7"), cell("me")]);
        table.add([inked("bbb", Ink::Red), cell("12345"), cell("")]);
        let lines = table.lines(&Out::plain());
        assert_eq!(lines, ["id     seq  who", "ä        7  me", "bbb  12345"]);
    }
}
