//! The most that what is in a group can have, with all groups above it.

use std::path::Path;

use super::{Group, mounts, path_in, place};

/// What bounds memory: where `memory.high` is passed, the kernel ends nothing, but holds everything up.
pub const MEMORY: &[&str] = &["memory.max", "memory.high"];
/// What bounds processes and threads.
pub const PROCESSES: &[&str] = &["pids.max"];

/// So much memory of what is above the agent's group stays the agent's own, whatever all tasks take, and as
/// much again for the other tasks, whatever a single one takes: that one comes to its own end first.
pub const OTHERS_MEMORY: u64 = 64 << 20;

/// Less than the ceiling by so many parts, each no more than a quarter of it.
pub fn below(ceiling: u64, part: u64, parts: u64) -> u64 {
    ceiling - part.min(ceiling / 4) * parts
}

/// The most memory that the kernel gives a single task, where all of the agent has no more than the ceiling.
pub fn memory_of_a_task(ceiling: u64) -> u64 {
    below(ceiling, OTHERS_MEMORY, 2)
}

impl Group {
    /// The least that these files of it and of those above it say, as far as these can be seen; the memory in
    /// bytes. None where nothing is bounded. It can be changed at any time.
    pub fn ceiling(&self, files: &[&str]) -> Option<u64> {
        // A job may have closed its own, but none above it.
        let own = files.iter().filter_map(|file| self.read(file).ok());
        let above = self.path().ancestors().skip(1).take_while(|place| place.join("cgroup.procs").exists());
        let above = above.flat_map(|place| files.iter().map(move |file| place.join(file)));
        let above = above.filter_map(|path| std::fs::read_to_string(path).ok());
        own.chain(above).filter_map(|most| most.trim().parse().ok()).min()
    }
}

/// The same of the group that this process is in. None where version 2 has none, or it cannot be seen.
pub fn own_ceiling(files: &[&str]) -> Option<u64> {
    let text = |name: &str| crate::proc::text(Path::new("/proc/self").join(name)).unwrap_or_default();
    let place = place(&mounts(&text("mountinfo")), &path_in(&text("cgroup"))?)?;
    Group::open(&place).ok()?.ceiling(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_the_least_that_a_group_and_those_above_it_say() {
        let dir = tempfile::tempdir().unwrap();
        let (slice, unit) = (dir.path().join("slice"), dir.path().join("slice/unit"));
        std::fs::create_dir_all(&unit).unwrap();
        let says = |place: &Path, file: &str, text: &str| std::fs::write(place.join(file), text).unwrap();
        // What is above the groups says nothing.
        says(dir.path(), "memory.max", "1\n");
        for place in [&slice, &unit] {
            says(place, "cgroup.procs", "");
            says(place, "memory.max", "max\n");
        }
        let ceiling = |files| Group::open(&unit).unwrap().ceiling(files);
        assert_eq!((ceiling(MEMORY), ceiling(PROCESSES)), (None, None));
        says(&slice, "memory.max", "4000\n");
        assert_eq!(ceiling(MEMORY), Some(4000));
        says(&unit, "memory.max", "3000\n");
        says(&unit, "pids.max", "70\n");
        assert_eq!((ceiling(MEMORY), ceiling(PROCESSES)), (Some(3000), Some(70)));
        // Memory that is reclaimed from it holds the agent up before it comes to the end.
        says(&slice, "memory.high", "2000\n");
        says(&unit, "memory.high", "max\n");
        assert_eq!((ceiling(MEMORY), ceiling(PROCESSES)), (Some(2000), Some(70)));
    }
}
