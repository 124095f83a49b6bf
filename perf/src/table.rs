//! Tables that are readable on a terminal and valid Markdown.

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table.
pub struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            aligns: columns.iter().map(|column| column.1).collect(),
            rows: vec![columns.iter().map(|column| column.0.to_owned()).collect()],
        }
    }

    /// Adds a row, a cell for each column.
    pub fn row(&mut self, cells: &[String]) {
        assert_eq!(cells.len(), self.aligns.len(), "cells in a row");
        self.rows.push(cells.to_vec());
    }

    /// The table in Markdown, every column as wide as its widest cell.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.aligns.len())
            .map(|column| {
                self.rows
                    .iter()
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
                    .max(2)
            })
            .collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            for ((cell, &width), &align) in row.iter().zip(&widths).zip(&self.aligns) {
                text.push_str(&match align {
                    Align::Left => format!("| {cell:<width$} "),
                    Align::Right => format!("| {cell:>width$} "),
                });
            }
            text.push_str("|\n");
            if index == 0 {
                for (&width, &align) in widths.iter().zip(&self.aligns) {
                    let end = if align == Align::Right { ':' } else { '-' };
                    text.push_str(&format!("|{}{end}", "-".repeat(width + 1)));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}
