//! Sending the files of an application to a coordinator, which may run as another user, in parts.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fallow_boinc::signature::{Md5Sum, PrivateKey};
use fallow_domain::hex;
use fallow_proto::operator::v1::add_app_version_part::Part;
use fallow_proto::operator::v1::{AddAppVersionPart, AddAppVersionRequest, AppFile};
use fallow_work_server::APP_FILE_MAX;
use futures_util::Stream;
use ring::digest::{Context, SHA256};
use tonic::Status;

use super::why::Why;
use super::{Client, Failure, code_sign_key, units};

/// Bytes of a part: well below what a message may have, and enough that parts cost nothing.
const PART: u64 = 1 << 20;

/// Why a version was not added.
pub(crate) enum UploadError {
    /// By the coordinator.
    Status(Status),
    /// A file cannot be sent.
    Here(Failure),
}

impl From<UploadError> for Failure {
    fn from(refused: UploadError) -> Self {
        match refused {
            UploadError::Status(status) => status.into(),
            UploadError::Here(failure) => failure,
        }
    }
}

/// Adds a version with these files and gives their names for download. With a key, each is signed by it.
pub(crate) async fn add_app_version(
    client: &mut Client,
    mut version: AddAppVersionRequest,
    paths: &[PathBuf],
    key: Option<&PrivateKey>,
    why: &Why,
) -> Result<Vec<String>, UploadError> {
    for path in paths {
        version.files.push(announced(path, key).map_err(UploadError::Here)?);
    }
    let unread = Arc::new(Mutex::new(None));
    let parts = parts(version, paths.to_vec(), unread.clone());
    let sent = client.add_app_version(why.of(parts)).await;
    let unread = fallow_daemon::lock(&unread).take();
    match (unread, sent) {
        (Some(failure), _) => Err(UploadError::Here(failure)),
        (None, sent) => sent.map(|reply| reply.into_inner().file_names).map_err(UploadError::Status),
    }
}

/// What is said of a file before it is sent. It is read once for that.
fn announced(path: &Path, key: Option<&PrivateKey>) -> Result<AppFile, Failure> {
    let fail = |error| Failure::file("read", path, error);
    let metadata = std::fs::metadata(path).map_err(fail)?;
    let refused = |what: &str| Err(Failure::bad_input(format!("{} {what}", path.display())));
    if !metadata.is_file() {
        return refused("is not a regular file: name the application's files, the main program first");
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return refused("has a name that is not UTF-8: rename it");
    };
    let (mut hash, mut md5, mut size) = (Context::new(&SHA256), Md5Sum::default(), 0);
    let mut file = File::open(path).map_err(fail)?.take(APP_FILE_MAX + 1);
    loop {
        let part = part_of(&mut file).map_err(fail)?;
        if part.is_empty() {
            break;
        }
        hash.update(&part);
        md5.update(&part);
        size += part.len() as u64;
    }
    if size > APP_FILE_MAX {
        return refused(&format!("has more than {}, the most of a file", units::shown_size(APP_FILE_MAX)));
    }
    let signature = key.map(|key| code_sign_key::sign(key, &md5.hex())).transpose()?.unwrap_or_default();
    Ok(AppFile {
        signature,
        name: name.to_owned(),
        size_bytes: size,
        sha256: hex(hash.finish().as_ref()),
        executable: metadata.permissions().mode() & 0o111 != 0,
    })
}

fn part_of(file: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.take(PART).read_to_end(&mut part)?;
    Ok(part)
}

/// The announcement, then the files, a part at a time as they are asked for. A file that cannot be read ends
/// it, and `unread` says why: the coordinator misses what was announced.
fn parts(
    version: AddAppVersionRequest,
    paths: Vec<PathBuf>,
    unread: Arc<Mutex<Option<Failure>>>,
) -> impl Stream<Item = AddAppVersionPart> + Send + 'static {
    let sizes: Vec<u64> = version.files.iter().map(|file| file.size_bytes).collect();
    let mut files = paths.into_iter().zip(sizes);
    let mut open: Option<(PathBuf, std::io::Take<File>)> = None;
    let mut first = Some(version);
    let next = move || -> Option<AddAppVersionPart> {
        if let Some(version) = first.take() {
            return Some(AddAppVersionPart { part: Some(Part::Version(version)) });
        }
        loop {
            if let Some((path, file)) = &mut open {
                match part_of(file) {
                    Ok(part) if part.is_empty() => open = None,
                    Ok(part) => return Some(AddAppVersionPart { part: Some(Part::Content(part)) }),
                    Err(error) => return failed(&unread, path, error),
                }
                continue;
            }
            let (path, size) = files.next()?;
            match File::open(&path) {
                // What has grown since is not sent: the fingerprint says whether it is the same file.
                Ok(file) => open = Some((path, file.take(size))),
                Err(error) => return failed(&unread, &path, error),
            }
        }
    };
    tokio_stream::iter(std::iter::from_fn(next))
}

fn failed<T>(unread: &Mutex<Option<Failure>>, path: &Path, error: std::io::Error) -> Option<T> {
    *fallow_daemon::lock(unread) = Some(Failure::file("read", path, error));
    None
}
