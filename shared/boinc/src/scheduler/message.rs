//! What a project says to people and to running jobs.

use fallow_domain::{Duration, Instant};

use crate::FormatError;
use crate::xml::{Reader, Tag, Writer, unescape};

/// Longest message, in bytes: BOINC's buffer.
const MESSAGE_MAX: usize = 1024;

/// A message from a project to its users (BOINC: `message`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// How much it matters.
    pub priority: Priority,
    /// What it says. Markup in it is kept as text.
    pub text: String,
}

/// How much a message matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// For the log; also any priority that we do not know.
    #[default]
    Low,
    /// For the log, in bold.
    High,
    /// For the user's notices too.
    Notice,
}

impl Priority {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
            Self::Notice => "notice",
        }
    }
}

/// A text without the marks of those parts that are to be translated, `_("...")`, which servers leave in
/// their messages.
fn untranslated(text: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("_(\"") {
        plain.push_str(before);
        match after.split_once("\")") {
            Some((inside, behind)) => {
                plain.push_str(inside);
                rest = behind;
            }
            None => {
                plain.push_str(after);
                rest = "";
            }
        }
    }
    plain.push_str(rest);
    plain
}

impl Message {
    pub(super) fn read(reader: &mut Reader<'_>, tag: &Tag<'_>) -> Result<Self, FormatError> {
        let priority = match tag.attribute("priority") {
            Some("high") => Priority::High,
            Some("notice") => Priority::Notice,
            _ => Priority::Low,
        };
        // Taken raw, so that elements in a message are shown and not obeyed.
        let text = unescape(reader.raw(tag)?.trim_ascii());
        let mut text = untranslated(text.trim());
        if text.len() > MESSAGE_MAX {
            text.truncate(text.floor_char_boundary(MESSAGE_MAX));
        }
        Ok(Self { priority, text })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.text_with("message", "priority", self.priority.as_str(), &self.text);
    }
}

/// A message from a project to a running job (BOINC: `trickle_down`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrickleDown {
    /// The job.
    pub result_name: String,
    /// When the server made it.
    pub time: Instant,
    /// Everything else, byte for byte.
    pub text: String,
}

impl TrickleDown {
    pub(super) fn read(reader: &mut Reader<'_>, tag: &Tag<'_>) -> Result<Self, FormatError> {
        let (result_name, time, text) = super::holdings::trickle(reader.raw(tag)?)?;
        Ok(Self { result_name, time, text })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("trickle_down", |w| {
            w.text("result_name", &self.result_name);
            w.value("time", &self.time);
            w.verbatim("trickle_down", &self.text);
        });
    }
}

/// A feed of a project's news (BOINC: `rss_feed`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RssFeed {
    /// Where it is.
    pub url: String,
    /// How often to look.
    pub poll_interval: Duration,
}

impl RssFeed {
    /// Reads the list `rss_feeds`.
    pub(super) fn read_list<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Vec<Self>, FormatError> {
        let mut feeds = Vec::new();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "rss_feed" => feeds.push(Self::read(reader, &tag)?),
                _ => reader.skip(&tag)?,
            }
        }
        Ok(feeds)
    }

    fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut feed = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "url" => reader.set(&tag, &mut feed.url)?,
                "poll_interval" => reader.set(&tag, &mut feed.poll_interval)?,
                _ => reader.skip(&tag)?,
            }
        }
        Ok(feed)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("rss_feed", |w| {
            w.text("url", &self.url);
            w.value("poll_interval", &self.poll_interval);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_for_translation_are_taken_off_a_message() {
        for (given, plain) in [
            ("_(\"No tasks sent\")", "No tasks sent"),
            (
                "Server error: _(\"can't attach shared memory\") and _(\"more\")!",
                "Server error: can't attach shared memory and more!",
            ),
            ("plain (\"quoted\") text", "plain (\"quoted\") text"),
            ("_(\"cut", "cut"),
            ("", ""),
        ] {
            assert_eq!(untranslated(given), plain, "{given}");
        }
    }
}
