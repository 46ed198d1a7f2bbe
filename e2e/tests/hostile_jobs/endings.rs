//! The table of how greedy jobs ended.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::column::{Kind, Without};
use crate::greedy::Ends;
use crate::limits::{End, GREEDS};
use crate::{LAYERS, kinds};

/// The same end as with all layers.
const ALIKE: &str = "-";

/// How jobs ended, by agent.
#[derive(Debug, Default)]
pub(crate) struct Endings(BTreeMap<String, Ends>);

impl Endings {
    pub(crate) fn add(&mut self, kind: Kind, ends: Ends) {
        self.0.entry(kind.name()).or_default().extend(ends);
    }

    fn of(&self, root: bool, without: Without, number: usize) -> Option<End> {
        self.0.get(&Kind { root, without }.name())?.get(&number).copied()
    }

    /// Those layers whose absence alone has it end otherwise, and how.
    fn layers(&self, root: bool, number: usize) -> String {
        let all = self.of(root, Without::Nothing, number);
        let other = |layer: &'static str| {
            let end = self.of(root, Without::Layer(layer), number).filter(|end| Some(*end) != all)?;
            Some(format!("`{layer}`: {}", words(end)))
        };
        let others: Vec<String> = LAYERS.into_iter().filter_map(other).collect();
        if others.is_empty() { ALIKE.to_owned() } else { others.join("; ") }
    }

    fn row(&self, number: usize) -> String {
        let mut row = format!("| {}", GREEDS[number].0);
        for root in [true, false] {
            let [all, none] =
                [Without::Nothing, Without::Everything].map(|without| self.of(root, without, number));
            let shown = none.filter(|_| none != all).map_or_else(|| ALIKE.to_owned(), words);
            let _ = write!(
                row,
                " | {} | {} | {shown}",
                all.map_or_else(String::new, words),
                self.layers(root, number)
            );
        }
        row + " |\n"
    }

    pub(crate) fn rows(&self) -> Vec<String> {
        (0..GREEDS.len()).map(|number| self.row(number)).collect()
    }

    /// What did not end as it has to where all layers are there.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let confined = kinds().into_iter().filter(|kind| kind.without == Without::Nothing);
        let wrong = |kind: Kind| {
            let ends = GREEDS.iter().enumerate();
            let ends = ends.map(move |(number, greed)| (greed, self.of(kind.root, kind.without, number)));
            ends.filter(|(greed, end)| *end != Some(greed.2))
                .map(move |(greed, end)| format!("{} ({}): {end:?}", greed.0, kind.name()))
        };
        confined.flat_map(wrong).collect()
    }
}

fn words(end: End) -> String {
    match end {
        End::Success => "has its output".to_owned(),
        End::Outlived => "**has its output, and daemons go on**".to_owned(),
        End::Foreign => "**gives away another file as its output**".to_owned(),
        End::Failed(status, "") => format!("fails with {status}"),
        End::Failed(status, names) => format!("fails with {status}: {names}"),
        End::GoesOn => "is killed with its agent's end".to_owned(),
    }
}
