//! Rows for programs, written as runs are made: whoever ends a long simulation has what was done (R5.14).
//!
//! They are in the order of the runs, so that the same command gives the same output; a run that is made
//! before one that stands before it waits for that, and at the end, which Ctrl-C may bring, nothing that was
//! made is left out. On a terminal all are written at the end, since the bar of progress is there until then.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

use super::output::{self, Extras, Run};
use crate::cli::{Failure, print};

/// What a row is.
pub(super) enum Kind {
    Json,
    /// With columns for these too.
    Csv(Extras),
}

/// Rows on their way to standard output.
pub(super) struct Rows {
    kind: Kind,
    is_held: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Place of the run whose row is the next.
    next: usize,
    waiting: BTreeMap<usize, String>,
    failure: Option<Failure>,
}

impl Rows {
    /// Writes what stands before all rows.
    pub(super) fn begin(kind: Kind) -> Result<Self, Failure> {
        if let Kind::Csv(extras) = &kind {
            print(&output::csv_heading(extras))?;
        }
        Ok(Self { kind, is_held: std::io::stdout().is_terminal(), state: Mutex::default() })
    }

    /// A run was made; `nth` is its place among all.
    pub(super) fn made(&self, nth: usize, run: &Run<'_>) {
        let row = match &self.kind {
            Kind::Json => output::json_line(run),
            Kind::Csv(extras) => output::csv_line(extras, run),
        };
        let mut state = fallow_daemon::lock(&self.state);
        state.waiting.insert(nth, row);
        if self.is_held {
            return;
        }
        for row in state.in_order() {
            state.write(&row);
        }
    }

    /// Writes what is left.
    pub(super) fn end(self) -> Result<(), Failure> {
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        for row in std::mem::take(&mut state.waiting).into_values() {
            state.write(&row);
        }
        state.failure.map_or(Ok(()), Err)
    }
}

impl State {
    /// Takes the rows that no other has to stand before.
    fn in_order(&mut self) -> Vec<String> {
        let mut rows = Vec::new();
        while let Some(row) = self.waiting.remove(&self.next) {
            self.next += 1;
            rows.push(row);
        }
        rows
    }

    /// What cannot be written is told at the end; the runs are made all the same, for pictures.
    fn write(&mut self, row: &str) {
        if self.failure.is_none() {
            self.failure = print(row).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_of_the_runs_as_soon_as_they_can() {
        let mut state = State::default();
        let mut made = |nth: usize| {
            state.waiting.insert(nth, nth.to_string());
            state.in_order()
        };
        assert_eq!(made(1), [""; 0]);
        assert_eq!(made(0), ["0", "1"]);
        assert_eq!(made(3), [""; 0]);
        assert_eq!(made(2), ["2", "3"]);
    }
}
