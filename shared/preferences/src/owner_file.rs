//! The file in which the owner of a host says what it may do: TOML, one key a line.

use std::fmt::Write as _;

use fallow_config::{Diagnostics, Section, Severity, Source as Text, Walk};

use crate::explain;
use crate::keys::{OWNER_KEYS, Said};

/// The keys stand at the top of the file.
const ROOT: Section = Section { title: "a preference file", keys: OWNER_KEYS };

/// An owner's file, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerFile(pub Said);

impl OwnerFile {
    /// Reads the text of a file; `name` is how it is called in what is found wrong.
    ///
    /// # Errors
    /// [`Diagnostics`] with everything that is wrong, each with its line and its key.
    pub fn read(name: &str, text: &str) -> Result<Self, Diagnostics> {
        let mut walk = Walk::new(Text { file: name, text }, &[&ROOT]);
        let said = walk.parse().map(|table| {
            let fields = walk.fields(String::new(), table.get_ref(), &ROOT);
            Said::read(&mut walk, &fields)
        });
        let found = walk.finish(Vec::new());
        match said {
            Some(said) if !found.iter().any(|one| one.severity == Severity::Error) => Ok(Self(said)),
            _ => Err(Diagnostics(found)),
        }
    }
}

const HEAD: &str = "\
# What this machine may do for others, by the word of its owner.
#
# All that stands here only tightens: what is laxer than what the coordinator
# or a project's web site says is not taken, and `fallow-agent preferences
# --why` names it. A key that is absent limits nothing. Take the # away before
# a key to use it. Where no coordinator is, global_prefs_override.xml in the
# agent's directory, BOINC's own file, can allow more than the defaults do.
#
# `fallow-agent preferences edit` checks this file and has the running agent
# take it at once; after any other change `fallow-agent preferences reload`
# does that. A file that cannot be read stops computing until it is mended.
";

/// A file with every key explained and none in use.
#[must_use]
pub fn template() -> String {
    let mut text = HEAD.to_owned();
    for one in OWNER_KEYS.iter().filter_map(|key| explain(key)) {
        text.push('\n');
        for line in one.text.lines() {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "#{} = {}", one.key, one.example.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Bytes, Fraction};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn r6_4_the_template_says_nothing_and_each_of_its_examples_can_be_taken() {
        assert!(OwnerFile::read("preferences.toml", &template()).unwrap().0.is_empty());
        let is_key = |line: &&str| {
            line.strip_prefix('#').is_some_and(|rest| !rest.starts_with([' ', '#']) && !rest.is_empty())
        };
        let text: String =
            template().lines().filter(is_key).map(|line| format!("{}\n", &line[1..])).collect();
        let said = OwnerFile::read("preferences.toml", &text).unwrap().0;
        assert_eq!(said.lines.len(), OWNER_KEYS.len(), "{text}");
        assert_eq!(
            (said.cpu_fraction, said.disk_max),
            (Some(Fraction::clamped(0.5)), Some(Some(Bytes(20_000_000_000))))
        );
        assert!(template().lines().all(|line| line.len() <= 80));
    }

    #[test]
    fn r6_4_everything_wrong_with_a_file_is_said_at_once_with_line_and_key() {
        let text = "cpu_fraction = 1.5\n\nhours = \"mon, tue 18:00-20:00\"\nidel_after = \"5 min\"\nidle_after = 5\n\
                    disk_free_min = \"3 bytes\"\nbuffer_min = \"99 days\"\nscheduling_period = \"1 h\"\n";
        let found = OwnerFile::read("my.toml", text).unwrap_err();
        let places: Vec<(usize, &str)> = found.0.iter().map(|one| (one.line, one.key.as_str())).collect();
        assert_eq!(
            places,
            [
                (1, "cpu_fraction"),
                (3, "hours"),
                (4, "idel_after"),
                (5, "idle_after"),
                (6, "disk_free_min"),
                (7, "buffer_min"),
                (8, "scheduling_period"),
            ]
        );
        let shown = found.to_string();
        for part in ["my.toml:4:1", "did you mean `idle_after`?", "5 has no unit", "without a blank"] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        let (list, meant) =
            (shown.find("expected one of suspended"), shown.find("did you mean `idle_after`?"));
        assert!(meant < list, "what may have been meant stands before the long list:\n{shown}");
        for (line, key, meant) in [
            ("run_in_use = yes", "run_in_use", "true"),
            ("run_in_use = False # never", "run_in_use", "false"),
            ("cpu_fraction = 50%", "cpu_fraction", "\"50%\""),
            ("cpu_fraction = 50", "cpu_fraction", "\"50%\""),
            ("cpu_fraction = \"50\"", "cpu_fraction", "\"50%\""),
            ("idle_after = 15m", "idle_after", "\"15m\""),
        ] {
            let found = OwnerFile::read("my.toml", &format!("suspended = false\n{line}\n")).unwrap_err();
            let first = &found.0[0];
            let said = (first.line, first.key.as_str(), first.suggestion.as_deref());
            assert_eq!(said, (2, key, Some(meant)), "{line}: {found}");
        }
        for (hours, part) in
            [("mon 25:00-26:00", "\"25:00\""), ("8:00 - 17:00", "HH:MM"), ("never", "suspended = true")]
        {
            let found =
                OwnerFile::read("my.toml", &format!("hours = \"{hours}\"\n")).unwrap_err().to_string();
            assert!(found.contains(part) && !found.contains("in quotes"), "{found}");
        }
        let broken = OwnerFile::read("my.toml", "cpu_fraction = \n[").unwrap_err();
        assert_eq!(broken.0[0].line, 1);
    }

    #[test]
    fn r6_4_each_key_knows_its_line() {
        let said = OwnerFile::read("f", "# a\n\ncpu_fraction = \"20%\"\n\nsuspended = true\n").unwrap().0;
        assert_eq!(said.lines, [("cpu_fraction", 3), ("suspended", 5)].into());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
            let _ = OwnerFile::read("f", &text);
        }
    }
}
