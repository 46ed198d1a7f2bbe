//! The records that a client keeps of its own course: what is to be stored, whose view has changed, what
//! people are told (R5.10: a simulation keeps none).
//!
//! **An observer.** It is told of what happens, and nothing that is decided, charged or counted asks it
//! anything: no field here can be seen outside this file. A client that keeps no records (a simulated one is
//! neither taken up again nor watched) takes the same actions at the same times and has the same accounts. It
//! only spares itself the work of storing and wording. Nor do records need a wake-up of their own: they are
//! stored when the client is called, at most so often.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fallow_domain::{Duration, Instant, JobId, ProjectId};

use crate::machine::Client;
use crate::record::Record;
use crate::{Cause, Effect, Entity, NoticeLevel, Step};

/// Most notices about a project in one step. A project can have ten thousand jobs fail at once, and must not
/// fill the log with that.
const NOTICES_MAX: usize = 20;
/// How often running totals are stored when nothing else happens. What a killed agent had not stored is
/// recovered from its applications' channels.
const SAVE_PERIOD: Duration = Duration::from_secs(10);
/// The history behind the metrics is longer; so much of it may be lost with a killed agent.
const METRICS_SAVE_PERIOD: Duration = Duration::from_secs(60);
/// Both, while no job is in a slot: all that is lost then is for how long the host was idle. Each time, the
/// threads of the store wake up.
const IDLE_SAVE_PERIOD: Duration = Duration::from_mins(5);
/// How often the host's hours are stored: they are learned by the half hour.
const ON_TIME_SAVE_PERIOD: Duration = Duration::from_mins(30);

/// The records of a client, if it keeps any.
pub(crate) struct Records {
    kept: Option<Kept>,
}

#[derive(Default)]
struct Kept {
    /// To be stored at the end of the step.
    dirty: BTreeSet<Record>,
    /// That must survive a power cut.
    durable: bool,
    /// Whose view has changed in the step.
    touched: BTreeSet<Entity>,
    /// Jobs charged since they were last stored.
    charged: BTreeSet<JobId>,
    /// Notices of the step, by project.
    told: BTreeMap<ProjectId, usize>,
    saved_at: Instant,
    metrics_saved_at: Instant,
    on_time_saved_at: Instant,
}

/// Whether a period that began then is over. One that began in the future is, for the clock was set back.
fn is_over(began: Instant, period: Duration, now: Instant) -> bool {
    now.since(began) >= period || began > now
}

impl Default for Records {
    fn default() -> Self {
        Self { kept: Some(Kept::default()) }
    }
}

/// Shows nothing of them, so that two clients look the same that differ in nothing else.
impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    /// CPU time of a job was charged.
    pub(crate) fn charged(&mut self, job: JobId) {
        if let Some(kept) = &mut self.kept {
            kept.charged.insert(job);
        }
    }
}

impl Kept {
    fn mark(&mut self, record: Record) {
        match &record {
            Record::Meta => self.touch(Entity::Host),
            Record::Project(id) => self.touch(Entity::Project(*id)),
            Record::Job(id) => {
                self.touch(Entity::Job(*id));
                // A job says how much of it is charged, the ledger what the charges add up to: both or
                // neither.
                self.dirty.insert(Record::Ledger);
            }
            Record::Ledger
            | Record::Metrics
            | Record::OnTime
            | Record::TransferDays
            | Record::Experience(_)
            | Record::Version(_)
            | Record::Workunit(_)
            | Record::File(_) => {}
        }
        self.dirty.insert(record);
    }

    fn touch(&mut self, entity: Entity) {
        self.touched.insert(entity);
    }

    /// Whether one more notice about a project is told in this step.
    fn is_heard(&mut self, project: ProjectId) -> bool {
        let told = self.told.entry(project).or_default();
        *told += 1;
        *told <= NOTICES_MAX
    }

    /// Stores the running totals, if that is due.
    fn save<'a>(&mut self, now: Instant, running: impl Iterator<Item = &'a JobId>) {
        let mut running = running.peekable();
        let period = if running.peek().is_some() { SAVE_PERIOD } else { IDLE_SAVE_PERIOD };
        if !is_over(self.saved_at, period, now) {
            return;
        }
        self.saved_at = now;
        self.mark(Record::Ledger);
        if is_over(self.metrics_saved_at, METRICS_SAVE_PERIOD, now) {
            self.metrics_saved_at = now;
            self.mark(Record::Metrics);
        }
        if is_over(self.on_time_saved_at, ON_TIME_SAVE_PERIOD, now) {
            self.on_time_saved_at = now;
            self.mark(Record::OnTime);
        }
        running.for_each(|job| self.mark(Record::Job(*job)));
    }

    /// What is to be stored of the step.
    fn take_dirty(&mut self) -> BTreeSet<Record> {
        let mut dirty = std::mem::take(&mut self.dirty);
        // The ledger holds the charges of all jobs: after a crash, what only it knew would be charged again.
        if dirty.contains(&Record::Ledger) {
            dirty.extend(std::mem::take(&mut self.charged).into_iter().map(Record::Job));
        }
        dirty
    }
}

impl Client {
    /// The same client without records: its steps have no changes, no views that changed and no notices, and
    /// reasons are not told in words. For simulations.
    #[must_use]
    pub fn without_records(mut self) -> Self {
        self.records = Records { kept: None };
        self
    }

    /// Stores a record at the end of the step, and lets its view be sent.
    pub(crate) fn mark(&mut self, record: Record) {
        if let Some(kept) = &mut self.records.kept {
            kept.mark(record);
        }
    }

    /// The same, and it must survive a power cut.
    pub(crate) fn mark_durable(&mut self, record: Record) {
        if let Some(kept) = &mut self.records.kept {
            kept.durable = true;
            kept.mark(record);
        }
    }

    /// Stores a record at the end of the step, of which no view shows what has changed.
    pub(crate) fn store_only(&mut self, record: Record) {
        if let Some(kept) = &mut self.records.kept {
            kept.dirty.insert(record);
        }
    }

    pub(crate) fn touch(&mut self, entity: Entity) {
        if let Some(kept) = &mut self.records.kept {
            kept.touch(entity);
        }
    }

    /// Tells people something, unless they were told a lot about the project in this step.
    pub(crate) fn notice(&mut self, level: NoticeLevel, project: Option<ProjectId>, text: impl Into<String>) {
        let Some(kept) = &mut self.records.kept else { return };
        if project.is_none_or(|project| kept.is_heard(project)) {
            self.announce(level, project, text);
        }
    }

    /// A notice that is told however many there were before it: one that sums up others.
    pub(crate) fn announce(
        &mut self,
        level: NoticeLevel,
        project: Option<ProjectId>,
        text: impl Into<String>,
    ) {
        if self.records.kept.is_some() {
            let effect = Effect::Notice { level, project, text: text.into() };
            self.act(effect, Cause::Told);
        }
    }

    /// A text for people, where somebody may read it.
    pub(crate) fn said(&self, text: impl FnOnce() -> String) -> String {
        if self.records.kept.is_some() { text() } else { String::new() }
    }

    /// Stores the running totals, if that is due.
    pub(crate) fn save_running(&mut self) {
        if let Some(kept) = &mut self.records.kept {
            kept.save(self.clock.now(), self.state.jobs.slots().values());
        }
    }

    /// Ends a step: what it did, what of that is to be stored, and when the client is to be called again.
    pub(crate) fn finish_step(&mut self, wake_at: Option<Instant>) -> Step {
        self.sum_up_notices();
        let actions = self.actions.take();
        let Some(kept) = &mut self.records.kept else {
            return Step { actions, wake_at, ..Step::default() };
        };
        let dirty = kept.take_dirty();
        Step {
            actions,
            changes: dirty.iter().map(|record| record.change(&self.state, &self.ledger)).collect(),
            durable: std::mem::take(&mut kept.durable),
            wake_at,
            touched: std::mem::take(&mut kept.touched).into_iter().collect(),
        }
    }

    /// Says how many notices were left out of the step.
    fn sum_up_notices(&mut self) {
        // Taken apart only if there is something: there is a step for every event.
        let Some(kept) = self.records.kept.as_mut().filter(|kept| !kept.told.is_empty()) else { return };
        for (project, told) in std::mem::take(&mut kept.told) {
            if told > NOTICES_MAX {
                let text = format!("... and {} more of such notices about this project", told - NOTICES_MAX);
                self.announce(NoticeLevel::Warn, Some(project), text);
            }
        }
    }
}
