//! Which files a job may reach, as rules for Landlock.
//!
//! Model: what is not named cannot be opened. Rules are about what lies under a name when the job starts, not
//! about the name; so nothing that is renamed later comes into reach. A right on a directory is one on all
//! that is below it, and none can be taken back there: so where the agent's own directory lies below one of
//! the system's, the rules name what lies beside it instead.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::fs::Gid;

use super::{Allowed, Reach};

/// The newest rights that are asked for; a kernel that has fewer takes those that it has.
const NEWEST: ABI = ABI::V9;

/// Programs, libraries, and what these read: to read and execute.
const PROGRAMS: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/opt/rocm",
    "/opt/cuda",
    "/opt/intel",
];

/// What the libraries want to know of the system: to read.
const FACTS: [&str; 29] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/locale.alias",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/os-release",
    "/etc/lsb-release",
    "/etc/debian_version",
    "/etc/alternatives",
    "/etc/OpenCL",
    "/etc/vulkan",
    "/etc/fonts",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/python3",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/openssl.cnf",
    "/etc/crypto-policies",
    "/sys/devices",
    "/sys/class",
    "/sys/bus",
    "/sys/dev",
    "/sys/module",
    "/sys/fs/cgroup",
];

/// What the system shows of processes: to read. The kernel itself keeps what it says of the memory, the
/// environment and the files of other processes from a job that is confined.
const PROCESSES: &str = "/proc";

/// What tells how to reach others: to read, where jobs may.
const NETWORK: [&str; 14] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/ca-trust/extracted",
    "/var/lib/ca-certificates",
    "/run/systemd/resolve",
];

/// Devices that are everybody's.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What of the system jobs may read and execute, for an agent whose data lies in `own`.
pub(super) fn of_system(own: &Path) -> Vec<PathBuf> {
    let own = fs::canonicalize(own).unwrap_or_else(|_| own.to_path_buf());
    let mut found = Vec::new();
    for place in PROGRAMS {
        // What is not there is not needed.
        if let Ok(place) = fs::canonicalize(place) {
            add_without(&place, &own, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Adds a directory, or what is in it beside `own`.
fn add_without(place: &Path, own: &Path, found: &mut Vec<PathBuf>) {
    if !own.starts_with(place) {
        found.push(place.to_path_buf());
        return;
    }
    if place == own {
        return;
    }
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        // A link leads to something else, which is named where it is.
        if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            add_without(&entry.path(), own, found);
        }
    }
}

/// The layers that are Landlock's, and which of them are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruled {
    pub(super) files: bool,
    pub(super) lengths: bool,
    pub(super) tcp: bool,
    pub(super) processes: bool,
}

impl Ruled {
    pub(super) fn any(self) -> bool {
        self.files || self.lengths || self.tcp || self.processes
    }

    /// Rights on files that nobody has but by a rule.
    fn rights(self) -> BitFlags<AccessFs> {
        let (all, lengths) = (AccessFs::from_all(NEWEST), AccessFs::Truncate);
        match (self.files, self.lengths) {
            (true, true) => all,
            (true, false) => all & !lengths,
            (false, true) => lengths.into(),
            (false, false) => BitFlags::empty(),
        }
    }
}

/// A set of rules that forbids all that the kernel can forbid of this.
pub(super) fn handled(ruled: Ruled) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default();
    if !ruled.rights().is_empty() {
        rules = rules.handle_access(ruled.rights())?;
    }
    if ruled.processes {
        rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    }
    if ruled.tcp {
        rules = rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    rules.create()
}

/// The rules for one job. None where the kernel has no such rules.
pub(super) fn rules(
    ruled: Ruled,
    allowed: Allowed,
    system: &[PathBuf],
    reach: &Reach<'_>,
) -> io::Result<Option<OwnedFd>> {
    // Without it the program could not be executed, and that would be taken for the job's fault.
    let project = fs::File::open(reach.project)?;
    let made = || -> Result<RulesetCreated, RulesetError> {
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let mut rules = handled(ruled)?;
        if !ruled.rights().is_empty() {
            rules = rules.add_rule(PathBeneath::new(reach.slot, in_slot() & ruled.rights()))?;
        }
        if !ruled.files {
            return Ok(rules);
        }
        rules = rules
            .add_rule(PathBeneath::new(&project, read | AccessFs::Execute))?
            .add_rules(path_beneath_rules(system, read | AccessFs::Execute))?
            .add_rules(path_beneath_rules(FACTS, read))?
            .add_rules(path_beneath_rules(DEVICES, device))?;
        // A job that has its own is not to find that of all elsewhere.
        if !reach.places.is_some_and(|places| places.hides_processes) {
            rules = rules.add_rules(path_beneath_rules([PROCESSES], read))?;
        }
        if allowed.network {
            rules = rules.add_rules(path_beneath_rules(NETWORK, read))?;
        }
        if reach.gpu {
            let dev = Path::new("/dev");
            rules = rules
                .add_rules(path_beneath_rules(gpu_devices(dev), device | AccessFs::ReadDir))?
                .add_rules(path_beneath_rules([dev.join("dri")], AccessFs::ReadDir))?;
        }
        Ok(rules)
    };
    made().map(Option::from).map_err(io::Error::other)
}

/// What a job may do with directories that are there only once its process is, as the kernel numbers it: its
/// own ones in place of the system's, and what it sees of processes. NVIDIA's driver gives its threads names
/// there, and gives up where it cannot (CUDA's error 304).
pub(super) fn on_own(ruled: Ruled, abi: ABI, reach: &Reach<'_>) -> Vec<(CString, u64)> {
    let rights = |rights: BitFlags<AccessFs>| (rights & ruled.rights() & AccessFs::from_all(abi)).bits();
    let mut own = Vec::new();
    if let Some(places) = reach.places {
        let as_slot = rights(in_slot());
        own.extend(places.shown_at.iter().map(|place| (place.clone(), as_slot)));
        own.extend(places.memory.iter().map(|(place, _)| (place.clone(), as_slot)));
        if places.hides_processes {
            own.push((c"/proc".to_owned(), rights(AccessFs::ReadFile | AccessFs::ReadDir)));
        }
    }
    if reach.gpu {
        let names = rights(AccessFs::WriteFile | AccessFs::Truncate);
        own.push((c"/proc/self/task".to_owned(), names));
    }
    own.retain(|(_, rights)| *rights != 0);
    own
}

/// What a job may do in its slot: all but making devices.
fn in_slot() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// The groups by which nodes of GPUs are used that are not everybody's: `render` and `video`, as they are
/// mostly called. Root's own is none.
pub(super) fn gpu_groups(dev: &Path) -> Vec<Gid> {
    let group = |node: &PathBuf| {
        let data = fs::metadata(node).ok()?;
        let grants = |bits: u32| data.mode() & bits == bits;
        (grants(0o060) && !grants(0o006) && data.gid() != 0).then(|| Gid::from_raw(data.gid()))
    };
    let mut groups: Vec<Gid> = Vec::new();
    for group in gpu_devices(dev).iter().filter_map(group) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// A node below `dev` that only root can use, of the GPUs that BOINC calls `kind` (`NVIDIA`, `ATI`,
/// `intel_gpu`), where there is none of these that a job's user can: neither all others, nor a group that is
/// not root's. Those of AMD and Intel are not told apart, nor one node of a kind from another.
pub(crate) fn closed_gpu(dev: &Path, kind: &str) -> Option<PathBuf> {
    let is_of_kind = |node: &PathBuf| {
        let name = node.file_name().unwrap_or_default().to_string_lossy();
        // In Linux below Windows all are used by one node.
        let is_nvidia = name.starts_with("nvidia");
        name == "dxg" || is_nvidia == (kind == "NVIDIA")
    };
    let mut nodes = gpu_devices(dev);
    nodes.retain(is_of_kind);
    let is_open = |node: &PathBuf| {
        fs::metadata(node).is_ok_and(|data| {
            let grants = |bits: u32| data.mode() & bits == bits;
            !data.is_dir() && (grants(0o006) || (grants(0o060) && data.gid() != 0))
        })
    };
    match nodes.iter().any(is_open) {
        true => None,
        false => nodes.into_iter().find(|node| !node.is_dir()),
    }
}

/// The nodes by which GPUs are used, as they are there now: for those of AMD and Intel the nodes to compute
/// and draw with (`renderD128`), and not those that rule what screens show (`card0`).
fn gpu_devices(dev: &Path) -> Vec<PathBuf> {
    let in_dir = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|node| node.path());
    let named = |path: &PathBuf, is: fn(&str) -> bool| {
        path.file_name().is_some_and(|name| is(&name.to_string_lossy()))
    };
    let nodes = in_dir(dev)
        .filter(|path| named(path, |name| name.starts_with("nvidia") || name == "kfd" || name == "dxg"));
    let render = in_dir(&dev.join("dri")).filter(|path| named(path, |name| name.starts_with("renderD")));
    nodes.chain(render).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_a_job_on_a_gpu_may_use_what_computes_and_nothing_that_rules_screens() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("dri/by-path")).unwrap();
        for name in
            ["nvidia0", "nvidiactl", "kfd", "mem", "sda", "dri/card0", "dri/renderD128", "dri/renderD129"]
        {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found: std::collections::BTreeSet<_> = gpu_devices(dir.path())
            .iter()
            .map(|path| path.strip_prefix(dir.path()).unwrap().display().to_string())
            .collect();
        let expected = ["dri/renderD128", "dri/renderD129", "kfd", "nvidia0", "nvidiactl"];
        assert_eq!(found, expected.map(str::to_owned).into());
    }

    #[test]
    fn r6_10_a_gpu_that_is_roots_alone_is_named_unless_another_can_be_used() {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root has files that are root's");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(closed_gpu(dir.path(), "NVIDIA"), None, "there is none at all");
        fs::create_dir(dir.path().join("nvidia-caps")).unwrap();
        let node = |name: &str, mode: u32, group: u32| {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, None, Some(group)).unwrap();
            path
        };
        let closed = node("nvidia0", 0o660, 0);
        // One of another kind is of no use to it, nor in its way.
        node("kfd", 0o660, 44);
        assert_eq!(closed_gpu(dir.path(), "NVIDIA"), Some(closed));
        assert_eq!(closed_gpu(dir.path(), "ATI"), None);
        node("nvidia1", 0o666, 0);
        assert_eq!(closed_gpu(dir.path(), "NVIDIA"), None);
        assert_eq!(gpu_groups(dir.path()), [Gid::from_raw(44)]);
    }

    #[test]
    fn r6_10_where_the_agents_directory_lies_below_one_of_the_systems_what_lies_beside_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(dir.path()).unwrap();
        for name in ["usr/bin", "usr/local/lib", "usr/local/agent/slots", "usr/share"] {
            fs::create_dir_all(place.join(name)).unwrap();
        }
        fs::write(place.join("usr/file"), "").unwrap();
        std::os::unix::fs::symlink("local/agent", place.join("usr/link")).unwrap();
        let named = |own: &str| {
            let mut found = Vec::new();
            add_without(&place.join("usr"), &place.join(own), &mut found);
            let short = found.iter().map(|path| path.strip_prefix(&place).unwrap().display().to_string());
            short.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(named("elsewhere"), ["usr".to_owned()].into());
        let beside = ["usr/bin", "usr/file", "usr/local/lib", "usr/share"].map(str::to_owned);
        assert_eq!(named("usr/local/agent"), beside.into());
    }
}
