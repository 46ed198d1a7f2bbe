//! Two agents whose directories have one path, as in two containers on one kernel, are two agents.

use std::process::{Child, Command, Stdio};

use fallow_agent::brand::Brand;
use fallow_agent::dir::DataDir;
use fallow_agent::proc;
use fallow_agent::supervise::{leftovers, life_mark};
use fallow_agent::sys::{self, Limits, Urgency};

/// A process of a task of an agent's, as its next life would find it: known by its number, or by its mark
/// alone.
fn task(dir: &DataDir, has_number: bool) -> Child {
    let mark = life_mark(dir, "1.2");
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null());
    sys::isolate(&mut command, Urgency::Inherited, None);
    match has_number {
        true => {
            let brand = Brand::of_life(&mark).of_slot(0).value();
            sys::limit(&mut command, Limits { brand, ..Limits::default() });
            command.env_clear();
        }
        false => {
            command.env(proc::MARK, format!("{mark}0:"));
        }
    }
    command.spawn().unwrap()
}

#[test]
fn r6_10_an_agent_leaves_the_jobs_of_another_one_alone_whose_directory_has_the_same_path_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("agent");
    for has_number in [true, false] {
        let mut tasks: Vec<(DataDir, Child)> = Vec::new();
        for name in ["first", "second"] {
            std::fs::create_dir(&path).unwrap();
            let dir = DataDir::at(&path);
            tasks.push((dir.clone(), task(&dir, has_number)));
            if name == "first" {
                // Where it is for its own container.
                std::fs::rename(&path, place.path().join("elsewhere")).unwrap();
            }
        }
        // The second one begins anew.
        leftovers::take_over(&DataDir::at(&path), &|| false);
        let ended: Vec<bool> = tasks.iter_mut().map(|(_, task)| task.try_wait().unwrap().is_some()).collect();
        for (_, task) in &mut tasks {
            let _ = task.kill();
            let _ = task.wait();
        }
        assert_eq!(ended, [false, true], "by number: {has_number}");
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::remove_dir_all(place.path().join("elsewhere")).unwrap();
    }
}
