//! The accounts of one host class, in the orders in which few of them need to be looked at.

use std::collections::BTreeSet;

use fallow_domain::{Instant, PerType, ResourceType};

use super::host_limits::{HostLimits, SIZES};

/// Members that are looked at one by one, in each order.
const LOOKED_AT: usize = 64;

/// Accounts that ask for the same types and whose hosts are of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct HostClassMembers {
    /// By each type that they ask for, each with when it last could have taken more of that and got
    /// nothing: those that never did come first.
    members: PerType<BTreeSet<(Option<Instant>, u64)>>,
    /// A sample member's limits; none as long as no member's are known.
    sample: Option<HostLimits>,
    /// Each by each of its sizes.
    by_size: [BTreeSet<(u64, u64)>; SIZES],
}

/// When an account last got nothing, of each type that it asks for.
pub(super) type Left = Vec<(ResourceType, Option<Instant>)>;

/// Whether a class has a member that could run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feasible {
    No,
    Yes,
    /// Too many members to check; undecided.
    Unknown,
}

impl HostClassMembers {
    pub(super) fn is_empty(&self) -> bool {
        self.members.iter().all(|(_, members)| members.is_empty())
    }

    /// `left` is when it last got nothing, of the types that the class asks for.
    pub(super) fn add(&mut self, account: u64, left: Left, limits: Option<&HostLimits>) {
        for (kind, left) in left {
            self.members[kind].insert((left, account));
        }
        if let Some(limits) = limits {
            self.sample.get_or_insert_with(|| limits.clone());
            for (order, size) in self.by_size.iter_mut().zip(limits.sizes()) {
                order.insert((size, account));
            }
        }
    }

    pub(super) fn remove(&mut self, account: u64, left: Left, limits: Option<&HostLimits>) {
        for (kind, left) in left {
            self.members[kind].remove(&(left, account));
        }
        if let Some(limits) = limits {
            for (order, size) in self.by_size.iter_mut().zip(limits.sizes()) {
                order.remove(&(size, account));
            }
        }
    }

    /// Whether a member could run a job, of those that have had no copy and did not go away with nothing
    /// since it waits. The job is of these types. `of` gives when a member last did that with all of them,
    /// and what it is. `has_had` says who has had a copy: about so many (`had`), or more where some count
    /// as one; then not all of them are passed over.
    pub(super) fn find<'s>(
        &self,
        types: &PerType<bool>,
        (had, has_had): (usize, impl Fn(u64) -> bool),
        since: Instant,
        can: impl Fn(&HostLimits) -> bool,
        of: impl Fn(u64) -> Option<(Option<Instant>, &'s HostLimits)>,
    ) -> Feasible {
        let ends = self
            .sample
            .as_ref()
            .map(|sample| [BTreeSet::first, BTreeSet::last].map(|end| self.at(end, sample)));
        if ends.as_ref().is_some_and(|[_, most]| !can(most)) {
            return Feasible::No;
        }
        let is_before = |left: Option<Instant>| left.is_none_or(|at| at < since);
        let most_passed = 2 * LOOKED_AT + had;
        // Whoever went away with nothing since then comes last.
        let members = || self.members.iter().filter(|(kind, _)| types[*kind]);
        let left = || members().map(|(_, of)| of.iter().take_while(|(left, _)| is_before(*left)));
        let is_cut = left().any(|mut left| left.nth(most_passed).is_some());
        let left = left().flat_map(|left| left.take(most_passed)).map(|(_, account)| *account);
        let mut left = left.filter(|account| !has_had(*account)).peekable();
        if left.peek().is_none() && !is_cut {
            return Feasible::No;
        }
        let Some([least, most]) = ends else {
            return if left.peek().is_some() { Feasible::Yes } else { Feasible::Unknown };
        };
        let can_account = |account| of(account).is_none_or(|(_, limits)| can(limits));
        if left.peek().is_some() && can(&least) || left.by_ref().take(LOOKED_AT).any(can_account) {
            return Feasible::Yes;
        }
        if left.peek().is_none() && !is_cut {
            return Feasible::No;
        }
        let may = |account: u64| {
            !has_had(account) && of(account).is_none_or(|(left, limits)| is_before(left) && can(limits))
        };
        let mut orders = (0..SIZES).map(|place| self.find_by_size(place, (&least, &most), had, &can, may));
        orders.find(|found| *found != Feasible::Unknown).unwrap_or(Feasible::Unknown)
    }

    /// As [`HostClassMembers::find`], in descending order of one size: once that size alone is too small, no
    /// later member can run it.
    fn find_by_size(
        &self,
        place: usize,
        (least, most): (&HostLimits, &HostLimits),
        had: usize,
        can: impl Fn(&HostLimits) -> bool,
        may: impl Fn(u64) -> bool,
    ) -> Feasible {
        let mut bound = most.clone();
        bound.set_size(place, least.sizes()[place]);
        if can(&bound) {
            // This size decides nothing.
            return Feasible::Unknown;
        }
        for (size, account) in self.by_size[place].iter().rev().take(LOOKED_AT + had) {
            bound.set_size(place, *size);
            if !can(&bound) {
                return Feasible::No;
            }
            if may(*account) {
                return Feasible::Yes;
            }
        }
        Feasible::Unknown
    }

    /// A hypothetical host with the smallest, or the largest, value of every size in the class.
    fn at(
        &self,
        end: impl Fn(&BTreeSet<(u64, u64)>) -> Option<&(u64, u64)>,
        sample: &HostLimits,
    ) -> HostLimits {
        let mut limits = sample.clone();
        for (place, order) in self.by_size.iter().enumerate() {
            if let Some((size, _)) = end(order) {
                limits.set_size(place, *size);
            }
        }
        limits
    }
}
