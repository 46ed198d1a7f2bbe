//! The lenient reader: a cursor over bytes that gives one child element after the other.

use std::borrow::Cow;

use super::escape::unescape;
use super::value::Value;
use crate::FormatError;

/// Longest tag, as in BOINC.
const TAG_MAX: usize = 4096;
/// Longest text of one element: BOINC's buffer for long strings.
const TEXT_MAX: usize = 262_144;
/// How deep unknown elements may nest. BOINC's own messages nest six deep.
const DEPTH_MAX: usize = 64;

/// A cursor over one message.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    what: &'static str,
    input: &'a [u8],
    pos: usize,
    /// How many values did not fit their kind so far.
    misfits: u32,
}

/// The start of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    /// Its name.
    pub name: &'a str,
    /// Everything between the name and the end of the tag.
    pub attributes: &'a str,
    /// True for `<x/>`: it has neither content nor an end tag.
    pub empty: bool,
    /// Where it starts.
    offset: usize,
    /// The first byte after it.
    after: usize,
}

enum Markup<'a> {
    Open(Tag<'a>),
    Close(&'a str),
    /// A CDATA section's content.
    Cdata(&'a [u8]),
    /// A comment, a prolog or a declaration.
    Other,
    End,
}

impl<'a> Tag<'a> {
    /// The value of an attribute written as `name="value"`.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.attributes;
        while let Some((before, after)) = rest.split_once('=') {
            let (value, tail) = after.trim_start().strip_prefix('"')?.split_once('"')?;
            if before.trim() == name {
                return Some(value);
            }
            rest = tail;
        }
        None
    }
}

/// Where `needle` first occurs in `haystack` at or after `from`.
pub fn find(haystack: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let first = *needle.first()?;
    let mut at = from;
    loop {
        at += haystack.get(at..)?.iter().position(|&byte| byte == first)?;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        at += 1;
    }
}

impl<'a> Reader<'a> {
    /// Reads `input`, up to its first NUL byte if it has one. `what` names the kind of message in errors.
    pub fn new(what: &'static str, input: &'a [u8]) -> Self {
        let end = input.iter().position(|&byte| byte == 0).unwrap_or(input.len());
        Self { what, input: &input[..end], pos: 0, misfits: 0 }
    }

    /// Goes to the element `name`, whatever stands before it.
    ///
    /// # Errors
    /// When there is none.
    pub fn root(&mut self, name: &str) -> Result<Tag<'a>, FormatError> {
        let opening = format!("<{name}");
        let mut from = self.pos;
        while let Some(at) = find(self.input, opening.as_bytes(), from) {
            from = at + opening.len();
            // `<account_out>` is not `<account>`.
            if matches!(self.input.get(from), Some(b'>' | b'/' | b' ' | b'\t' | b'\r' | b'\n')) {
                self.pos = at;
                if let Markup::Open(tag) = self.markup()? {
                    return Ok(tag);
                }
            }
        }
        Err(self.error(self.input.len(), "", format!("<{name}>")))
    }

    /// Like [`Reader::root`], but nothing, and no step made, when there is no such element.
    pub fn find_root(&mut self, name: &str) -> Option<Tag<'a>> {
        let mut ahead = self.clone();
        match ahead.root(name) {
            Ok(tag) => {
                *self = ahead;
                Some(tag)
            }
            Err(_) => None,
        }
    }

    /// The next element in the input, or nothing at its end. Text, comments, declarations and the end tags of
    /// others are passed over; what is commented out is no element.
    ///
    /// # Errors
    /// When a comment, a CDATA section or a tag has no end.
    pub fn next_element(&mut self) -> Result<Option<Tag<'a>>, FormatError> {
        loop {
            self.seek_markup();
            match self.markup()? {
                Markup::Open(tag) => return Ok(Some(tag)),
                Markup::End => return Ok(None),
                Markup::Close(_) | Markup::Cdata(_) | Markup::Other => (),
            }
        }
    }

    /// The next element inside `parent`, or nothing at `parent`'s end. The caller reads its value or skips
    /// it.
    ///
    /// # Errors
    /// When the input ends before `parent` does.
    pub fn next_child(&mut self, parent: &Tag<'_>) -> Result<Option<Tag<'a>>, FormatError> {
        if parent.empty {
            return Ok(None);
        }
        loop {
            self.seek_markup();
            match self.markup()? {
                Markup::Open(tag) => return Ok(Some(tag)),
                Markup::Close(name) if name == parent.name => return Ok(None),
                Markup::End => return Err(self.missing_end(parent)),
                // An end tag of something that was passed over alone.
                Markup::Close(_) | Markup::Cdata(_) | Markup::Other => (),
            }
        }
    }

    /// Reads the value of `tag` into `field`, which keeps what it holds if the value does not fit its kind.
    ///
    /// # Errors
    /// When the element has no end.
    pub fn set<T: Value>(&mut self, tag: &Tag<'a>, field: &mut T) -> Result<(), FormatError> {
        match T::read(self, tag)? {
            Some(value) => *field = value,
            None => self.misfits = self.misfits.saturating_add(1),
        }
        Ok(())
    }

    /// How many values were left out by [`Reader::set`] so far, as they did not fit their kind.
    pub(crate) const fn misfits(&self) -> u32 {
        self.misfits
    }

    /// Reads the value of `tag` and appends it, unless it does not fit its kind.
    ///
    /// # Errors
    /// When the element has no end.
    pub fn push<T: Value>(&mut self, tag: &Tag<'a>, list: &mut Vec<T>) -> Result<(), FormatError> {
        list.extend(T::read(self, tag)?);
        Ok(())
    }

    /// The text of an element: trimmed and unescaped, or the content of its one CDATA section. Nothing if it
    /// is too long or holds elements; it is passed over then.
    ///
    /// # Errors
    /// When the element has no end.
    pub fn text(&mut self, tag: &Tag<'a>) -> Result<Option<Cow<'a, str>>, FormatError> {
        if tag.empty {
            return Ok(Some(Cow::Borrowed("")));
        }
        self.seek_markup();
        let mut text = self.input[tag.after..self.pos].trim_ascii();
        let mut cdata = None;
        loop {
            match self.markup()? {
                Markup::Close(name) if name == tag.name => break,
                Markup::Cdata(content) if text.is_empty() && cdata.is_none() => cdata = Some(content),
                Markup::End => return Err(self.missing_end(tag)),
                _ => {
                    self.skip(tag)?;
                    return Ok(None);
                }
            }
            let from = self.pos;
            self.seek_markup();
            if !self.input[from..self.pos].trim_ascii().is_empty() {
                text = b"text beside a CDATA section";
            }
        }
        Ok(match cdata {
            Some(_) if !text.is_empty() => None,
            Some(content) => Some(String::from_utf8_lossy(&content[..content.len().min(TEXT_MAX)])),
            None if text.len() > TEXT_MAX => None,
            None => Some(unescape(text)),
        })
    }

    /// Everything between `tag` and its literal end tag, byte for byte: keys, signatures, preferences.
    ///
    /// # Errors
    /// When the element has no end.
    pub fn raw(&mut self, tag: &Tag<'_>) -> Result<&'a [u8], FormatError> {
        if tag.empty {
            return Ok(b"");
        }
        let end = format!("</{}>", tag.name);
        let at = find(self.input, end.as_bytes(), tag.after).ok_or_else(|| self.missing_end(tag))?;
        self.pos = at + end.len();
        Ok(&self.input[tag.after..at])
    }

    /// [`Reader::raw`] as text.
    ///
    /// # Errors
    /// When the element has no end.
    pub fn raw_text(&mut self, tag: &Tag<'_>) -> Result<String, FormatError> {
        Ok(String::from_utf8_lossy(self.raw(tag)?).into_owned())
    }

    /// Passes over an element with all it holds, if its tags match up; over its start tag alone otherwise.
    ///
    /// # Errors
    /// When elements nest too deep, or a comment or CDATA section has no end.
    pub fn skip(&mut self, tag: &Tag<'a>) -> Result<(), FormatError> {
        self.pos = tag.after;
        let mut open = if tag.empty { Vec::new() } else { vec![tag.name] };
        while let Some(innermost) = open.last().copied() {
            self.seek_markup();
            match self.markup()? {
                Markup::Open(inner) if inner.empty => (),
                Markup::Open(inner) if open.len() < DEPTH_MAX => open.push(inner.name),
                Markup::Open(inner) => {
                    let expected = format!("elements to nest at most {DEPTH_MAX} deep");
                    return Err(self.error(inner.offset, inner.name, expected));
                }
                Markup::Close(name) if name == innermost => {
                    open.pop();
                }
                Markup::Close(_) | Markup::End => {
                    self.pos = tag.after;
                    return Ok(());
                }
                Markup::Cdata(_) | Markup::Other => (),
            }
        }
        Ok(())
    }

    /// An error at the start of `tag`.
    pub fn error_at(&self, tag: &Tag<'_>, expected: impl Into<String>) -> FormatError {
        self.error(tag.offset, tag.name, expected)
    }

    fn error(&self, offset: usize, element: &str, expected: impl Into<String>) -> FormatError {
        FormatError::new(self.what, self.input, offset, element, expected)
    }

    fn missing_end(&self, tag: &Tag<'_>) -> FormatError {
        self.error(self.input.len(), tag.name, format!("</{}> before the end", tag.name))
    }

    /// Moves to the next `<` that begins markup, or to the end.
    fn seek_markup(&mut self) {
        while let Some(at) = self.input[self.pos..].iter().position(|&byte| byte == b'<') {
            self.pos += at;
            match self.input.get(self.pos + 1) {
                Some(b'/' | b'!' | b'?' | b'_') => return,
                Some(byte) if byte.is_ascii_alphabetic() => return,
                _ => self.pos += 1,
            }
        }
        self.pos = self.input.len();
    }

    /// Reads the markup at the cursor, which stands on a `<` or at the end.
    fn markup(&mut self) -> Result<Markup<'a>, FormatError> {
        let rest = &self.input[self.pos..];
        if rest.is_empty() {
            return Ok(Markup::End);
        }
        if let Some(content) = rest.strip_prefix(b"<![CDATA[") {
            let len =
                find(content, b"]]>", 0).ok_or_else(|| self.error(self.pos, "", "]]> after <![CDATA["))?;
            self.pos += len + 12;
            return Ok(Markup::Cdata(&content[..len]));
        }
        if rest.starts_with(b"<!--") {
            let len = find(rest, b"-->", 4).ok_or_else(|| self.error(self.pos, "", "--> after <!--"))?;
            self.pos += len + 3;
            return Ok(Markup::Other);
        }
        let len = rest
            .iter()
            .take(TAG_MAX)
            .position(|&byte| byte == b'>')
            .ok_or_else(|| self.error(self.pos, "", format!("> within {TAG_MAX} bytes of <")))?;
        let offset = self.pos;
        self.pos += len + 1;
        let inner = rest.get(1..len).unwrap_or_default();
        Ok(match inner.first() {
            Some(b'!' | b'?') => Markup::Other,
            Some(b'/') => Markup::Close(name_of(&inner[1..]).0),
            _ => Markup::Open(open_tag(inner, offset, self.pos)),
        })
    }
}

fn open_tag(inner: &[u8], offset: usize, after: usize) -> Tag<'_> {
    let (inner, empty) = match inner.strip_suffix(b"/") {
        Some(inner) => (inner, true),
        None => (inner, false),
    };
    let (name, attributes) = name_of(inner);
    Tag { name, attributes, empty, offset, after }
}

/// A tag's name and the rest of the tag. A name that is not UTF-8 is no name that we know.
fn name_of(inner: &[u8]) -> (&str, &str) {
    let len = inner.iter().position(u8::is_ascii_whitespace).unwrap_or(inner.len());
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or("?");
    (text(&inner[..len]), text(&inner[len..]))
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
