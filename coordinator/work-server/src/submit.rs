//! Adding workunits: in pieces, each of them checked all together and stored all together.
//!
//! **Model.** A piece's input files are written first and put on the medium with one wait; then one durable
//! batch stores its workunits, their names, and how much of the submission is taken. Names are given in that
//! batch too: a crash before it leaves files that no record speaks of, and the next submission gives the same
//! names and writes them anew (`orphans` removes what nobody repeats). A submission that is repeated under
//! its key finds what was taken, and only the rest is added.

use std::collections::BTreeMap;

use fallow_boinc::names::{OPEN_NAME_RULE, is_open_name};
use fallow_boinc::runtime::slot_names::{SlotClash, SlotNames};
use fallow_boinc::signature::md5_hex;
use fallow_daemon::lock;
use fallow_domain::{Bytes, Duration, Instant, Invalid};

use super::comparator;
use super::error::ProjectError;
use super::index;
use super::layout::{leave_space, remove_if_there, sync_filesystem, write_unsynced};
use super::names::{PLAIN_RULE, is_plain};
use super::operator_types::{NewInput, NewWorkunit, SubmissionPiece, SubmissionStatus};
use super::project::Project;
use super::records::{Counters, Submission};
use super::sticky_inputs::StickyInputs;
use super::store_keys::tail;
use super::txn::{Txn, decode};
use super::workunit::{InputRef, Workunit, WorkunitState};

/// Applications that are named where another one is wanted.
const APPLICATIONS_NAMED: usize = 20;
/// The longest that a job may take: clients count in seconds, and deadlines beyond mean nothing.
const DELAY_MAX: Duration = Duration::from_hours(10 * 365 * 24);
/// The most workunits in one piece: it is one batch in the store, and what others store waits behind it.
pub const SUBMIT_MAX: usize = 1_000;
/// The most inputs, outputs and initial jobs of all workunits in one piece, together: each input is a file,
/// and on the medium before the batch; the names of all of them and the jobs are in the batch.
pub const SUBMIT_ALL_MAX: usize = 5_000;
/// The most names of a submission that an older version has stored together.
const PAGE_MAX: u64 = 100_000;
/// The most workunits of a whole submission.
const TOTAL_MAX: u64 = 10_000_000;
/// The longest key of a submission, and fingerprint of one.
const KEY_MAX: usize = 128;
/// Names must leave room for the numbers of job and output behind them.
const NAME_MAX: usize = 200;
/// The most input files, and output files, of a workunit.
const FILES_MAX: usize = 100;
/// Between a workunit's name and the position of an input, in the name of its file.
const INPUT: &str = "_in";
/// BOINC clients hold command lines of this length.
const COMMAND_LINE_MAX: usize = 1_024;

/// A piece's workunits that are not stored yet, and where they stand in the whole.
struct Remaining {
    workunits: Vec<NewWorkunit>,
    /// Place of the first, from 0.
    from: u64,
    /// Workunits of the whole.
    total: u64,
}

impl Remaining {
    /// For `map_err` on the workunit at this place of the rest.
    fn of_workunit(&self, at: usize) -> impl FnOnce(ProjectError) -> ProjectError + use<> {
        ProjectError::of_workunit(self.from + at as u64, self.total)
    }
}

/// What a file takes of most volumes, in bytes: whole blocks, and what says where they are.
const BLOCK: u64 = 4 << 10;
const INODE: u64 = 512;

impl Project {
    /// Adds what is not there yet of a piece, all or none, and gives the names of all of it in the same
    /// order.
    pub(crate) fn submit_piece(
        &self,
        piece: SubmissionPiece,
        now: Instant,
    ) -> Result<SubmissionStatus, ProjectError> {
        check_piece(&piece)?;
        let _alone = lock(&self.adding);
        let record = self.submission(&piece)?;
        let taken = record.as_ref().map_or(0, |record| record.taken);
        let begun_at = record.as_ref().map(|record| record.begun_at);
        let SubmissionPiece { key, digest, total, offset, check_only, mut workunits } = piece;
        if offset > taken && !check_only {
            return Err(ProjectError::PieceTooEarly { key, offset, taken });
        }
        let here = usize::try_from(taken.saturating_sub(offset)).unwrap_or(usize::MAX);
        let rest = workunits.split_off(here.min(workunits.len()));
        let mut names = self.names_of(&key, offset, workunits.len())?;
        let rest = Remaining { from: offset + workunits.len() as u64, workunits: rest, total };
        let mut sticky_inputs = StickyInputs::new(&self.layout, &self.fingerprints);
        let mut of_applications = BTreeMap::new();
        for (at, workunit) in rest.workunits.iter().enumerate() {
            let checked = self.check(workunit, &mut sticky_inputs, &mut of_applications, check_only);
            checked.map_err(rest.of_workunit(at))?;
        }
        let named = self.name_all(&rest)?;
        let known = workunits.len() as u64;
        if check_only || rest.workunits.is_empty() {
            return Ok(SubmissionStatus { names, taken, begun_at, known });
        }
        let last_sequence = named.last().map(|(_, sequence)| *sequence);
        let inputs = rest.workunits.iter().flat_map(|workunit| &workunit.inputs);
        let own = inputs.filter(|input| input.keep_as.is_empty()).map(|input| input.content.len() as u64);
        let (mut files, mut bytes) = (0, 0);
        for length in own.chain(sticky_inputs.to_write()) {
            (files, bytes) = (files + 1, bytes + length.next_multiple_of(BLOCK) + INODE);
        }
        leave_space(&self.layout.downloads(), bytes, files)?;
        let new = match self.prepare_all(rest, named, &mut sticky_inputs, now) {
            Ok(new) => new,
            Err(error) => {
                sticky_inputs.take_back();
                return Err(error);
            }
        };
        let taken = taken + new.len() as u64;
        let begun_at = begun_at.unwrap_or(now);
        let new_names: Vec<String> = new.iter().map(|workunit| workunit.name.clone()).collect();
        let stored = self.transact_durably(|txn| {
            txn.leave_space_to_hosts();
            for workunit in &new {
                index::write(txn, &self.keys, None, workunit, now)?;
            }
            let mut counters: Counters = txn.get("counters", &self.keys.counters())?.unwrap_or_default();
            counters.last_sequence = counters.last_sequence.max(last_sequence.unwrap_or_default());
            txn.put("counters", self.keys.counters(), &counters)?;
            if !key.is_empty() {
                let from = taken - new_names.len() as u64;
                txn.put("names of a submission", self.keys.submission_names(&key, from), &new_names)?;
                let record = Submission { digest, total, taken, begun_at };
                txn.put("submission", self.keys.submission(&key), &record)?;
            }
            Ok(())
        });
        if let Err(error) = stored {
            // It may have been stored although it is not known to be on the medium.
            let is_there = |name: &String| self.read().contains(&self.keys.workunit(name));
            if matches!(new_names.first().map(is_there), Some(Ok(false))) {
                sticky_inputs.take_back();
                self.remove_inputs(&new, ("", 0));
            }
            return Err(error);
        }
        names.extend(new_names);
        Ok(SubmissionStatus { names, taken, begun_at: Some(begun_at), known })
    }

    /// What is stored of the submission that a piece belongs to.
    fn submission(&self, piece: &SubmissionPiece) -> Result<Option<Submission>, ProjectError> {
        if piece.key.is_empty() {
            return Ok(None);
        }
        let known: Option<Submission> = self.read().get("submission", &self.keys.submission(&piece.key))?;
        match known {
            Some(known) if (&known.digest, known.total) != (&piece.digest, piece.total) => {
                Err(ProjectError::KeyTaken { key: piece.key.clone(), total: known.total })
            }
            known => Ok(known),
        }
    }

    /// The names of workunits of a submission that are stored, from a place on.
    fn names_of(&self, key: &str, offset: u64, count: usize) -> Result<Vec<String>, ProjectError> {
        let mut out = Vec::with_capacity(count);
        if count == 0 {
            return Ok(out);
        }
        let txn = self.read();
        let (prefix, begin) = (self.keys.all_submission_names(key), |at| self.keys.submission_names(key, at));
        // Pieces may have been cut at other places when they were taken, by an older version as well.
        let from = match txn.contains(&begin(offset))? {
            true => offset,
            false => (offset + 1).saturating_sub(PAGE_MAX),
        };
        let mut after = from.checked_sub(1).map(begin);
        while out.len() < count {
            let Some((page, value)) = txn.scan(&prefix, after.as_deref(), 1)?.pop() else { break };
            let at = u64::from_str_radix(tail(&page, &prefix), 16).unwrap_or_default();
            let names: Vec<String> = decode("names of a submission", &page, &value)?;
            let skipped = usize::try_from(offset.saturating_sub(at)).unwrap_or(usize::MAX);
            out.extend(names.into_iter().skip(skipped).take(count - out.len()));
            after = Some(page);
        }
        Ok(out)
    }

    /// For each workunit a name, if it has none, and a sequence number that no stored one has.
    fn name_all(&self, rest: &Remaining) -> Result<Vec<(String, u64)>, ProjectError> {
        let txn = self.read();
        let counters: Counters = txn.get("counters", &self.keys.counters())?.unwrap_or_default();
        let mut sequence = counters.last_sequence;
        let mut taken: BTreeMap<String, u64> = BTreeMap::new();
        let mut out = Vec::with_capacity(rest.workunits.len());
        for (at, workunit) in rest.workunits.iter().enumerate() {
            sequence += 1;
            let name = match workunit.name.as_str() {
                "" => self.made_name(&txn, &workunit.application, &mut sequence, &taken)?,
                name => name.to_owned(),
            };
            let place = rest.from + at as u64 + 1;
            if let Some(first) = taken.insert(name.clone(), place) {
                return Err(ProjectError::WorkunitTwice { name, first, second: place });
            }
            if txn.contains(&self.keys.workunit(&name))? {
                return Err(rest.of_workunit(at)(self.exists(&name)));
            }
            out.push((name, sequence));
        }
        Ok(out)
    }

    /// A name that no workunit has: the next of its application's.
    fn made_name(
        &self,
        txn: &Txn<'_>,
        application: &str,
        sequence: &mut u64,
        taken: &BTreeMap<String, u64>,
    ) -> Result<String, ProjectError> {
        loop {
            let made = format!("{application}_{sequence:08}");
            if !txn.contains(&self.keys.workunit(&made))? && !taken.contains_key(&made) {
                return Ok(made);
            }
            *sequence += 1;
        }
    }

    /// Writes all input files and waits for the medium once.
    fn prepare_all(
        &self,
        mut rest: Remaining,
        named: Vec<(String, u64)>,
        sticky_inputs: &mut StickyInputs<'_>,
        now: Instant,
    ) -> Result<Vec<Workunit>, ProjectError> {
        let new = std::mem::take(&mut rest.workunits);
        let has_files = new.iter().any(|workunit| !workunit.inputs.is_empty());
        let mut workunits = Vec::with_capacity(new.len());
        for (at, (workunit, (name, sequence))) in new.into_iter().zip(named).enumerate() {
            let inputs = workunit.inputs.len();
            let own_name = name.clone();
            match self.prepare(workunit, (name, sequence), sticky_inputs, now) {
                Ok(prepared) => workunits.push(prepared),
                Err(error) => {
                    self.remove_inputs(&workunits, (&own_name, inputs));
                    return Err(rest.of_workunit(at)(error));
                }
            }
        }
        match has_files.then(|| sync_filesystem(&self.layout.downloads())) {
            Some(Err(error)) => {
                self.remove_inputs(&workunits, ("", 0));
                Err(error)
            }
            Some(Ok(())) | None => Ok(workunits),
        }
    }

    /// Removes inputs of workunits that do not come to be, and of one that is not whole: on a full disk
    /// others need their place.
    fn remove_inputs(&self, workunits: &[Workunit], (name, inputs): (&str, usize)) {
        let of_all = workunits.iter().flat_map(|workunit| &workunit.inputs).filter(|input| !input.sticky);
        let names = of_all.map(|input| input.file_name.clone());
        for file_name in names.chain((0..inputs).map(|position| format!("{name}{INPUT}{position}"))) {
            if let Err(error) = remove_if_there(&self.layout.download(&file_name)) {
                tracing::warn!(file_name, %error, "cannot delete an input that no workunit uses");
            }
        }
    }

    fn prepare(
        &self,
        new: NewWorkunit,
        (name, sequence): (String, u64),
        sticky_inputs: &mut StickyInputs<'_>,
        now: Instant,
    ) -> Result<Workunit, ProjectError> {
        let mut inputs = Vec::with_capacity(new.inputs.len());
        for (position, input) in new.inputs.into_iter().enumerate() {
            let sticky = !input.keep_as.is_empty();
            let (file_name, nbytes, md5) = match sticky {
                true => sticky_inputs.write(&input)?,
                false => {
                    let file_name = format!("{name}{INPUT}{position}");
                    // Other projects' submissions were told of the same room, and take it meanwhile.
                    leave_space(&self.layout.downloads(), input.content.len() as u64, 1)?;
                    write_unsynced(&self.layout.download(&file_name), &input.content, 0o644)?;
                    (file_name, input.content.len() as u64, md5_hex(&input.content))
                }
            };
            inputs.push(InputRef { open_name: input.open_name, file_name, nbytes, md5, sticky });
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

    fn check<'w>(
        &self,
        new: &'w NewWorkunit,
        sticky_inputs: &mut StickyInputs<'_>,
        of_applications: &mut BTreeMap<&'w str, SlotNames>,
        check_only: bool,
    ) -> Result<(), ProjectError> {
        let catalog = self.catalog();
        if !catalog.runs(&new.application) {
            return Err(ProjectError::UnknownApplication {
                project: self.name.clone(),
                application: new.application.clone(),
                there: catalog.applications().take(APPLICATIONS_NAMED).map(str::to_owned).collect(),
            });
        }
        new.rules.check()?;
        comparator::find(&new.comparator)?;
        check_values(new)?;
        let of_application = of_applications.entry(&new.application);
        check_places(new, of_application.or_insert_with(|| catalog.slot_names(&new.application)))?;
        let mut to_keep = new.inputs.iter().filter(|input| !input.keep_as.is_empty());
        to_keep.try_for_each(|input| sticky_inputs.add(input, check_only))
    }

    fn exists(&self, name: &str) -> ProjectError {
        ProjectError::WorkunitExists { project: self.name.clone(), name: name.to_owned() }
    }
}

/// The workunit that an input file of this name is of, unless hosts keep it.
pub(super) fn split_input_name(name: &str) -> Option<&str> {
    let (workunit, position) = name.rsplit_once(INPUT)?;
    let number: usize = position.parse().ok()?;
    (number < FILES_MAX && number.to_string() == position).then_some(workunit)
}

fn check_piece(piece: &SubmissionPiece) -> Result<(), Invalid> {
    if piece.workunits.len() > SUBMIT_MAX {
        let expected = "at most 1,000 at a time";
        return Err(Invalid::new("number of workunits", piece.workunits.len(), expected));
    }
    // One workunit that has more than it may is refused by itself, and told so.
    let of_one = |workunit: &NewWorkunit| {
        let counts = [workunit.inputs.len(), workunit.outputs.len(), workunit.rules.initial_jobs as usize];
        counts.into_iter().map(|count| count.min(FILES_MAX + 1)).sum::<usize>()
    };
    let all: usize = piece.workunits.iter().map(of_one).sum();
    if all > SUBMIT_ALL_MAX {
        let expected = "at most 5,000 of all workunits at a time";
        return Err(Invalid::new("number of inputs, outputs and initial jobs", all, expected));
    }
    if piece.total > TOTAL_MAX {
        let expected = "at most 10,000,000 in one submission";
        return Err(Invalid::new("number of workunits", piece.total, expected));
    }
    let end = piece.offset.saturating_add(piece.workunits.len() as u64);
    let is_whole = piece.offset == 0 && end == piece.total;
    if end > piece.total || (piece.key.is_empty() && !is_whole && !piece.check_only) {
        let expected = "a piece within its submission, which has a key";
        return Err(Invalid::new("end of a piece", end, expected));
    }
    if !piece.key.is_empty() && !is_plain(&piece.key, KEY_MAX) {
        let expected = "up to 128 ASCII letters, digits, `-`, `_` and `.`, without `..`";
        return Err(Invalid::new("key of a submission", &piece.key, expected));
    }
    if !piece.key.is_empty() && piece.digest.is_empty() {
        // Without it another batch of the same length would be taken for this one.
        let expected = "a fingerprint of the whole submission, as it has a key";
        return Err(Invalid::new("fingerprint of a submission", &piece.digest, expected));
    }
    if piece.digest.len() > KEY_MAX {
        let expected = "up to 128 characters";
        return Err(Invalid::new("fingerprint of a submission", piece.digest.len(), expected));
    }
    Ok(())
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
    let is_by_name = |input: &&NewInput| !input.sha256.is_empty();
    if let Some(bad) = new
        .inputs
        .iter()
        .filter(is_by_name)
        .find(|input| input.keep_as.is_empty() || !input.content.is_empty())
    {
        let expected = "an input that is kept, and none of its content";
        return Err(Invalid::new("fingerprint of an input", &bad.sha256, expected));
    }
    match names.iter().find(|name| !is_open_name(name)) {
        Some(bad) => Err(Invalid::new("open name", bad, OPEN_NAME_RULE)),
        None => Ok(()),
    }
}

/// Refuses files that would share a place in the slot.
fn check_places(new: &NewWorkunit, of_application: &SlotNames) -> Result<(), SlotClash> {
    let inputs = || new.inputs.iter().map(|input| input.open_name.as_str());
    let outputs = || new.outputs.iter().map(|output| output.open_name.as_str());
    let mut places = SlotNames::default();
    inputs().chain(outputs()).try_for_each(|name| places.add(name))?;
    check_beside(of_application, inputs(), outputs())
}

/// Refuses a workunit's files that have no place beside those of its application. An input may replace a file
/// that comes with the application, but neither be its directory nor lie in one of its name; an output would
/// be there instead of it, empty.
pub(super) fn check_beside<'n>(
    of_application: &SlotNames,
    mut inputs: impl Iterator<Item = &'n str>,
    mut outputs: impl Iterator<Item = &'n str>,
) -> Result<(), SlotClash> {
    inputs.try_for_each(|name| match of_application.check(name) {
        Err(SlotClash::Same { .. }) => Ok(()),
        checked => checked,
    })?;
    outputs.try_for_each(|name| of_application.check(name))
}

#[cfg(test)]
#[path = "submit_tests.rs"]
mod tests;
