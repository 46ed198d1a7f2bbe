//! Ranges over a scenario's values (R5.13): `project.p1.latency_bound=3.67 h,7.34 h`.
//!
//! A path names a key of the scenario file: `duration`, `hosts`, `host.KEY`, `host.coprocessor.KIND.KEY`,
//! `client.KEY`, `project.NAME.KEY`, `project.NAME.application.NAME.KEY`, `outage.NAME.KEY`; `*` in the place
//! of a name means all of them, and keys go on into their tables (`client.buffer.min`). Values are as in the
//! file, with or without quotes, or a range: `1 h..8 h/8` is eight values at equal distances, ends included;
//! `1..20` is every whole number.
//!
//! **Model.** The scenario is written out, the key is set, and the result is read again: so a value means
//! here exactly what it means in a file, and is refused with the same words.

mod known_traces;
mod place;
mod values;

use std::collections::BTreeMap;
use std::fmt;

use known_traces::KnownTraces;

use super::{Diagnostics, Files, Scenario, Severity};

/// Most combinations of values in one experiment: more is a typing error.
const VARIANTS_MAX: usize = 100_000;

/// One `--vary` option: a key and the values that it takes in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// The key, such as `project.p1.latency_bound`.
    pub path: String,
    /// Its values as written, at least one; ranges are written out.
    pub values: Vec<String>,
}

/// One combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The values by path, as written.
    pub labels: BTreeMap<String, String>,
    /// The scenario with these values.
    pub scenario: Scenario,
}

/// A `--vary` option that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaryError {
    /// The option, or the part of it that is wrong.
    pub option: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right; may be empty.
    pub expected: String,
    /// What may have been meant.
    pub suggestion: Option<String>,
}

impl fmt::Display for VaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--vary '{}': {}", self.option, self.problem)?;
        if !self.expected.is_empty() {
            write!(f, "\n        expected {}", self.expected)?;
        }
        match &self.suggestion {
            Some(suggestion) => write!(f, "\n        did you mean {suggestion}?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for VaryError {}

impl VaryError {
    pub(crate) fn new(
        option: impl Into<String>,
        problem: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self { option: option.into(), problem: problem.into(), expected: expected.into(), suggestion: None }
    }
    pub(crate) fn suggesting(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }
}

impl Vary {
    /// Reads an option such as `host.cpus=1,2,4`. Whether the key exists is seen when it is applied.
    ///
    /// # Errors
    /// [`VaryError`] when it is not of the form PATH=VALUE,VALUE or a range in it cannot be written out.
    pub fn parse(option: &str) -> Result<Self, VaryError> {
        let form = "PATH=VALUE,VALUE such as project.p1.latency_bound=3.67 h,7.34 h";
        let Some((path, values)) = option.split_once('=') else {
            return Err(VaryError::new(option, "there is no = in it", form));
        };
        if option.chars().any(char::is_control) {
            return Err(VaryError::new(option.escape_debug().to_string(), "it has control characters", form));
        }
        let values =
            values::split(values).map_err(|error| VaryError::new(option, error.to_string(), form))?;
        Ok(Self { path: path.trim().to_owned(), values })
    }

    /// The scenario with one value of this option. Files that it names and the scenario does not hold come
    /// from `files`.
    ///
    /// # Errors
    /// [`VaryError`] when there is no such key, or it does not take this value.
    pub fn apply(&self, scenario: &Scenario, value: &str, files: &dyn Files) -> Result<Scenario, VaryError> {
        let option = format!("{}={value}", self.path);
        let toml = scenario.to_toml();
        let mut first: Option<VaryError> = None;
        for value in values::meanings(value) {
            let mut table: toml::Table = toml.parse().map_err(|_| {
                VaryError::new(&*option, "the scenario cannot be written", "a scenario that is sound")
            })?;
            place::set(&mut table, &self.path, &value)
                .map_err(|error| VaryError { option: option.clone(), ..error })?;
            let held = KnownTraces { scenario, others: files };
            match Scenario::parse(&scenario.name, &table.to_string(), &held) {
                Ok(loaded) => return Ok(loaded.scenario),
                Err(diagnostics) => first = first.or_else(|| Some(self.refused(&option, diagnostics))),
            }
        }
        Err(first.unwrap_or_else(|| VaryError::new(option, "it has no value", "a value")))
    }

    /// The first diagnostic about the scenario that a value leads to, in terms of the option.
    fn refused(&self, option: &str, diagnostics: Diagnostics) -> VaryError {
        let diagnostic = diagnostics.0.into_iter().find(|diagnostic| diagnostic.severity == Severity::Error);
        let Some(diagnostic) = diagnostic else { return VaryError::new(option, "it is refused", "") };
        // With `*` in the path, and for what a value means to other keys, the place is worth a word.
        let problem = if diagnostic.key == self.path || diagnostic.problem.starts_with("unknown key") {
            diagnostic.problem
        } else {
            format!("{}: {}", diagnostic.key, diagnostic.problem)
        };
        VaryError::new(option, problem, diagnostic.expected).suggesting(diagnostic.suggestion)
    }
}

impl Scenario {
    /// All combinations of the values of `options`, the last option varying fastest; the scenario itself if
    /// there are none.
    ///
    /// # Errors
    /// [`VaryError`] for the first value that is refused, a key that is given twice, or too many
    /// combinations.
    pub fn variants(&self, options: &[Vary], files: &dyn Files) -> Result<Vec<Variant>, VaryError> {
        let mut variants = vec![Variant { labels: BTreeMap::new(), scenario: self.clone() }];
        for (index, option) in options.iter().enumerate() {
            if options.iter().take(index).any(|earlier| earlier.path == option.path) {
                return Err(VaryError::new(
                    &*option.path,
                    "it is varied twice",
                    "one --vary with all its values",
                ));
            }
            if variants.len().saturating_mul(option.values.len()) > VARIANTS_MAX {
                let expected = format!("at most {VARIANTS_MAX} combinations");
                return Err(VaryError::new(&*option.path, "there are too many combinations", expected));
            }
            let mut next = Vec::with_capacity(variants.len() * option.values.len());
            for variant in &variants {
                for value in &option.values {
                    let mut labels = variant.labels.clone();
                    labels.insert(option.path.clone(), value.clone());
                    next.push(Variant { labels, scenario: option.apply(&variant.scenario, value, files)? });
                }
            }
            variants = next;
        }
        Ok(variants)
    }
}
