//! The one door through which jobs are changed: what follows is found by difference (`job_diff`) and seen to
//! here.
//!
//! What policies hold of a job follows from more than the job: from its files, the host, preferences,
//! estimates. When those change, the jobs concerned are [assessed anew](Client::reassess). And estimates of
//! tasks move all the time; they are taken up when a task is [looked at](Client::sample_job) and when it is
//! [decided about](Client::refresh).

use fallow_domain::JobId;

use crate::job_diff::Difference;
use crate::machine::Client;
use crate::record::Record;
use crate::state::{Job, Process};
use crate::timers::Timer;
use crate::workload::Place;
use crate::{Entity, FileKey};

impl Client {
    /// Changes a job, and sees to what follows. Nothing, if there is none of that id.
    pub(crate) fn edit_job<T>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        let (told, found) = self.state.jobs.edit(id, change)?;
        self.note_difference(id, found);
        if found.place {
            self.refresh(id);
        }
        Some(told)
    }

    /// Takes in what a look at a task says of it. Its estimate moves all the time, and whether it could run
    /// elsewhere is not asked while it runs.
    pub(crate) fn sample_job<T>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        let (told, found) = self.state.jobs.edit(id, change)?;
        self.note_difference(id, found);
        self.place_job(id);
        self.touch(Entity::Job(id));
        Some(told)
    }

    /// Changes a job in the course of a decision about it, which ends with a [`refresh`](Self::refresh).
    pub(crate) fn steer_job<T>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        let (told, found) = self.state.jobs.edit(id, change)?;
        self.note_difference(id, found);
        Some(told)
    }

    /// Changes a job whose task has finished. The queue holds it until its outputs are settled, in the same
    /// step: uploads are ranked by the time that was left of it when it was last looked at.
    pub(crate) fn finish_job<T>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> T) -> Option<T> {
        let (told, found) = self.state.jobs.edit(id, change)?;
        self.note_difference(id, found);
        Some(told)
    }

    pub(crate) fn set_process(&mut self, id: JobId, process: Process) {
        self.edit_job(id, |job| job.process = process);
    }

    /// Takes in a new job.
    pub(crate) fn insert_job(&mut self, job: Job) {
        let id = job.id;
        self.state.jobs.insert(job);
        self.disk.job_changed(id);
        self.mark_durable(Record::Job(id));
    }

    /// Takes out a job. Nobody has to do with it any more.
    pub(crate) fn remove_job(&mut self, id: JobId) -> Option<Job> {
        let job = self.state.jobs.remove(id)?;
        self.disk.job_changed(id);
        self.drop_workunit_if_unused(job.workunit());
        self.reports_changed();
        self.place_job(id);
        self.workload.forget_job(id);
        self.want_fetch();
        self.mark_durable(Record::Job(id));
        Some(job)
    }

    /// A workunit is kept with a job only.
    fn drop_workunit_if_unused(&mut self, workunit: FileKey) {
        if !self.state.jobs.any_of_workunit(&workunit) {
            self.remove_workunit(workunit);
        }
    }

    fn note_difference(&mut self, id: JobId, found: Difference) {
        if found.store || found.place || found.waits || found.computes {
            self.disk.job_changed(id);
        }
        if found.durable {
            self.mark_durable(Record::Job(id));
        } else if found.store {
            self.mark(Record::Job(id));
        }
        if found.show {
            self.touch(Entity::Job(id));
        }
        if found.reports {
            self.reports_changed();
        }
        if found.waits {
            self.timers.stale(Timer::Restart);
        }
        if found.computes {
            self.timers.all_stale(Timer::OF_PROCESSES);
        }
        if found.ends {
            // Before it is decided what runs in its place.
            self.count_anew(id);
        }
        if found.news {
            self.want_fetch();
        }
        if found.frees || found.checkpoint && self.ledger.waits_for_checkpoint() {
            self.want_schedule();
        }
    }

    /// What policies hold of a job changes by something else than the job, which is news to work fetch.
    pub(crate) fn reassess(&mut self, id: JobId) {
        self.refresh(id);
        self.want_fetch();
    }

    /// The same for all jobs.
    pub(crate) fn reassess_all(&mut self) {
        let jobs: Vec<JobId> = self.state.jobs.keys().copied().collect();
        for job in jobs {
            self.reassess(job);
        }
    }

    /// Tells the policies how a job stands now, and its owner once if it cannot run here.
    pub(crate) fn refresh(&mut self, id: JobId) {
        if let Place::Queued(job) | Place::Aside(job, _) = self.place_job(id) {
            self.tell_unrunnable(&job);
        }
    }
}
