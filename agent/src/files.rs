//! Files of untrusted origin: read without following links, without bound on their size but with bound on memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fallow_domain::Bytes;
use md5::{Digest, Md5};

/// Opens an ordinary file for reading. A symbolic link in its place is an error: an application could point it anywhere.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let no_follow = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(no_follow.cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not an ordinary file")) }
}

/// MD5 in lower-case hexadecimal, and the size.
pub fn md5_of(path: &Path) -> io::Result<(String, Bytes)> {
    let mut file = open_plain(path)?;
    let (mut digest, mut buffer, mut size) = (Md5::new(), vec![0; 64 * 1024], 0);
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..read]);
        size += read as u64;
    }
    Ok((hex(&digest.finalize()), Bytes(size)))
}

/// At most the first `max` bytes.
pub fn head(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// At most the last `max` bytes.
pub fn tail(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut file = open_plain(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(max)))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Bytes of all files below a directory, links not followed. What cannot be read counts as nothing.
pub fn size_below(dir: &Path) -> Bytes {
    let (mut total, mut dirs) = (Bytes(0), vec![dir.to_path_buf()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() => dirs.push(entry.path()),
                Ok(data) => total = total.plus(Bytes(data.len())),
                Err(_) => {}
            }
        }
    }
    total
}

/// Removes a file or a directory with all that is in it; what is not there is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_md5_is_that_of_the_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "abc").unwrap();
        assert_eq!(md5_of(&path).unwrap(), ("900150983cd24fb0d6963f7d28e17f72".to_owned(), Bytes(3)));
    }

    #[test]
    fn a_link_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("output")).unwrap();
        assert!(md5_of(&dir.path().join("output")).is_err());
        assert!(tail(&dir.path().join("output"), 10).is_err());
    }

    #[test]
    fn a_tail_is_the_end_and_a_head_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(tail(&path, 3).unwrap(), b"789");
        assert_eq!(tail(&path, 30).unwrap(), b"0123456789");
        assert_eq!(head(&path, 3).unwrap(), b"012");
        assert_eq!(size_below(dir.path()), Bytes(10));
    }
}
