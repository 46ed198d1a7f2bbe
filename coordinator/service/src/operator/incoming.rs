//! Files of an application that an operator sends: received in parts, into a directory of the coordinator's
//! own.
//!
//! What is sent is announced first: names, sizes, fingerprints. Nothing beyond that is written, and a file
//! that is not what was announced is refused. Memory holds one part at a time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fallow_proto::operator::v1 as wire;
use fallow_work_server::{APP_FILE_MAX, NewAppVersion, ProjectError, ProjectServer};
use ring::digest::{Context, SHA256};
use tempfile::TempDir;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt as _;
use tonic::{Status, Streaming};
use wire::add_app_version_part::Part;

use super::{convert, status};
use fallow_domain::hex;

/// The most files of a version.
const FILES_MAX: usize = 100;
/// All files of a version together.
const ALL_MAX: u64 = 4 << 30;
/// Bytes that are written at once: before each of them the disk is looked at.
const WRITTEN: usize = 256 << 10;
/// A sender that is silent for longer is gone.
const SILENCE: Duration = Duration::from_secs(60);

/// A version whose files have come, all as announced. They are gone with this.
pub(super) struct Received {
    pub(super) project: String,
    pub(super) version: NewAppVersion,
    _dir: TempDir,
}

/// What a call announces in its first part.
pub(super) async fn announced(
    parts: &mut Streaming<wire::AddAppVersionPart>,
) -> Result<wire::AddAppVersionRequest, Status> {
    match next(parts).await? {
        Some(Part::Version(announced)) => Ok(announced),
        _ => Err(Status::invalid_argument("the first part does not say which version it is of")),
    }
}

/// Takes all other parts of a call.
pub(super) async fn receive(
    projects: &ProjectServer,
    announced: wire::AddAppVersionRequest,
    mut parts: Streaming<wire::AddAppVersionPart>,
) -> Result<Received, Status> {
    check(&announced.files)?;
    let project = announced.project.clone();
    let incoming = projects.incoming(&project).map_err(|error| status::of_project(&error))?;
    let failed = |path: &PathBuf, error| status::of_project(&ProjectError::file("write", path)(error));
    // Each in a directory. What the rest of the disk is for: see below.
    let has_room_for = |files| match fallow_store::leaves_enough(&incoming, 0, files).unwrap_or(true) {
        true => Ok(()),
        false => Err(failed(&incoming, rustix::io::Errno::NOSPC.into())),
    };
    has_room_for(2 * announced.files.len() as u64 + 1)?;
    let dir = tempfile::Builder::new()
        .prefix("version-")
        .tempdir_in(&incoming)
        .map_err(|error| failed(&incoming, error))?;
    let mut files = Vec::with_capacity(announced.files.len());
    for (position, file) in announced.files.iter().enumerate() {
        // A directory for each: names that are alike are told of by whoever adds the version.
        let place = dir.path().join(position.to_string());
        // Others were told of the same room, and have taken it since.
        has_room_for(2)?;
        tokio::fs::create_dir(&place).await.map_err(|error| failed(&place, error))?;
        let path = place.join(&file.name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(if file.executable { 0o700 } else { 0o600 });
        let mut to = options.open(&path).await.map_err(|error| failed(&path, error))?;
        take(&mut parts, file, &mut to, &place, |error| failed(&path, error)).await?;
        files.push(path);
    }
    if next(&mut parts).await?.is_some() {
        return Err(Status::invalid_argument("more was sent than the files that were announced"));
    }
    let version = convert::app_version(announced, files).map_err(|error| status::of_invalid(&error))?;
    Ok(Received { project, version, _dir: dir })
}

/// Writes one file, into this directory.
async fn take(
    parts: &mut Streaming<wire::AddAppVersionPart>,
    file: &wire::AppFile,
    to: &mut File,
    dir: &Path,
    failed: impl Fn(std::io::Error) -> Status,
) -> Result<(), Status> {
    let changed = || {
        let text =
            format!("{} is not what was announced: did it change while it was sent? Repeat it", file.name);
        Status::invalid_argument(text)
    };
    let (mut left, mut hash) = (file.size_bytes, Context::new(&SHA256));
    while left > 0 {
        let Some(Part::Content(bytes)) = next(parts).await? else { return Err(changed()) };
        left = left.checked_sub(bytes.len() as u64).ok_or_else(changed)?;
        hash.update(&bytes);
        for written in bytes.chunks(WRITTEN) {
            // The rest of the disk is for those who run the fleet.
            if !fallow_store::leaves_enough(dir, written.len() as u64, 0).unwrap_or(true) {
                return Err(failed(rustix::io::Errno::NOSPC.into()));
            }
            to.write_all(written).await.map_err(&failed)?;
        }
    }
    // What is on its way to the file may still fail.
    to.flush().await.map_err(&failed)?;
    if hex(hash.finish().as_ref()) == file.sha256 { Ok(()) } else { Err(changed()) }
}

async fn next(parts: &mut Streaming<wire::AddAppVersionPart>) -> Result<Option<Part>, Status> {
    let part = tokio::time::timeout(SILENCE, parts.message()).await;
    let part = part.map_err(|_| Status::deadline_exceeded("nothing was sent for 60 s"))??;
    Ok(part.and_then(|part| part.part))
}

fn check(files: &[wire::AppFile]) -> Result<(), Status> {
    let refused = |text: String| Err(Status::invalid_argument(text));
    if files.len() > FILES_MAX {
        return refused(format!(
            "an application has at most {FILES_MAX} files, and these are {}",
            files.len()
        ));
    }
    for file in files {
        let name = file.name.as_str();
        if name.is_empty() || name.len() > 255 || name.contains(['/', '\0']) || [".", ".."].contains(&name) {
            return refused(format!("{name:?} is not the name of a file"));
        }
        if file.size_bytes > APP_FILE_MAX {
            return refused(format!("{name} has {} bytes: at most 1 GiB", file.size_bytes));
        }
    }
    match files.iter().map(|file| file.size_bytes).sum::<u64>() > ALL_MAX {
        true => refused("the files of a version have at most 4 GiB together".to_owned()),
        false => Ok(()),
    }
}
