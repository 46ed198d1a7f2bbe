//! A workunit and its jobs: when copies are made, when it is decided, when it is given up (R6.8).
//!
//! **Model.** A workunit holds its jobs, the redundant copies of one computation. It wants `target` jobs that
//! are or may become useful: waiting, in progress, or successful and not found wrong. Every event (sent,
//! reported, deadline passed, compared) is followed by one step of [`Workunit::settle`], which makes copies
//! up to the target, within the maximum, or gives the workunit up. When `quorum` successful jobs of different
//! accounts agree, one of them becomes canonical. When they do not, the target rises by one.
//!
//! **Whose opinion.** What counts is the account: one caller can pose as many hosts, but an account is given
//! to one agent, or to one person. An account that has a copy, or has computed one, gets no second: it would
//! prove nothing. One whose copies all failed may get another, if nobody else can take it who had fewer
//! ([`CopyHistory`]; BOINC: `one_result_per_user_per_wu`).
//!
//! **Copied machines.** A machine that came of another one's disk has an account of its own, too. Where
//! several must agree, both count as one account, their *voter*: whoever copies his machine is not two. Where
//! one result is enough, nothing has to be proved, and each counts by itself: that a job failed on one
//! machine says nothing about the other. [`Workunit::counts_as`] is this rule. It holds for all that is said
//! here of accounts, and for whoever is waited for as "another host" (`counted_requesters`). Jobs, their
//! files and their credit belong to the account that computed them.
//!
//! **Backoff.** The cause of an error may be gone a little later: a server that the application needs, a full
//! disk. So that a small fleet does not use up all attempts in seconds, a workunit is put off after each
//! error, for [`RETRY_FIRST`] after the first and twice as long after each further one. As long as it failed
//! on one account alone, others may try it at once: the fault may be the host's, or its owner aborted it. The
//! backoff follows from the jobs as they are stored, and a restart forgets nothing. BOINC's own server makes
//! a new copy at once, and lowers the daily quota of the host.
//!
//! **Losses.** A copy that its host has lost for good begins a backoff as an error does. Losses and errors
//! of two accounts put the workunit off for everybody: hosts that never list what they were sent would use
//! up all copies in a second. And whoever withholds something has shown nothing about the workunit: copies
//! that were lost do not count among those that may be made, up to [`LOST_FREE`] of them and
//! [`LOST_FREE_EACH`] for each useful job wanted. With the backoffs between them, hosts that only lose it
//! need at least four hours to use up a workunit, whatever its rules. Further ones count: a workunit that
//! makes every host crash and forget it ends too. A copy that is not reported by its deadline counts from the
//! first. In BOINC's own server both kinds do; what a host has lost, it sends again until the deadline.
//!
//! Pure: time comes in, nothing goes out; whoever stores a workunit derives the indexes from it (see
//! `index`).
//!
//! **Terminates**: a job in progress has a deadline, copies are bounded, and every comparison decides the
//! workunit, asks for one more copy or gives up.
//!
//! **Omitted**: priorities, homogeneous redundancy, adaptive replication.

use std::collections::BTreeSet;

use fallow_domain::{Bytes, Duration, Flops, Instant, Invalid};
use serde::{Deserialize, Serialize};

use super::operator_types::OutputSpec;
use super::validate::{self, Comparison};

/// The most copies that a workunit may ever have, beside those that hosts lost; bounds the record's size.
pub const TOTAL_MAX: u32 = 100;
/// How long a workunit is put off after its first error.
const RETRY_FIRST: Duration = Duration::from_secs(30);
/// The longest backoff: what takes longer to mend is for the operator.
pub(crate) const RETRY_MAX: Duration = Duration::from_hours(1);
/// Lost copies that do not count among those that may be made: so many of any workunit...
pub const LOST_FREE: u32 = 10;
/// ...and so many for each useful job that it wants. As many may be lost at once, with one backoff for all.
pub const LOST_FREE_EACH: u32 = 4;
/// What is told of a failed job's last words, in bytes.
const WORDS_MAX: usize = 200;

/// How often a workunit is computed and how often it may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Successful jobs of different accounts that must agree (BOINC: `min_quorum`).
    pub quorum: u32,
    /// Copies made at first, at least `quorum` (BOINC: `target_nresults`).
    pub initial_jobs: u32,
    /// With more jobs in error than this it is given up (BOINC: `max_error_results`).
    pub max_error_jobs: u32,
    /// Copies that may ever be made (BOINC: `max_total_results`), but for the first ones that hosts lose.
    pub max_total_jobs: u32,
}

impl Rules {
    /// Refuses rules under which a workunit could never be decided.
    ///
    /// # Errors
    /// [`Invalid`] with the first rule that cannot hold.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.quorum == 0 {
            return Err(Invalid::new("quorum", self.quorum, "at least 1"));
        }
        if self.initial_jobs < self.quorum {
            return Err(Invalid::new("number of initial jobs", self.initial_jobs, "at least the quorum"));
        }
        if self.max_total_jobs < self.initial_jobs || self.max_total_jobs > TOTAL_MAX {
            let expected = "at least the number of initial jobs, at most 100";
            return Err(Invalid::new("maximum of jobs", self.max_total_jobs, expected));
        }
        Ok(())
    }
}

/// Work to be done, with the jobs that do it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Workunit {
    pub(crate) name: String,
    /// Rises with submission; the oldest is sent first.
    pub(crate) sequence: u64,
    pub(crate) application: String,
    pub(crate) command_line: String,
    pub(crate) inputs: Vec<InputRef>,
    pub(crate) outputs: Vec<OutputSpec>,
    pub(crate) flops_estimate: Flops,
    pub(crate) flops_bound: Flops,
    pub(crate) memory_bound: Bytes,
    pub(crate) disk_bound: Bytes,
    pub(crate) delay_bound: Duration,
    pub(crate) rules: Rules,
    pub(crate) comparator: String,
    pub(crate) created_at: Instant,
    pub(crate) state: WorkunitState,
    /// Useful jobs wanted.
    pub(crate) target: u32,
    pub(crate) jobs: Vec<Job>,
    /// Its files that nobody needs any more are gone.
    pub(crate) files_deleted: bool,
}

/// An input file in the download directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InputRef {
    pub(crate) open_name: String,
    pub(crate) file_name: String,
    pub(crate) nbytes: u64,
    pub(crate) md5: String,
    /// Hosts keep it for other workunits that read it too.
    #[serde(default)]
    pub(crate) sticky: bool,
}

/// Whether a workunit is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkunitState {
    Active,
    /// The job with this index was chosen.
    Validated {
        canonical: u32,
    },
    Failed {
        reason: String,
    },
}

/// A copy of a workunit's computation (BOINC: result).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) index: u32,
    pub(crate) state: ServerState,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) validation: Option<Validation>,
    /// The host that has or had it, 0 for none.
    pub(crate) host: u64,
    /// The account that this host computed for then; 0 for none, and for one whose key many had. Records of
    /// earlier versions lack it: see [`index::read`](super::index::read).
    #[serde(default)]
    pub(crate) account: u64,
    /// The account that it counts for where several must agree, if that is another one: see
    /// [`HostAccount::voter`]. 0 for `account` itself.
    #[serde(default)]
    pub(crate) voter: u64,
    /// Credit that its host claims (see `credit`).
    #[serde(default)]
    pub(crate) claimed: f64,
    /// Credit that was granted for it; none as long as it is not valid.
    #[serde(default)]
    pub(crate) granted: Option<f64>,
    pub(crate) sent_at: Option<Instant>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) received_at: Option<Instant>,
    /// When its host was found to have lost it for good.
    #[serde(default)]
    pub(crate) lost_at: Option<Instant>,
    pub(crate) cpu_time: Duration,
    pub(crate) exit_status: i32,
    pub(crate) times_sent: u32,
    /// The application version that it was sent with.
    pub(crate) version: u32,
    pub(crate) platform: String,
    /// The end of what it wrote to standard error, for jobs in error.
    pub(crate) stderr: String,
}

/// Where a job stands (BOINC: `server_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Waits for a host.
    Unsent,
    /// A host has it.
    InProgress,
    /// Reported, late or not needed.
    Over,
}

/// How a job ended (BOINC: `outcome`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Computed and uploaded.
    Success,
    /// The host reported a failure, or its outputs are missing.
    Error,
    /// No report by its deadline, or the host has lost it for good. A late report still changes this.
    Late,
    /// Never sent: the workunit was decided before.
    NotNeeded,
    /// Aborted by its host's owner or by the project.
    Aborted,
}

/// What comparing a job's outputs with the others' said (BOINC: `validate_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validation {
    /// Agrees with the canonical job, or is it.
    Valid,
    /// Differs from the canonical job.
    Invalid,
    /// Compared, but no quorum agreed.
    Inconclusive,
}

impl Outcome {
    /// As the log says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Late => "late",
            Self::NotNeeded => "not needed",
            Self::Aborted => "aborted",
        }
    }
}

/// What a host says about a job that it has finished with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    pub(crate) cpu_time: Duration,
    /// Credit claimed for it.
    pub(crate) claimed: f64,
    pub(crate) exit_status: i32,
    pub(crate) stderr: String,
}

/// A host, and the account that it computes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostAccount {
    pub(crate) host: u64,
    pub(crate) account: u64,
    /// The account that it counts for where several must agree: of a copied machine that of the first one, of
    /// any other `account`.
    pub(crate) voter: u64,
}

/// What an account's earlier copies of a workunit say about giving it another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyHistory {
    /// It never had one.
    None,
    /// It has one, or has computed one.
    HasCopy,
    /// Its copies failed or were lost.
    Failed,
}

/// A time in which a workunit is not tried again after an error or a loss. It doubles with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryBackoff {
    pub(crate) until: Instant,
    /// Not even by accounts that never had a copy.
    pub(crate) is_for_all: bool,
}

impl Workunit {
    /// Makes the first copies. Called once, with the rules checked.
    pub(crate) fn start(mut self) -> Self {
        self.target = self.rules.initial_jobs;
        self.settle();
        self
    }

    /// The first copy that waits for somebody to compute it.
    pub(crate) fn unsent(&self) -> Option<u32> {
        let is_active = self.state == WorkunitState::Active;
        self.jobs.iter().find(|job| is_active && job.state == ServerState::Unsent).map(|job| job.index)
    }

    /// What copies of this workunit an account had. `is_held` says whether its host still has a job, by its
    /// name: the report of a late one may come yet.
    pub(crate) fn history(&self, host_account: HostAccount, is_held: impl Fn(&str) -> bool) -> CopyHistory {
        let mut history = CopyHistory::None;
        let is_of = |job: &&Job| {
            let same = || self.counts_as(job.host_account()) == self.counts_as(host_account);
            job.host != 0 && (job.host == host_account.host || same())
        };
        for job in self.jobs.iter().filter(is_of) {
            let counts = match (job.state, job.outcome) {
                (ServerState::InProgress, _) | (_, Some(Outcome::Success)) => true,
                (_, Some(Outcome::Late)) => is_held(&self.job_name(job.index)),
                _ => false,
            };
            if counts {
                return CopyHistory::HasCopy;
            }
            history = CopyHistory::Failed;
        }
        history
    }

    /// The backoff after the last error or loss, as long as it lasts. What lies further in the future than
    /// the longest backoff was noted before the clock was set back: nobody waits for that time to come.
    pub(crate) fn retry_backoff(&self, now: Instant) -> Option<RetryBackoff> {
        let is_soon = |at: Instant| at.since(now) <= RETRY_MAX;
        let failures = self.jobs.iter().filter_map(|job| job.failed_at());
        let last = failures.clone().filter(|at| is_soon(*at)).max()?;
        let doubled = u32::try_from(failures.count() - 1).unwrap_or(u32::MAX).min(31);
        let until = last + RETRY_FIRST.mul_f64(f64::from(1_u32 << doubled)).min(RETRY_MAX);
        let failed = self.jobs.iter().filter(|job| job.failed_at().is_some());
        let failed = failed.map(|job| self.counts_as(job.host_account()));
        let is_for_all = failed.collect::<BTreeSet<u64>>().len() > 1;
        (now < until && is_soon(until)).then_some(RetryBackoff { until, is_for_all })
    }

    /// When an account with this history may have a copy, if it has to wait.
    pub(crate) fn retry_at(&self, history: CopyHistory, now: Instant) -> Option<Instant> {
        let retry_backoff = self
            .retry_backoff(now)
            .filter(|retry_backoff| retry_backoff.is_for_all || history != CopyHistory::None);
        retry_backoff.map(|retry_backoff| retry_backoff.until)
    }

    /// Whether a machine and its copies count as one: several must agree.
    pub(crate) fn counts_voters(&self) -> bool {
        self.rules.quorum > 1
    }

    /// The account that a host counts for (see **Copied machines** above).
    pub(crate) fn counts_as(&self, of: HostAccount) -> u64 {
        if self.counts_voters() { of.voter } else { of.account }
    }

    /// Accounts that have or had a copy, as they count.
    pub(crate) fn accounts(&self) -> BTreeSet<u64> {
        self.had().map(|of| self.counts_as(of)).collect()
    }

    /// Accounts that one whose copies failed does not wait for before it gets another: those that had as many
    /// copies, and those that have one, have computed one, or may do so yet.
    pub(crate) fn tried_as_often(&self, of: HostAccount) -> BTreeSet<u64> {
        let own = self.copies_of(self.counts_as(of));
        let is_late = |job: &&Job| job.outcome == Some(Outcome::Late) && job.lost_at.is_none();
        let late = self.jobs.iter().filter(is_late).map(Job::host_account);
        let having: BTreeSet<u64> = self.having().chain(late).map(|of| self.counts_as(of)).collect();
        let mut all = self.accounts();
        all.retain(|account| having.contains(account) || self.copies_of(*account) >= own);
        all
    }

    /// How many copies an account has or had.
    pub(crate) fn copies_of(&self, account: u64) -> usize {
        self.had().filter(|had| self.counts_as(*had) == account).count()
    }

    /// Hosts that have or had a copy.
    pub(crate) fn had(&self) -> impl Iterator<Item = HostAccount> {
        self.jobs.iter().filter(|job| job.host != 0).map(Job::host_account)
    }

    /// Hosts that have a copy or have computed one.
    pub(crate) fn having(&self) -> impl Iterator<Item = HostAccount> {
        let has_one =
            |job: &&Job| job.state == ServerState::InProgress || job.outcome == Some(Outcome::Success);
        self.jobs.iter().filter(has_one).map(Job::host_account)
    }

    /// When something last happened to it: since then what is unsent waits. That a job was sent again to the
    /// host that had lost it changes nothing of that. What is still to come was noted before the clock was
    /// set back, and is passed over.
    pub(crate) fn quiet_since(&self, now: Instant) -> Instant {
        let times = self.jobs.iter().flat_map(|job| {
            let late = job.lost_at.or(job.deadline).filter(|_| job.outcome == Some(Outcome::Late));
            [job.sent_at.filter(|_| job.times_sent <= 1), job.received_at, late]
        });
        times.flatten().filter(|at| *at <= now).max().unwrap_or(self.created_at)
    }

    /// Gives an unsent copy to a host, or the same copy again to the host that has lost it. Its deadline
    /// counts from `now`. Says whether that was possible.
    pub(crate) fn send(
        &mut self,
        index: u32,
        to: HostAccount,
        now: Instant,
        version: u32,
        platform: &str,
    ) -> bool {
        let may_have = self.unsent().is_some() && self.history(to, |_| false) != CopyHistory::HasCopy;
        let deadline = now + self.delay_bound;
        let Some(job) = self.jobs.get_mut(index as usize) else { return false };
        let fresh = may_have && job.state == ServerState::Unsent;
        let lost = job.state == ServerState::InProgress && job.host == to.host;
        if !(fresh || lost) {
            return false;
        }
        job.state = ServerState::InProgress;
        job.host = to.host;
        job.account = to.account;
        job.voter = if to.voter == to.account { 0 } else { to.voter };
        job.sent_at = Some(now);
        job.deadline = Some(deadline);
        job.times_sent = job.times_sent.saturating_add(1);
        job.version = version;
        platform.clone_into(&mut job.platform);
        true
    }

    /// Takes a report of the host that has the job, or of another one of its account: a client that was
    /// restored from an older copy of its directory gets a new number, and has computed all the same. A
    /// second report, or one for a job that is not its own, changes nothing; a late one counts as if it had
    /// been in time. Says whether it changed anything.
    pub(crate) fn report(&mut self, index: u32, from: HostAccount, report: Report, now: Instant) -> bool {
        let Some(job) = self.jobs.get_mut(index as usize) else { return false };
        if !(job.is_of(from) && job.is_awaited()) {
            return false;
        }
        job.host = from.host;
        job.state = ServerState::Over;
        job.outcome = Some(report.outcome);
        job.received_at = Some(now);
        job.cpu_time = report.cpu_time;
        job.claimed = report.claimed;
        job.exit_status = report.exit_status;
        job.stderr = report.stderr;
        // Its files may have come after those of the others were deleted.
        self.files_deleted = false;
        self.settle();
        true
    }

    /// The deadline of a job has passed, or its host is gone: another copy takes its place. Says whether it
    /// was so.
    pub(crate) fn give_up(&mut self, index: u32) -> bool {
        self.end_in_progress(index, None)
    }

    /// The host has lost the job for good: as [`Workunit::give_up`].
    pub(crate) fn lose(&mut self, index: u32, now: Instant) -> bool {
        self.end_in_progress(index, Some(now))
    }

    fn end_in_progress(&mut self, index: u32, lost_at: Option<Instant>) -> bool {
        match self.jobs.get_mut(index as usize) {
            Some(job) if job.state == ServerState::InProgress => {
                job.state = ServerState::Over;
                job.outcome = Some(Outcome::Late);
                job.lost_at = lost_at;
            }
            _ => return false,
        }
        self.settle();
        true
    }

    /// The jobs whose outputs are to be compared now, if any: all successes once there are enough and one of
    /// them is new; or new ones against the canonical one.
    pub(crate) fn to_compare(&self) -> Vec<u32> {
        let good =
            |job: &&Job| job.outcome == Some(Outcome::Success) && job.validation != Some(Validation::Invalid);
        let news = |job: &Job| job.outcome == Some(Outcome::Success) && job.validation.is_none();
        if !self.jobs.iter().any(news) {
            return Vec::new();
        }
        match self.state {
            WorkunitState::Failed { .. } => Vec::new(),
            WorkunitState::Validated { canonical } => {
                let old = self.jobs.iter().filter(|job| job.index == canonical);
                old.chain(self.jobs.iter().filter(|job| news(job))).map(|job| job.index).collect()
            }
            WorkunitState::Active => {
                let all: Vec<u32> = self.jobs.iter().filter(good).map(|job| job.index).collect();
                if self.opinions(&all) >= self.rules.quorum as usize { all } else { Vec::new() }
            }
        }
    }

    /// Takes the result of comparing the jobs of [`Workunit::to_compare`].
    pub(crate) fn take_comparison(&mut self, comparison: &Comparison) {
        for index in &comparison.unreadable {
            self.set_outcome_error(*index);
        }
        match comparison.canonical {
            Some(canonical) => {
                for index in &comparison.valid {
                    self.set_validation(*index, Validation::Valid);
                }
                for index in &comparison.invalid {
                    self.set_validation(*index, Validation::Invalid);
                }
                if self.state == WorkunitState::Active {
                    self.state = WorkunitState::Validated { canonical };
                }
            }
            None => {
                for index in &comparison.inconclusive {
                    self.set_validation(*index, Validation::Inconclusive);
                }
                // One more opinion than there are now, but never fewer than were wanted.
                let opinions = u32::try_from(self.opinions(&comparison.inconclusive)).unwrap_or(TOTAL_MAX);
                if opinions >= self.rules.quorum {
                    self.target = self.target.max(opinions.saturating_add(1));
                }
            }
        }
        self.settle();
    }

    /// Accounts whose jobs agree with the canonical one, its own included: a machine and its copies are one,
    /// whatever the quorum.
    pub(crate) fn agreeing(&self) -> u32 {
        let valid = self.jobs.iter().filter(|job| job.validation == Some(Validation::Valid));
        let voters: BTreeSet<u64> = valid.map(|job| job.host_account().voter).collect();
        u32::try_from(voters.len()).unwrap_or(u32::MAX)
    }

    /// How many opinions these jobs are.
    fn opinions(&self, jobs: &[u32]) -> usize {
        validate::opinions(jobs.iter().map(|index| self.account_of(*index)), self.rules.quorum as usize)
    }

    /// The account that a job counts for.
    pub(crate) fn account_of(&self, index: u32) -> u64 {
        self.jobs.get(index as usize).map_or(0, |job| self.counts_as(job.host_account()))
    }

    /// The name of the job with this index.
    pub(crate) fn job_name(&self, index: u32) -> String {
        format!("{}_{index}", self.name)
    }

    /// Brings the jobs in line with the rules. Changes nothing the second time.
    fn settle(&mut self) {
        if self.state != WorkunitState::Active {
            return self.drop_unsent();
        }
        if let Some(reason) = self.reason_to_give_up() {
            self.state = WorkunitState::Failed { reason };
            return self.drop_unsent();
        }
        let missing = (self.target as usize).saturating_sub(self.useful());
        let room = self.copies_max().saturating_sub(self.jobs.len());
        for _ in 0..missing.min(room) {
            let index = u32::try_from(self.jobs.len()).unwrap_or(TOTAL_MAX);
            self.jobs.push(Job::unsent(index));
        }
    }

    fn reason_to_give_up(&self) -> Option<String> {
        let errors = self.jobs.iter().filter(|job| job.is_error()).count();
        if errors > self.rules.max_error_jobs as usize {
            let last = self.jobs.iter().filter(|job| job.is_error()).max_by_key(|job| job.received_at);
            let last = last.map(Job::last_words).unwrap_or_default();
            return Some(format!("{errors} jobs in error, {} allowed{last}", self.rules.max_error_jobs));
        }
        let open = self.jobs.iter().any(|job| job.state != ServerState::Over);
        let undecided = self.useful() < self.target as usize && self.to_compare().is_empty();
        if !open && undecided && self.jobs.len() >= self.copies_max() {
            let lost = match self.lost() {
                0 => String::new(),
                lost => format!(", {lost} of them lost by their hosts"),
            };
            return Some(format!("no quorum of {} after {} jobs{lost}", self.rules.quorum, self.jobs.len()));
        }
        None
    }

    /// Copies that its hosts lost, and did not report after all.
    fn lost(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_lost()).count()
    }

    /// How many copies there may be: as the rules say, and those lost ones that do not count.
    fn copies_max(&self) -> usize {
        let free = LOST_FREE.saturating_add(self.target.saturating_mul(LOST_FREE_EACH));
        self.rules.max_total_jobs as usize + self.lost().min(free as usize)
    }

    /// Jobs that count towards the target: those that are open, and of each account one of those that
    /// succeeded.
    fn useful(&self) -> usize {
        let open = self.jobs.iter().filter(|job| job.state != ServerState::Over).count();
        let good = self.jobs.iter().filter(|job| {
            job.outcome == Some(Outcome::Success) && job.validation != Some(Validation::Invalid)
        });
        open + self.opinions(&good.map(|job| job.index).collect::<Vec<_>>())
    }

    fn drop_unsent(&mut self) {
        for job in self.jobs.iter_mut().filter(|job| job.state == ServerState::Unsent) {
            job.state = ServerState::Over;
            job.outcome = Some(Outcome::NotNeeded);
        }
    }

    fn set_validation(&mut self, index: u32, validation: Validation) {
        if let Some(job) = self.jobs.get_mut(index as usize) {
            job.validation = Some(validation);
        }
    }

    fn set_outcome_error(&mut self, index: u32) {
        if let Some(job) = self.jobs.get_mut(index as usize) {
            job.outcome = Some(Outcome::Error);
            job.validation = None;
            "its output files are missing on the server".clone_into(&mut job.stderr);
        }
    }
}

impl Job {
    pub(crate) fn unsent(index: u32) -> Self {
        Self {
            index,
            state: ServerState::Unsent,
            outcome: None,
            validation: None,
            host: 0,
            account: 0,
            voter: 0,
            claimed: 0.0,
            granted: None,
            sent_at: None,
            deadline: None,
            received_at: None,
            lost_at: None,
            cpu_time: Duration::ZERO,
            exit_status: 0,
            times_sent: 0,
            version: 0,
            platform: String::new(),
            stderr: String::new(),
        }
    }

    /// Who has or had it.
    pub(crate) fn host_account(&self) -> HostAccount {
        let voter = if self.voter == 0 { self.account } else { self.voter };
        HostAccount { host: self.host, account: self.account, voter }
    }

    /// Whether a report of it is still of use: a late job may come yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.state == ServerState::InProgress || self.outcome == Some(Outcome::Late)
    }

    /// Whether it counts towards the errors that a workunit may have.
    pub(crate) fn is_error(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Error | Outcome::Aborted))
    }

    /// Whether its host has lost it for good, and has not reported it since.
    fn is_lost(&self) -> bool {
        self.outcome == Some(Outcome::Late) && self.lost_at.is_some()
    }

    /// When it went wrong, if it did: reported in error, or lost by its host and not reported since.
    fn failed_at(&self) -> Option<Instant> {
        match self.outcome {
            Some(Outcome::Error | Outcome::Aborted) => self.received_at,
            Some(Outcome::Late) => self.lost_at,
            _ => None,
        }
    }

    /// Whether the host has or had it, or another host of its account. A copied machine has none of the first
    /// one's, nor the first one any of its copies'.
    pub(crate) fn is_of(&self, host_account: HostAccount) -> bool {
        self.host != 0 && (self.host == host_account.host || self.account == host_account.account)
    }

    /// How it failed, for the reason of its workunit's end.
    fn last_words(&self) -> String {
        let said = self.stderr.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let said = &said[..said.floor_char_boundary(WORDS_MAX)];
        let colon = if said.is_empty() { "" } else { ": " };
        format!("; the last ended with exit status {}{colon}{said}", self.exit_status)
    }
}

#[cfg(test)]
#[path = "workunit_tests.rs"]
pub(crate) mod tests;
