// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aligned columns.

use std::io::Write;

use cm_msgs::is_unprintable;
use tabwriter::TabWriter;

/// A column: its heading, and what it says of one thing.
pub(super) type Column<T> = (&'static str, fn(&T) -> String);

/// A row for each thing.
pub(super) fn table<T>(things: &[T], columns: &[Column<T>]) -> String {
    let headings: Vec<_> = columns.iter().map(|(heading, _)| *heading).collect();
    let mut table = Table::new(&headings);
    for thing in things {
        let cells: Vec<_> = columns.iter().map(|(_, cell)| cell(thing)).collect();
        table.row(cells);
    }
    table.text()
}

/// What is not there is a dash.
pub(super) fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

/// Rows under a heading, columns two spaces apart, the last one as long as it is.
pub(super) struct Table(String);

impl Table {
    pub(super) fn new(heading: &[&str]) -> Self {
        Self(heading.join("\t"))
    }

    pub(super) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into().into_iter();
        // A control character would be a column, a line, or an order to the terminal.
        let cells: Vec<_> = cells
            .map(|cell| cell.replace(is_unprintable, "?"))
            .collect();
        self.0.push('\n');
        self.0.push_str(&cells.join("\t"));
    }

    pub(super) fn text(&self) -> String {
        let mut columns = TabWriter::new(Vec::new());
        // Writing to a vector does not fail.
        let _ = columns.write_all(self.0.as_bytes());
        let text = columns.into_inner().unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().map(|line| line.trim_end().to_owned() + "\n");
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_stay_cells() {
        let mut table = Table::new(&["ID", "STATE", "WHY"]);
        table.row(["1.1", "armed", ""].map(str::to_owned));
        table.row(["1.1000", "rearming (idle)", "no traffic"].map(str::to_owned));
        table.row(["2\t", "a\nb", "\u{1b}[2J"].map(str::to_owned));
        assert_eq!(
            table.text(),
            "ID      STATE            WHY\n\
             1.1     armed\n\
             1.1000  rearming (idle)  no traffic\n\
             2?      a?b              ?[2J\n"
        );
    }
}
