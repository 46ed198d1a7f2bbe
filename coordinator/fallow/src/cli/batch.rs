//! Batch files: workunits as TOML or JSON.
//!
//! ```toml
//! [[workunits]]
//! application = "mersenne"
//! flops = 6e10
//! quorum = 2
//! outputs = [{ open_name = "out" }]
//! inputs = [{ open_name = "in", text = "from=2 to=100\n" }]   # or path = "FILE", relative to the batch file
//! ```
//! Every key that is not known is an error, and all mistakes of a file are told at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fallow_proto::operator::v1::{InputFile, NewWorkunit, OutputFile};
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::batch_parts::{Read, read_by_parts};
use super::submission::{InputContent, InputContents, PendingWorkunit};
use super::{Failure, bounded, units};

/// Largest batch file that is read.
const FILE_BYTES: u64 = 64 << 20;
/// Stands for standard input.
const STDIN: &str = "-";
/// Mistakes that are told of; the rest is counted.
const MISTAKES_TOLD: usize = 20;
/// Characters of a mistake that are told.
const TEXT_TOLD: usize = 300;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Batch<W> {
    workunits: Vec<W>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Workunit {
    #[serde(default)]
    name: String,
    application: String,
    #[serde(default)]
    command_line: String,
    #[serde(default)]
    inputs: Vec<Input>,
    #[serde(default)]
    outputs: Vec<Output>,
    flops: f64,
    flops_bound: Option<f64>,
    memory: Option<String>,
    disk: Option<String>,
    deadline: Option<String>,
    quorum: Option<u32>,
    initial_jobs: Option<u32>,
    max_error_jobs: Option<u32>,
    max_total_jobs: Option<u32>,
    #[serde(default)]
    comparator: String,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Input {
    open_name: String,
    text: Option<String>,
    path: Option<PathBuf>,
    #[serde(default)]
    keep_as: String,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Output {
    open_name: String,
    max_size: Option<String>,
}

/// The name of a batch for people.
pub(super) fn shown(path: &Path) -> String {
    if path == Path::new(STDIN) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Workunits as they are written.
type Written = Vec<Read<Workunit>>;

/// Reads a batch file; a name that ends in `.json` is JSON, any other TOML. `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Vec<PendingWorkunit>, Failure> {
    let is_stdin = path == Path::new(STDIN);
    let shown = shown(path);
    let (text, is_json) = if is_stdin {
        let text = bounded::stdin_text("batch", FILE_BYTES)?;
        // No name says what it is; nothing in TOML begins like this.
        let is_json = text.trim_start().starts_with('{');
        (text, is_json)
    } else {
        let is_json = path.extension().is_some_and(|end| end == "json");
        (bounded::read_text("batch", path, FILE_BYTES)?, is_json)
    };
    let written = written(&text, is_json);
    let written = written.map_err(|error| Failure::bad_input(format!("{shown} is not a batch: {error}")))?;
    drop(text);
    let base = path.parent().unwrap_or(Path::new("."));
    let (mut workunits, mut mistakes) = (Vec::new(), Vec::new());
    let (mut files, mut names, mut kept) = (InputContents::default(), BTreeMap::new(), BTreeMap::new());
    for (index, workunit) in written.into_iter().enumerate() {
        let place = index + 1;
        let Read { value: workunit, mistakes: mut wrong } = workunit;
        let workunit = workunit.and_then(|workunit| convert(base, workunit, &mut files, &mut wrong));
        match workunit.filter(|_| wrong.is_empty()) {
            Some(workunit) => {
                let name = workunit.name().to_owned();
                if let Some(first) = names.insert(name, place).filter(|_| !workunit.name().is_empty()) {
                    mistakes.push(twice(workunit.name(), first, place));
                }
                for (name, content) in workunit.kept() {
                    let (first, known) = *kept.entry(name.to_owned()).or_insert((place, *content));
                    if known != *content {
                        mistakes.push(kept_twice(name, first, place));
                    }
                }
                workunits.push(workunit);
            }
            None => mistakes.extend(wrong.iter().map(|what| format!("workunit {place}: {}", clipped(what)))),
        }
    }
    if workunits.is_empty() && mistakes.is_empty() {
        mistakes.push("it has no workunits".to_owned());
    }
    match mistakes.is_empty() {
        true => Ok(workunits),
        false => Err(Failure::bad_input(format!("{shown}: {}", all_told(&mistakes)))),
    }
}

/// Reads it whole. If that fails, workunit by workunit: so all mistakes are told, and not the first alone.
fn written(text: &str, is_json: bool) -> Result<Written, String> {
    let whole: Result<Batch<Workunit>, String> = match is_json {
        true => serde_json::from_str(text).map_err(|error| clipped(&error.to_string())),
        false => toml::from_str(text).map_err(|error| toml_mistake(text, &error)),
    };
    let read = |workunit| Read { value: Some(workunit), mistakes: Vec::new() };
    whole.map(|batch| batch.workunits.into_iter().map(read).collect()).or_else(|first| {
        let each = if is_json { each_of_json(text) } else { each_of_toml(text) };
        // A mistake that is not in a workunit is the first one.
        each.filter(|each| each.iter().any(|read| !read.mistakes.is_empty())).ok_or(first)
    })
}

/// What a workunit cannot be without, and something that would do.
const NEEDED: &str = "application = 'a'\nflops = 1.0";

fn each_of_json(text: &str) -> Option<Written> {
    let batch: Batch<serde_json::Value> = serde_json::from_str(text).ok()?;
    let needed = json!({ "application": "a", "flops": 1.0 });
    let read = |value| serde_json::from_value(value);
    let mut say = |error: serde_json::Error| error.to_string();
    Some(batch.workunits.into_iter().map(|value| read_by_parts(&value, &needed, read, &mut say)).collect())
}

fn each_of_toml(text: &str) -> Option<Written> {
    let table = DeTable::parse(text).ok()?.into_inner();
    let (key, value) = table.into_iter().next()?;
    let DeValue::Array(workunits) = value.into_inner() else { return None };
    if *key.get_ref() != "workunits" {
        return None;
    }
    let needed = DeTable::parse(NEEDED).ok()?;
    let needed = Spanned::new(needed.span(), DeValue::Table(needed.into_inner()));
    let read = |value| Workunit::deserialize(ValueDeserializer::from(value));
    let mut told = 0;
    let mut say = |error: toml::de::Error| {
        told += 1;
        // Where it is takes time to find, and only so many are told.
        if told > MISTAKES_TOLD { String::new() } else { toml_mistake(text, &error) }
    };
    Some(workunits.into_iter().map(|value| read_by_parts(&value, &needed, read, &mut say)).collect())
}

fn twice(name: &str, first: usize, second: usize) -> String {
    format!(
        "workunits {first} and {second} of the submission have the same name {name:?}: give each another, or none to have one made"
    )
}

fn kept_twice(name: &str, first: usize, second: usize) -> String {
    format!(
        "workunits {first} and {second} of the submission keep different contents under the same name {name:?}: give each a keep_as of its own"
    )
}

/// Mistakes in a line; of very many, the first ones.
fn all_told(mistakes: &[String]) -> String {
    let told = mistakes.iter().take(MISTAKES_TOLD).map(String::as_str).collect::<Vec<_>>().join("; ");
    match mistakes.len().saturating_sub(MISTAKES_TOLD) {
        0 => told,
        more => format!("{told}; and {more} more"),
    }
}

/// Where and what; the line itself only if it is short.
fn toml_mistake(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: {}", clipped(error.message()))
}

/// A text of which at most so much is repeated.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(TEXT_TOLD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is left out becomes 0, which stands for the default on the wire: so a written 0 is refused here.
fn above_zero<T: Default + PartialEq + std::fmt::Display>(key: &str, value: Option<T>) -> Result<T, String> {
    match value {
        Some(value) if value == T::default() => {
            Err(format!("{key} = {value}: expected a value above 0, or leave {key} out for the default"))
        }
        value => Ok(value.unwrap_or_default()),
    }
}

/// What came of something; where nothing did, the mistake is noted.
fn noted<T: Default>(wrong: &mut Vec<String>, result: Result<T, String>) -> T {
    result.unwrap_or_else(|mistake| {
        wrong.push(mistake);
        T::default()
    })
}

/// None where something is wrong, all of which is noted.
fn convert(
    base: &Path,
    workunit: Workunit,
    files: &mut InputContents,
    wrong: &mut Vec<String>,
) -> Option<PendingWorkunit> {
    let number = above_zero::<u32>;
    let size = |key: &str, text: &Option<String>| {
        let size = text.as_deref().map(units::size_or_bytes).transpose();
        above_zero(key, size.map_err(|error| format!("{key}: {error}"))?)
    };
    let (mut inputs, mut contents) = (Vec::new(), Vec::new());
    for Input { open_name, text, path, keep_as } in workunit.inputs {
        match content(base, &open_name, text, path, files) {
            Ok(content) => contents.push(content),
            Err(mistake) => wrong.push(mistake),
        }
        inputs.push(InputFile { open_name, keep_as, ..InputFile::default() });
    }
    let mut outputs = Vec::new();
    for output in workunit.outputs {
        let max_bytes = noted(wrong, size("max_size", &output.max_size));
        outputs.push(OutputFile { max_bytes, open_name: output.open_name });
    }
    let deadline = workunit.deadline.as_deref().map(|text| {
        units::deadline(text)
            .map_err(|error| format!("deadline = {text:?}: {error}, or leave it out for the default"))
    });
    let deadline = noted(wrong, deadline.transpose());
    if !(workunit.flops.is_finite() && workunit.flops > 0.0) {
        wrong.push(format!("flops = {}: expected a number above 0, such as 1e12", workunit.flops));
    }
    let workunit = NewWorkunit {
        name: workunit.name,
        application: workunit.application,
        command_line: workunit.command_line,
        inputs,
        outputs,
        flops_estimate: workunit.flops,
        flops_bound: noted(wrong, above_zero("flops_bound", workunit.flops_bound)),
        memory_bound_bytes: noted(wrong, size("memory", &workunit.memory)),
        disk_bound_bytes: noted(wrong, size("disk", &workunit.disk)),
        delay_bound_micros: deadline.map_or(0, |time| time.as_micros()),
        quorum: noted(wrong, number("quorum", workunit.quorum)),
        initial_jobs: noted(wrong, number("initial_jobs", workunit.initial_jobs)),
        max_error_jobs: noted(wrong, number("max_error_jobs", workunit.max_error_jobs)),
        max_total_jobs: noted(wrong, number("max_total_jobs", workunit.max_total_jobs)),
        comparator: workunit.comparator,
    };
    let made = PendingWorkunit::new(workunit, contents);
    made.map_err(|failure| wrong.push(failure.to_string())).ok()
}

fn content(
    base: &Path,
    open_name: &str,
    text: Option<String>,
    path: Option<PathBuf>,
    files: &mut InputContents,
) -> Result<InputContent, String> {
    match (text, path) {
        (Some(text), None) => Ok(InputContent::held(text.as_bytes())),
        (None, Some(path)) => files.of_file(&base.join(path)).map_err(|failure| failure.to_string()),
        _ => Err(format!("input {open_name:?} needs either text or path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, text: &str) -> Result<Vec<PendingWorkunit>, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(dir.path().join("data"), "abc").unwrap();
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_batch_reads_the_same_from_toml_and_json() {
        let toml = "[[workunits]]\napplication = 'a'\nflops = 1e9\ndeadline = '2h'\ninputs = [{open_name = 'in', path = 'data'}]\noutputs = [{open_name = 'out', max_size = '1kB'}]\n";
        let json = r#"{"workunits": [{"application": "a", "flops": 1e9, "deadline": "2h",
            "inputs": [{"open_name": "in", "path": "data"}], "outputs": [{"open_name": "out", "max_size": "1kB"}]}]}"#;
        let whole = |name, text| -> NewWorkunit {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(name);
            std::fs::write(dir.path().join("data"), "abc").unwrap();
            std::fs::write(&path, text).unwrap();
            read(&path).unwrap()[0].whole(false, |_| true).unwrap()
        };
        let workunit = whole("b.toml", toml);
        assert_eq!(workunit, whole("b.json", json));
        assert_eq!(
            (workunit.inputs[0].content.as_slice(), workunit.outputs[0].max_bytes),
            (&b"abc"[..], 1_000)
        );
        assert_eq!(workunit.delay_bound_micros, 7_200_000_000);
    }

    #[test]
    fn of_a_bad_line_as_long_as_a_book_only_the_place_is_told() {
        let line = "x".repeat(100_000);
        for text in [
            format!("[[workunits]]\n{line}\n"),
            format!("[[workunits]]\napplication='a'\nflops='{line}'\n"),
            format!("[[workunits]]\napplication='a'\nflops=1.0\n{line}=1\n"),
        ] {
            let failure = given("b.toml", &text).unwrap_err().to_string();
            assert!(failure.len() < 1_000 && failure.contains("line "), "{failure}");
        }
        let json = format!("{{\"workunits\": [{{\"{line}\": 1}}]}}");
        assert!(given("b.json", &json).unwrap_err().to_string().len() < 1_000);
        let many = "[[workunits]]\napplication='a'\nflops=1.0\nquorum=0\n".repeat(1_000);
        let failure = given("b.toml", &many).unwrap_err().to_string();
        assert!(failure.ends_with("and 980 more") && failure.len() < 5_000, "{failure}");
    }

    #[test]
    fn all_mistakes_of_a_batch_are_told_at_once() {
        let toml = "[[workunits]]\napplication='a'\nflops=1.0\ndeadline='soon'\n[[workunits]]\napplication='a'\nflops=1.0\ninputs=[{open_name='x'}]\n";
        let text = given("b.toml", toml).unwrap_err().to_string();
        assert!(text.contains("workunit 1") && text.contains("workunit 2"), "{text}");
    }

    #[test]
    fn r6_11_all_mistakes_of_one_workunit_are_told_at_once() {
        let toml = "[[workunits]]\napplicaton='a'\nflops=-1.0\nquorum='2'\ndeadline='soon'\nmemory='much'\n\
            inputs=[{open_name='in', txt='x'}, {open_name='at', path='nowhere'}]\n";
        let json = r#"{"workunits": [{"applicaton": "a", "flops": -1.0, "quorum": "2", "deadline": "soon",
            "memory": "much",
            "inputs": [{"open_name": "in", "txt": "x"}, {"open_name": "at", "path": "nowhere"}]}]}"#;
        for (name, text) in [("b.toml", toml), ("b.json", json)] {
            let failure = given(name, text).unwrap_err().to_string();
            for said in [
                "unknown field `applicaton`",
                "missing field `application`",
                "flops = -1",
                "expected u32",
                "deadline = \"soon\"",
                "memory: expected a size",
                "unknown field `txt`",
                "cannot read input",
            ] {
                assert_eq!(failure.matches(said).count(), 1, "{said} in {name}: {failure}");
            }
        }
        assert!(given("b.toml", toml).unwrap_err().to_string().contains("line 4, column 8: invalid type"));
    }

    #[test]
    fn r6_11_mistakes_of_every_kind_are_told_in_one_reading() {
        let each = [
            "quorums = 2",
            "inputs = [{open_name = 'in', path = 'nowhere'}]",
            "name = 'twice'",
            "name = 'twice'",
            "quorum = 0",
            "command_line = 7",
        ];
        let toml = each.map(|line| format!("[[workunits]]\napplication='a'\nflops=1.0\n{line}\n")).concat();
        let failure = given("b.toml", &toml).unwrap_err().to_string();
        for said in [
            "workunit 1: line 4, column 1: unknown field `quorums`",
            "workunit 2: cannot read input",
            "workunits 3 and 4 of the submission have the same name",
            "workunit 5: quorum = 0",
            "workunit 6: line 24, column",
        ] {
            assert!(failure.contains(said), "{said}: {failure}");
        }
        let json = r#"{"workunits": [{"application": "a", "flops": 1, "quorums": 2}, {"application": "a"},
            {"application": "a", "flops": 1, "inputs": [{"open_name": "in", "path": "nowhere"}]}]}"#;
        let failure = given("b.json", json).unwrap_err().to_string();
        for said in
            ["workunit 1: unknown field", "workunit 2: missing field `flops`", "workunit 3: cannot read"]
        {
            assert!(failure.contains(said), "{said}: {failure}");
        }
        let beside = "other = 1\n[[workunits]]\napplication='a'\nflops=1.0\n";
        assert!(given("b.toml", beside).unwrap_err().to_string().contains("unknown field `other`"));
    }

    #[test]
    fn r6_8_names_that_a_slot_has_no_place_for_are_told_with_their_workunit_before_anything_is_sent() {
        let each = ["'init_data.xml'", "'out'}, {open_name = 'out/x'", "'in'"];
        let toml = each.map(|name| format!("[[workunits]]\napplication='a'\nflops=1.0\ninputs=[{{open_name='in', text=''}}]\noutputs=[{{open_name = {name}}}]\n"));
        let failure = given("b.toml", &toml.concat()).unwrap_err().to_string();
        for said in [
            "workunit 1: open name \"init_data.xml\" is the BOINC client's",
            "workunit 2: open name \"out/x\"",
            "workunit 3: open name \"in\"",
        ] {
            assert!(failure.contains(said), "{said}: {failure}");
        }
    }

    #[test]
    fn a_zero_that_would_mean_the_default_is_refused_with_what_was_expected() {
        for zero in [
            "quorum = 0",
            "initial_jobs = 0",
            "max_error_jobs = 0",
            "max_total_jobs = 0",
            "flops_bound = 0.0",
            "memory = '0'",
            "disk = '0B'",
        ] {
            let failure =
                given("b.toml", &format!("[[workunits]]\napplication='a'\nflops=1.0\n{zero}\n")).unwrap_err();
            assert_eq!(failure.code().number(), 3);
            assert!(failure.to_string().contains("expected a value above 0"), "{failure}");
        }
    }

    #[test]
    fn a_deadline_of_nothing_or_of_ages_is_refused_as_on_the_command_line() {
        for bad in ["0s", "100000years"] {
            let text = format!("[[workunits]]\napplication='a'\nflops=1.0\ndeadline='{bad}'\n");
            let failure = given("b.toml", &text).unwrap_err();
            assert_eq!(failure.code().number(), 3);
            assert!(failure.to_string().contains("workunit 1: deadline"), "{failure}");
            assert!(failure.to_string().contains("from 1s to 3650days"), "{failure}");
        }
    }

    #[test]
    fn what_is_no_batch_is_refused_with_where() {
        for bad in [
            "",
            "workunits = 3",
            "[[workunits]]\nflops = 1.0\n",
            "[[workunits]]\napplication='a'\nflops=1.0\nflop=2\n",
            "workunits = []",
        ] {
            let failure = given("b.toml", bad).unwrap_err();
            assert_eq!(failure.code().number(), 3, "{bad}");
        }
    }
}
