//! What people write for the simulator.

use std::path::PathBuf;

use fallow_emulator::scenario::{FileError, Files, NoFiles, Scenario, Vary};

use crate::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target::new("scenario", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(loaded) = Scenario::parse("file", &text, &NoFiles) else { return };
        let written = loaded.scenario.to_toml();
        let again = Scenario::parse("file", &written, &NoFiles);
        assert_eq!(again.map(|again| again.scenario.to_toml()).ok(), Some(written));
    }),
    Target::new("trace", "", |bytes| {
        const USES: &str = "[[project]]\nname = \"p\"\n[host.available]\ntrace = \"trace\"\n";
        let _ = Scenario::parse("file", USES, &Only("trace", bytes));
    }),
    Target::new("client_directory", "client_state.xml", |bytes| {
        let _ = Scenario::from_boinc(&Only("client_state.xml", bytes));
    }),
    Target::new("variation", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let Ok(vary) = Vary::parse(&text) else { return };
        let _ = vary.apply(&Scenario::base(), "1", &NoFiles);
    }),
];

/// A directory with one file.
struct Only<'a>(&'static str, &'a [u8]);

impl Files for Only<'_> {
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        if name == self.0 {
            return Ok(self.1.to_vec());
        }
        Err(FileError { path: PathBuf::from(name), source: std::io::ErrorKind::NotFound.into() })
    }
}
