//! A walk over a parsed TOML file that notes everything that is wrong, and where each key stands.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::secret::Secrets;
use crate::suggest::suggest;
use crate::value::{BadValue, FromValue, unexpected};
use crate::{Diagnostic, Problem, Severity, Source};

/// The keys that a table may have.
pub struct Section {
    /// How the table is called, such as `[host]`.
    pub title: &'static str,
    /// Its keys, in the order in which people write them.
    pub keys: &'static [&'static str],
}

/// Most diagnostics about one file: whoever gets as many has another file in mind, and each costs a look at
/// the file.
const DIAGNOSTICS_MAX: usize = 100;

/// The walk: what was found so far.
pub struct Walk<'s> {
    source: Source<'s>,
    sections: &'static [&'static Section],
    diagnostics: Vec<Diagnostic>,
    spans: BTreeMap<String, Range<usize>>,
    secrets: Secrets,
}

/// One table.
pub struct Fields<'t, 'i> {
    /// Its path, empty for the file itself.
    pub path: String,
    table: &'t DeTable<'i>,
}

impl Fields<'_, '_> {
    /// The path of one of its keys.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl<'s> Walk<'s> {
    /// A walk over `source`; `sections` are looked through for keys that stand in the wrong one.
    pub fn new(source: Source<'s>, sections: &'static [&'static Section]) -> Self {
        let secrets = Secrets::default();
        Self { source, sections, diagnostics: Vec::new(), spans: BTreeMap::new(), secrets }
    }

    /// A walk whose diagnostics show no value of these keys, wherever they stand: findings are read by others
    /// than the file.
    #[must_use]
    pub fn hiding(self, keys: &'static [&'static str]) -> Self {
        let secrets = Secrets::of(keys, self.source.text);
        Self { secrets, ..self }
    }

    /// The file's text as a table; syntax errors are noted, and end the walk.
    pub fn parse(&mut self) -> Option<Spanned<DeTable<'s>>> {
        let (table, errors) = DeTable::parse_recoverable(self.source.text);
        let sections = self.sections;
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            if self.room() {
                let plain = |key: &str| sections.iter().any(|section| section.keys.contains(&key));
                self.secrets.hide_line(self.source.text, span.start, plain);
                let (key, bad) = match self.bare_value(span.start) {
                    Some((key, bad)) => (key, Some(bad)),
                    None => ("", None),
                };
                let problem =
                    bad.as_ref().map_or_else(|| error.message().to_owned(), |bad| bad.problem.clone());
                let mut diagnostic = self.diagnose(Severity::Error, span, key, problem);
                if let Some(bad) = bad {
                    diagnostic = diagnostic.expecting(bad.expected).suggesting(bad.suggestion);
                }
                self.diagnostics.push(diagnostic);
            }
        }
        errors.is_empty().then_some(table)
    }

    /// The key of the line at `at`, and what is wrong with its value, where that is a word or an amount that
    /// TOML takes in quotes only, or one of its truth values in other words.
    fn bare_value(&self, at: usize) -> Option<(&'s str, BadValue)> {
        let text = self.source.text;
        let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
        let line = text.get(start..)?.lines().next()?;
        let (key, value) = line.split_once('=')?;
        let (key, value) = (key.trim(), value.split('#').next().unwrap_or_default().trim());
        let is_known = self.sections.iter().any(|section| section.keys.contains(&key));
        let is_bare = value.starts_with(|first: char| first.is_ascii_alphanumeric())
            && !value.contains(['"', '\'', '[', '{', '='])
            && value.len() <= 100;
        if !is_known || !is_bare || self.secrets.has(key) || self.secrets.hides(start + line.len() - 1) {
            return None;
        }
        let (expected, meant) = match value.to_lowercase().as_str() {
            "yes" | "on" | "true" => ("true or false", "true".to_owned()),
            "no" | "off" | "false" => ("true or false", "false".to_owned()),
            _ => ("what is neither a number nor true or false in quotes", format!("\"{value}\"")),
        };
        let problem = format!("{value} is no value as it stands there");
        Some((key, BadValue { problem, expected: expected.into(), suggestion: Some(meant) }))
    }

    /// Notes an error at `path`.
    pub fn error(&mut self, path: &str, problem: impl Into<String>, expected: impl Into<String>) {
        if self.room() {
            let diagnostic = self.at(Severity::Error, path, problem.into()).expecting(expected);
            self.diagnostics.push(diagnostic);
        }
    }

    /// Whether another diagnostic would be heard.
    fn room(&self) -> bool {
        self.diagnostics.len() < DIAGNOSTICS_MAX
    }

    /// Whether something is wrong with `path` or within it.
    pub fn complained_of(&self, path: &str) -> bool {
        let within =
            |key: &str| key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.diagnostics.iter().any(|diagnostic| within(&diagnostic.key))
    }

    /// Whether `path` is written in the file.
    pub fn has(&self, path: &str) -> bool {
        self.spans.contains_key(path)
    }

    /// The line in which `path` stands, from 1.
    pub fn line(&self, path: &str) -> Option<usize> {
        let before = self.source.text.get(..self.spans.get(path)?.start)?;
        Some(1 + before.matches('\n').count())
    }

    /// Notes where `path` stands.
    pub fn note(&mut self, path: String, span: Range<usize>) {
        self.spans.insert(path, span);
    }

    /// The table itself, once its unknown keys are noted.
    pub fn fields<'t, 'i>(
        &mut self,
        path: String,
        table: &'t DeTable<'i>,
        section: &Section,
    ) -> Fields<'t, 'i> {
        let fields = Fields { path, table };
        // What is not known may be a secret whose key is misspelt. All of them first: they may share a line.
        let unknown = table.iter().filter(|(key, _)| !section.keys.contains(&&**key.get_ref()));
        unknown.for_each(|(key, value)| self.secrets.hide_value(self.source.text, &key.span(), value.span()));
        for (key, value) in table {
            let name: &str = key.get_ref();
            let path = fields.path_of(name);
            // A table under a header is marked at its header's first line.
            let span = if value.get_ref().is_table() { key.span() } else { value.span() };
            self.note(path.clone(), span);
            if !section.keys.contains(&name) && self.room() {
                let diagnostic = self.unknown(&path, name, section, key.span());
                self.diagnostics.push(diagnostic);
            }
        }
        fields
    }

    fn unknown(&self, path: &str, name: &str, section: &Section, span: Range<usize>) -> Diagnostic {
        let suggestion = suggest(name, section.keys.iter().copied()).map(|key| format!("`{key}`"));
        let elsewhere = self.sections.iter().find(|other| other.keys.contains(&name));
        let suggestion = suggestion.or_else(|| elsewhere.map(|other| format!("`{name}` of {}", other.title)));
        let problem = format!("unknown key in {}", section.title);
        let diagnostic = self.diagnose(Severity::Error, span, path, problem);
        diagnostic.expecting(format!("one of {}", section.keys.join(", "))).suggesting(suggestion)
    }

    /// The value of a key, if it is there and makes sense; noted if it does not.
    pub fn get<T: FromValue>(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<T> {
        let value = Self::value(fields, key)?;
        match T::from_value(value.get_ref()) {
            Ok(value) => Some(value),
            Err(bad) => {
                self.bad(&fields.path_of(key), value.span(), bad);
                None
            }
        }
    }

    /// The value of a key that must be there.
    pub fn require<T: FromValue>(&mut self, fields: &Fields<'_, '_>, key: &str, such_as: &str) -> Option<T> {
        if Self::value(fields, key).is_none() {
            let path = fields.path_of(key);
            self.error(&path, format!("`{key}` is missing"), such_as);
        }
        self.get(fields, key)
    }

    /// The value of a key as it stands.
    pub fn value<'t, 'i>(fields: &Fields<'t, 'i>, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        fields.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// The table behind a key.
    pub fn table<'t, 'i>(
        &mut self,
        fields: &Fields<'t, 'i>,
        key: &str,
        section: &Section,
    ) -> Option<Fields<'t, 'i>> {
        let value = Self::value(fields, key)?;
        let path = fields.path_of(key);
        match value.get_ref() {
            DeValue::Table(table) => Some(self.fields(path, table, section)),
            other => {
                self.bad(
                    &path,
                    value.span(),
                    unexpected(
                        other,
                        &format!("a table: {} with {}", section.title, section.keys.join(", ")),
                    ),
                );
                None
            }
        }
    }

    /// The tables behind a key that can stand there more than once, such as `[[project]]`, with their places.
    pub fn tables<'t, 'i>(
        &mut self,
        fields: &Fields<'t, 'i>,
        key: &str,
        section: &Section,
    ) -> Vec<(Range<usize>, &'t DeTable<'i>)> {
        let Some(value) = Self::value(fields, key) else { return Vec::new() };
        let path = fields.path_of(key);
        let expected = format!("{}, once for each", section.title);
        let DeValue::Array(items) = value.get_ref() else {
            let span = self.spans.get(&path).cloned().unwrap_or_else(|| value.span());
            self.bad(&path, span, unexpected(value.get_ref(), &expected));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::Table(table) => tables.push((item.span(), table)),
                other => self.bad(&path, item.span(), unexpected(other, &expected)),
            }
        }
        tables
    }

    /// The tables behind a key under names that the file gives them, such as `[projects.NAME]`.
    pub fn named_tables<'t, 'i>(
        &mut self,
        fields: &Fields<'t, 'i>,
        key: &str,
        section: &Section,
    ) -> Vec<(String, Fields<'t, 'i>)> {
        let Some(value) = Self::value(fields, key) else { return Vec::new() };
        let path = fields.path_of(key);
        let expected = format!("tables, each {}", section.title);
        let DeValue::Table(tables) = value.get_ref() else {
            self.bad(&path, value.span(), unexpected(value.get_ref(), &expected));
            return Vec::new();
        };
        let others = tables.iter().filter(|(_, value)| !value.get_ref().is_table());
        others.for_each(|(_, value)| self.secrets.hide(value.span()));
        let mut named = Vec::new();
        for (name, value) in tables {
            let path = format!("{path}.{}", name.get_ref());
            self.note(path.clone(), name.span());
            match value.get_ref() {
                DeValue::Table(table) => {
                    named.push((name.get_ref().to_string(), self.fields(path, table, section)));
                }
                other => {
                    let mut bad = unexpected(other, &expected);
                    if self.secrets.hides(value.span().start) {
                        bad.problem = "the value makes no sense here".to_owned();
                    }
                    self.bad(&path, value.span(), bad);
                }
            }
        }
        named
    }

    /// Notes a bad value.
    pub fn bad(&mut self, path: &str, span: Range<usize>, bad: BadValue) {
        if self.room() {
            let diagnostic = self.diagnose(Severity::Error, span, path, bad.problem);
            self.diagnostics.push(diagnostic.expecting(bad.expected).suggesting(bad.suggestion));
        }
    }

    /// Everything that is wrong, in the order of the file: what was noted, and what a check of the whole
    /// found at places that nothing was said about yet.
    pub fn finish(mut self, mut problems: Vec<Problem>) -> Vec<Diagnostic> {
        // Errors first: no number of warnings may leave one without a place.
        problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        for problem in problems {
            let said = |diagnostic: &Diagnostic| {
                let under = |long: &str, short: &str| long.starts_with(short) && !short.is_empty();
                under(&problem.path, &diagnostic.key) || under(&diagnostic.key, &problem.path)
            };
            if self.room() && !self.diagnostics.iter().any(said) {
                let diagnostic = self.at(problem.severity, &problem.path, problem.reason);
                self.diagnostics.push(diagnostic.expecting(problem.expected));
            }
        }
        self.diagnostics.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        self.diagnostics
    }

    fn diagnose(&self, severity: Severity, span: Range<usize>, path: &str, problem: String) -> Diagnostic {
        let diagnostic = self.source.diagnose_hiding(severity, span, path, problem, self.secrets.spans());
        if self.secrets.has(path) { diagnostic.without_excerpt() } else { diagnostic }
    }

    /// A diagnostic about `path`, at the nearest place that is known: itself, or what holds it.
    fn at(&self, severity: Severity, path: &str, problem: String) -> Diagnostic {
        let mut place = path;
        loop {
            if let Some(span) = self.spans.get(place) {
                return self.diagnose(severity, span.clone(), path, problem);
            }
            match place.rfind('.') {
                Some(dot) => place = &place[..dot],
                None => return self.source.diagnose(severity, 0..0, path, problem).without_excerpt(),
            }
        }
    }
}
