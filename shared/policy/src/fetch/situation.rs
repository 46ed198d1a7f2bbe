//! What a fetch policy decides from.

use fallow_domain::{Duration, Fraction, Instant, PerType, ProjectId, Share};
use serde::{Deserialize, Serialize};

use super::TypicalJob;
use crate::accounting::FetchPriority;
use crate::job_queue::JobQueue;
use crate::on_time::OnTime;
use crate::plan_host::PlanHost;
use crate::round_robin::Outlook;

/// When a shortfall is a reason to ask (R5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FetchWhen {
    /// Whenever the whole buffer, minimum and additional, shows any shortfall: the client that Kondo,
    /// Anderson and McLeod evaluated in 2007.
    #[default]
    AnyShortfall,
    /// When less than the minimum is left; then up to the whole buffer: later clients, with fewer RPCs.
    BelowMinimum,
}

/// A host that may lack work.
pub struct FetchSituation<'a> {
    /// The time.
    pub now: Instant,
    /// What it computes with.
    pub host: PlanHost,
    /// The measured share of time that computing is allowed and running, to the last digit (R2.12); that of
    /// `host` follows it in steps, so that plans hold for a while.
    pub active_fraction: Fraction,
    /// The minimum work buffer (R1.11).
    pub buffer_min: Duration,
    /// And what is to be held beyond it.
    pub buffer_additional: Duration,
    /// The time between contacts, for which work is held besides (R1.13).
    pub connection_interval: Duration,
    /// When a shortfall is a reason to ask: the switch `fetch=` of compositions.
    pub when: FetchWhen,
    /// The time slice of CPU scheduling.
    pub scheduling_period: Duration,
    /// Jobs that are held.
    pub queue: &'a JobQueue,
    /// What becomes of them (R3.8), if the policy looks ahead.
    pub outlook: &'a Outlook,
    /// When the next of all backoffs by type ends.
    pub backoffs_end: Option<Instant>,
    /// How long the host is on within times to come, if the policy looks at it
    /// ([`looks_at_habits`](super::FetchPolicy::looks_at_habits)).
    pub on_time: &'a OnTime,
    /// The longest on-time of late in which there was no chance to get work of each type, likewise.
    pub droughts: PerType<Duration>,
    /// Finds out about the projects. Costs time, so that a policy asks once, and only if it has to.
    pub projects: &'a dyn Fn() -> Vec<FetchProject>,
    /// Finds out how they stand against each other, likewise.
    pub priorities: &'a dyn Fn() -> Vec<FetchPriority>,
    /// Finds out whether one of them may be asked, likewise.
    pub contact: &'a dyn Fn(ProjectId) -> FetchContact,
    /// Finds out what its jobs of each type are like, if any came of late, likewise.
    pub typical: &'a dyn Fn(ProjectId) -> PerType<Option<TypicalJob>>,
}

impl FetchSituation<'_> {
    /// The attached projects, by id.
    pub fn projects(&self) -> Vec<FetchProject> {
        (self.projects)()
    }

    /// How they stand against each other, in the same order.
    pub fn priorities(&self) -> Vec<FetchPriority> {
        (self.priorities)()
    }

    /// Whether one of them may be asked now. No project of that id may.
    pub fn contact(&self, project: ProjectId) -> FetchContact {
        (self.contact)(project)
    }

    /// What the jobs of one of them are like, by type.
    pub fn typical(&self, project: ProjectId) -> PerType<Option<TypicalJob>> {
        (self.typical)(project)
    }

    /// How much work is to be held: the whole buffer, and the time between contacts (R1.13).
    pub fn window(&self) -> Duration {
        self.buffer_min + self.buffer_additional + self.connection_interval
    }
}

/// An attached project.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchProject {
    /// The project.
    pub id: ProjectId,
    /// Its share.
    pub share: Share,
    /// It is detached once its jobs are reported, and is to get no more.
    pub detach_when_done: bool,
    /// Types that it said it has no programs for.
    pub lacks: PerType<bool>,
    /// Types that it has shown to supply (R3.5).
    pub supplies: PerType<bool>,
    /// Types that its user wants no work of.
    pub left_out: PerType<bool>,
    /// Types of which jobs of it gather that cannot run (`bounds::UnrunnableTypes`).
    pub unrunnable: PerType<bool>,
}

/// Whether an attached project may be asked now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FetchContact {
    /// Whether it may be contacted for work now: nothing stands against an RPC, and less
    /// of it is held than `bounds::fetch_limit` allows.
    pub may_contact: bool,
    /// It is to get no more work for now: enough of it is held (`bounds::fetch_limit`).
    pub at_limit: bool,
    /// From when RPCs to it are possible, if that is later.
    pub contact_from: Option<Instant>,
    /// It had no work lately and is not to be asked for any yet, where backoffs are by project.
    pub work_waits: bool,
    /// It did not answer when it was last asked, lately: any other with a share comes first.
    pub hung: bool,
    /// Types for which it is backed off (R3.7).
    pub backed_off: PerType<bool>,
    /// Types of which it said lately that it has work: work that would be late here, or of which this host
    /// has its part.
    pub has_work: PerType<bool>,
}

impl FetchProject {
    /// The types that it is not to be asked for now, for whatever reason.
    pub fn closed(&self, contact: &FetchContact) -> PerType<bool> {
        PerType::from_fn(|kind| contact.backed_off[kind] || self.left_out[kind] || self.unrunnable[kind])
    }
}
