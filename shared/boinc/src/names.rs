//! Names that may become files, and the version of the application library inside an executable.
//!
//! A server names files, and a client creates them: a name must stay inside its directory. BOINC clients
//! refuse `..` and `%`, its servers refuse control characters and a leading `/`; both refuse here. A file's
//! own name also holds no separator at all, while an *open name* may (its subdirectories are created in the
//! slot). Nor is it that of the file by which a host's owner limits the project, which lies in the same
//! directory: no server writes that, and no job.

use crate::app_config::APP_CONFIG;

/// Longest name, in bytes: what BOINC's clients hold and file systems take.
pub const NAME_MAX: usize = 255;

/// What is expected of a file's, a job's or a workunit's name, for error messages.
pub const NAME_RULE: &str = "a name of 1 to 255 bytes without `..`, `%`, `/`, `\\`, angle brackets, `&` and control characters, other than `.` and `app_config.xml`";

/// What is expected of an open name, for error messages.
pub const OPEN_NAME_RULE: &str =
    "a relative path of 1 to 255 bytes without `..`, `%`, `\\`, empty or `.` parts and control characters";

/// True if `name` may name a file in a project's directory, a job or a workunit. Angle brackets and `&` are
/// refused as well, because upload permissions sign the name inside tags, unescaped.
pub fn is_file_name(name: &str) -> bool {
    is_open_name(name)
        && !name.bytes().any(|byte| matches!(byte, b'/' | b'<' | b'>' | b'&'))
        && name != APP_CONFIG
}

/// True if `name` may be the path under which an application opens a file in its slot.
///
/// It reads each byte once: a reply may hold a hundred thousand names.
pub fn is_open_name(name: &str) -> bool {
    // The two bytes before the current one; a name begins as what follows a separator does, and ends as what
    // comes before one does.
    let mut before = [b'a', b'/'];
    for byte in name.bytes().chain([b'/']) {
        let is_refused = match byte {
            b'%' | b'\\' | 0..0x20 | 0x7f => true,
            // The second byte of the control characters U+0080 to U+009F.
            0x80..=0x9f => before[1] == 0xc2,
            b'.' => before[1] == b'.',
            b'/' => before[1] == b'/' || before == *b"/.",
            _ => false,
        };
        if is_refused {
            return false;
        }
        before = [before[1], byte];
    }
    name.len() <= NAME_MAX
}

/// Finds the version of the BOINC application library that an executable carries as `API_VERSION_x.y.z`, such
/// as `8.3.0`. Applications without one get no memory-mapped channel from older clients.
pub fn api_version(executable: &[u8]) -> Option<&str> {
    const MARK: &[u8] = b"API_VERSION_";
    let mut from = 0;
    while let Some(at) = crate::xml::find(executable, MARK, from) {
        from = at + MARK.len();
        let version = executable.get(from..)?;
        let len = version
            .iter()
            .take(32)
            .position(|byte| !byte.is_ascii_digit() && *byte != b'.')
            .unwrap_or(version.len().min(32));
        let version = std::str::from_utf8(&version[..len]).ok()?;
        let mut parts = version.split('.');
        if parts.clone().count() == 3 && parts.all(|part| !part.is_empty()) {
            return Some(version);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_their_directory_or_confuse_a_reader_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/../b",
            "/etc/passwd",
            "a%2f",
            "a\nb",
            "a\\b",
            "a//b",
            "a/",
            "./a",
            "\u{7f}",
        ] {
            assert!(!is_open_name(bad), "{bad:?}");
            assert!(!is_file_name(bad), "{bad:?}");
        }
        assert!(!is_file_name(&"x".repeat(256)));
        assert!(!is_file_name(APP_CONFIG) && is_file_name("App_config.xml"), "the owner's");
        assert!(is_open_name("data/in") && !is_file_name("data/in"));
        assert!(is_file_name("mersenne_1.00_x86_64-pc-linux-gnu") && is_file_name("käse"));
    }

    #[test]
    fn each_short_name_is_judged_by_the_rule_as_it_is_written_down() {
        let alphabet =
            ["a", ".", "/", "%", "\\", "<", "&", "\n", "\u{7f}", "\u{85}", "\u{a0}", "\u{e05}", "ä"];
        let is_open = |name: &str| {
            !name.is_empty()
                && !name.contains("..")
                && !name.contains(['%', '\\'])
                && !name.chars().any(char::is_control)
                && name.split('/').all(|part| !part.is_empty() && part != ".")
        };
        let mut names = vec![String::new()];
        let mut from = 0;
        for _ in 0..4 {
            let until = names.len();
            for at in from..until {
                for letter in alphabet {
                    names.push(format!("{}{letter}", names[at]));
                }
            }
            from = until;
        }
        for name in &names {
            assert_eq!(is_open_name(name), is_open(name), "{name:?}");
            let is_file = is_open(name) && !name.contains(['/', '<', '>', '&']);
            assert_eq!(is_file_name(name), is_file, "{name:?}");
        }
    }

    #[test]
    fn the_api_version_is_found_among_other_bytes() {
        assert_eq!(api_version(b"\x7fELF..API_VERSION_8.3.0\0rest"), Some("8.3.0"));
        assert_eq!(api_version(b"API_VERSION_%d API_VERSION_7.20.5"), Some("7.20.5"));
        assert_eq!(api_version(b"API_VERSION_8.3"), None);
        assert_eq!(api_version(b""), None);
    }
}
