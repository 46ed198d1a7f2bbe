//! Adding workunits: checked all together, stored all together.

use std::collections::BTreeMap;

use fallow_boinc::names::{OPEN_NAME_RULE, is_open_name};
use fallow_domain::{Bytes, Duration, Instant, Invalid};

use super::comparator;
use super::error::ProjectError;
use super::hosted::{Project, lock};
use super::index;
use super::keys::md5_hex;
use super::layout::write_whole;
use super::names::{PLAIN_RULE, is_plain};
use super::records::Counters;
use super::types::{NewInput, NewWorkunit};
use super::workunit::{InputRef, Workunit, WorkunitState};

/// The longest that a job may take: clients count in seconds, and deadlines beyond mean nothing.
const DELAY_MAX: Duration = Duration::from_hours(10 * 365 * 24);
/// The most workunits in one submission: it is one batch in the store.
pub const SUBMIT_MAX: usize = 100_000;
/// Names must leave room for the numbers of job and output behind them.
const NAME_MAX: usize = 200;
/// The most input files, and output files, of a workunit.
const FILES_MAX: usize = 100;
/// BOINC clients hold command lines of this length.
const COMMAND_LINE_MAX: usize = 1_024;

impl Project {
    /// Adds workunits, all or none, and gives their names in the same order.
    pub(crate) fn submit(&self, new: Vec<NewWorkunit>, now: Instant) -> Result<Vec<String>, ProjectError> {
        if new.len() > SUBMIT_MAX {
            return Err(Invalid::new("number of workunits", new.len(), "at most 100,000 at a time").into());
        }
        for (position, workunit) in new.iter().enumerate() {
            self.check(workunit).map_err(ProjectError::of_workunit(position, new.len()))?;
        }
        let _alone = lock(&self.adding);
        let named = self.claim_names(&new)?;
        // Input files before the records that speak of them; after a crash they lie there unused.
        let mut workunits = Vec::with_capacity(new.len());
        let all = new.len();
        for (position, (workunit, (name, sequence))) in new.into_iter().zip(named).enumerate() {
            let prepared = self.prepare(workunit, name, sequence, now);
            workunits.push(prepared.map_err(ProjectError::of_workunit(position, all))?);
        }
        self.transact_durably(|txn| {
            for workunit in &workunits {
                index::write(txn, &self.keys, None, workunit)?;
            }
            Ok(())
        })?;
        Ok(workunits.into_iter().map(|workunit| workunit.name).collect())
    }

    /// Gives each workunit a sequence number that is never given again, and a name if it has none.
    fn claim_names(&self, new: &[NewWorkunit]) -> Result<Vec<(String, u64)>, ProjectError> {
        self.transact(|txn| {
            let mut counters: Counters = txn.get("counters", &self.keys.counters())?.unwrap_or_default();
            let mut taken = BTreeMap::new();
            let mut out = Vec::with_capacity(new.len());
            for (position, workunit) in new.iter().enumerate() {
                counters.last_sequence += 1;
                let mut name = workunit.name.clone();
                while name.is_empty() {
                    let made = format!("{}_{:08}", workunit.application, counters.last_sequence);
                    if txn.contains(&self.keys.workunit(&made))? || taken.contains_key(&made) {
                        counters.last_sequence += 1;
                    } else {
                        name = made;
                    }
                }
                if let Some(first) = taken.insert(name.clone(), position) {
                    return Err(ProjectError::WorkunitTwice { name, first: first + 1, second: position + 1 });
                }
                if txn.contains(&self.keys.workunit(&name))? {
                    return Err(ProjectError::of_workunit(position, new.len())(self.exists(&name)));
                }
                out.push((name, counters.last_sequence));
            }
            txn.put("counters", self.keys.counters(), &counters)?;
            Ok(out)
        })
    }

    fn prepare(
        &self,
        new: NewWorkunit,
        name: String,
        sequence: u64,
        now: Instant,
    ) -> Result<Workunit, ProjectError> {
        let mut inputs = Vec::with_capacity(new.inputs.len());
        for (position, input) in new.inputs.into_iter().enumerate() {
            let sticky = !input.keep_as.is_empty();
            let file_name = match sticky {
                true => format!("kept_{}", input.keep_as),
                false => format!("{name}_in{position}"),
            };
            if sticky {
                self.check_kept(&file_name, &input)?;
            }
            write_whole(&self.layout.download(&file_name), &input.content, 0o644)?;
            inputs.push(InputRef {
                open_name: input.open_name,
                file_name,
                nbytes: input.content.len() as u64,
                md5: md5_hex(&input.content),
                sticky,
            });
        }
        let workunit = Workunit {
            name,
            sequence,
            application: new.application,
            command_line: new.command_line,
            inputs,
            outputs: new.outputs,
            flops_estimate: new.flops_estimate,
            flops_bound: new.flops_bound,
            memory_bound: new.memory_bound,
            disk_bound: new.disk_bound,
            delay_bound: new.delay_bound,
            rules: new.rules,
            comparator: new.comparator,
            created_at: now,
            state: WorkunitState::Active,
            target: 0,
            jobs: Vec::new(),
            files_deleted: false,
        };
        Ok(workunit.start())
    }

    /// A file that is kept never changes: clients hold it.
    fn check_kept(&self, file_name: &str, input: &NewInput) -> Result<(), ProjectError> {
        let path = self.layout.download(file_name);
        match std::fs::read(&path) {
            Ok(there) if there != input.content => {
                let expected = "a name that no other content has: a file that hosts keep never changes";
                Err(Invalid::new("name under which an input is kept", &input.keep_as, expected).into())
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ProjectError::file("read", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn check(&self, new: &NewWorkunit) -> Result<(), ProjectError> {
        if !self.catalog().runs(&new.application) {
            return Err(ProjectError::UnknownApplication {
                project: self.name.clone(),
                application: new.application.clone(),
            });
        }
        new.rules.check()?;
        comparator::find(&new.comparator)?;
        Ok(check_values(new)?)
    }

    fn exists(&self, name: &str) -> ProjectError {
        ProjectError::WorkunitExists { project: self.name.clone(), name: name.to_owned() }
    }
}

fn check_values(new: &NewWorkunit) -> Result<(), Invalid> {
    if !new.name.is_empty() && !is_plain(&new.name, NAME_MAX) {
        return Err(Invalid::new("workunit name", &new.name, PLAIN_RULE));
    }
    if new.command_line.len() > COMMAND_LINE_MAX || new.command_line.chars().any(char::is_control) {
        return Err(Invalid::new("command line", &new.command_line, "up to 1024 bytes on one line"));
    }
    if new.flops_estimate.get() <= 0.0 {
        return Err(Invalid::new("estimated size", new.flops_estimate, "above 0"));
    }
    if new.flops_bound < new.flops_estimate {
        return Err(Invalid::new("bound of the size", new.flops_bound, "at least the estimate"));
    }
    if new.disk_bound == Bytes(0) || new.memory_bound == Bytes(0) {
        return Err(Invalid::new("bound of disk or memory", new.disk_bound, "above 0"));
    }
    if !(Duration::from_micros(1)..=DELAY_MAX).contains(&new.delay_bound) {
        return Err(Invalid::new("latency bound", new.delay_bound, "above 0, at most 3650 days"));
    }
    let inputs = new.inputs.iter().map(|input| &input.open_name);
    let names: Vec<&String> = inputs.chain(new.outputs.iter().map(|output| &output.open_name)).collect();
    if new.inputs.len() > FILES_MAX || new.outputs.len() > FILES_MAX {
        return Err(Invalid::new("number of files", names.len(), "at most 100 inputs and 100 outputs"));
    }
    let kept = new.inputs.iter().map(|input| &input.keep_as).filter(|name| !name.is_empty());
    if let Some(bad) = kept.into_iter().find(|name| !is_plain(name, NAME_MAX)) {
        return Err(Invalid::new("name under which an input is kept", bad, PLAIN_RULE));
    }
    if let Some(bad) = names.iter().find(|name| !is_open_name(name)) {
        return Err(Invalid::new("open name", bad, OPEN_NAME_RULE));
    }
    match names.iter().enumerate().find(|(position, name)| names[..*position].contains(name)) {
        Some((_, twice)) => Err(Invalid::new("open name", twice, "each name once in a workunit")),
        None => Ok(()),
    }
}
