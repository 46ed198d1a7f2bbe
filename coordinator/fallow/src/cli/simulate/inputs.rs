//! What is to be simulated, from the command line. Everything that is wrong is said before anything runs.

use std::path::{Path, PathBuf};

use fallow_emulator::scenario::{BoincError, Directory, LoadError, Scenario, Variant, Vary};
use fallow_policy::composition::Composition;

use crate::cli::{Failure, warn};

/// A scenario, and where the files that it names are.
pub(super) struct Input {
    pub(super) scenario: Scenario,
    pub(super) files: Directory,
}

/// The policies, or the default ones.
pub(super) fn compositions(names: &[String]) -> Result<Vec<Composition>, Failure> {
    let mut compositions: Vec<Composition> = Vec::new();
    for name in names {
        let composition = name.parse().map_err(|error| Failure::bad_input(format!("--policy: {error}")))?;
        // The same by two names is the same.
        if !compositions.contains(&composition) {
            compositions.push(composition);
        }
    }
    if compositions.is_empty() {
        compositions.push(Composition::default());
    }
    Ok(compositions)
}

/// The scenarios: files, those of directories in order of their names, built-in ones, and a BOINC client's.
pub(super) fn scenarios(named: &[PathBuf], boinc: Option<&Path>) -> Result<Vec<Input>, Failure> {
    let mut inputs = Vec::new();
    let mut wrong: Vec<String> = Vec::new();
    for path in named {
        match files_of(path) {
            Ok(files) => files.iter().for_each(|file| match Scenario::load(file) {
                Ok(loaded) => {
                    loaded.warnings.iter().for_each(|warning| warn(&warning.to_string()));
                    inputs.push(Input { scenario: loaded.scenario, files: Directory::beside(file) });
                }
                Err(error) => wrong.push(words(&error)),
            }),
            Err(None) => match path.to_str().and_then(Scenario::built_in) {
                Some(scenario) => inputs.push(Input { scenario, files: Directory::new("") }),
                None => wrong.push(format!(
                    "no scenario {}: it is no file, no directory, and none of the built-in base, batch300, gpu, mix1 to mix1000",
                    path.display()
                )),
            },
            Err(Some(why)) => wrong.push(why),
        }
    }
    if let Some(dir) = boinc {
        match Scenario::from_boinc(&Directory::new(dir)) {
            Ok(taken) => {
                taken.notes.iter().for_each(|note| warn(&format!("{}: {note}", dir.display())));
                inputs.push(Input { scenario: taken.scenario, files: Directory::new(dir) });
            }
            Err(error) => wrong.push(boinc_words(dir, &error)),
        }
    }
    match wrong.is_empty() {
        true => Ok(inputs),
        false => Err(Failure::bad_input(wrong.join("\n"))),
    }
}

/// The scenario files that a path stands for; `None` for a path that is not there.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Option<String>> {
    if !path.exists() {
        return Err(None);
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |error| Some(format!("cannot read {}: {error}", path.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|extension| extension == "toml") {
            files.push(file);
        }
    }
    files.sort();
    match files.is_empty() {
        false => Ok(files),
        true if path.join("client_state.xml").exists() => {
            let dir = path.display();
            Err(Some(format!("{dir} is a BOINC client's data directory: simulate it with --boinc-dir {dir}")))
        }
        true => Err(Some(format!("there is no scenario in {}: expected files named *.toml", path.display()))),
    }
}

fn words(error: &LoadError) -> String {
    match error {
        LoadError::Wrong(complaints) => complaints.to_string(),
        LoadError::File(error) => format!("{error}: {}", error.source),
    }
}

fn boinc_words(dir: &Path, error: &BoincError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("--boinc-dir {}: {error}: {source}", dir.display()),
        None => format!("--boinc-dir {}: {error}", dir.display()),
    }
}

/// All combinations of values, scenario by scenario.
pub(super) fn variants(inputs: &[Input], options: &[String]) -> Result<Vec<Variant>, Failure> {
    let refused = |error: fallow_emulator::scenario::VaryError| Failure::bad_input(error.to_string());
    let options: Vec<Vary> =
        options.iter().map(|option| Vary::parse(option)).collect::<Result<_, _>>().map_err(refused)?;
    let mut variants = Vec::new();
    for input in inputs {
        variants.extend(input.scenario.variants(&options, &input.files).map_err(refused)?);
    }
    Ok(variants)
}
