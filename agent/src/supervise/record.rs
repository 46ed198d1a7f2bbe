//! What the shell has to know of a task that an earlier life of the agent started: `slots/N.json`.

use std::io;
use std::path::Path;

use fallow_client::TaskSetup;
use fallow_domain::{Bytes, Duration, JobId, MasterUrl, SlotId};
use serde::{Deserialize, Serialize};

use crate::dir::{DataDir, Place, write_atomically};

/// A slot's record. It lies beside the slot, so that no application can write into it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SlotRecord {
    /// The job.
    pub(super) job: JobId,
    /// Which start of it this is; none in records of earlier versions.
    #[serde(default)]
    pub(super) start: Option<u32>,
    /// Its name, for logs.
    pub(super) name: String,
    /// Its project, which names the directory.
    pub(super) url: MasterUrl,
    /// The outputs to look for at the end.
    pub(super) outputs: Vec<Output>,
    /// CPU time of the job before this start.
    pub(super) cpu_before: Duration,
    /// The System V memory that its application may use.
    #[serde(default)]
    pub(super) shm_key: Option<i32>,
    /// The task's first process, which is also its session; none before it was started.
    pub(super) process: Option<Leader>,
    /// The agent's directory, as the system numbers it. In a copy of that directory it names another one,
    /// whose processes are not the copy's to kill. None in records of earlier versions.
    #[serde(default)]
    pub(super) place: Option<Place>,
}

/// A task's first process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leader {
    /// Its id.
    pub(super) pid: u32,
    /// Its start, in clock ticks since boot.
    pub(super) start: u64,
    /// Which boot that was: ids and ticks begin anew at each.
    #[serde(default)]
    pub(super) boot: String,
}

/// An output file of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Output {
    /// Its name in the project's directory.
    pub(super) name: String,
    /// Its name in the slot.
    pub(super) open_name: String,
    /// It is made in the slot and moved at the end (BOINC: `copy_file`).
    pub(super) copy: bool,
    /// It is compressed at the end (BOINC: `gzip_when_done`).
    #[serde(default)]
    pub(super) gzip: bool,
    /// What its project takes (BOINC: `max_nbytes`).
    #[serde(default)]
    pub(super) max_nbytes: Option<Bytes>,
    /// What all files of its job may hold together. None in records of earlier versions.
    #[serde(default)]
    pub(super) disk_max: Option<Bytes>,
}

/// The directory in a slot for outputs that the application finds by a link. They are moved to the project's
/// directory at the end: a job has no right there.
const OUTPUTS: &str = "fallow_outputs";

impl Output {
    /// The longest that it is read for. A longer one fails its job, and to read it might take days: a file of
    /// holes is as long as it says it is.
    pub(super) fn longest(&self) -> Bytes {
        // What its project takes is what is left when it is compressed.
        let taken = self.max_nbytes.filter(|&max| max > Bytes(0) && !self.gzip);
        let any = Bytes(u64::MAX);
        taken.unwrap_or(any).min(self.disk_max.unwrap_or(any))
    }

    /// The same where others of its job's outputs were taken that hold so much together. They may be one file
    /// with several names, of which each is a copy.
    pub(super) fn longest_beside(&self, others: Bytes) -> Bytes {
        self.longest().min(Bytes(self.disk_max.map_or(u64::MAX, |most| most.0.saturating_sub(others.0))))
    }

    /// Where the application makes it in its slot.
    pub(super) fn place(&self) -> String {
        match self.copy {
            true => self.open_name.clone(),
            false => linked(&self.name),
        }
    }
}

/// Where in the slot an output lies that the application finds by a link.
pub(super) fn linked(name: &str) -> String {
    format!("{OUTPUTS}/{name}")
}

impl SlotRecord {
    /// The record of a task that is about to start.
    pub(super) fn of(setup: &TaskSetup) -> Self {
        let outputs = setup.files.iter().filter(|file| file.output).map(|file| Output {
            name: file.name.clone(),
            open_name: file.open_name.clone(),
            copy: file.copy,
            gzip: file.gzip,
            max_nbytes: file.max_nbytes,
            disk_max: Some(setup.disk_max),
        });
        Self {
            job: setup.job,
            start: Some(setup.start),
            name: setup.name.clone(),
            url: setup.url.clone(),
            outputs: outputs.collect(),
            cpu_before: setup.init_data.wu_cpu_time,
            shm_key: None,
            process: None,
            place: None,
        }
    }

    /// Writes it beside its slot. A directory that a job put in its place is taken away.
    pub(super) fn write(&self, dir: &DataDir, slot: SlotId) -> io::Result<()> {
        let path = dir.slot_record(slot);
        for squat in [&path, &path.with_extension("json.new")] {
            if squat.symlink_metadata().is_ok_and(|data| data.is_dir()) {
                dir.trash().take(squat)?;
            }
        }
        let record = Self { place: dir.place(), ..self.clone() };
        write_atomically(&path, &serde_json::to_vec(&record)?, 0o600)
    }

    /// Whether it was written here, and not copied from another agent's directory: what it says of processes
    /// and memory is this agent's then.
    pub(super) fn is_own(&self, dir: &DataDir) -> bool {
        self.place.is_none() || self.place == dir.place()
    }

    /// Reads it; none if there is none that makes sense.
    pub(super) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&crate::files::head(path, 1 << 20).ok()?).ok()
    }
}
