//! The owner's `app_config.xml` of each project, in the project's directory (R6.4).
//!
//! Jobs have no right there but to read, and projects give no file that name. All the same it is taken for
//! what it is only if it lies there itself: no link is followed, nothing but an ordinary file is opened, and
//! no more of it is read than such a file has. One that a job has closed to its own user is opened up.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use fallow_boinc::app_config::{APP_CONFIG, APP_CONFIG_MAX, AppConfig};
use fallow_client::{AppConfigFound, Client};
use fallow_domain::ProjectId;

use crate::dir::DataDir;
use crate::files::open_own;

/// Reads those of all projects of a client, as far as there are any.
pub fn read_app_configs(dir: &DataDir, client: &Client) -> BTreeMap<ProjectId, AppConfigFound> {
    let project = |view: fallow_client::ProjectView| {
        let path = dir.project(&view.url).join(APP_CONFIG);
        let found = read(&path)?;
        Some((view.id, if client.has_sent_app_config(view.id) { AppConfigFound::Sent } else { found }))
    };
    client.project_views().into_iter().filter_map(project).collect()
}

fn read(path: &Path) -> Option<AppConfigFound> {
    let wrong = |what: String| AppConfigFound::Wrong(vec![format!("{}: {what}", path.display())]);
    Some(match content(path) {
        Ok(None) => return None,
        Err(error) => wrong(format!("cannot read it: {error}")),
        Ok(Some(content)) => match AppConfig::parse(&content) {
            Ok((file, notes)) => AppConfigFound::Read(file, notes),
            Err(faults) => AppConfigFound::Wrong(
                faults.iter().map(|fault| format!("{}: {fault}", path.display())).collect(),
            ),
        },
    })
}

/// What stands in a file, and a byte more than it may have if it is longer; nothing where there is none.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match path.symlink_metadata() {
        Ok(data) if data.is_symlink() => return Err(io::Error::other("it is a link, which is not followed")),
        Ok(data) if !data.is_file() => return Err(io::Error::other("it is not an ordinary file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let mut content = Vec::new();
    open_own(path)?.take(APP_CONFIG_MAX as u64 + 1).read_to_end(&mut content)?;
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn faults(path: &Path) -> Vec<String> {
        match read(path) {
            Some(AppConfigFound::Wrong(faults)) => faults,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn r6_4_what_is_no_ordinary_file_says_nothing_and_is_told_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(APP_CONFIG);
        assert_eq!(read(&path), None);
        fs::write(&path, "<app_config><project_max_concurrent>1</project_max_concurrent></app_config>")
            .unwrap();
        assert!(matches!(read(&path), Some(AppConfigFound::Read(..))));
        // A link says nothing of what it leads to.
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(
            faults(&link),
            [format!("{}: cannot read it: it is a link, which is not followed", link.display())]
        );
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for other in [dir.path(), &pipe] {
            assert!(faults(other)[0].ends_with("it is not an ordinary file"));
        }
        let long = dir.path().join("long");
        fs::File::create(&long).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(faults(&long), [format!("{}: line 1: the file is longer than 64 KiB", long.display())]);
    }
}
