//! What is secret in the coordinator's directory and is found open to other users at the start (R6.10).
//!
//! It is closed in any case ([`super::private`]). But somebody may have read it meanwhile, which closing does
//! not undo: so it is said, in the log and in the audit log.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fallow_store::{Batch, Store};

use super::{TOKEN, authority};
use crate::audit::{self, Action, Actor, Record};

/// Something that was open.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundOpen {
    path: PathBuf,
    mode: u32,
    advice: &'static str,
}

/// What others may read of the secrets in this directory, before anything is closed. A directory is told of
/// where everybody may enter it: packages give the group of their own user that right.
pub(super) fn look(dir: &Path) -> Vec<FoundOpen> {
    let key = "whoever has read it can pose as this coordinator and as its hosts: if somebody may have, set up a coordinator with \
               a new authority, in another directory";
    let token = "whoever has read it may do all that can be done: if somebody may have, delete it and start the coordinator anew, \
                 which makes another";
    let directory = "look which of its files others could read, and whether somebody may have";
    let secrets = [
        (dir.join(authority::KEY), 0o077, key),
        (dir.join(TOKEN), 0o077, token),
        (dir.to_path_buf(), 0o007, directory),
    ];
    // One that has no store yet holds nothing.
    let is_used = dir.join("store").exists();
    let open = |(path, rights, advice): (PathBuf, u32, &'static str)| {
        let data = fs::metadata(&path).ok()?;
        let mode = data.permissions().mode() & 0o7777;
        let counts = data.is_file() || is_used;
        (counts && mode & rights != 0).then_some(FoundOpen { path, mode, advice })
    };
    secrets.into_iter().filter_map(open).collect()
}

/// Says what was found, which is closed by now.
pub(super) fn tell(store: &dyn Store, found: &[FoundOpen]) {
    for FoundOpen { path, mode, advice } in found {
        tracing::warn!(
            path = %path.display(),
            mode = format!("{mode:o}"),
            advice,
            "this was open to other users of the machine, and is closed now"
        );
        let record = Record::new(Actor::Coordinator, "", Action::FoundOpen, &path.display().to_string());
        let record = record.changed(&format!("mode {mode:o}"), "closed").because(advice);
        if let Err(error) = audit::apply(store, &Batch::new(), &record) {
            tracing::warn!(error = %error, "that is not in the audit log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_what_is_found_open_at_the_start_is_told_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let [key, token] = [authority::KEY, TOKEN].map(|name| dir.path().join(name));
        set(dir.path(), 0o755);
        assert_eq!(look(dir.path()), [], "an empty one holds no secret");
        fs::create_dir(dir.path().join("store")).unwrap();
        for path in [&key, &token] {
            fs::write(path, "x").unwrap();
            set(path, 0o600);
        }
        set(dir.path(), 0o750);
        assert_eq!(look(dir.path()), []);
        set(&key, 0o640);
        set(&token, 0o604);
        set(dir.path(), 0o755);
        let found: Vec<_> = look(dir.path()).into_iter().map(|open| (open.path, open.mode)).collect();
        assert_eq!(found, [(key, 0o640), (token, 0o604), (dir.path().to_path_buf(), 0o755)]);
    }
}
