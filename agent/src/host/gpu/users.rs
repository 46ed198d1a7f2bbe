//! Which processes on devices are none of our tasks'.

use std::collections::BTreeSet;
use std::path::Path;

use fallow_client::DeviceUser;
use fallow_domain::printable;

use super::OnDevice;
use crate::proc;

/// Longest name of a program that is kept, in bytes.
const NAME_MAX: usize = 64;
/// So many parents of a process are looked at.
const PARENTS_MAX: usize = 64;

/// Those of the processes that belong to nobody of ours. Ours are those that carry the mark of this data
/// directory's tasks, and those that descend from the tasks' first processes, `leaders`. What is gone by now
/// is left out.
pub fn strangers(on_devices: &[OnDevice], leaders: &BTreeSet<u32>, dir: &Path) -> Vec<DeviceUser> {
    let mark = format!("{}:", dir.display());
    let ours = |pid: u32| descends(pid, leaders) || !proc::marked(proc::find(pid), &mark).is_empty();
    let of = |one: &OnDevice| {
        let process = proc::find(one.pid).filter(|process| !process.zombie)?;
        (!ours(process.pid)).then(|| DeviceUser {
            kind: one.kind,
            address: one.address.clone(),
            process: one.pid,
            name: name(one.pid),
            draws: one.draws,
            memory: one.memory,
        })
    };
    on_devices.iter().filter_map(of).collect()
}

fn descends(pid: u32, leaders: &BTreeSet<u32>) -> bool {
    let mut at = pid;
    for _ in 0..PARENTS_MAX {
        let Some(process) = proc::find(at) else { return false };
        if leaders.contains(&process.pid) || leaders.contains(&process.session) {
            return true;
        }
        if process.parent <= 1 {
            return false;
        }
        at = process.parent;
    }
    false
}

fn name(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = printable::line(String::from_utf8_lossy(&name).trim(), NAME_MAX);
    if name.is_empty() { "a program".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use fallow_domain::ResourceType;

    use super::*;

    #[test]
    fn r3_14_a_process_below_a_tasks_first_one_is_ours_and_no_other() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let on = OnDevice {
            kind: ResourceType::Nvidia,
            address: "0000:01:00.0".into(),
            pid: child.id(),
            draws: false,
            memory: None,
        };
        let nowhere = Path::new("/no/such/agent");
        let found = |leaders: BTreeSet<u32>| {
            let users = strangers(std::slice::from_ref(&on), &leaders, nowhere);
            users.into_iter().map(|user| user.process).collect::<Vec<_>>()
        };
        let (none, by_parent) = (found(BTreeSet::new()), found([std::process::id()].into()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((none, by_parent), (vec![child.id()], Vec::new()));
        assert_eq!(found(BTreeSet::new()), Vec::<u32>::new(), "it is gone");
    }
}
