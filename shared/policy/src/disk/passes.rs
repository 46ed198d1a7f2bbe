//! The passes in which the server looks for jobs, by the amounts of free space in a request (R4.10).
//!
//! The first pass counts on what is free. If it assigns no job, the second counts on what would be free if
//! other projects' files were deleted. If that assigns none either, and the project allows it, the third
//! counts on what would be free if the project's own files were deleted too. So a host deletes nothing for a
//! job when it could have had another one without that.

use std::fmt;

use fallow_domain::Bytes;

use super::report::DiskReport;

/// With which amount jobs are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpacePass {
    /// What is free.
    Free,
    /// What would be free if offenders gave way.
    WithOffenders,
    /// What would be free if the project's own files went too.
    WithSelf,
}

/// The three amounts as a request carried them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedSpace {
    /// Free now.
    pub free: Bytes,
    /// Free if offenders gave way.
    pub with_offenders: Bytes,
    /// Free if the project's own files went too.
    pub with_self: Bytes,
}

impl ReportedSpace {
    /// A client that tells one amount deletes nothing for anybody.
    pub const fn only(free: Bytes) -> Self {
        Self { free, with_offenders: free, with_self: free }
    }

    /// The passes to make, in order, with the space in each. A pass with no more space than the one before
    /// could find nothing new and is left out. `delete_from_self` is what the project set (BOINC:
    /// `delete_from_self`).
    pub fn passes(&self, delete_from_self: bool) -> impl Iterator<Item = (SpacePass, Bytes)> + use<> {
        let (first, second) = (self.free, self.with_offenders.max(self.free));
        let third =
            (delete_from_self && self.with_self > second).then_some((SpacePass::WithSelf, self.with_self));
        let second = (second > first).then_some((SpacePass::WithOffenders, second));
        std::iter::once((SpacePass::Free, first)).chain(second).chain(third)
    }

    /// Makes the passes until one assigns something. `assign` is told the pass and the space, and returns
    /// what it assigned: nothing is an empty list.
    ///
    /// # Errors
    /// The first that `assign` returns.
    pub fn assign<T, E>(
        &self,
        delete_from_self: bool,
        mut assign: impl FnMut(SpacePass, Bytes) -> Result<Vec<T>, E>,
    ) -> Result<Option<(SpacePass, Vec<T>)>, E> {
        for (pass, space) in self.passes(delete_from_self) {
            let assigned = assign(pass, space)?;
            if !assigned.is_empty() {
                return Ok(Some((pass, assigned)));
            }
        }
        Ok(None)
    }
}

impl From<DiskReport> for ReportedSpace {
    fn from(report: DiskReport) -> Self {
        let DiskReport { free, with_offenders, with_self, .. } = report;
        Self { free, with_offenders, with_self }
    }
}

impl fmt::Display for SpacePass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "by the space that is free",
            Self::WithOffenders => "by the space that is free once projects above their limits give way",
            Self::WithSelf => "by the space that is free once the project's own unneeded files go too",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const AMOUNTS: ReportedSpace =
        ReportedSpace { free: Bytes(10), with_offenders: Bytes(20), with_self: Bytes(30) };

    /// Assigns those of the jobs that fit on the disk; returns the pass and what it assigned.
    fn assign(amounts: ReportedSpace, from_self: bool, jobs: &[u64]) -> Option<(SpacePass, Vec<u64>)> {
        let fitting = |_: SpacePass, space: Bytes| {
            Ok::<_, Infallible>(jobs.iter().copied().filter(|job| *job <= space.0).collect())
        };
        amounts.assign(from_self, fitting).unwrap()
    }

    #[test]
    fn r4_10_a_later_pass_is_made_only_if_the_one_before_assigns_nothing() {
        let check = |from_self, jobs: &[u64], expected: Option<(SpacePass, Vec<u64>)>| {
            assert_eq!(assign(AMOUNTS, from_self, jobs), expected);
        };
        check(true, &[5, 15, 25], Some((SpacePass::Free, vec![5])));
        check(true, &[15, 25], Some((SpacePass::WithOffenders, vec![15])));
        check(true, &[25, 35], Some((SpacePass::WithSelf, vec![25])));
        check(true, &[35], None);
        check(false, &[25], None);
    }

    #[test]
    fn r4_10_a_pass_that_can_find_nothing_new_is_left_out() {
        let passes = |amounts: ReportedSpace| amounts.passes(true).map(|(pass, _)| pass).collect::<Vec<_>>();
        assert_eq!(passes(ReportedSpace::only(Bytes(10))), [SpacePass::Free]);
        assert_eq!(
            passes(ReportedSpace { with_offenders: Bytes(10), ..AMOUNTS }),
            [SpacePass::Free, SpacePass::WithSelf]
        );
        // A client that counts otherwise does not confuse us.
        assert_eq!(
            passes(ReportedSpace { with_offenders: Bytes(5), with_self: Bytes(7), ..AMOUNTS }),
            [SpacePass::Free]
        );
    }

    #[test]
    fn r4_10_an_error_ends_the_passes() {
        let mut asked = 0;
        let result = AMOUNTS.assign(true, |_, _| {
            asked += 1;
            Err::<Vec<u8>, _>("no database")
        });
        assert_eq!((result, asked), (Err("no database"), 1));
    }
}
