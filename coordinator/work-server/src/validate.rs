//! From who agrees with whom to which job is canonical. Pure.

use std::collections::BTreeSet;

/// What comparing jobs' outputs said. Indexes are those of the workunit's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The job that was chosen, if a quorum agreed (or one was chosen before).
    pub(crate) canonical: Option<u32>,
    /// Those that agree with it, itself included.
    pub(crate) valid: Vec<u32>,
    /// Those that do not.
    pub(crate) invalid: Vec<u32>,
    /// All that were compared, if no quorum agreed.
    pub(crate) inconclusive: Vec<u32>,
    /// Those whose outputs are not there.
    pub(crate) unreadable: Vec<u32>,
}

/// Chooses the first job that jobs of `quorum` accounts, its own included, agree with. Several jobs of one
/// account count once: they are one opinion.
///
/// Agreement need not be transitive (a tolerant comparator's is not), which is why jobs are counted per
/// candidate and not put into classes. `agree` is asked at most once per pair and candidate.
pub(crate) fn check_set(
    readable: &[u32],
    quorum: usize,
    account_of: impl Fn(u32) -> u64,
    mut agree: impl FnMut(u32, u32) -> bool,
) -> Comparison {
    for &candidate in readable {
        let (valid, invalid): (Vec<u32>, Vec<u32>) =
            readable.iter().partition(|&&other| other == candidate || agree(candidate, other));
        if opinions(valid.iter().map(|index| account_of(*index)), quorum) >= quorum.max(1) {
            return Comparison { canonical: Some(candidate), valid, invalid, ..Comparison::default() };
        }
    }
    Comparison { inconclusive: readable.to_vec(), ..Comparison::default() }
}

/// How many opinions the jobs of these accounts are: one an account. Where several must agree, account 0 is
/// none: its key was known to many, so each of them may have an opinion of its own besides.
pub(crate) fn opinions(accounts: impl Iterator<Item = u64>, quorum: usize) -> usize {
    accounts.filter(|account| *account != 0 || quorum <= 1).collect::<BTreeSet<u64>>().len()
}

/// Compares jobs that came after the decision with the canonical one.
pub(crate) fn check_pair(
    canonical: u32,
    others: &[u32],
    mut agree: impl FnMut(u32, u32) -> bool,
) -> Comparison {
    let (mut valid, invalid): (Vec<u32>, Vec<u32>) =
        others.iter().filter(|&&other| other != canonical).partition(|&&other| agree(canonical, other));
    valid.push(canonical);
    Comparison { canonical: Some(canonical), valid, invalid, ..Comparison::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An account for each job.
    fn own(job: u32) -> u64 {
        u64::from(job) + 1
    }

    #[test]
    fn a_quorum_that_agrees_chooses_its_first_job() {
        // 0 computed something else; 1 and 2 agree.
        let comparison = check_set(&[0, 1, 2], 2, own, |a, b| a != 0 && b != 0);
        assert_eq!(comparison.canonical, Some(1));
        assert_eq!((comparison.valid, comparison.invalid), (vec![1, 2], vec![0]));
    }

    #[test]
    fn r6_8_jobs_of_one_account_are_one_opinion() {
        let comparison = check_set(&[0, 1], 2, |_| 7, |_, _| true);
        assert_eq!((comparison.canonical, comparison.inconclusive), (None, vec![0, 1]));
        let comparison = check_set(&[0, 1, 2], 2, |job| own(job / 2), |_, _| true);
        assert_eq!((comparison.canonical, comparison.valid), (Some(0), vec![0, 1, 2]));
    }

    #[test]
    fn r6_10_a_key_that_many_had_is_no_opinion_where_several_must_agree() {
        let account = |job: u32| u64::from(job);
        assert_eq!(check_set(&[0, 1], 2, account, |_, _| true).canonical, None);
        assert_eq!(check_set(&[0, 1, 2], 2, account, |_, _| true).canonical, Some(0));
        assert_eq!(check_set(&[0], 1, account, |_, _| true).canonical, Some(0));
    }

    #[test]
    fn without_a_quorum_nothing_is_chosen() {
        let comparison = check_set(&[0, 1], 2, own, |_, _| false);
        assert_eq!((comparison.canonical, comparison.inconclusive), (None, vec![0, 1]));
        assert_eq!(check_set(&[], 1, own, |_, _| true).canonical, None);
    }

    #[test]
    fn tolerant_agreement_is_counted_from_the_candidate() {
        // 0 ~ 1 ~ 2 but not 0 ~ 2: with a quorum of three, 1 is in the middle.
        let comparison = check_set(&[0, 1, 2], 3, own, |a, b| a.abs_diff(b) < 2);
        assert_eq!(comparison.canonical, Some(1));
    }

    #[test]
    fn a_late_job_is_compared_with_the_canonical_one_only() {
        let comparison = check_pair(3, &[3, 5, 6], |_, other| other == 5);
        assert_eq!((comparison.valid, comparison.invalid), (vec![5, 3], vec![6]));
    }
}
