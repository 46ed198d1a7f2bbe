//! Soft links: text files in a slot that name a file of the project's directory.
//!
//! Model: a slot holds, under the name that the application opens, a file with one line
//! `<soft_link>../../projects/P/F</soft_link>`. The application resolves it and opens F. A link to an output
//! exists before the output does. Files with `copy_file` are copied instead; that is the shell's to do.

/// Readers need no more of a file than this to know whether it is a link (BOINC reads one line).
pub const READ_MAX: usize = 4096;

/// The text of a link to `target`, a path relative to the slot.
pub fn write(target: &str) -> String {
    format!("<soft_link>{target}</soft_link>\n")
}

/// The path, relative to a slot, of a file in a project's directory.
pub fn target(project_stem: &str, file_name: &str) -> String {
    format!("../../projects/{project_stem}/{file_name}")
}

/// Where a file points to, given its first bytes; none if it is an ordinary file.
///
/// Only the first line counts. A target that is empty or holds a zero byte is no target.
pub fn resolve(first_bytes: &[u8]) -> Option<&str> {
    let bytes = first_bytes.get(..READ_MAX).unwrap_or(first_bytes);
    let line = bytes.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let target = line.split_once("<soft_link>")?.1.split_once("</soft_link>")?.0.trim();
    (!target.is_empty() && !target.contains('\0')).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_link_reads_as_it_is_written() {
        let text = write(&target("127.0.0.1_8123", "job_1_0"));
        assert_eq!(text, "<soft_link>../../projects/127.0.0.1_8123/job_1_0</soft_link>\n");
        assert_eq!(resolve(text.as_bytes()), Some("../../projects/127.0.0.1_8123/job_1_0"));
    }

    #[test]
    fn an_ordinary_file_is_no_link() {
        for bytes in [
            &b""[..],
            b"from=2 to=100\n",
            b"\n<soft_link>late</soft_link>\n",
            b"<soft_link></soft_link>\n",
            b"<soft_link>no end\n</soft_link>",
            b"\xff\xfe<soft_link>a</soft_link>",
        ] {
            assert_eq!(resolve(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_harm_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let _ = resolve(&bytes);
        }
    }
}
