//! Tables for people: headings underlined on a terminal, plain columns in a pipe.

use std::io::IsTerminal as _;

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, LineStyle, Table, presets};
use fallow_domain::{Duration, Instant};

use crate::printable;

/// A column: its heading, and whether it holds numbers.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// Renders rows under headings.
pub(crate) fn render(columns: &[Column], rows: Vec<Vec<String>>) -> String {
    let is_terminal = std::io::stdout().is_terminal();
    let is_plain = !is_terminal || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut table = Table::new();
    // A terminal breaks long lines better than a table breaks words: names stay whole and can be copied.
    table.set_content_arrangement(ContentArrangement::Disabled);
    let underline = LineStyle::none().fill('─').junction('─');
    table.load_style(if is_terminal {
        presets::NOTHING.header_separator(underline)
    } else {
        presets::NOTHING
    });
    if is_plain {
        table.force_no_tty();
    }
    table.set_header(columns.iter().map(|column| {
        let (Column::Text(name) | Column::Number(name)) = column;
        Cell::new(name).add_attribute(Attribute::Bold)
    }));
    for (index, column) in columns.iter().enumerate() {
        if let (Column::Number(_), Some(column)) = (column, table.column_mut(index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    // Whatever gave hosts and jobs their names: a name makes no row and gives the terminal no orders.
    let fit = |cell: String| printable::line(&cell, usize::MAX);
    table.add_rows(rows.into_iter().map(|row| row.into_iter().map(fit).collect::<Vec<_>>()));
    format!("{}\n", table.trim_fmt())
}

/// A number that people gave, in few characters whatever it is.
pub(crate) fn number(value: f64) -> String {
    let is_plain = value == 0.0 || (1e-6..1e15).contains(&value.abs());
    match is_plain {
        true => {
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        false => format!("{value:e}"),
    }
}

/// A number of things: `1 job`, `2 jobs`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// CPU time for people.
pub(crate) fn micros(micros: i64) -> String {
    Duration::from_micros(micros).to_string()
}

/// A debt in whole seconds, with its sign.
pub(crate) fn debt(seconds: f64) -> String {
    // A sum with zero: nobody owes "-0 s".
    format!("{:+.0} s", seconds.round() + 0.0)
}

/// How long ago, or `never`.
pub(crate) fn ago(micros: i64, now: Instant) -> String {
    if micros == 0 {
        return "never".to_owned();
    }
    format!("{} ago", now.since(Instant::from_micros(micros)))
}

/// A figure from 0 to 1, or a dash.
pub(crate) fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

/// An instant as people and programs read it, empty for none.
pub(crate) fn instant(micros: i64) -> String {
    match micros {
        0 => String::new(),
        micros => jiff::Timestamp::from_microsecond(micros).map(|at| at.to_string()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_no_row_and_gives_a_terminal_no_orders() {
        let rows = vec![vec!["lab1\n\x1b[31mforged   up".to_owned(), "up".to_owned()]];
        let shown = render(&[Column::Text("name"), Column::Text("link")], rows);
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(shown.contains("lab1��[31mforged") && !shown.contains('\x1b'), "{shown}");
    }

    #[test]
    fn a_number_takes_few_characters_whatever_it_is() {
        let shown = [0.0, 75.0, 0.1 + 0.2, 1e9, 0.001, 1e-300, 1e300, -1.5].map(number);
        assert_eq!(shown, ["0", "75", "0.3", "1000000000", "0.001", "1e-300", "1e300", "-1.5"]);
    }

    #[test]
    fn no_debt_has_no_minus_before_it() {
        assert_eq!(
            ["-0.3", "0.2", "-7.6"].map(|debt_of| debt(debt_of.parse().unwrap())),
            ["+0 s", "+0 s", "-8 s"]
        );
    }
}
