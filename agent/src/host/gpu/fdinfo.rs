//! Who has a GPU open, and what he has it do, as the kernel tells of open files: the lines `drm-...` of
//! `/proc/PID/fdinfo/N` (R3.14).
//!
//! Only processes that this one may look into are seen: those of the agent's own user, or all for root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fallow_domain::Bytes;

use super::sysfs::{Place, place, text};

/// Processes that are looked at.
const PROCESSES_MAX: usize = 16_384;
/// Open files of one process that are looked at.
const FILES_MAX: usize = 4_096;
/// Open GPUs that are looked at, of all processes together.
const OPEN_MAX: usize = 4_096;
/// Kinds of engines of one open GPU that are kept.
const ENGINES_MAX: usize = 32;

/// The first and the last place that there can be.
const FIRST: Place = (0, 0, 0, 0);
const LAST: Place = (u32::MAX, u32::MAX, u32::MAX, u32::MAX);

/// How long an engine has worked for somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    /// Nanoseconds, or cycles.
    pub(super) worked: u64,
    /// Cycles that passed meanwhile, where cycles are counted.
    pub(super) passed: Option<u64>,
}

/// What a process has of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Of the memory that is the device's own.
    pub(super) own: Bytes,
    /// Of any memory.
    pub(super) all: Bytes,
    /// What has computed for it, by the number of its opening and the engine.
    pub(super) computed: BTreeMap<(u64, String), Meter>,
    /// What has drawn for it.
    pub(super) drawn: BTreeMap<(u64, String), Meter>,
    /// It has AMD's node for computing open (`/dev/kfd`): what computes for it then is not counted.
    pub(super) has_kfd: bool,
}

/// Each process that has a GPU open, with what it has of it. `proc` is where the kernel tells of processes.
pub(super) fn holders(proc: &Path) -> BTreeMap<(u32, Place), Held> {
    let mut found: BTreeMap<(u32, Place), Held> = BTreeMap::new();
    let mut left = OPEN_MAX;
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids.take(PROCESSES_MAX) {
        let dir = proc.join(pid.to_string());
        let (mut openings, mut has_kfd) = (Vec::new(), false);
        for entry in fs::read_dir(dir.join("fd")).into_iter().flatten().flatten().take(FILES_MAX) {
            if left == 0 {
                break;
            }
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            has_kfd |= target == Path::new("/dev/kfd");
            if !target.starts_with("/dev/dri") {
                continue;
            }
            left -= 1;
            let Some(told) = text(&dir.join("fdinfo").join(entry.file_name())) else { continue };
            let Some(opening) = opening(&told) else { continue };
            // One that was handed on or doubled is one.
            if !openings.contains(&(opening.place, opening.id)) {
                openings.push((opening.place, opening.id));
                add(found.entry((pid, opening.place)).or_default(), opening);
            }
        }
        let of_process = found.range_mut((pid, FIRST)..=(pid, LAST));
        of_process.for_each(|(_, held)| held.has_kfd = has_kfd);
    }
    found
}

/// What is told of one open file.
struct Opening {
    place: Place,
    id: u64,
    /// Memory by the name of its kind; what is resident counts before what is reserved.
    memory: BTreeMap<String, Bytes>,
    engines: BTreeMap<String, Meter>,
}

fn opening(told: &str) -> Option<Opening> {
    let lines = || {
        told.lines().filter_map(|line| {
            let (key, value) = line.strip_prefix("drm-")?.split_once(':')?;
            Some((key, value.trim()))
        })
    };
    let of = |name: &str| lines().find(|(key, _)| *key == name).map(|(_, value)| value);
    let mut memory = BTreeMap::new();
    // From the vaguest to the exact one: the last that is told of a kind stays.
    for prefix in ["total-", "memory-", "resident-"] {
        for (key, value) in lines() {
            // Cycles are no memory.
            let kind = key.strip_prefix(prefix).filter(|kind| !kind.starts_with("cycles-"));
            if let (Some(kind), Some(bytes)) = (kind, amount(value))
                && memory.len() < ENGINES_MAX
            {
                memory.insert(kind.to_owned(), bytes);
            }
        }
    }
    let mut engines: BTreeMap<String, Meter> = BTreeMap::new();
    for (key, value) in lines() {
        let number = value.split(' ').next().and_then(|number| number.parse().ok());
        let (name, is_total) = match key.strip_prefix("total-cycles-") {
            Some(name) => (name, true),
            None => match key.strip_prefix("engine-").or_else(|| key.strip_prefix("cycles-")) {
                Some(name) => (name, false),
                None => continue,
            },
        };
        if let Some(number) = number
            && !name.starts_with("capacity-")
            && (engines.len() < ENGINES_MAX || engines.contains_key(name))
        {
            let meter = engines.entry(name.to_owned()).or_default();
            if is_total { meter.passed = Some(number) } else { meter.worked = number }
        }
    }
    Some(Opening { place: place(of("pdev")?)?, id: of("client-id")?.parse().ok()?, memory, engines })
}

/// An amount of memory, such as `1024 KiB`.
fn amount(value: &str) -> Option<Bytes> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let number: u64 = number.parse().ok()?;
    let shift = match unit.trim() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        _ => return None,
    };
    Some(Bytes(number.checked_mul(1 << shift)?))
}

fn add(held: &mut Held, opening: Opening) {
    for (kind, bytes) in opening.memory {
        held.all = held.all.plus(bytes);
        if kind.starts_with("vram") || kind.starts_with("local") {
            held.own = held.own.plus(bytes);
        }
    }
    for (name, meter) in opening.engines {
        let (id, computes) = (opening.id, ["compute", "ccs"].iter().any(|kind| name.starts_with(kind)));
        let draws = ["gfx", "render", "rcs"].iter().any(|kind| name.starts_with(kind));
        if computes {
            held.computed.insert((id, name), meter);
        } else if draws {
            held.drawn.insert((id, name), meter);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A process that has this open.
    fn put(proc: &Path, pid: u32, file: u32, target: &str, told: &str) {
        let dir = proc.join(pid.to_string());
        fs::create_dir_all(dir.join("fd")).unwrap();
        fs::create_dir_all(dir.join("fdinfo")).unwrap();
        symlink(target, dir.join("fd").join(file.to_string())).unwrap();
        fs::write(dir.join("fdinfo").join(file.to_string()), told).unwrap();
    }

    const AMD: &str = "pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t7\ndrm-pdev:\t0000:c3:00.0\n\
        drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t1024 KiB\ndrm-engine-gfx:\t5000 ns\n\
        drm-engine-compute:\t900 ns\ndrm-engine-dec:\t3 ns\n";
    const XE: &str = "drm-driver:\txe\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\ndrm-total-system:\t0\n\
        drm-total-vram0:\t64 MiB\ndrm-resident-vram0:\t32 MiB\ndrm-cycles-rcs:\t10\ndrm-total-cycles-rcs:\t100\n\
        drm-cycles-ccs:\t0\ndrm-total-cycles-ccs:\t100\ndrm-engine-capacity-ccs:\t4\n";

    #[test]
    fn r3_14_who_has_a_gpu_open_is_seen_with_what_he_holds_and_what_works_for_him() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 41, 3, "/dev/dri/renderD128", AMD);
        // The same opening once more, and another file.
        put(dir.path(), 41, 4, "/dev/dri/renderD128", AMD);
        put(dir.path(), 41, 5, "/dev/null", AMD);
        put(dir.path(), 41, 6, "/dev/kfd", "");
        put(dir.path(), 42, 3, "/dev/dri/card0", XE);
        let found = holders(dir.path());
        let amd = &found[&(41, (0, 0xc3, 0, 0))];
        assert_eq!((amd.own, amd.all), (Bytes::from_mebibytes(2), Bytes::from_mebibytes(3)));
        let meter = |worked, passed| Meter { worked, passed };
        assert_eq!(amd.computed, [((7, "compute".into()), meter(900, None))].into());
        assert_eq!(amd.drawn, [((7, "gfx".into()), meter(5_000, None))].into());
        let xe = &found[&(42, (0, 3, 0, 0))];
        assert_eq!((xe.own, xe.all), (Bytes::from_mebibytes(32), Bytes::from_mebibytes(32)));
        assert_eq!(xe.drawn, [((9, "rcs".into()), meter(10, Some(100)))].into());
        assert_eq!(xe.computed, [((9, "ccs".into()), meter(0, Some(100)))].into());
        assert_eq!((found.len(), amd.has_kfd, xe.has_kfd), (2, true, false));
    }

    #[test]
    fn r3_14_what_the_kernel_does_not_say_that_way_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        for (pid, told) in [
            (1, ""),
            (2, "drm-client-id: 1\n"),
            (3, "drm-pdev: 0000:03:00.0\ndrm-client-id: x\n"),
            (
                4,
                "drm-pdev: 0000:03:00.0\ndrm-client-id: 1\ndrm-memory-vram: 99999999999999999999 KiB\n\
                 drm-total-vram: 18446744073709551615 MiB\ndrm-engine-gfx: -5 ns\n",
            ),
        ] {
            put(dir.path(), pid, 3, "/dev/dri/renderD128", told);
        }
        fs::create_dir_all(dir.path().join("5/fd/3")).unwrap();
        fs::create_dir_all(dir.path().join("self")).unwrap();
        let found = holders(dir.path());
        assert_eq!(found, [((4, (0, 3, 0, 0)), Held::default())].into());
    }

    #[test]
    fn r3_14_however_many_files_a_process_has_open_looking_ends() {
        let dir = tempfile::tempdir().unwrap();
        for file in 0..10_000 {
            put_again(dir.path(), file);
        }
        let held = holders(dir.path()).into_values().next().unwrap();
        assert!(held.own > Bytes(0) && held.own <= Bytes(FILES_MAX as u64 * 1_024), "{held:?}");
    }

    fn put_again(proc: &Path, file: u32) {
        let told = format!("drm-pdev: 0000:03:00.0\ndrm-client-id: {file}\ndrm-memory-vram: 1 KiB\n");
        put(proc, 6, file, "/dev/dri/renderD128", &told);
    }
}
