//! Gives back the memory of program code that this process ran once and does not run now (R6.12).
//!
//! A process keeps what it has read of its program's file mapped: after its start that is most of it, for a
//! start does a little of everything. An agent that waits, and its guard, run next to nothing of that. The
//! pages stay in the system's cache as long as it has room, and come back by themselves when they are run.
//!
//! Each wake-up brings some of them back, and what lies around them. So a process that has come to rest gives
//! them back again whenever one of its threads goes to sleep ([`sleeps`]), until it works again ([`works`]).

use std::io::Read as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Mutex;

/// What a process at rest gives back, where it is at rest.
static AT_REST: Mutex<Option<Vec<Range<usize>>>> = Mutex::new(None);

/// Gives back the code of this process, and the memory that it has freed. To be called when it comes to
/// rest. Where the system does not say what is mapped, nothing is done.
pub fn give_back_code() {
    fallow_daemon::give_back_memory();
    own_code().iter().for_each(give_back);
}

/// This process comes to rest: gives back its code, and again whenever it [`sleeps`].
pub fn rests() {
    fallow_daemon::give_back_memory();
    *fallow_daemon::lock(&AT_REST) = Some(own_code());
    sleeps();
}

/// This process works again: its code stays.
pub fn works() {
    *fallow_daemon::lock(&AT_REST) = None;
}

/// To be called by a thread that is about to sleep. Takes some microseconds where the process is at rest, and
/// next to nothing where it is not.
pub fn sleeps() {
    // Where another thread does so, that is enough.
    let Ok(code) = AT_REST.try_lock() else { return };
    code.iter().flatten().for_each(give_back);
}

/// Where this process has code that is as the program's file has it.
fn own_code() -> Vec<Range<usize>> {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return Vec::new() };
    let mut text = Vec::new();
    let read = std::fs::File::open("/proc/self/smaps").and_then(|mut file| file.read_to_end(&mut text));
    match read {
        Ok(_) => unchanged(&text, program.as_os_str().as_bytes()),
        Err(_) => Vec::new(),
    }
}

fn give_back(place: &Range<usize>) {
    // SAFETY: the mapping is the program's own file, mapped for the whole life of the process, that nobody
    // may write to; the system said that no page of it differs from the file, and nobody but a debugger makes
    // it differ later, whose breakpoints would be lost. What is accessed later is read from the file again,
    // as at the first time.
    unsafe {
        libc::madvise(std::ptr::with_exposed_provenance_mut(place.start), place.len(), libc::MADV_DONTNEED);
    }
}

/// The mappings of a file, by what `smaps` says of a process (proc(5)), that cannot be written to and hold
/// nothing but what the file holds. Those with addresses that the loader has put in are not among them.
fn unchanged(smaps: &[u8], file: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    // What was changed is in memory, or swapped out: the lines follow each other.
    let mut candidate: Option<Range<usize>> = None;
    for line in smaps.split(|&byte| byte == b'\n') {
        if let Some((place, permissions, path)) = mapping(line) {
            candidate = (matches!(permissions, b"r-xp" | b"r--p") && path == file).then_some(place);
        } else if let Some(value) = line.strip_prefix(b"Anonymous:") {
            candidate = candidate.filter(|_| value.trim_ascii() == b"0 kB");
        } else if let Some(value) = line.strip_prefix(b"Swap:") {
            found.extend(candidate.take().filter(|_| value.trim_ascii() == b"0 kB"));
        }
    }
    found
}

/// The first line of a mapping: where it is, what may be done there, and its file.
fn mapping(line: &[u8]) -> Option<(Range<usize>, &[u8], &[u8])> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let (place, permissions) = (std::str::from_utf8(words.next()?).ok()?, words.next()?);
    let (start, end) = place.split_once('-')?;
    let hex = |text| usize::from_str_radix(text, 16).ok();
    Some((hex(start)?..hex(end)?, permissions, words.nth(3)?.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_the_programs_file_has_it_is_given_back() {
        let mapped_so = |head: &str, (anonymous, swap): (u32, u32)| {
            format!(
                "{head}\nSize:  40 kB\nRss:  4 kB\nAnonymous:  {anonymous} kB\nSwap:  {swap} kB\nSwapPss:  0 kB\n"
            )
        };
        let mapped = |head: &str, anonymous: u32| mapped_so(head, (anonymous, 0));
        let smaps = [
            mapped("1000-2000 r--p 00000000 fe:00 17   /opt/a b/agent", 0),
            mapped("2000-8000 r-xp 00001000 fe:00 17   /opt/a b/agent", 0),
            // With addresses that the loader put in, in memory or not; what may be written to; another file;
            // none.
            mapped("8000-9000 r--p 00007000 fe:00 17   /opt/a b/agent", 4),
            mapped_so("8000-9000 r--p 00007000 fe:00 17   /opt/a b/agent", (0, 4)),
            mapped("9000-a000 rw-p 00008000 fe:00 17   /opt/a b/agent", 0),
            mapped("a000-b000 r-xp 00000000 fe:00 18   /lib/libc.so.6", 0),
            mapped("b000-c000 r-xp 00000000 fe:00 19   /opt/a b/agent (deleted)", 0),
            mapped("c000-d000 r--p 00000000 00:00 0", 0),
            mapped("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]", 0),
        ];
        let found = unchanged(smaps.concat().as_bytes(), b"/opt/a b/agent");
        assert_eq!(found, [0x1000..0x2000, 0x2000..0x8000]);
        assert!(unchanged(b"", b"").is_empty());
    }

    #[test]
    fn r6_12_a_process_that_comes_to_rest_gives_back_its_code_and_goes_on() {
        // Other tests run in this process meanwhile, and may map as much between two looks.
        let is_less = |_| {
            let before = mapped();
            give_back_code();
            mapped() < before
        };
        assert!((0..20).any(is_less), "{} kB", mapped());
    }

    #[test]
    fn r6_12_a_process_at_rest_gives_back_its_code_whenever_a_thread_sleeps_and_none_when_it_works() {
        rests();
        let is_less = |_| {
            let before = mapped();
            sleeps();
            mapped() < before
        };
        assert!((0..20).any(is_less), "{} kB", mapped());
        works();
        assert!(fallow_daemon::lock(&AT_REST).is_none());
    }

    /// Kibibytes of its own code that this process has in memory.
    fn mapped() -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut ours = false;
        let mut sum = 0;
        for line in smaps.lines() {
            if let Some((_, permissions, path)) = mapping(line.as_bytes()) {
                ours =
                    permissions == b"r-xp" && path == std::env::current_exe().unwrap().as_os_str().as_bytes();
            } else if let Some(rss) = line.strip_prefix("Rss:").filter(|_| ours) {
                sum += rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            }
        }
        sum
    }
}
