//! Files that a user names, read with a bound: what has no end, such as a device or a pipe, is refused in
//! time.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Failure, units};

/// All of a file that has at most `most` bytes.
pub(crate) fn read(what: &str, path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let opened = File::open(path).map_err(|error| Failure::file(&format!("read {what}"), path, error))?;
    read_from(what, path, opened, most)
}

/// All of standard input, if it is a text of at most `most` bytes.
pub(crate) fn stdin_text(what: &str, most: u64) -> Result<String, Failure> {
    let name = Path::new("standard input");
    text(what, name, read_from(what, name, std::io::stdin().lock(), most)?)
}

fn read_from(what: &str, name: &Path, from: impl Read, most: u64) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let read = from.take(most.saturating_add(1)).read_to_end(&mut content);
    read.map_err(|error| Failure::file(&format!("read {what}"), name, error))?;
    match content.len() as u64 > most {
        true => Err(too_long(what, name, most)),
        false => Ok(content),
    }
}

/// All of a text file that has at most `most` bytes.
pub(crate) fn read_text(what: &str, path: &Path, most: u64) -> Result<String, Failure> {
    text(what, path, read(what, path, most)?)
}

fn text(what: &str, path: &Path, content: Vec<u8>) -> Result<String, Failure> {
    let text = String::from_utf8(content);
    text.map_err(|error| Failure::bad_input(format!("{what} {} is not text: {error}", path.display())))
}

fn too_long(what: &str, path: &Path, most: u64) -> Failure {
    let text =
        format!("{what} {} has more than {}, the most that is read", path.display(), units::shown_size(most));
    Failure::bad_input(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused_and_what_fits_is_read() {
        let endless = read("input", Path::new("/dev/zero"), 1 << 20).unwrap_err();
        assert_eq!(endless.code().number(), 3);
        assert!(endless.to_string().contains("input /dev/zero has more than"), "{endless}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        assert_eq!(read("input", file.path(), 3).unwrap(), b"abc");
        assert!(read("input", file.path(), 2).is_err());
        std::fs::write(file.path(), [0xff]).unwrap();
        assert!(read_text("batch", file.path(), 3).unwrap_err().to_string().contains("is not text"));
    }
}
