//! Which of two values of a preference is the tighter one: under which less is done.
//!
//! Each of these gives the value under both, if that is another than the first.

use std::collections::BTreeSet;

use fallow_domain::Hours;

/// The lower one.
pub(crate) fn less<T: PartialOrd + Clone>(now: &T, limit: &T) -> Option<T> {
    (limit < now).then(|| limit.clone())
}

/// The higher one.
pub(crate) fn more<T: PartialOrd + Clone>(now: &T, limit: &T) -> Option<T> {
    (limit > now).then(|| limit.clone())
}

/// The lower one, where nothing is no limit.
pub(crate) fn less_if_any<T: PartialOrd + Clone>(now: &Option<T>, limit: &Option<T>) -> Option<Option<T>> {
    match (now, limit) {
        (_, None) => None,
        (None, Some(limit)) => Some(Some(limit.clone())),
        (Some(now), Some(limit)) => less(now, limit).map(Some),
    }
}

/// The higher one, where nothing is no limit.
pub(crate) fn more_if_any<T: PartialOrd + Clone>(now: &Option<T>, limit: &Option<T>) -> Option<Option<T>> {
    match (now, limit) {
        (_, None) => None,
        (None, Some(limit)) => Some(Some(limit.clone())),
        (Some(now), Some(limit)) => more(now, limit).map(Some),
    }
}

/// What is switched on stays on.
pub(crate) fn on(now: &bool, limit: &bool) -> Option<bool> {
    (*limit && !*now).then_some(true)
}

/// What is switched off stays off.
pub(crate) fn off(now: &bool, limit: &bool) -> Option<bool> {
    (!*limit && *now).then_some(false)
}

/// The hours that both have.
pub(crate) fn in_both(now: &Hours, limit: &Hours) -> Option<Hours> {
    if limit.is_always() || now.is_never() {
        return None;
    }
    let both = now.and(limit);
    // The same hours may be written in two ways.
    (both != now.and(now) && both != *now).then_some(both)
}

/// What either names.
pub(crate) fn all_of_both<T: Ord + Clone>(now: &BTreeSet<T>, limit: &BTreeSet<T>) -> Option<BTreeSet<T>> {
    (!limit.is_subset(now)).then(|| now.union(limit).cloned().collect())
}

/// It is no limit: less of it is not less done.
pub(crate) fn neither<T>(_now: &T, _limit: &T) -> Option<T> {
    None
}

/// What both name, where nothing said is no limit.
pub(crate) fn those_of_both<T: Ord + Clone>(
    now: &Option<BTreeSet<T>>,
    limit: &Option<BTreeSet<T>>,
) -> Option<Option<BTreeSet<T>>> {
    match (now, limit) {
        (_, None) => None,
        (None, Some(limit)) => Some(Some(limit.clone())),
        (Some(now), Some(limit)) => {
            (!now.is_subset(limit)).then(|| Some(now.intersection(limit).cloned().collect()))
        }
    }
}
