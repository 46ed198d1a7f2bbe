//! Which control group is the agent's to divide, and the agent's way into one below it and back.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cgroup::{self, Group};
use crate::proc;

/// The beginning of the name of the group that the agent itself is in.
const AGENT: &str = "fallow-agent-";
/// How long it may take to remove that.
const LEFT: Duration = Duration::from_secs(1);

/// Whether a group is called as those that agents move into (see [`moved`]): another may begin like that.
pub(super) fn is_agents(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = name.strip_prefix(AGENT).and_then(|rest| rest.split_once('.'));
    numbers.is_some_and(|(pid, start)| is_number(pid) && is_number(start))
}

/// Leaves a group below its own, which is not divided any more.
pub(super) fn move_back(own: &Group, leaf: &str) {
    if own.write("cgroup.procs", "0").is_ok() {
        // The guard may be in it yet.
        let _ = own.remove(leaf, Instant::now() + LEFT);
    }
}

/// Finds the group of this process and moves into one below it. Returns the first, and the name of the
/// second.
pub(super) fn moved() -> Result<(Group, String), String> {
    let pid = std::process::id();
    let leaf = format!("{AGENT}{pid}.{}", proc::find(pid).map_or(0, |me| me.start));
    let text = |name: &str| proc::text(format!("/proc/self/{name}")).unwrap_or_default();
    let mounts = cgroup::mounts(&text("mountinfo"));
    let path = cgroup::path_in(&text("cgroup"));
    let Some(path) = path.filter(|_| !mounts.is_empty()) else {
        return Err("this system has no control groups of version 2".into());
    };
    // It has moved already, and began anew by executing itself.
    let is_in_leaf = path.file_name().is_some_and(|name| name == leaf.as_str());
    let own = if is_in_leaf { path.parent().unwrap_or(&path) } else { &path };
    let Some(place) = cgroup::place(&mounts, own) else {
        return Err(format!("the agent's control group {} cannot be seen from here", own.display()));
    };
    let own =
        Group::open(&place).map_err(|error| format!("{} cannot be opened: {error}", place.display()))?;
    if is_in_leaf {
        return Ok((own, leaf));
    }
    may_divide(&own, pid)?;
    // It is there where this process had it before, and left its guard in it.
    let below = own.child(&leaf).or_else(|_| own.make(&leaf)).map_err(|error| may_not(&own, &error))?;
    if let Err(error) = below.write("cgroup.procs", "0") {
        let _ = own.remove(&leaf, Instant::now() + LEFT);
        return Err(format!("the agent cannot move into {}: {error}", below.path().display()));
    }
    Ok((own, leaf))
}

/// Whether a group is this process's own to divide.
fn may_divide(own: &Group, pid: u32) -> Result<(), String> {
    let place = own.path().display();
    if !own.has("cgroup.events") {
        return Err("the agent is in no control group of its own, but in that of the whole machine".into());
    }
    let kind = own.read("cgroup.type").map_err(|error| format!("{place} cannot be read: {error}"))?;
    if kind.trim() != "domain" {
        return Err(format!("the agent's control group {place} is of the kind \"{}\"", kind.trim()));
    }
    let all = own.processes().map_err(|error| format!("{place} cannot be read: {error}"))?;
    if let Some(other) = all.iter().find(|&&other| other != pid) {
        return Err(format!(
            "other processes are in the agent's control group {place}, too, such as {other}"
        ));
    }
    if own.has_unseen().map_err(|error| format!("{place} cannot be read: {error}"))? {
        return Err(format!(
            "processes that cannot be seen from here are in the agent's control group {place}, too"
        ));
    }
    if !is_handed_over(own) {
        return Err(format!("systemd does not say that {place} is handed over to the agent (Delegate=)"));
    }
    Ok(())
}

/// Whether systemd, where it manages groups, leaves this one to whoever is in it: it says so itself, or has
/// given the group to a user who does not have the one above. Where what is above is no group (a container
/// may see none above the agent's), nothing follows from whose that is.
fn is_handed_over(own: &Group) -> bool {
    if !Path::new("/run/systemd/system").exists() {
        return true;
    }
    let says = |name: &str| {
        let mut value = [0; 8];
        let len = rustix::fs::fgetxattr(own, name, &mut value[..]).unwrap_or(0);
        value.get(..len) == Some(b"1")
    };
    let owner = |place: &Path| std::fs::metadata(place).map(|data| data.uid()).ok();
    let me = Some(rustix::process::geteuid().as_raw());
    let above = own.path().parent().filter(|above| above.join("cgroup.procs").exists()).and_then(owner);
    let is_given = owner(own.path()) == me && above.is_some() && above != me;
    says("user.delegate") || says("trusted.delegate") || is_given
}

pub(super) fn may_not(own: &Group, error: &io::Error) -> String {
    format!("the agent may not make control groups in {}: {error}", own.path().display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_a_process_and_its_start_are_agents() {
        let names = ["1.1", "23.456", "1", "1.", ".1", "1.1.1", "1.service", "x.1", ""];
        let are = names.map(|name| is_agents(&format!("{AGENT}{name}")));
        assert_eq!(are, [true, true, false, false, false, false, false, false, false]);
    }
}
