//! When a project's schedulers may be asked, and when its master page is read (R1.3, R1.4, R1.6, R1.12).
//!
//! Three waits can delay the next RPC to a project. The one that ends last counts:
//! - (a) the delay that the project asked for;
//! - (b) a backoff while all of its schedulers fail;
//! - (c) a backoff while its jobs fail, so that a job that crashes at once is not fetched again and again.
//!
//! A fourth wait follows a reply without jobs. It delays requests for work only, not reports. R1 does not say
//! when such a project is asked again; without this wait it would be asked at once.
//!
//! The state is stored. After a restart, or when the clock was set, no wait lasts longer than it was meant
//! to.

use std::fmt;

use fallow_domain::{Duration, Instant};
use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::backoff::{Backoff, Wait};

/// The backoff of (b), of (c) and of requests for work that brought none (R1.3).
pub const BACKOFF: Backoff = Backoff { first: Duration::from_secs(60), max: Duration::from_hours(4) };

/// Every so many failures in a row the master page is read again (R1.6).
pub const MASTER_PAGE_PERIOD: u32 = 10;

/// The longest delay that a project can ask for: four weeks, beyond which a number is an error and would lock
/// a host out of the project for good.
pub const REQUEST_DELAY_MAX: Duration = Duration::from_hours(28 * 24);

/// Why a project may not be asked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhyDeferred {
    /// (a) It asked for a delay.
    RequestDelay,
    /// (b) All of its schedulers failed, this many times in a row.
    SchedulerFailures(u32),
    /// (c) Its jobs or their transfers failed, this many times in a row.
    JobFailures(u32),
    /// It had no work for us, this many times in a row. Holds for requests for work only.
    NoWork(u32),
}

/// Who wants an RPC, and which waits that overrides (R1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestedBy {
    /// The client itself: all waits hold.
    #[default]
    Client,
    /// The coordinator or the project: backoffs do not hold, a delay that the project asked for does.
    Fleet,
    /// The host's owner, by hand: no wait holds. He knows what he does, and does it once.
    Owner,
}

/// Something that may not happen before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// That time, as the clock stands.
    pub at: Instant,
    /// Why.
    pub cause: WhyDeferred,
}

/// Why a master page is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PageReason {
    /// The project was just attached.
    Attached,
    /// Its schedulers failed this many times in a row: perhaps they moved.
    Failures(u32),
}

/// What reading a master page brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterPage {
    /// It names a scheduler not known before.
    NewScheduler,
    /// It names known ones only.
    KnownSchedulers,
    /// It was read and names none: nothing changes, and the caller reports it.
    NoSchedulers,
    /// It could not be read.
    Unreadable,
}

/// What a failure led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerFailure {
    /// Failures in a row, this one included.
    pub failures: u32,
    /// The wait drawn for it.
    pub wait: Duration,
    /// Whether the master page is now to be read again.
    pub reread_master_page: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FailureStreak {
    failures: u32,
    wait: Option<Wait>,
}

impl FailureStreak {
    fn fail(&mut self, now: Instant, rng: &mut (impl Rng + ?Sized)) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let length = BACKOFF.draw(self.failures, rng);
        self.wait = Some(Wait::new(now, length));
        length
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PageDue {
    reason: PageReason,
    wait: Option<Wait>,
}

/// The timing of RPCs to one project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RpcState {
    request_delay: Option<Wait>,
    schedulers: FailureStreak,
    jobs: FailureStreak,
    work: FailureStreak,
    master_page: Option<PageDue>,
}

impl RpcState {
    /// A project just attached: its master page is due (R1.6), nothing holds it back.
    pub fn attached() -> Self {
        let due = PageDue { reason: PageReason::Attached, wait: None };
        Self { master_page: Some(due), ..Self::default() }
    }

    /// Takes note of the time. To be called on every turn, so that a clock that jumped back lengthens no
    /// wait.
    pub fn observe(&mut self, now: Instant) {
        let page = self.master_page.as_mut().and_then(|page| page.wait.as_mut());
        let failing = [&mut self.schedulers, &mut self.jobs, &mut self.work];
        let waits = failing.into_iter().filter_map(|f| f.wait.as_mut());
        for wait in waits.chain(page).chain(self.request_delay.as_mut()) {
            wait.observe(now);
        }
    }

    /// A scheduler answered (R1.5): clears the failures of (b).
    pub fn on_success(&mut self) {
        self.schedulers = FailureStreak::default();
    }

    /// No scheduler of the project answered (R1.5): one more failure of (b).
    pub fn on_failure(&mut self, now: Instant, rng: &mut (impl Rng + ?Sized)) -> SchedulerFailure {
        let wait = self.schedulers.fail(now, rng);
        let failures = self.schedulers.failures;
        let reread_master_page = failures.is_multiple_of(MASTER_PAGE_PERIOD);
        if reread_master_page {
            self.master_page = Some(PageDue { reason: PageReason::Failures(failures), wait: None });
        }
        SchedulerFailure { failures, wait, reread_master_page }
    }

    /// The project asked for a delay in its reply; zero or less takes an earlier one back.
    pub fn on_request_delay(&mut self, now: Instant, delay: Duration) {
        self.request_delay = delay.is_positive().then(|| Wait::new(now, delay.min(REQUEST_DELAY_MAX)));
    }

    /// A computation or a transfer of one of its jobs failed: one more failure of (c).
    pub fn on_job_failure(&mut self, now: Instant, rng: &mut (impl Rng + ?Sized)) -> Duration {
        self.jobs.fail(now, rng)
    }

    /// A job of the project ended well: clears (c).
    pub fn on_job_success(&mut self) {
        self.jobs = FailureStreak::default();
    }

    /// The project was asked for work and sent `jobs` jobs. Returns the wait before it is asked for work
    /// again, if it sent none.
    pub fn on_work_reply(
        &mut self,
        now: Instant,
        jobs: usize,
        rng: &mut (impl Rng + ?Sized),
    ) -> Option<Duration> {
        if jobs > 0 {
            self.work = FailureStreak::default();
            return None;
        }
        Some(self.work.fail(now, rng))
    }

    /// The master page was read, or could not be (R1.6). `schedulers_known` says whether the project has any
    /// scheduler, from this page or before: while it has none the page stays due, after a backoff, since
    /// there is nobody to ask. Returns the failure that this counts as, if it does.
    pub fn on_master_page(
        &mut self,
        now: Instant,
        page: MasterPage,
        schedulers_known: bool,
        rng: &mut (impl Rng + ?Sized),
    ) -> Option<SchedulerFailure> {
        let due = self.master_page.take();
        let failed = match page {
            MasterPage::NewScheduler => {
                self.schedulers = FailureStreak::default();
                self.jobs = FailureStreak::default();
                return None;
            }
            MasterPage::Unreadable => true,
            MasterPage::KnownSchedulers | MasterPage::NoSchedulers => !schedulers_known,
        };
        let failure = failed.then(|| self.on_failure(now, rng));
        if !schedulers_known {
            let reason = due.map_or(PageReason::Attached, |due| due.reason);
            self.master_page = Some(PageDue { reason, wait: self.schedulers.wait });
        }
        failure
    }

    /// Why the master page is to be read now, if it is.
    pub fn master_page_due(&self, now: Instant) -> Option<PageReason> {
        self.master_page.filter(|page| page.wait.is_none_or(|wait| !wait.holds(now))).map(|page| page.reason)
    }

    /// When the master page is to be read; none while it is not due.
    pub fn master_page_due_at(&self, now: Instant) -> Option<Instant> {
        self.master_page.map(|page| page.wait.map_or(now, |wait| now + wait.left(now)))
    }

    /// Whether the project is known to be out of reach (R5.35): none of its schedulers answered when they
    /// were last asked, or it said that it is down, and it is not to be asked again yet, or that was not long
    /// ago.
    pub fn is_down(&self, now: Instant) -> bool {
        self.has_failed()
            && (self.must_wait(now) || self.schedulers.wait.is_some_and(|wait| wait.is_known(now)))
    }

    /// Whether none of its schedulers answered when they were last asked.
    pub const fn has_failed(&self) -> bool {
        self.schedulers.failures > 0
    }

    /// Whether it asked for a delay that is not over.
    pub fn must_wait(&self, now: Instant) -> bool {
        self.request_delay.is_some_and(|wait| wait.holds(now))
    }

    /// The minimum RPC time (R1.3) and its cause, if it is not past, for an RPC that somebody wants (R1.4).
    pub fn min_rpc_time(&self, now: Instant, requested_by: RequestedBy) -> Option<Deferral> {
        let [delay, schedulers, jobs] = self.waits();
        match requested_by {
            RequestedBy::Client => latest(now, &[delay, schedulers, jobs]),
            RequestedBy::Fleet => latest(now, &[delay]),
            RequestedBy::Owner => None,
        }
    }

    /// All that pushes the minimum RPC time out now: what an owner who wants an RPC overrides.
    pub fn held_by(&self, now: Instant) -> Vec<Deferral> {
        self.waits().into_iter().filter_map(|wait| latest(now, &[wait])).collect()
    }

    /// The owner wants contact: a page that is due, and could not be read before, is read at once.
    pub fn on_owner_request(&mut self) {
        if let Some(page) = &mut self.master_page {
            page.wait = None;
        }
    }

    fn waits(&self) -> [(Option<Wait>, WhyDeferred); 3] {
        [
            (self.request_delay, WhyDeferred::RequestDelay),
            (self.schedulers.wait, WhyDeferred::SchedulerFailures(self.schedulers.failures)),
            (self.jobs.wait, WhyDeferred::JobFailures(self.jobs.failures)),
        ]
    }

    /// The earliest time to ask for work, and the cause, if it is not past: the minimum RPC time, or later
    /// after replies without work.
    pub fn min_work_time(&self, now: Instant) -> Option<Deferral> {
        let work = latest(now, &[(self.work.wait, WhyDeferred::NoWork(self.work.failures))]);
        let rpc = self.min_rpc_time(now, RequestedBy::Client);
        [rpc, work].into_iter().flatten().max_by_key(|not_before| not_before.at)
    }
}

fn latest(now: Instant, waits: &[(Option<Wait>, WhyDeferred)]) -> Option<Deferral> {
    let holding = waits.iter().filter_map(|(wait, cause)| Some((wait.as_ref()?, cause)));
    holding
        .filter(|(wait, _)| wait.holds(now))
        .map(|(wait, cause)| Deferral { at: now + wait.left(now), cause: *cause })
        .max_by_key(|not_before| not_before.at)
}

impl fmt::Display for WhyDeferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestDelay => write!(f, "the project asked for a delay"),
            Self::SchedulerFailures(n) => write!(f, "none of its schedulers answered, {n} times in a row"),
            Self::JobFailures(n) => write!(f, "jobs or transfers of it failed, {n} in a row"),
            Self::NoWork(n) => write!(f, "it had no work, {n} times in a row"),
        }
    }
}

impl fmt::Display for PageReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attached => write!(f, "the project was attached"),
            Self::Failures(n) => write!(f, "its schedulers failed {n} times in a row"),
        }
    }
}
