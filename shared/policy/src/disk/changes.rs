//! The changes that a [`DiskUse`] is told. Each costs a search in the orders that it concerns, however much
//! else is on the disk.
//!
//! Telling a change twice does no harm: a file told twice is one file, and an unknown id changes nothing. So
//! the caller does not have to remember what it has told.

use std::sync::Arc;

use fallow_domain::{Bytes, Instant, JobId, ProjectId, Share};

use super::file::{FileAttributes, FileId, Hold, JobStage, Protections};
use super::limit::TotalLimit;
use super::order::DeletionChoice;
use super::sizes::OrderedSizes;
use super::usage::{DiskUse, ProjectUse, Record};
use crate::share_fraction::share_fractions;

/// A job, as far as the disk goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskJob {
    /// Its project.
    pub project: ProjectId,
    /// How far it is.
    pub stage: JobStage,
    /// By when its report is wanted.
    pub deadline: Instant,
    /// The files that it needs: of its application, its inputs, its outputs. Files of other projects do not
    /// count.
    pub files: Vec<FileId>,
}

impl DiskUse {
    /// Time passes: what is past its date counts as expired from now on. Comes first in every pass. A clock
    /// that jumps back makes files unexpired again.
    pub fn advance(&mut self, now: Instant) {
        let was = std::mem::replace(&mut self.now, now);
        let (low, high) = (was.min(now), was.max(now));
        for project in self.projects.values_mut().filter(|project| project.choice.expiration) {
            let turned: Vec<FileId> = project
                .expirations
                .range((low, FileId(0))..(high, FileId(0)))
                .map(|(_, file)| *file)
                .collect();
            for file in turned {
                let Some(record) = self.files.get(&file) else { continue };
                project.deletable.remove(project.choice.rank(file, &record.attributes, was));
                project
                    .deletable
                    .insert(project.choice.rank(file, &record.attributes, now), record.attributes.size);
            }
        }
    }

    /// The volume was measured or the owner's preferences changed (R4.1).
    pub fn set_total_limit(&mut self, limit: TotalLimit) {
        self.limit = Some(limit);
        self.divide();
    }

    /// What the agent itself uses: state, logs, notices (R4.2).
    pub fn set_own_usage(&mut self, own: Bytes) {
        self.own = own;
        self.divide();
    }

    /// A project came, or changed its share or the order in which it wants files deleted.
    pub fn set_project(&mut self, id: ProjectId, share: Share, choice: DeletionChoice) {
        let project = self.projects.entry(id).or_insert_with(|| ProjectUse::new(share, choice));
        project.share = share;
        if project.choice != choice {
            project.choice = choice;
            project.deletable = OrderedSizes::default();
            project.expirations.clear();
            let files: Vec<FileId> = project.names.values().copied().collect();
            for file in files {
                let Some(record) = self.files.get(&file) else { continue };
                project.put_in_order(file, record, self.now);
            }
        }
        self.share_out();
    }

    /// A project went, with its files and jobs.
    pub fn remove_project(&mut self, id: ProjectId) {
        let Some(project) = self.projects.remove(&id) else { return };
        self.projects_used -= project.usage();
        self.files.retain(|_, record| record.project != id);
        self.jobs.retain(|_, job| job.project != id);
        self.share_out();
    }

    /// What a project uses beside its files: slot directories, files without an owner. Nothing of it can be
    /// deleted for room.
    pub fn set_other_usage(&mut self, id: ProjectId, other: Bytes) {
        if let Some(project) = self.projects.get_mut(&id) {
            self.projects_used -= u128::from(project.other.0);
            self.projects_used += u128::from(other.0);
            project.other = other;
        }
    }

    /// A file is on its way or was found. One of that name keeps its id and what protects it.
    pub fn add_file(&mut self, project: ProjectId, name: &str, attributes: FileAttributes) -> FileId {
        if let Some(file) = self.file_id(project, name) {
            self.change(file, |record| (record.attributes, record.present) = (attributes, true));
            return file;
        }
        if !self.projects.contains_key(&project) {
            self.set_project(project, Share::DEFAULT, DeletionChoice::default());
        }
        let file = FileId(self.files_ever);
        self.files_ever += 1;
        let name: Arc<str> = name.into();
        // It comes empty and then changes, so that one place does the sums.
        let empty = FileAttributes { size: Bytes(0), ..attributes };
        let protections = Protections::default();
        let record =
            Record { project, name: Arc::clone(&name), attributes: empty, protections, present: true };
        self.files.insert(file, record);
        if let Some(project) = self.projects.get_mut(&project) {
            project.names.insert(name, file);
        }
        self.change(file, |record| record.attributes = attributes);
        file
    }

    /// Its project set other attributes.
    pub fn set_attributes(&mut self, file: FileId, attributes: FileAttributes) {
        self.change(file, |record| record.attributes = attributes);
    }

    /// Its size on the disk is this: believed over what was recorded (R4.12).
    pub fn resize(&mut self, file: FileId, size: Bytes) {
        self.change(file, |record| record.attributes.size = size);
    }

    /// A job uses it now.
    pub fn touch(&mut self, file: FileId, now: Instant) {
        self.change(file, |record| record.attributes.last_used = now);
    }

    /// It is gone from the disk, whoever deleted it. References of jobs are kept in case it comes again.
    pub fn remove_file(&mut self, file: FileId) {
        self.change(file, |record| {
            record.attributes.size = Bytes(0);
            record.present = false;
            for hold in [Hold::Transfer, Hold::SigningKey, Hold::AppInUse] {
                record.protections.set(hold, false);
            }
        });
        self.forget_if_gone(file);
    }

    /// Something beside jobs keeps a file from now on, or no longer does.
    pub fn set_hold(&mut self, file: FileId, hold: Hold, held: bool) {
        self.change(file, |record| record.protections.set(hold, held));
    }

    /// A job came or changed: its stage, its deadline, its files.
    pub fn set_job(&mut self, id: JobId, mut job: DiskJob) {
        self.end_job(id);
        job.files.sort_unstable();
        job.files.dedup();
        job.files.retain(|file| self.files.get(file).is_some_and(|record| record.project == job.project));
        for file in &job.files {
            self.change(*file, |record| record.protections.refer(job.stage));
        }
        if let Some(project) = self.projects.get_mut(&job.project)
            && job.stage == JobStage::Queued
        {
            project.queued.insert((job.deadline, id));
        }
        self.jobs.insert(id, job);
    }

    /// A job is over: acknowledged by its server, or given back.
    pub fn end_job(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else { return };
        if let Some(project) = self.projects.get_mut(&job.project) {
            project.queued.remove(&(job.deadline, id));
        }
        for file in job.files {
            self.change(file, |record| record.protections.unrefer(job.stage));
            self.forget_if_gone(file);
        }
    }

    /// A queued job is given back to its server (R4.8): it is over for the disk at once. Returns its files
    /// whose download is to be cancelled, because no other job needs them; they no longer count as being
    /// transferred.
    pub fn give_back(&mut self, id: JobId) -> Vec<FileId> {
        let mut files = self.jobs.get(&id).map(|job| job.files.clone()).unwrap_or_default();
        self.end_job(id);
        files.retain(|file| self.files.get(file).is_some_and(|record| record.protections.only_transfer()));
        for file in &files {
            self.set_hold(*file, Hold::Transfer, false);
        }
        files
    }

    /// Changes a file, and with it everything that depends on it.
    fn change(&mut self, file: FileId, change: impl FnOnce(&mut Record)) {
        let Some(record) = self.files.get_mut(&file) else { return };
        let Some(project) = self.projects.get_mut(&record.project) else { return };
        project.take_out(file, record, self.now);
        self.projects_used -= u128::from(record.attributes.size.0);
        change(record);
        project.put_in(file, record, self.now);
        self.projects_used += u128::from(record.attributes.size.0);
    }

    fn forget_if_gone(&mut self, file: FileId) {
        let Some(record) = self.files.get(&file) else { return };
        if record.present || record.protections.strongest().is_some() {
            return;
        }
        if let Some(project) = self.projects.get_mut(&record.project) {
            project.names.remove(&record.name);
        }
        self.files.remove(&file);
    }

    /// The projects' fractions, then their limits.
    fn share_out(&mut self) {
        let fractions = share_fractions(self.projects.iter().map(|(id, project)| (*id, project.share)));
        for (id, fraction) in fractions {
            if let Some(project) = self.projects.get_mut(&id) {
                project.fraction = fraction;
            }
        }
        self.divide();
    }

    /// The projects' limits (R4.2).
    fn divide(&mut self) {
        let all = self.all_projects_limit().unwrap_or_default();
        for project in self.projects.values_mut() {
            // `as` truncates, so that the parts are never more than the whole.
            project.limit = Bytes((all.as_f64() * project.fraction) as u64);
        }
    }
}

impl ProjectUse {
    fn new(share: Share, choice: DeletionChoice) -> Self {
        Self {
            share,
            choice,
            fraction: 0.0,
            limit: Bytes(0),
            used: 0,
            other: Bytes(0),
            deletable: OrderedSizes::default(),
            expirations: std::collections::BTreeSet::new(),
            queued: std::collections::BTreeSet::new(),
            queued_only: 0,
            names: std::collections::BTreeMap::new(),
        }
    }

    fn put_in(&mut self, file: FileId, record: &Record, now: Instant) {
        let size = u128::from(record.attributes.size.0);
        self.used += size;
        if record.protections.only_queued().is_some() {
            self.queued_only += size;
        }
        self.put_in_order(file, record, now);
    }

    fn put_in_order(&mut self, file: FileId, record: &Record, now: Instant) {
        let Some(rank) = record.deletable(file, self.choice, now) else { return };
        self.deletable.insert(rank, record.attributes.size);
        if self.choice.expiration {
            self.expirations.insert((record.attributes.expires, file));
        }
    }

    fn take_out(&mut self, file: FileId, record: &Record, now: Instant) {
        let size = u128::from(record.attributes.size.0);
        self.used -= size;
        if record.protections.only_queued().is_some() {
            self.queued_only -= size;
        }
        if let Some(rank) = record.deletable(file, self.choice, now) {
            self.deletable.remove(rank);
            self.expirations.remove(&(record.attributes.expires, file));
        }
    }
}
