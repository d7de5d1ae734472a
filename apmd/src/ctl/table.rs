// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aligned columns.

/// Rows under a heading, columns two spaces apart, the last one as long as it is.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()],
        }
    }

    pub(super) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The lines.
    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["ID", "STATE", "WHY"]);
        assert!(table.is_empty());
        table.row(["1.1", "armed", "-"].map(str::to_owned));
        table.row(["1.1000", "rearming (idle)", "no traffic"].map(str::to_owned));
        assert_eq!(
            table.text(),
            "ID      STATE            WHY\n\
             1.1     armed            -\n\
             1.1000  rearming (idle)  no traffic\n"
        );
    }
}
