//! Values that no finding may show, such as account keys: findings stand in logs that others read.
//!
//! A file that cannot be parsed has no values, so they are looked for in the text, by their keys. What is
//! hidden is rather too much than too little.

use std::ops::Range;

/// Keys whose values are secret, and the places of such values.
#[derive(Default)]
pub(crate) struct Secrets {
    keys: &'static [&'static str],
    spans: Vec<Range<usize>>,
}

impl Secrets {
    /// The values of these keys in a text.
    pub(crate) fn of(keys: &'static [&'static str], text: &str) -> Self {
        let found = keys.iter().flat_map(|key| text.match_indices(key).map(|(at, _)| at + key.len()));
        let spans = found.filter_map(|end| value_behind(text, end)).collect();
        Self { keys, spans }
    }

    /// Where they stand.
    pub(crate) fn spans(&self) -> &[Range<usize>] {
        &self.spans
    }

    /// Whether what stands at this path is secret.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.keys.contains(&path.rsplit('.').next().unwrap_or(path))
    }

    /// Whether this place is within one.
    pub(crate) fn hides(&self, at: usize) -> bool {
        self.spans.iter().any(|span| span.contains(&at))
    }

    /// Hides what may be one as well, where there are secrets at all.
    pub(crate) fn hide(&mut self, span: Range<usize>) {
        if !self.keys.is_empty() {
            self.spans.push(span);
        }
    }

    /// Hides the value of a key; of one with dots, which has no place of its own, what stands behind the key
    /// in its line.
    pub(crate) fn hide_value(&mut self, text: &str, key: &Range<usize>, value: Range<usize>) {
        if !value.contains(&key.start) {
            return self.hide(value);
        }
        let line = text.get(key.end..).and_then(|rest| rest.split('\n').next()).unwrap_or_default();
        if let Some(equals) = line.find('=') {
            self.hide(key.end + equals + 1..key.end + line.len());
        }
    }

    /// Hides what stands in the line around `at`, which cannot be parsed, unless it is a single value of a
    /// `plain` key, or the header of a table.
    pub(crate) fn hide_line(&mut self, text: &str, at: usize, plain: impl Fn(&str) -> bool) {
        let at = (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = text[start..].split('\n').next().unwrap_or_default();
        let key = line.split_once('=').map(|(key, _)| key.trim());
        let is_plain = match key {
            Some(key) => plain(key.rsplit('.').next().unwrap_or(key)) && !line.contains('{'),
            None => line.trim_start().starts_with('[') || plain(line.trim()),
        };
        if !is_plain {
            let from = line.find('=').map_or(0, |at| at + 1);
            self.hide(start + from..start + line.len());
        }
    }
}

/// The value behind a key that ends at `end`, if there is one: up to its last quote, or else to the end of
/// the line.
fn value_behind(text: &str, end: usize) -> Option<Range<usize>> {
    let rest = text.get(end..)?;
    let behind = rest.trim_start_matches(['"', '\'']).trim_start_matches([' ', '\t']).strip_prefix('=')?;
    let value = behind.trim_start_matches([' ', '\t']);
    let start = text.len() - value.len();
    let line = value.find('\n').unwrap_or(value.len());
    let length =
        if let Some(quotes) = ["\"\"\"", "\'\'\'"].into_iter().find(|quotes| value.starts_with(quotes)) {
            value[quotes.len()..].find(quotes).map_or(value.len(), |at| at + 2 * quotes.len())
        } else if let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            closing(&value[..line], quote).unwrap_or(line)
        } else {
            line
        };
    Some(start..start + length)
}

/// Where a quoted text ends that a line begins with.
fn closing(line: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in line.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            c if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}
