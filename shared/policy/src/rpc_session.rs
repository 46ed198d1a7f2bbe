//! Sessions of scheduler RPCs: whom to ask next (R1.5, R1.7, R1.9, R1.10; BOINC's design note "Scheduler
//! RPC timing and retry policies").
//!
//! Model: at most one RPC to a project is in flight, and at most [`IN_FLIGHT_MAX`] in all. A host has at
//! most one *get-work* session. It asks the projects that need work, the most owed first, each until it
//! sends nothing. While an answer to a request for work is awaited, no other project is asked for work,
//! because that answer may bring all that is lacking. *Reports* and requested RPCs to other projects go
//! beside the session. In each RPC the scheduler URLs of a project are tried in order until one answers,
//! and whatever is finished is reported.
//!
//! A project that does not answer costs no other its turn (R1.10). An RPC whose answer has not come within
//! [`HANGS_AFTER`] is *overdue*: it may still be answered, but the session goes on as if it had brought
//! nothing. When all places are taken, the RPC that has hung longest is given up for the next project that
//! wants one. A project that hung ranks behind those that did not, until it answers or an hour has passed
//! (`has_hung`).
//!
//! What the host's owner asks for by hand comes first (R1.4). It asks for work where something idles,
//! whatever other projects may still answer.
//!
//! The caller says what happened (`observe`, `answered`, `failed`, `abandon`) and asks what is next
//! (`crowded_out`, `poll`). The candidates come in the order in which debts rank them, and say themselves
//! whether they may be asked. Sessions are not stored: after a restart the next poll begins a new one.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::{Duration, Instant, ProjectId};

use crate::fetch::WorkRequest;
use crate::report_due::WhyDue;

/// A project that sends a little each time is asked at most this often in a session, so that a session ends.
pub const ASKS_PER_SESSION_MAX: u32 = 10;

/// At most this many RPCs are in flight at once. Enough that projects which hang seldom stand in anybody's
/// way; few enough that the answers of all of them fit in memory.
pub const IN_FLIGHT_MAX: usize = 8;

/// An RPC in flight keeps others waiting this long. Servers answer sooner as a rule, and what is decided on
/// the answer saves RPCs: the next report may carry the next request for work.
pub const BESIDE_AFTER: Duration = Duration::from_secs(1);

/// An answer that has not come by then holds nothing back any more. A busy server takes seconds; its jobs are
/// worth waiting for, as the same work would otherwise be asked for twice. Half a minute of idle CPUs is what
/// it may cost. While others hang already it is so much less: with one, half of it, with two, a third.
pub const HANGS_AFTER: Duration = Duration::from_secs(30);

/// So long a project that hung ranks behind others if it is not asked again. One server's bad minute is no
/// reason to let it wait for many hours; and those that hang still are found out anew, half a minute each.
pub const HUNG_FOR: Duration = Duration::from_hours(1);

/// A project as a session sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The project.
    pub project: ProjectId,
    /// How many scheduler URLs it has; with none it cannot be asked.
    pub schedulers: usize,
    /// Whether its minimum RPC time is past (`RpcState::min_rpc_time`; with `on_request` if `requested`).
    pub may_ask: bool,
    /// Whether it may be asked for work as well (`RpcState::min_work_time`, suspended, told to send none).
    pub may_fetch: bool,
    /// What it is to be asked for (`PlannedRequest::request`, `Need::request`); nothing when there is enough.
    pub request: WorkRequest,
    /// What it may be asked for when an RPC happens anyway (`ProjectRequest::piggyback`).
    pub piggyback: WorkRequest,
    /// Why it has jobs due for reporting, if it has.
    pub due: Option<WhyDue>,
    /// Whether a user or the coordinator asked for an RPC to it.
    pub requested: bool,
    /// Whether it was the host's owner, and then what work it is to be asked for at least, although that is
    /// asked of another already: something where instances idle.
    pub by_owner: Option<WorkRequest>,
}

/// Why an RPC is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRpc {
    /// It needs work and is the most owed of those that may be asked; its rank among all, 1 for the first.
    NeedsWork {
        /// The rank.
        rank: usize,
    },
    /// It has jobs due for reporting.
    Due(WhyDue),
    /// Somebody asked for it.
    Requested,
}

/// An RPC to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SchedulerRpc {
    /// The project.
    pub project: ProjectId,
    /// Which of its scheduler URLs, 0 for the first.
    pub scheduler: usize,
    /// What work to ask for, if any.
    pub work: WorkRequest,
    /// Why.
    pub reason: WhyRpc,
}

/// What follows a failed RPC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AfterRpcFailure {
    /// The next scheduler is tried.
    NextScheduler(SchedulerRpc),
    /// All of them failed: the caller counts a failure (`RpcState::on_failure`).
    AllFailed,
}

/// A get-work session: how often each project was asked in it.
type GetWork = BTreeMap<ProjectId, u32>;

#[derive(Clone, Debug, PartialEq)]
struct InFlight {
    ask: SchedulerRpc,
    schedulers: usize,
    /// When its first scheduler was asked.
    since: Instant,
    /// The answer is not waited for any more.
    overdue: bool,
}

impl InFlight {
    /// Whether what it asks for is not to be asked of anybody else.
    fn holds_work(&self) -> bool {
        !self.overdue && !self.ask.work.is_none()
    }
}

/// The sessions of one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sessions {
    session: Option<GetWork>,
    flights: BTreeMap<ProjectId, InFlight>,
    /// Projects whose last answer was overdue or never came, and since when.
    hung: BTreeMap<ProjectId, Instant>,
}

impl Sessions {
    /// The RPC in flight to a project, if there is one.
    pub fn in_flight(&self, project: ProjectId) -> Option<&SchedulerRpc> {
        self.flights.get(&project).map(|flight| &flight.ask)
    }

    /// Whether the RPC in flight to a project is overdue: its answer has not come in time.
    pub fn is_overdue(&self, project: ProjectId) -> bool {
        self.flights.get(&project).is_some_and(|flight| flight.overdue)
    }

    /// Whether a project did not answer in time when it was last asked, and has not since, by the last
    /// [`HUNG_FOR`].
    pub fn has_hung(&self, project: ProjectId) -> bool {
        self.hung.contains_key(&project)
    }

    /// Whether any RPC is in flight.
    pub fn any_in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Whether there is no session that may go on.
    pub const fn is_idle(&self) -> bool {
        self.session.is_none()
    }

    /// Takes note of the time. Says whether an RPC that asks for work became overdue: then the need
    /// for work is to be looked at again. To be called on every turn, so that a clock that jumped back
    /// lengthens no wait (R1.12).
    pub fn observe(&mut self, now: Instant) -> bool {
        let (mut news, patience) = (false, self.patience());
        self.hung.retain(|_, since| {
            *since = (*since).min(now);
            now.since(*since) < HUNG_FOR
        });
        for (project, flight) in &mut self.flights {
            flight.since = flight.since.min(now);
            if !flight.overdue && now.since(flight.since) >= patience {
                flight.overdue = true;
                self.hung.insert(*project, now);
                news |= !flight.ask.work.is_none();
                if let Some(asked) = &mut self.session {
                    asked.insert(*project, ASKS_PER_SESSION_MAX);
                }
            }
        }
        news
    }

    /// Whether an RPC has only just begun, so that nothing else is decided before its answer or
    /// [`BESIDE_AFTER`].
    pub fn has_just_begun(&self, now: Instant) -> bool {
        self.flights.values().any(|flight| now.since(flight.since) < BESIDE_AFTER)
    }

    /// When an RPC in flight stops holding something back, if one does.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let changes = self.flights.values().flat_map(|flight| {
            let hangs = (!flight.overdue).then(|| flight.since + self.patience());
            [Some(flight.since + BESIDE_AFTER), hangs]
        });
        changes.flatten().filter(|at| *at > now).min()
    }

    /// The RPC that is to be given up so that another project has its turn: all places are taken, somebody
    /// wants one, and this one has hung longest. The caller counts a failure, as if no scheduler had
    /// answered.
    pub fn crowded_out(&mut self, candidates: &[Candidate]) -> Option<ProjectId> {
        if self.flights.len() < IN_FLIGHT_MAX || self.next(candidates).is_none() {
            return None;
        }
        let hung = self.flights.iter().filter(|(_, flight)| flight.overdue);
        let project = hung.min_by_key(|(_, flight)| flight.since).map(|(project, _)| *project)?;
        self.abandon(project);
        Some(project)
    }

    /// The next RPC to make (R1.9), if any. `candidates` has all attached projects, the most owed first.
    pub fn poll(&mut self, candidates: &[Candidate], now: Instant) -> Option<SchedulerRpc> {
        self.observe(now);
        if self.flights.len() >= IN_FLIGHT_MAX || self.has_just_begun(now) {
            return None;
        }
        let next = self.next(candidates);
        if !self.holds_work() {
            match next {
                Some(Next { role: SessionRole::Session, .. }) => {}
                Some(Next { role: SessionRole::NewSession, .. }) => self.session = Some(GetWork::new()),
                _ => self.session = None,
            }
        }
        let Next { candidate, work, reason, .. } = next?;
        let ask = SchedulerRpc { project: candidate.project, scheduler: 0, work, reason };
        let flight = InFlight { ask, schedulers: candidate.schedulers, since: now, overdue: false };
        self.flights.insert(ask.project, flight);
        Some(ask)
    }

    /// A scheduler of the project answered and sent so many jobs. A project that sends nothing is not asked
    /// again in this session. Ignored unless an RPC to it is in flight.
    pub fn answered(&mut self, project: ProjectId, jobs: usize) {
        self.hung.remove(&project);
        self.ended(project, jobs);
    }

    fn ended(&mut self, project: ProjectId, jobs: usize) {
        let Some(flight) = self.flights.remove(&project) else { return };
        if let Some(asked) = &mut self.session
            && matches!(flight.ask.reason, WhyRpc::NeedsWork { .. })
        {
            let times = asked.entry(project).or_default();
            *times = if jobs == 0 { ASKS_PER_SESSION_MAX } else { *times + 1 };
        }
    }

    /// The scheduler asked did not answer. None unless an RPC to that project is in flight.
    pub fn failed(&mut self, project: ProjectId) -> Option<AfterRpcFailure> {
        let flight = self.flights.get_mut(&project)?;
        if flight.ask.scheduler + 1 < flight.schedulers {
            flight.ask.scheduler += 1;
            if flight.overdue {
                // Others have been asked for it since.
                flight.ask.work = WorkRequest::default();
            }
            return Some(AfterRpcFailure::NextScheduler(flight.ask));
        }
        self.ended(project, 0);
        Some(AfterRpcFailure::AllFailed)
    }

    /// Forgets an RPC in flight to a project: it was detached, or the network is gone.
    pub fn abandon(&mut self, project: ProjectId) {
        self.ended(project, 0);
    }

    /// Forgets all about a project: it was detached.
    pub fn forget(&mut self, project: ProjectId) {
        self.answered(project, 0);
    }

    /// How long an answer is waited for. Each server that does not answer has cost idle CPUs already.
    fn patience(&self) -> Duration {
        let hanging = self.flights.values().filter(|flight| flight.overdue).count();
        HANGS_AFTER / (1 + hanging as i64)
    }

    /// Whether an answer that may bring the work that is lacking is waited for.
    fn holds_work(&self) -> bool {
        self.flights.values().any(InFlight::holds_work)
    }

    fn next<'c>(&self, candidates: &'c [Candidate]) -> Option<Next<'c>> {
        let work = !self.holds_work();
        let continued = || {
            let asked = self.session.as_ref().filter(|_| work)?;
            self.needs_work(candidates, asked, SessionRole::Session)
        };
        let begun = || {
            if work { self.needs_work(candidates, &GetWork::new(), SessionRole::NewSession) } else { None }
        };
        self.requested(candidates, work, |c| c.by_owner.is_some())
            .or_else(continued)
            .or_else(|| self.requested(candidates, work, |c| c.requested))
            .or_else(begun)
            .or_else(|| self.report(candidates, work))
    }

    fn needs_work<'c>(
        &self,
        candidates: &'c [Candidate],
        asked: &GetWork,
        role: SessionRole,
    ) -> Option<Next<'c>> {
        let may = |c: &Candidate| {
            self.can_be_asked(c)
                && c.may_fetch
                && !c.request.is_none()
                && asked.get(&c.project).is_none_or(|times| *times < ASKS_PER_SESSION_MAX)
        };
        let (rank, candidate) = candidates.iter().enumerate().find(|(_, c)| may(c))?;
        Some(Next { candidate, work: candidate.request, reason: WhyRpc::NeedsWork { rank: rank + 1 }, role })
    }

    fn requested<'c>(
        &self,
        candidates: &'c [Candidate],
        work: bool,
        who: impl Fn(&Candidate) -> bool,
    ) -> Option<Next<'c>> {
        let found = candidates.iter().enumerate().find(|(_, c)| who(c) && self.can_be_asked(c));
        let (rank, candidate) = found?;
        // A requested RPC overrides a wait for work as it does the backoffs.
        let asks = match (work, rank) {
            (false, _) => WorkRequest::default(),
            (true, 0) => candidate.piggyback,
            (true, _) => candidate.request,
        };
        let (work, role) = match candidate.by_owner {
            Some(least) if asks.is_none() => (least, SessionRole::Session),
            Some(_) => (asks, SessionRole::Session),
            None => (asks, SessionRole::Beside),
        };
        Some(Next { candidate, work, reason: WhyRpc::Requested, role })
    }

    fn report<'c>(&self, candidates: &'c [Candidate], work: bool) -> Option<Next<'c>> {
        let due = candidates.iter().enumerate().filter(|(_, c)| self.can_be_asked(c));
        let (why, rank, candidate) =
            due.filter_map(|(rank, c)| Some((c.due?, rank, c))).min_by_key(|(why, rank, _)| (*why, *rank))?;
        let may_piggyback = work && rank == 0 && candidate.may_fetch;
        let work = if may_piggyback { candidate.piggyback } else { WorkRequest::default() };
        Some(Next { candidate, work, reason: WhyRpc::Due(why), role: SessionRole::Beside })
    }

    fn can_be_asked(&self, candidate: &Candidate) -> bool {
        candidate.may_ask && candidate.schedulers > 0 && !self.flights.contains_key(&candidate.project)
    }
}

/// What an RPC is to the get-work session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionRole {
    /// It goes on.
    Session,
    /// It begins with it.
    NewSession,
    /// Nothing.
    Beside,
}

#[derive(Clone, Copy, Debug)]
struct Next<'c> {
    candidate: &'c Candidate,
    work: WorkRequest,
    reason: WhyRpc,
    role: SessionRole,
}

impl fmt::Display for WhyRpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsWork { rank } => write!(f, "it needs work and ranks {rank} by debt"),
            Self::Due(why) => write!(f, "a finished job is due: {why}"),
            Self::Requested => write!(f, "it was requested"),
        }
    }
}
