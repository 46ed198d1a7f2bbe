//! What an earlier life of the agent left on the disk, beside what the records say of it.
//!
//! Effects may have been stored and not carried out, and events may have been lost: files are believed over
//! records, and a slot says what its task did after the last record.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Bytes, Duration, JobId, SlotId};

use crate::machine::Client;
use crate::state::{FileStatus, Job, Process, Run, Stage};
use crate::{Cause, Effect, FileKey, NoticeLevel, SlotFound, Startup};

impl Client {
    /// The agent is up: what an earlier life left is taken stock of.
    pub(crate) fn start(&mut self, startup: Startup) {
        self.clock.start();
        self.edit_host(startup.host);
        // Whatever the clock did while nobody looked.
        self.clock_set_back();
        self.ledger.come_up(self.now());
        self.presence.begin(self.now());
        self.check_files(&startup.files, &startup.doomed);
        // An older version may have stored libraries as files that need no signature.
        let projects: Vec<_> = self.state.projects.keys().copied().collect();
        projects.into_iter().for_each(|id| self.renounce_unsigned(id));
        let on_disk: BTreeSet<SlotId> = startup.slots.iter().map(|found| found.slot).collect();
        let lost: Vec<JobId> = self
            .state
            .jobs
            .slots()
            .iter()
            .filter(|(slot, _)| !on_disk.contains(slot))
            .map(|(_, job)| *job)
            .collect();
        for found in startup.slots {
            self.slot_found(found);
        }
        for id in lost {
            self.begin_anew(id);
        }
        self.site_preferences_changed();
        self.resume_trial();
    }

    /// A slot that the store knows and the disk does not: with it went all that the task had done.
    pub(crate) fn begin_anew(&mut self, id: JobId) {
        self.free_slot(id);
        let begun = self.edit_job(id, |job| {
            let had_begun = job.run.ran;
            job.run = Run {
                charged: job.run.charged,
                charged_coprocessor: job.run.charged_coprocessor,
                starts: job.run.starts,
                // A job that spoils its own slot again and again does not get on by that.
                premature_exits: job.run.premature_exits,
                quick_exits: job.run.quick_exits,
                failed_starts: job.run.failed_starts,
                made_room: job.run.made_room,
                not_before: job.run.not_before,
                ..Run::default()
            };
            (had_begun, job.project, job.result.name.clone(), job.outcome.is_some())
        });
        let Some((had_begun, project, name, over)) = begun else { return };
        if had_begun {
            let text = format!("the slot of {name} is gone: it begins anew");
            self.notice(NoticeLevel::Warn, Some(project), text);
        }
        if over {
            self.settle_failed(id);
        }
    }

    /// Believes the disk over the records: a file that is gone is fetched again (R4.12). `doomed` are those
    /// whose deletion was decided and stored, and perhaps not carried out.
    fn check_files(&mut self, found: &[(FileKey, Bytes)], doomed: &[FileKey]) {
        let on_disk: BTreeMap<_, _> = found.iter().map(|(key, nbytes)| (key, *nbytes)).collect();
        // One that is known again has come since, or is on its way. Of others there may be a part only.
        let is_unknown = |key: &&FileKey| !self.state.files.contains_key(*key);
        let mut left: BTreeSet<&FileKey> = doomed.iter().filter(is_unknown).collect();
        for (key, nbytes) in &on_disk {
            if self.state.files.contains_key(*key) {
                continue;
            }
            if self.put_trickle(key, *nbytes).is_ok() {
                // Messages of jobs, whose files are their only record.
                left.remove(*key);
            } else if self.config.measure_disk.is_none() {
                // Where the disk is measured, it goes after a while by that: it may be a file whose record
                // follows, or one that somebody has just put there.
                left.insert(*key);
            }
        }
        for key in left {
            if let Some(project) = self.state.projects.get(&key.project) {
                let effect = Effect::DeleteFile { file: key.clone(), url: project.url.clone() };
                self.act(effect, Cause::FileLeftOver);
            }
        }
        let gone: Vec<FileKey> = self
            .state
            .files
            .iter()
            .filter(|(key, file)| {
                // One that is being sent fails by itself, and its job with it.
                file.status == FileStatus::Present && file.transfer.is_none() && !on_disk.contains_key(key)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.edit_file(&key, |file| (file.status, file.found) = (FileStatus::Absent, None));
            self.notice(NoticeLevel::Warn, Some(key.project), format!("{} is gone from the disk", key.name));
        }
        let waiting =
            |job: &&Job| matches!(job.stage, Stage::Downloading | Stage::Runnable) && job.outcome.is_none();
        let waiting: Vec<JobId> = self.state.jobs.values().filter(waiting).map(|job| job.id).collect();
        for id in waiting {
            self.edit_job(id, |job| job.stage = Stage::Downloading);
            self.settle_job_files(id);
            // What may be used here is known only now.
            self.reassess(id);
        }
    }

    /// What a slot tells about the task that was in it when the agent went down.
    fn slot_found(&mut self, found: SlotFound) {
        let Some(&id) = self.state.jobs.slots().get(&found.slot) else {
            return self.act(Effect::CleanSlot { slot: found.slot }, Cause::SlotLeftOver);
        };
        if found.job.is_some_and(|job| job != id) {
            // What is in it, a finish file perhaps, is another job's.
            return self.begin_anew(id);
        }
        // The channel outlives the process: it says nothing new where the process's end was seen and charged,
        // or where the last start was never carried out.
        let live = self.edit_job(id, |job| {
            let is_last = found.start.is_none_or(|start| start == job.run.starts);
            // That it runs may not have been stored any more, as on a full disk; what it has done is in its
            // slot.
            job.run.ran |= job.run.live && is_last && found.start.is_some();
            job.run.live && is_last
        });
        let live = live.unwrap_or_default();
        if let Some(status) = found.last_status.filter(|_| live) {
            // What the application computed after the last record was stored is charged by its own figures.
            let known = self.state.jobs.get(&id).map(|job| job.run.base).unwrap_or_default();
            let process_cpu = (status.current_cpu_time - known).max(Duration::ZERO);
            self.note_progress(id, process_cpu, Some(&status));
        }
        match found.finished {
            Some(mut end) => {
                if !live {
                    // Its end was seen, and what it had left could not be taken then. The task has fallen
                    // back since.
                    let base = self.state.jobs.get(&id).map(|job| job.run.base).unwrap_or_default();
                    let said = found.last_status.map(|status| status.current_cpu_time - base);
                    end.cpu_time = said.unwrap_or(end.cpu_time).max(Duration::ZERO);
                    end.is_charged = true;
                }
                self.notice(NoticeLevel::Info, None, format!("slot {} holds a finished task", found.slot));
                self.set_process(id, Process::Quitting(None));
                self.task_ended(id, &end);
            }
            None => {
                self.fall_back(id);
                // It was being aborted when the agent went down.
                if self.state.jobs.get(&id).is_some_and(|job| job.outcome.is_some()) {
                    self.settle_failed(id);
                }
            }
        }
    }
}
