//! The width of a terminal, and texts that fit into it.

/// Columns where nothing says how many there are.
const USUAL: usize = 80;
/// Fewer columns than this are not reckoned with: nothing fits there anyway.
const LEAST: usize = 40;

/// Columns of the terminal that standard output is.
pub(crate) fn width() -> usize {
    // A table asks its terminal.
    comfy_table::Table::new().width().map_or(USUAL, usize::from).max(LEAST)
}

/// A text in lines of so many columns, broken between words; what begins a line stands before its rest too. A
/// word that is longer than a line, such as a path, stays whole.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let mut used = 0;
        for word in line.split_whitespace() {
            let length = word.chars().count();
            if used == 0 {
                out.push_str(&indent);
                used = indent.len();
            } else if used + 1 + length > width {
                out.push('\n');
                out.push_str(&indent);
                used = indent.len();
            } else {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += length;
        }
    }
    out
}

/// What is told, for a terminal: sentences are broken between words; a line that is indented is a command to
/// be pasted and stays as it is.
pub(crate) fn told(text: &str, width: usize) -> String {
    let line = |line: &str| if line.starts_with("  ") { line.to_owned() } else { wrapped(line, width) };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words_and_paths_stay_whole() {
        let text = wrapped("one two three\n  four five six", 9);
        assert_eq!(text, "one two\nthree\n  four\n  five\n  six");
        let path = "a /very/long/path/that/has/to/be/copied b";
        assert_eq!(wrapped(path, 12), "a\n/very/long/path/that/has/to/be/copied\nb");
        assert_eq!(wrapped("", 9), "");
        assert_eq!(told("one two three:\n  a command to paste", 9), "one two\nthree:\n  a command to paste");
    }
}
