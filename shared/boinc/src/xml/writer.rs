//! The strict writer: one element per line, children indented, `\n` endings, no attributes but a message's
//! priority.

use std::fmt::{Display, Write};

use super::escape::escape;
use super::value::Value;

/// Builds one message.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: String,
    depth: usize,
}

impl Writer {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty message with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { out: String::with_capacity(capacity), depth: 0 }
    }

    /// The message so far.
    pub fn finish(self) -> String {
        self.out
    }

    /// Starts an element that holds others.
    pub fn open(&mut self, name: &str) {
        self.indent();
        self.put(&["<", name, ">\n"]);
        self.depth += 1;
    }

    /// Ends it.
    pub fn close(&mut self, name: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.indent();
        self.put(&["</", name, ">\n"]);
    }

    /// Writes what follows without indentation, as BOINC does inside some elements.
    pub fn flush_left(&mut self) {
        self.depth = 0;
    }

    /// Writes an element with what `children` writes inside.
    pub fn nested(&mut self, name: &str, children: impl FnOnce(&mut Self)) {
        self.open(name);
        children(self);
        self.close(name);
    }

    /// Writes a value as an element, or nothing for a value that is missing.
    pub fn value(&mut self, name: &str, value: &impl Value) {
        value.write(name, self);
    }

    /// Writes text, escaped.
    pub fn text(&mut self, name: &str, text: &str) {
        self.indent();
        self.put(&["<", name, ">"]);
        escape(text, &mut self.out);
        self.put(&["</", name, ">\n"]);
    }

    /// Writes text unless there is none.
    pub fn text_if_any(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    /// Writes text with an attribute, as messages have.
    pub fn text_with(&mut self, name: &str, attribute: &str, value: &str, text: &str) {
        self.indent();
        self.put(&["<", name, " ", attribute, "=\"", value, "\">"]);
        escape(text, &mut self.out);
        self.put(&["</", name, ">\n"]);
    }

    /// Writes a number as it prints.
    pub fn plain(&mut self, name: &str, number: impl Display) {
        self.indent();
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "<{name}>{number}</{name}>");
    }

    /// Writes a number as `%f`; one that is not finite as 0, as no reader takes it.
    pub fn double(&mut self, name: &str, number: f64) {
        let number = if number.is_finite() { number } else { 0.0 };
        self.plain(name, format_args!("{number:.6}"));
    }

    /// Writes `<name/>` if it is so.
    pub fn flag(&mut self, name: &str, is_so: bool) {
        if is_so {
            self.indent();
            self.put(&["<", name, "/>\n"]);
        }
    }

    /// Writes a block byte for byte between tags on lines of their own: keys, signatures, preferences.
    pub fn raw(&mut self, name: &str, block: &str) {
        self.put(&["<", name, ">\n"]);
        self.verbatim(name, block);
        self.put(&["</", name, ">\n"]);
    }

    /// Writes lines byte for byte inside the element `parent`. They can come from anybody: the parent's end
    /// tag in them is disarmed, so that they cannot end it, and NUL bytes, which end a reader's input, are
    /// dropped.
    pub fn verbatim(&mut self, parent: &str, block: &str) {
        let (end, block) = (format!("</{parent}"), block.trim_matches('\n'));
        if block.contains(&end) || block.contains('\0') {
            let harmless = block.replace('\0', "").replace(&end, &format!("&lt;/{parent}"));
            self.put(&[&harmless, "\n"]);
        } else {
            self.put(&[block, "\n"]);
        }
    }

    /// Writes a block if there is one.
    pub fn raw_if_any(&mut self, name: &str, block: Option<&str>) {
        if let Some(block) = block {
            self.raw(name, block);
        }
    }

    /// Appends a line as it stands.
    pub fn line(&mut self, line: &str) {
        self.put(&[line, "\n"]);
    }

    fn indent(&mut self) {
        for _ in 0..self.depth {
            self.out.push_str("    ");
        }
    }

    fn put(&mut self, parts: &[&str]) {
        for part in parts {
            self.out.push_str(part);
        }
    }
}
