//! Of which types there is no chance to get work: what work held ahead insures against (`droughts`).
//!
//! Nobody who might have some can be asked: projects do not answer, had none lately, or want no request yet.
//! A project that has work which would be late here is there all the same: to hold more work would make it
//! later still.

use fallow_domain::{PerType, ResourceType};

use super::{FetchContact, FetchProject};

/// The types of which work is wanted and nobody can be asked who might have some. `each` tells of each
/// project whether it may be contacted.
pub fn unserved<'a>(
    wanted: PerType<bool>,
    each: &(impl Iterator<Item = (&'a FetchProject, &'a FetchContact)> + Clone),
) -> PerType<bool> {
    PerType::from_fn(|kind| {
        let is_missed = || each.clone().any(|(project, contact)| is_missed(project, contact, kind));
        let is_there = || each.clone().any(|(project, contact)| may_be_asked(project, contact, kind));
        wanted[kind] && is_missed() && !is_there()
    })
}

/// Whether a project may be asked for a type now.
pub(super) fn may_be_asked(project: &FetchProject, contact: &FetchContact, kind: ResourceType) -> bool {
    contact.may_contact && may_supply(project, contact, kind)
}

/// Whether it may have work of a type that the host may take.
pub(super) fn may_supply(project: &FetchProject, contact: &FetchContact, kind: ResourceType) -> bool {
    !project.detach_when_done && !contact.at_limit && !project.closed(contact)[kind]
}

/// Whether it would have been asked for a type if it could be reached, or had any.
fn is_missed(project: &FetchProject, contact: &FetchContact, kind: ResourceType) -> bool {
    let FetchProject { detach_when_done, lacks, left_out, unrunnable, share, .. } = project;
    let never = *detach_when_done || lacks[kind] || left_out[kind] || unrunnable[kind];
    !never && !contact.at_limit && !contact.has_work[kind] && share.get() > 0.0
}
