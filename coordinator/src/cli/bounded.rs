//! Files that a user names, read with a bound: what has no end, such as a device or a pipe, is refused in time.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{Failure, units};

/// All of a file that has at most `most` bytes.
pub(crate) fn read(what: &str, path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let fail = |error| Failure::file(&format!("read {what}"), path, error);
    let mut content = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(most.saturating_add(1)).read_to_end(&mut content).map_err(fail)?;
    match content.len() as u64 > most {
        true => Err(too_long(what, path, most)),
        false => Ok(content),
    }
}

/// All of a text file that has at most `most` bytes.
pub(crate) fn read_text(what: &str, path: &Path, most: u64) -> Result<String, Failure> {
    let text = String::from_utf8(read(what, path, most)?);
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
