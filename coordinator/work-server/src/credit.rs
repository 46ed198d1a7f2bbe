//! Credit: what a host's work is worth, in BOINC's unit (200 for a day of one CPU at one GFLOPS).
//!
//! **Claimed** for a job: its CPU time by the host's own benchmark. A host cannot claim more CPU time than
//! its CPUs had since the job was sent, nor more work than the workunit's bound. Time of coprocessors is not
//! counted.
//!
//! **Granted** when a job is found valid, to all valid jobs of a workunit the same, as BOINC's validators did
//! it: the lowest claim of one or two; of more, the mean without the lowest and the highest. A valid job that
//! comes later gets what the others got. Claims of whoever counts as one towards a quorum are one claim, the
//! lowest: nobody raises what is granted with copies of his machine. It is granted to the host and the
//! account that computed.
//!
//! **Totals** are kept for accounts and for hosts, each with an average per day that fades by half in a week
//! (BOINC: `expavg_credit`).

use std::collections::BTreeMap;

use fallow_domain::{Duration, Flops, Instant};
use serde::{Deserialize, Serialize};

use super::error::ProjectError;
use super::store_keys::Keys;
use super::txn::Txn;
use super::workunit::{HostAccount, Validation, Workunit, WorkunitState};

/// For a day of 10^9 floating-point operations per second.
const PER_GFLOPS_DAY: f64 = 200.0;
const DAY_SECS: f64 = 86_400.0;
/// In which the average fades to a half (BOINC: `CREDIT_HALF_LIFE`).
const HALF_LIFE_SECS: f64 = 7.0 * DAY_SECS;

/// What an account or a host was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Credit {
    /// Ever.
    pub(crate) total: f64,
    /// The average per day, as it was at `at`.
    recent: f64,
    at: Option<Instant>,
}

impl Credit {
    /// With a grant for work that was begun then.
    fn with(self, granted: f64, begun: Instant, now: Instant) -> Self {
        let from = self.at.unwrap_or(begun);
        let fades =
            now.since(from).max(Duration::ZERO).as_secs_f64() * std::f64::consts::LN_2 / HALF_LIFE_SECS;
        // Work spread evenly over the time since the last grant; the limit for no time at all.
        let spread = if fades > 1e-6 { -(-fades).exp_m1() / fades } else { 1.0 };
        let fresh = granted * std::f64::consts::LN_2 * DAY_SECS / HALF_LIFE_SECS * spread;
        Self { total: self.total + granted, recent: self.recent_at(now) + fresh, at: Some(now) }
    }

    /// The average per day as it is now.
    pub(crate) fn recent_at(&self, now: Instant) -> f64 {
        let since = self.at.map_or(Duration::ZERO, |at| now.since(at).max(Duration::ZERO));
        self.recent * (-since.as_secs_f64() * std::f64::consts::LN_2 / HALF_LIFE_SECS).exp()
    }
}

/// What a job's report may claim: CPU time on a CPU of this speed, for a workunit of that bound.
pub(crate) fn claim(cpu_time: Duration, fpops: f64, bound: Flops) -> f64 {
    let flops = cpu_time.max(Duration::ZERO).as_secs_f64() * fpops.max(0.0);
    let most = bound.get().max(0.0);
    let flops = if flops.is_finite() { flops.min(most) } else { 0.0 };
    flops / (1e9 * DAY_SECS) * PER_GFLOPS_DAY
}

/// The claims of a workunit's valid jobs, of each voter the lowest. Of jobs that name no account nobody knows
/// whose they are: each host is one of its own.
fn claims(workunit: &Workunit) -> Vec<f64> {
    let mut lowest = BTreeMap::<(u64, u64), f64>::new();
    for job in workunit.jobs.iter().filter(|job| job.validation == Some(Validation::Valid)) {
        let voter = match job.host_account() {
            HostAccount { voter: 0, host, .. } => (0, host),
            HostAccount { voter, .. } => (voter, 0),
        };
        let claim = lowest.entry(voter).or_insert(job.claimed);
        *claim = claim.min(job.claimed);
    }
    lowest.into_values().collect()
}

/// What is granted for claims.
fn grant(mut claims: Vec<f64>) -> f64 {
    claims.sort_by(f64::total_cmp);
    match claims.len() {
        0 => 0.0,
        1 | 2 => claims[0],
        all => claims[1..all - 1].iter().sum::<f64>() / (all - 2) as f64,
    }
}

/// Grants credit to the jobs of a workunit that are valid and have none yet.
pub(crate) fn settle(
    txn: &mut Txn<'_>,
    keys: &Keys,
    workunit: &mut Workunit,
    now: Instant,
) -> Result<(), ProjectError> {
    let WorkunitState::Validated { canonical } = workunit.state else { return Ok(()) };
    let is_valid = |validation| validation == Some(Validation::Valid);
    let before = workunit.jobs.get(canonical as usize).and_then(|job| job.granted);
    let granted = before.unwrap_or_else(|| grant(claims(workunit)));
    for job in workunit.jobs.iter_mut().filter(|job| is_valid(job.validation) && job.granted.is_none()) {
        job.granted = Some(granted);
        let begun = job.sent_at.unwrap_or(now);
        for key in [keys.account_credit(job.account), keys.host_credit(job.host)] {
            let credit: Credit = txn.get("credit", &key)?.unwrap_or_default();
            txn.put("credit", key, &credit.with(granted, begun, now))?;
        }
    }
    Ok(())
}

/// What an account and a host were granted.
pub(crate) fn of(
    txn: &Txn<'_>,
    keys: &Keys,
    account: u64,
    host: u64,
) -> Result<(Credit, Credit), ProjectError> {
    let read = |key: Vec<u8>| Ok::<Credit, ProjectError>(txn.get("credit", &key)?.unwrap_or_default());
    Ok((read(keys.account_credit(account))?, read(keys.host_credit(host))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workunit::tests::workunit;
    use crate::workunit::{Job, Rules};

    #[test]
    fn a_day_of_a_gflops_is_200_and_no_claim_exceeds_the_workunits_bound() {
        let bound = Flops::new(1e15).unwrap();
        assert!((claim(Duration::from_hours(24), 1e9, bound) - 200.0).abs() < 1e-9);
        let most = 1e15 / (1e9 * DAY_SECS) * 200.0;
        assert_eq!(claim(Duration::from_hours(24 * 3_650), 1e12, bound), most);
        for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(claim(Duration::from_hours(1), nonsense, bound) <= most);
        }
    }

    #[test]
    fn the_lowest_of_two_claims_is_granted_and_of_more_the_mean_without_the_extremes() {
        assert_eq!(grant(vec![7.0]), 7.0);
        assert_eq!(grant(vec![9.0, 7.0]), 7.0);
        assert_eq!(grant(vec![1_000_000.0, 7.0, 9.0, 0.0]), 8.0);
    }

    #[test]
    fn r6_10_what_is_granted_is_raised_by_no_claims_of_copies_of_a_machine() {
        let rules = Rules { quorum: 2, initial_jobs: 4, max_error_jobs: 3, max_total_jobs: 9 };
        let mut workunit = workunit(rules);
        // A host and two copies of it against an honest one: host, account, voter, claim.
        let jobs = [(1, 1, 0, 90.0), (2, 2, 1, 95.0), (3, 3, 1, 80.0), (4, 4, 0, 7.0)];
        for (job, (host, account, voter, claimed)) in workunit.jobs.iter_mut().zip(jobs) {
            let validation = Some(Validation::Valid);
            *job = Job { host, account, voter, claimed, validation, ..Job::unsent(job.index) };
        }
        assert_eq!(claims(&workunit), [80.0, 7.0]);
        assert_eq!(grant(claims(&workunit)), 7.0);
        // Of accounts that nobody knows each host is one.
        workunit.jobs.iter_mut().for_each(|job| (job.account, job.voter) = (0, 0));
        assert_eq!(claims(&workunit), [90.0, 95.0, 80.0, 7.0]);
    }

    #[test]
    fn the_average_of_steady_work_is_its_rate_and_fades_by_half_in_a_week() {
        let (mut credit, mut now) = (Credit::default(), Instant::EPOCH);
        for _ in 0..24 * 70 {
            let begun = now;
            now = now + Duration::from_hours(1);
            credit = credit.with(10.0, begun, now);
        }
        assert_eq!(credit.total, 16_800.0);
        assert!((credit.recent_at(now) - 240.0).abs() < 1.0, "{}", credit.recent_at(now));
        let week = now + Duration::from_hours(7 * 24);
        assert!((credit.recent_at(week) - credit.recent_at(now) / 2.0).abs() < 1e-6);
    }
}
