//! Accounts that ask for the same and are much alike, in the orders in which few of them need to be looked at.

use std::collections::BTreeSet;

use fallow_domain::Instant;

use super::scheduler::{Means, SIZES};

/// Members that are looked at one by one, in each order.
const LOOKED_AT: usize = 64;

/// Accounts that ask for the same types and are much alike.
#[derive(Debug, Default)]
pub(super) struct Class {
    /// Each with when it last could have taken more and got nothing: those that never did come first.
    members: BTreeSet<(Option<Instant>, u64)>,
    /// What one of them is; none if nothing is known of any.
    like: Option<Means>,
    /// Each by each of its sizes.
    by_size: [BTreeSet<(u64, u64)>; SIZES],
}

/// Whether a class has a member that could run a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    No,
    Yes,
    /// So many would have to be looked at that nobody did.
    Unsure,
}

impl Class {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn add(&mut self, account: u64, left: Option<Instant>, means: Option<&Means>) {
        self.members.insert((left, account));
        if let Some(means) = means {
            self.like.get_or_insert_with(|| means.clone());
            for (order, size) in self.by_size.iter_mut().zip(means.sizes()) {
                order.insert((size, account));
            }
        }
    }

    pub(super) fn remove(&mut self, account: u64, left: Option<Instant>, means: Option<&Means>) {
        self.members.remove(&(left, account));
        if let Some(means) = means {
            for (order, size) in self.by_size.iter_mut().zip(means.sizes()) {
                order.remove(&(size, account));
            }
        }
    }

    /// Whether a member could run a job, of those that have had no copy and did not go away with nothing since it waits. `of`
    /// gives when a member last did that, and what it is.
    pub(super) fn find<'s>(
        &self,
        had: &BTreeSet<u64>,
        since: Instant,
        can: impl Fn(&Means) -> bool,
        of: impl Fn(u64) -> Option<(Option<Instant>, &'s Means)>,
    ) -> Found {
        let is_before = |left: Option<Instant>| left.is_none_or(|at| at < since);
        // Whoever went away with nothing since then comes last.
        let left = self.members.iter().take_while(|(left, _)| is_before(*left));
        let mut left = left.map(|(_, account)| *account).filter(|account| !had.contains(account)).peekable();
        if left.peek().is_none() {
            return Found::No;
        }
        let Some(like) = &self.like else { return Found::Yes };
        let [least, most] = [BTreeSet::first, BTreeSet::last].map(|end| self.at(end, like));
        if !can(&most) {
            return Found::No;
        }
        let can_account = |account| of(account).is_none_or(|(_, means)| can(means));
        if can(&least) || left.by_ref().take(LOOKED_AT).any(can_account) {
            return Found::Yes;
        }
        if left.peek().is_none() {
            return Found::No;
        }
        let may = |account: u64| {
            !had.contains(&account) && of(account).is_none_or(|(left, means)| is_before(left) && can(means))
        };
        let mut orders =
            (0..SIZES).map(|place| self.find_by_size(place, (&least, &most), had.len(), &can, may));
        orders.find(|found| *found != Found::Unsure).unwrap_or(Found::Unsure)
    }

    /// The same by one size, from the largest on: behind one that is too small, whatever else it has, all are.
    fn find_by_size(
        &self,
        place: usize,
        (least, most): (&Means, &Means),
        had: usize,
        can: impl Fn(&Means) -> bool,
        may: impl Fn(u64) -> bool,
    ) -> Found {
        let mut bound = most.clone();
        bound.set_size(place, least.sizes()[place]);
        if can(&bound) {
            // This size decides nothing.
            return Found::Unsure;
        }
        for (size, account) in self.by_size[place].iter().rev().take(LOOKED_AT + had) {
            bound.set_size(place, *size);
            if !can(&bound) {
                return Found::No;
            }
            if may(*account) {
                return Found::Yes;
            }
        }
        Found::Unsure
    }

    /// What would have all sizes of one end.
    fn at(&self, end: impl Fn(&BTreeSet<(u64, u64)>) -> Option<&(u64, u64)>, like: &Means) -> Means {
        let mut means = like.clone();
        for (place, order) in self.by_size.iter().enumerate() {
            if let Some((size, _)) = end(order) {
                means.set_size(place, *size);
            }
        }
        means
    }
}
