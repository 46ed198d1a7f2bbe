//! Tables that fit a terminal: what matters least is left out, and a line below says what. A pipe gets all.

use std::io::IsTerminal as _;

use super::screen;
use super::table::{self, Column};
use crate::printable;

/// A column and when it is left out: the highest number first, 0 never.
pub(super) type Ranked = (Column, u8);

/// Blanks beside what is in a column, and between it and the next.
const PADDING: usize = 3;
/// Width that is kept for the last column of a table, if it holds text, before other columns are left out.
const LAST: usize = 24;
/// The least width of it.
const LAST_LEAST: usize = 10;

/// Renders a table: on a terminal, unless all is wanted, only what fits into it.
pub(super) fn render(columns: Vec<Ranked>, rows: Vec<Vec<String>>, wide: bool) -> String {
    let is_fitted = !wide && std::io::stdout().is_terminal();
    let width = if is_fitted { screen::width() } else { usize::MAX };
    let (columns, rows, note) = fit(columns, rows, width);
    format!("{}{note}", table::render(&columns, rows))
}

/// What fits into so many columns of a terminal, and a line about the rest if there is one.
fn fit(
    columns: Vec<Ranked>,
    mut rows: Vec<Vec<String>>,
    width: usize,
) -> (Vec<Column>, Vec<Vec<String>>, String) {
    let widths: Vec<usize> =
        columns.iter().enumerate().map(|(at, (column, _))| widest(column, at, &rows)).collect();
    let last = columns.len().saturating_sub(1);
    let is_text = matches!(columns.last(), Some((Column::Text(_), _)));
    let worth = |at: usize| PADDING + if at == last && is_text { widths[at].min(LAST) } else { widths[at] };
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let total = |kept: &[usize]| kept.iter().map(|at| worth(*at)).sum::<usize>();
    while total(&kept) > width {
        let least = kept.iter().copied().filter(|at| columns[*at].1 > 0).max_by_key(|at| columns[*at].1);
        let Some(least) = least else { break };
        kept.retain(|at| *at != least);
    }
    let mut notes = Vec::new();
    let missing: Vec<&str> =
        (0..columns.len()).filter(|at| !kept.contains(at)).map(|at| heading(&columns[at].0)).collect();
    if !missing.is_empty() {
        notes.push(format!("not shown at {width} columns: {}", missing.join(", ")));
    }
    let others: usize = kept.iter().filter(|at| **at != last).map(|at| worth(*at)).sum();
    let room = width.saturating_sub(others + PADDING).max(LAST_LEAST);
    if is_text && kept.contains(&last) && widths[last] > room {
        rows.iter_mut().filter_map(|row| row.get_mut(last)).for_each(|cell| cut(cell, room));
        notes.push(format!("{} is cut short", heading(&columns[last].0)));
    }
    let rows = rows.into_iter().map(|row| kept.iter().filter_map(|at| row.get(*at).cloned()).collect());
    let rows = rows.collect();
    let columns = columns.into_iter().enumerate().filter(|(at, _)| kept.contains(at));
    let columns = columns.map(|(_, (column, _))| column).collect();
    let note = match notes.is_empty() {
        true => String::new(),
        false => {
            screen::wrapped(&format!("({}; --wide or --json shows all)", notes.join("; ")), width) + "\n"
        }
    };
    (columns, rows, note)
}

/// What a terminal of such a width shows.
#[cfg(test)]
pub(super) fn shown_at(width: usize, columns: &[Ranked], rows: &[Vec<String>]) -> String {
    let (columns, rows, note) = fit(columns.to_vec(), rows.to_vec(), width);
    format!("{}{note}", table::render(&columns, rows))
}

fn heading(column: &Column) -> &'static str {
    let (Column::Text(name) | Column::Number(name)) = column;
    name
}

fn widest(column: &Column, at: usize, rows: &[Vec<String>]) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
    cells.chain([heading(column).chars().count()]).max().unwrap_or(0)
}

/// Cuts a text so that it takes so many columns, with a mark where it was cut.
fn cut(cell: &mut String, room: usize) {
    if cell.chars().count() > room {
        let text: String = cell.chars().take(room.saturating_sub(1)).collect();
        *cell = printable::line(&text, usize::MAX) + "…";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Column::{Number, Text};

    fn columns() -> Vec<Ranked> {
        vec![(Text("name"), 0), (Text("agent"), 9), (Number("CPU time"), 3), (Text("state"), 0)]
    }

    fn row(state: &str) -> Vec<String> {
        ["lab1", "01KAPGWEWKZ5Z2NQJYX5Y9VXWF", "1234.5 s", state].map(str::to_owned).to_vec()
    }

    /// As it is printed at this width.
    fn shown(state: &str, width: usize) -> String {
        let (columns, rows, note) = fit(columns(), vec![row(state)], width);
        format!("{}{note}", table::render(&columns, rows))
    }

    #[test]
    fn r6_11_a_table_fits_its_terminal_and_says_what_it_leaves_out() {
        let all = shown("suspended by its owner", usize::MAX);
        assert!(all.contains("01KAPGWEWKZ5Z2NQJYX5Y9VXWF") && all.lines().count() == 2, "{all}");
        assert_eq!(shown("suspended by its owner", 80), all, "it fits");
        let narrow = shown("suspended by its owner", 60);
        assert!(!narrow.contains("01KAPG") && narrow.contains("1234.5 s"), "{narrow}");
        assert!(
            narrow.ends_with("(not shown at 60 columns: agent; --wide or --json shows all)\n"),
            "{narrow}"
        );
        for width in 36..110 {
            let text = shown("suspended by its owner", width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        let narrowest = shown("suspended by its owner", 36);
        assert!(narrowest.contains("agent, CPU") && narrowest.contains("by its owner"), "{narrowest}");
    }

    #[test]
    fn a_long_reason_is_cut_instead_of_pushing_all_else_out() {
        let reason = "refused document 7: ".to_owned() + &"because ".repeat(40);
        let cut = shown(&reason, 80);
        assert!(cut.lines().all(|line| line.chars().count() <= 80), "{cut}");
        assert!(cut.contains("1234.5 s") && cut.contains('…') && cut.contains("state is cut short"), "{cut}");
    }
}
