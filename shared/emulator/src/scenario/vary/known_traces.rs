//! The files of a scenario that was read already: a variation of it is read without a disk.

use super::super::files::{FileError, Files};
use super::super::text::trace::write_trace;
use super::super::{Availability, Scenario};

/// The traces that a scenario already holds, and other files behind them.
pub(crate) struct KnownTraces<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) others: &'a dyn Files,
}

impl Files for KnownTraces<'_> {
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let projects = self.scenario.projects.iter().map(|project| &project.available);
        let outages = self.scenario.outages.iter().map(|outage| &outage.available);
        for available in projects.chain(outages).chain([&self.scenario.host.available]) {
            if let Availability::Trace(trace) = available
                && trace.file == name
            {
                return Ok(write_trace(trace).into_bytes());
            }
        }
        self.others.read(name)
    }
}
