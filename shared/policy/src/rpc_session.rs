//! Sessions of scheduler RPCs: whom to ask next (R1.5, R1.7, R1.9, R1.10).
//!
//! Model: at most one session a host, at most one RPC in flight. A *get-work* session asks the projects that need
//! work, the most owed first, each until it sends nothing. A *report* session asks one project with due jobs; an
//! RPC that was requested is a report session too. In each, the scheduler URLs of a project are tried in order
//! until one answers. Whatever is finished is reported in every RPC.
//!
//! The machine is told what happened (`answered`, `failed`, `abandon`) and asked what is next (`poll`); the
//! candidates come in the order in which debts rank them. It holds no time: whether a project may be asked is in
//! the candidate. Sessions are not stored: after a restart the next poll begins a new one.

use std::collections::BTreeMap;
use std::fmt;

use fallow_domain::ProjectId;

use crate::fetch::WorkRequest;
use crate::report_due::WhyDue;

/// A project that sends a little each time is asked at most this often in a session, so that a session ends.
pub const ASKS_PER_SESSION_MAX: u32 = 10;

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
    /// What it is to be asked for (`FetchAsk::request`, `Need::request`); nothing when there is enough.
    pub request: WorkRequest,
    /// What it may be asked for when an RPC happens anyway (`WorkPlan::ride_along`, `Need::fill`).
    pub fill: WorkRequest,
    /// Why it has jobs due for reporting, if it has.
    pub due: Option<WhyDue>,
    /// Whether a user or the coordinator asked for an RPC to it.
    pub requested: bool,
}

/// Why an RPC is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyAsk {
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
pub struct Ask {
    /// The project.
    pub project: ProjectId,
    /// Which of its scheduler URLs, 0 for the first.
    pub scheduler: usize,
    /// What work to ask for, if any.
    pub work: WorkRequest,
    /// Why.
    pub reason: WhyAsk,
}

/// What follows a failed RPC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AfterFailure {
    /// The next scheduler is tried.
    NextScheduler(Ask),
    /// All of them failed: the caller counts a failure (`RpcState::on_failure`).
    AllFailed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Session {
    GetWork { asked: BTreeMap<ProjectId, u32> },
    Report,
}

#[derive(Clone, Debug, PartialEq)]
struct Flight {
    ask: Ask,
    schedulers: usize,
}

/// The sessions of one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sessions {
    session: Option<Session>,
    flight: Option<Flight>,
}

impl Sessions {
    /// The RPC in flight, if any.
    pub fn in_flight(&self) -> Option<&Ask> {
        self.flight.as_ref().map(|flight| &flight.ask)
    }

    /// Whether nothing is under way: no RPC, and no session that may go on.
    pub fn is_idle(&self) -> bool {
        self.flight.is_none() && self.session.is_none()
    }

    /// The next RPC to make (R1.9), if any. `candidates` has all attached projects, the most owed first.
    pub fn poll(&mut self, candidates: &[Candidate]) -> Option<Ask> {
        if self.flight.is_some() {
            return None;
        }
        let next = self.continued(candidates).or_else(|| {
            self.session = None;
            self.requested(candidates)
        });
        let next = next.or_else(|| self.get_work(candidates)).or_else(|| self.report(candidates));
        let (candidate, work, reason) = next?;
        let ask = Ask { project: candidate.project, scheduler: 0, work, reason };
        self.flight = Some(Flight { ask, schedulers: candidate.schedulers });
        Some(ask)
    }

    /// A scheduler of the project answered and sent so many jobs. A project that sends nothing is not asked
    /// again in this session. Ignored unless an RPC to it is in flight.
    pub fn answered(&mut self, project: ProjectId, jobs: usize) {
        let Some(flight) = self.flight.take_if(|flight| flight.ask.project == project) else { return };
        match &mut self.session {
            Some(Session::GetWork { asked }) => {
                let times = asked.entry(flight.ask.project).or_default();
                *times = if jobs == 0 { ASKS_PER_SESSION_MAX } else { *times + 1 };
            }
            _ => self.session = None,
        }
    }

    /// The scheduler asked did not answer. None unless an RPC to that project is in flight.
    pub fn failed(&mut self, project: ProjectId) -> Option<AfterFailure> {
        let flight = self.flight.as_mut().filter(|flight| flight.ask.project == project)?;
        if flight.ask.scheduler + 1 < flight.schedulers {
            flight.ask.scheduler += 1;
            return Some(AfterFailure::NextScheduler(flight.ask));
        }
        self.answered(project, 0);
        Some(AfterFailure::AllFailed)
    }

    /// Forgets an RPC in flight to a project: it was detached, or the network is gone.
    pub fn abandon(&mut self, project: ProjectId) {
        self.answered(project, 0);
    }

    fn continued<'c>(&self, candidates: &'c [Candidate]) -> Option<Next<'c>> {
        match &self.session {
            Some(Session::GetWork { asked }) => needs_work(candidates, asked),
            _ => None,
        }
    }

    fn requested<'c>(&mut self, candidates: &'c [Candidate]) -> Option<Next<'c>> {
        let found = candidates.iter().enumerate().find(|(_, c)| c.requested && c.can_be_asked());
        let (rank, candidate) = found?;
        self.session = Some(Session::Report);
        // A requested RPC overrides a wait for work as it does the backoffs.
        Some((candidate, if rank == 0 { candidate.fill } else { candidate.request }, WhyAsk::Requested))
    }

    fn get_work<'c>(&mut self, candidates: &'c [Candidate]) -> Option<Next<'c>> {
        let next = needs_work(candidates, &BTreeMap::new())?;
        self.session = Some(Session::GetWork { asked: BTreeMap::new() });
        Some(next)
    }

    fn report<'c>(&mut self, candidates: &'c [Candidate]) -> Option<Next<'c>> {
        let due = candidates.iter().enumerate().filter(|(_, c)| c.can_be_asked());
        let (why, rank, candidate) =
            due.filter_map(|(rank, c)| Some((c.due?, rank, c))).min_by_key(|(why, rank, _)| (*why, *rank))?;
        self.session = Some(Session::Report);
        let fill = if rank == 0 && candidate.may_fetch { candidate.fill } else { WorkRequest::default() };
        Some((candidate, fill, WhyAsk::Due(why)))
    }
}

type Next<'c> = (&'c Candidate, WorkRequest, WhyAsk);

fn needs_work<'c>(candidates: &'c [Candidate], asked: &BTreeMap<ProjectId, u32>) -> Option<Next<'c>> {
    let may = |c: &Candidate| {
        c.can_be_asked()
            && c.may_fetch
            && !c.request.is_none()
            && asked.get(&c.project).is_none_or(|times| *times < ASKS_PER_SESSION_MAX)
    };
    let (rank, candidate) = candidates.iter().enumerate().find(|(_, c)| may(c))?;
    Some((candidate, candidate.request, WhyAsk::NeedsWork { rank: rank + 1 }))
}

impl Candidate {
    fn can_be_asked(&self) -> bool {
        self.may_ask && self.schedulers > 0
    }
}

impl fmt::Display for WhyAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsWork { rank } => write!(f, "it needs work and ranks {rank} by debt"),
            Self::Due(why) => write!(f, "a finished job is due: {why}"),
            Self::Requested => write!(f, "it was requested"),
        }
    }
}
