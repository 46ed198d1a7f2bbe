//! Texts from outside, made fit to be shown: in a table, in a log line, on a terminal.
//!
//! A host's name or a job's last words may hold escape sequences, line ends or marks that turn the order of
//! letters around; shown as they are, they would forge lines of a log and rows of a table, or give orders to
//! a terminal. Each such character becomes `�`, so that one sees that there was something.

use std::path::Path;

/// A text on one line, of at most so many bytes.
pub fn line(text: &str, max: usize) -> String {
    let clean = |c: char| if is_fit(c) { c } else { char::REPLACEMENT_CHARACTER };
    cut(text.chars().map(clean).collect(), max)
}

/// The same, with `…` at its end where it was longer. `max` is three bytes at least.
pub fn shortened(text: &str, max: usize) -> String {
    let whole = line(text, usize::MAX);
    if whole.len() <= max { whole } else { cut(whole, max.saturating_sub('…'.len_utf8())) + "…" }
}

/// A text of several lines as one line, of at most so many bytes.
pub fn joined(text: &str, max: usize) -> String {
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    line(&lines.collect::<Vec<_>>().join(" "), max)
}

/// A text of several lines, of at most so many bytes: line ends and tabs stay.
pub fn lines(text: &str, max: usize) -> String {
    let clean = |c: char| if is_fit(c) || matches!(c, '\n' | '\t') { c } else { char::REPLACEMENT_CHARACTER };
    cut(text.replace("\r\n", "\n").chars().map(clean).collect(), max)
}

/// A word of a command as a shell takes it: in quotes where it has to be.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A path as a word of a command.
pub fn shell_path(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

fn cut(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}

/// Whether a character may be shown as it is.
fn is_fit(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // Of no width, or blank: two names that look alike would be two. The joiners are part of some writing
    // systems.
    let hidden = matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'
            | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}'
    );
    !(c.is_control() || turns || hidden || matches!(c, '\u{2028}' | '\u{2029}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_forge_a_line_or_order_a_terminal_about_is_made_visible() {
        assert_eq!(line("lab1\nERROR forged\x1b[2J\u{202e}", 255), "lab1�ERROR forged�[2J�");
        assert_eq!(line("Žluťoučký 計算機", 255), "Žluťoučký 計算機");
        assert_eq!(line("pc\u{200b}-1\u{2060}\u{e0041}", 255), "pc�-1��");
        assert_eq!(
            line("pc\u{206a}\u{34f}\u{17b4}\u{fe00}\u{e0100} \u{2764}\u{fe0f}", 255),
            "pc����� \u{2764}\u{fe0f}"
        );
        assert_eq!(line("pc\u{61c}\u{180e}\u{fff9}\u{2800}\u{3164}", 255), "pc�����");
        assert_eq!(lines("one\r\n\ttwo\x07", 255), "one\n\ttwo�");
        assert_eq!(line("éé", 3), "é");
        assert_eq!(
            (shortened("abcdef", 6), shortened("abcdefg", 6)),
            ("abcdef".to_owned(), "abc…".to_owned())
        );
        assert_eq!(joined("one\r\n  two\x1b\n", 255), "one two�");
    }

    #[test]
    fn a_word_of_a_command_is_quoted_where_a_shell_would_take_it_apart() {
        for (word, told) in
            [("/a/b-1", "/a/b-1"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''"), ("$x", "'$x'")]
        {
            assert_eq!((shell_word(word), shell_path(Path::new(word))), (told.to_owned(), told.to_owned()));
        }
    }
}
