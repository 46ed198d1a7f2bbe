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

use std::path::Path;

use fallow_proto::operator::v1::{InputFile, NewWorkunit, OutputFile};
use serde::Deserialize;

use super::{Failure, units};

/// Largest batch file that is read.
const FILE_BYTES: u64 = 64 << 20;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Batch {
    workunits: Vec<Workunit>,
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
    path: Option<std::path::PathBuf>,
    #[serde(default)]
    keep_as: String,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Output {
    open_name: String,
    max_size: Option<String>,
}

/// Reads a batch file; a name that ends in `.json` is JSON, any other TOML.
pub(super) fn read(path: &Path) -> Result<Vec<NewWorkunit>, Failure> {
    let size = std::fs::metadata(path).map_err(|error| Failure::file("read", path, error))?.len();
    if size > FILE_BYTES {
        return Err(Failure::bad_input(format!(
            "{} has {size} bytes: at most {FILE_BYTES}; submit parts",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, error))?;
    let is_json = path.extension().is_some_and(|end| end == "json");
    let parsed: Result<Batch, String> = if is_json {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.to_string())
    };
    let batch =
        parsed.map_err(|error| Failure::bad_input(format!("{} is not a batch: {error}", path.display())))?;
    let base = path.parent().unwrap_or(Path::new("."));
    let (mut workunits, mut mistakes) = (Vec::new(), Vec::new());
    for (index, workunit) in batch.workunits.into_iter().enumerate() {
        match convert(base, workunit) {
            Ok(workunit) => workunits.push(workunit),
            Err(what) => mistakes.push(format!("workunit {}: {what}", index + 1)),
        }
    }
    if workunits.is_empty() && mistakes.is_empty() {
        mistakes.push("it has no workunits".to_owned());
    }
    match mistakes.is_empty() {
        true => Ok(workunits),
        false => Err(Failure::bad_input(format!("{}: {}", path.display(), mistakes.join("; ")))),
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

fn convert(base: &Path, workunit: Workunit) -> Result<NewWorkunit, String> {
    let number = above_zero::<u32>;
    let size =
        |key: &str, text: &Option<String>| above_zero(key, text.as_deref().map(units::size).transpose()?);
    let inputs = workunit.inputs.into_iter().map(|input| content(base, input)).collect::<Result<_, _>>()?;
    let outputs = workunit.outputs.into_iter().map(|output| {
        Ok(OutputFile { max_bytes: size("max_size", &output.max_size)?, open_name: output.open_name })
    });
    let deadline = workunit.deadline.as_deref().map(|text| {
        units::deadline(text)
            .map_err(|error| format!("deadline = {text:?}: {error}, or leave it out for the default"))
    });
    let deadline = deadline.transpose()?;
    Ok(NewWorkunit {
        name: workunit.name,
        application: workunit.application,
        command_line: workunit.command_line,
        inputs,
        outputs: outputs.collect::<Result<_, String>>()?,
        flops_estimate: workunit.flops,
        flops_bound: above_zero("flops_bound", workunit.flops_bound)?,
        memory_bound_bytes: size("memory", &workunit.memory)?,
        disk_bound_bytes: size("disk", &workunit.disk)?,
        delay_bound_micros: deadline.map_or(0, |time| time.as_micros()),
        quorum: number("quorum", workunit.quorum)?,
        initial_jobs: number("initial_jobs", workunit.initial_jobs)?,
        max_error_jobs: number("max_error_jobs", workunit.max_error_jobs)?,
        max_total_jobs: number("max_total_jobs", workunit.max_total_jobs)?,
        comparator: workunit.comparator,
    })
}

fn content(base: &Path, input: Input) -> Result<InputFile, String> {
    let Input { open_name, text, path, keep_as } = input;
    let content = match (text, path) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(path)) => {
            let path = base.join(path);
            std::fs::read(&path).map_err(|error| format!("cannot read input {}: {error}", path.display()))?
        }
        _ => return Err(format!("input {open_name:?} needs either text or path")),
    };
    Ok(InputFile { open_name, content, keep_as })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, text: &str) -> Result<Vec<NewWorkunit>, Failure> {
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
        let workunits = given("b.toml", toml).unwrap();
        assert_eq!(workunits, given("b.json", json).unwrap());
        assert_eq!(
            (workunits[0].inputs[0].content.as_slice(), workunits[0].outputs[0].max_bytes),
            (&b"abc"[..], 1_000)
        );
        assert_eq!(workunits[0].delay_bound_micros, 7_200_000_000);
    }

    #[test]
    fn all_mistakes_of_a_batch_are_told_at_once() {
        let toml = "[[workunits]]\napplication='a'\nflops=1.0\ndeadline='soon'\n[[workunits]]\napplication='a'\nflops=1.0\ninputs=[{open_name='x'}]\n";
        let text = given("b.toml", toml).unwrap_err().to_string();
        assert!(text.contains("workunit 1") && text.contains("workunit 2"), "{text}");
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
