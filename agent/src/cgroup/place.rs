//! Where a process's group is to be found: by `/proc/PID/mountinfo` and `/proc/PID/cgroup`.

use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

/// Where control groups of version 2 are mounted: which group is seen there, by its path, and the directory.
pub fn mounts(mountinfo: &str) -> Vec<(PathBuf, PathBuf)> {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        (kind.split_whitespace().next() == Some("cgroup2")).then_some(())?;
        let mut fields = place.split(' ').skip(3);
        Some((unescaped(fields.next()?), unescaped(fields.next()?)))
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// As the kernel writes names there: what would end a field is a backslash and three octal digits.
fn unescaped(field: &str) -> PathBuf {
    let bytes = field.as_bytes();
    let (mut name, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 4).filter(|_| byte == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(meant) => {
                name.push(meant);
                at += 4;
            }
            None => {
                name.push(byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(name).into()
}

/// The path of a process's group of version 2, by its `/proc/PID/cgroup`.
pub fn path_in(cgroup: &str) -> Option<PathBuf> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::")).map(PathBuf::from)
}

/// The directory of the group of this path. None where no mount shows it.
pub fn place(mounts: &[(PathBuf, PathBuf)], path: &Path) -> Option<PathBuf> {
    // What lies outside of this process's view of groups.
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let seen = |(root, at): &(PathBuf, PathBuf)| Some(at.join(path.strip_prefix(root).ok()?));
    // Joined with nothing, a path ends in a slash.
    mounts.iter().find_map(seen).map(|place| place.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_group_follows_from_where_groups_are_mounted() {
        let mixed = "\
            24 23 0:20 / /sys rw - sysfs sysfs rw\n\
            31 24 0:27 / /sys/fs/cgroup ro,nosuid shared:5 - tmpfs tmpfs ro,mode=755\n\
            32 31 0:28 / /sys/fs/cgroup/unified rw,relatime shared:6 - cgroup2 cgroup2 rw\n\
            33 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let bound =
            "40 39 0:28 /a.slice/my\\040unit /mnt/my\\040groups rw master:1 shared:2 - cgroup2 none rw\n";
        let place_of = |text: &str, path: &str| place(&mounts(text), Path::new(path));
        let cases = [
            (mixed, "/", Some("/sys/fs/cgroup/unified")),
            (mixed, "/a.slice/b.service", Some("/sys/fs/cgroup/unified/a.slice/b.service")),
            (bound, "/a.slice/my unit", Some("/mnt/my groups")),
            (bound, "/a.slice/my unit/leaf", Some("/mnt/my groups/leaf")),
            (bound, "/a.slice", None),
            // Of a process outside of the namespace of groups.
            (mixed, "/../b", None),
            ("", "/", None),
        ];
        for (text, path, expected) in cases {
            assert_eq!(place_of(text, path), expected.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn the_group_of_version_2_is_read_beside_others() {
        let mixed = "9:name=systemd:/x\n4:memory:/y:z\n0::/a.slice/b:c.service\n";
        assert_eq!(path_in(mixed), Some("/a.slice/b:c.service".into()));
        assert_eq!(path_in("4:memory:/y\n"), None);
        assert_eq!(path_in(""), None);
    }
}
