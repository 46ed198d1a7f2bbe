//! Which of some programs run: by the names of their files, as processes give them.

use std::collections::BTreeSet;
use std::fs;

use crate::brand::Brand;
use crate::proc::{self, Process};

/// The longest name that the kernel keeps of a process.
const NAME_KEPT: usize = 15;

/// One of these programs, if any runs. Tasks of the agent whose marks begin with `mark` are none, whatever
/// they call themselves: also processes of theirs that have cleared their environment, which are known by
/// their number.
pub(super) fn running(programs: &BTreeSet<String>, mark: &str) -> Option<String> {
    if programs.is_empty() {
        return None;
    }
    let brand = Brand::of_agent(mark);
    let is_task = |process: Process| brand.is_on(&process) || !proc::marked([process], mark).is_empty();
    let living = proc::all().into_iter().filter(|process| !process.zombie);
    let mut found = living.filter_map(|process| Some((process, named(process.pid, programs)?)));
    found.find(|(process, _)| !is_task(*process)).map(|(_, name)| name)
}

fn named(pid: u32, programs: &BTreeSet<String>) -> Option<String> {
    let kept = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    let file = first.rsplit('/').next().unwrap_or_default();
    programs.iter().find(|program| is(program, kept.trim_end(), file)).cloned()
}

/// Whether a program is one that is called so by the kernel, or by how it was started.
fn is(program: &str, kept: &str, file: &str) -> bool {
    let cut = program.get(..NAME_KEPT.min(program.len())).unwrap_or(program);
    file.eq_ignore_ascii_case(program)
        || (kept.eq_ignore_ascii_case(cut) && (cut.len() == program.len() || file.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn r6_4_a_program_is_known_by_the_name_of_its_file_and_a_task_is_none() {
        let name = format!("exclusive{}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(&name);
        fs::copy("/bin/sleep", &program).unwrap();
        let wanted: BTreeSet<String> = [name.to_uppercase()].into();
        assert_eq!(running(&wanted, "mark"), None);
        for (mark, expected) in [("", Some(name.to_uppercase())), ("mark of a task", None)] {
            let mut child = Command::new(&program).arg("1000").env(proc::MARK, mark).spawn().unwrap();
            while fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().is_empty() {
                std::thread::yield_now();
            }
            let found = running(&wanted, "mark of");
            // One that has its number is a task as well, though it carries no mark.
            let number = Some(Brand::of_life("mark of:1:").of_slot(3).value());
            let pid = rustix::process::Pid::from_child(&child);
            let limit = rustix::process::Rlimit { current: number, maximum: number };
            rustix::process::prlimit(Some(pid), rustix::process::Resource::Locks, limit).unwrap();
            let of_task = running(&wanted, "mark of");
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!((found, of_task), (expected, None));
        }
    }

    #[test]
    fn r6_4_a_long_name_that_the_kernel_cuts_is_not_taken_for_another() {
        assert!(is("a-program-of-long-name", "a-program-of-lo", "a-program-of-long-name"));
        assert!(!is("a-program-of-long-name", "a-program-of-lo", "a-program-of-lovely-name"));
        assert!(is("game", "game", "python3") && !is("game", "gamer", "gamer"));
    }
}
