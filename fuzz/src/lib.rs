//! Every parser of bytes that come from outside (R6.2, R6.10), each as a target for a fuzzer.
//!
//! **What is checked.** A target gives any bytes to a parser. It must not panic, must not need more stack
//! than [`STACK`], must not allocate more than [`Target::check`] allows for so many bytes, and, where there
//! is a writer, what it writes of what was read must read back as the same. Time is linear as far as
//! allocations tell; the fuzzer's own limit of some seconds an input sees to the rest.
//!
//! **How.** `.ci/fuzz` builds with coverage counters in our crates and lets LLVM's fuzzer loose on each
//! target. Tests replay what lies in `corpus/TARGET`, inputs that once went wrong among them, and the
//! captures of real exchanges.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a target tells of what it finds by a panic")]

mod fleet;
mod group;
mod identity;
mod job;
mod project;
mod scenario;

use std::alloc::System;
use std::path::{Path, PathBuf};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The stack that a target may need: a quarter of what a thread of the daemons has.
pub const STACK: usize = 512 * 1024;

/// What any target may allocate, in bytes ...
const ALLOCATED_BASE: usize = 1 << 20;
/// ... and what more for each byte of its input. A tag of seven bytes may begin a structure of some hundred,
/// of which a growing list makes copies, and reading, writing and reading again come to several of those.
const ALLOCATED_PER_BYTE: usize = 2_000;

/// A parser with what must hold for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder in `corpus`.
    pub name: &'static str,
    /// Part of the names of captured exchanges (`shared/boinc/fixtures`) that are inputs for it.
    pub captures: &'static str,
    run: fn(&[u8]),
}

impl Target {
    const fn new(name: &'static str, captures: &'static str, run: fn(&[u8])) -> Self {
        Self { name, captures, run }
    }

    /// Gives bytes to the parser.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn check(&self, bytes: &[u8]) {
        let region = Region::new(ALLOCATOR);
        (self.run)(bytes);
        let allocated = region.change().bytes_allocated;
        let most = ALLOCATED_BASE + ALLOCATED_PER_BYTE * bytes.len();
        assert!(allocated <= most, "{}: {allocated} bytes allocated for {} of input", self.name, bytes.len());
    }

    /// The inputs that lie in the repository for it, with their paths.
    ///
    /// # Errors
    /// When a folder or file cannot be read.
    pub fn inputs(&self) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut inputs = read(&root.join("corpus").join(self.name))?;
        if !self.captures.is_empty() {
            for folder in ["captures", "client", "."] {
                let fixtures = read(&root.join("../shared/boinc/fixtures").join(folder))?;
                let fits = |path: &Path| path.to_string_lossy().contains(self.captures);
                let bodies = fixtures.into_iter().filter(|(path, _)| fits(path));
                inputs.extend(bodies.map(|(path, bytes)| (path, body(&bytes))));
            }
        }
        Ok(inputs)
    }
}

fn read(folder: &Path) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            let bytes = std::fs::read(&path)?;
            files.push((path, bytes));
        }
    }
    files.sort();
    Ok(files)
}

/// A capture without the head of its HTTP message.
fn body(capture: &[u8]) -> Vec<u8> {
    let is_http = capture.starts_with(b"HTTP/") || capture.starts_with(b"POST ");
    let end = capture.windows(4).position(|window| window == b"\r\n\r\n");
    end.filter(|_| is_http).map_or(capture, |end| &capture[end + 4..]).to_vec()
}

/// All targets.
pub const TARGETS: [&[Target]; 6] =
    [project::TARGETS, job::TARGETS, fleet::TARGETS, group::TARGETS, identity::TARGETS, scenario::TARGETS];

/// All targets, one after the other.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    TARGETS.into_iter().flatten()
}

/// A target by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    targets().find(|target| target.name == name)
}

/// Writes each target's inputs into a folder of its name in `folder`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write_inputs(folder: &Path) -> std::io::Result<()> {
    for target in targets() {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, (_, bytes)) in target.inputs()?.into_iter().enumerate() {
            std::fs::write(folder.join(number.to_string()), bytes)?;
        }
    }
    Ok(())
}

/// What is written of what was read has the same elements when it was read and written once more, and from
/// then on stays as it is. Texts may become shorter once: control characters are not written, and readers
/// trim what stood before them.
fn comes_back<T>(read: &T, parse: impl Fn(&[u8]) -> T, write: impl Fn(&T) -> String) {
    let first = write(read);
    let second = write(&parse(first.as_bytes()));
    let tags = |text: &str| -> Vec<String> {
        text.split('<').map(|part| part.split('>').next().unwrap_or_default().to_owned()).collect()
    };
    assert!(first == second || tags(&first) == tags(&second), "{first}\nis written again as\n{second}");
    assert_eq!(second, write(&parse(second.as_bytes())), "read and written a third time");
}
