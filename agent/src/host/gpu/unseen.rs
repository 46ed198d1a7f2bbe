//! Programs on a device that cannot be looked into: those of other users, where the agent is not root
//! (R3.14).
//!
//! Model: the kernel says of a card of AMD's how much of its memory is in use and how busy it is, by all
//! together. What those processes hold that can be seen is no secret; the rest is somebody's. That says
//! nothing while a task of ours is on the device whose part cannot be seen.

use std::collections::BTreeSet;

use fallow_client::DeviceUser;
use fallow_domain::{Bytes, ResourceType};

use super::{Load, Look};

/// A device that is as busy as this, of a hundred, without a task of ours on it, is in use.
pub(super) const BUSY: u8 = 50;
/// Shown in place of its name.
const NAME: &str = "a program that cannot be seen";

/// The device of each that is used so. `strangers` are those that can be seen and are not ours, `held` the
/// devices on which tasks of ours are.
pub fn unseen(
    look: &Look,
    strangers: &[DeviceUser],
    held: &BTreeSet<(ResourceType, String)>,
) -> Vec<DeviceUser> {
    let of = |load: &Load| {
        let here = look.processes.iter().filter(|one| one.kind == load.kind && one.address == load.address);
        let is_ours = |pid: u32| !strangers.iter().any(|one| one.process == pid);
        let ours = here.clone().any(|one| is_ours(one.pid));
        let is_held = held.contains(&(load.kind, load.address.clone()));
        if is_held && !ours {
            return None;
        }
        let seen = here.filter_map(|one| one.memory).fold(Bytes(0), Bytes::plus);
        let rest = load.used.map(|used| Bytes(used.0.saturating_sub(seen.0)));
        let computes = !is_held && !ours && load.busy.is_some_and(|busy| busy >= BUSY);
        (computes || rest.is_some()).then(|| DeviceUser {
            kind: load.kind,
            address: load.address.clone(),
            process: 0,
            name: NAME.to_owned(),
            draws: !computes,
            memory: rest,
        })
    };
    look.loads.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::gpu::OnDevice;

    const AMD: ResourceType = ResourceType::Amd;

    fn found(busy: u8, seen: &[(u32, u64)], strangers: &[u32], held: bool) -> Option<(bool, u64)> {
        let address = "0000:03:00.0".to_owned();
        let on = |(pid, mebibytes): &(u32, u64)| OnDevice {
            kind: AMD,
            address: address.clone(),
            pid: *pid,
            draws: true,
            memory: Some(Bytes::from_mebibytes(*mebibytes)),
        };
        let used = Some(Bytes::from_mebibytes(1_000));
        let look = Look {
            processes: seen.iter().map(on).collect(),
            loads: vec![Load { kind: AMD, address: address.clone(), used, busy: Some(busy) }],
            ..Look::default()
        };
        let stranger = |process: &u32| DeviceUser {
            kind: AMD,
            address: address.clone(),
            process: *process,
            name: String::new(),
            draws: true,
            memory: None,
        };
        let strangers: Vec<DeviceUser> = strangers.iter().map(stranger).collect();
        let held = held.then(|| (AMD, address.clone())).into_iter().collect();
        let users = unseen(&look, &strangers, &held);
        users.first().map(|user| (user.draws, user.memory.unwrap().0 >> 20))
    }

    #[test]
    fn r3_14_what_nobody_that_can_be_seen_holds_of_a_device_is_somebodys() {
        assert_eq!(found(0, &[], &[], false), Some((true, 1_000)));
        assert_eq!(found(0, &[(7, 300)], &[7], false), Some((true, 700)));
        assert_eq!(found(0, &[(7, 300)], &[], true), Some((true, 700)), "beside a task of ours");
        assert_eq!(found(0, &[], &[], true), None, "it may be our task's");
        assert_eq!(found(0, &[(7, 300)], &[7], true), None, "so may this be");
    }

    #[test]
    fn r3_14_a_busy_device_without_a_task_of_ours_is_in_use() {
        assert_eq!(found(49, &[], &[], false), Some((true, 1_000)));
        assert_eq!(found(50, &[], &[], false), Some((false, 1_000)));
        assert_eq!(found(99, &[(7, 300)], &[], true), Some((true, 700)), "it is our task that computes");
    }
}
