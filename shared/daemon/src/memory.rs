//! Memory that was freed. The one place of this crate with unsafe code.

#![allow(unsafe_code)]

/// So many freed bytes at the end of a thread's memory stay for what comes next.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 512 << 10;
/// Pieces of so many bytes and more are the system's again as soon as they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 1 << 20;

/// Gives freed memory back to the system. The C library keeps it for later otherwise, for each thread apart,
/// and what one large message took would be the process's for good.
///
/// It also bounds what each thread's memory keeps at its end, which the C library leaves out here
/// (`malloc_trim`): it raises its own bound to twice the largest piece that was ever freed, up to 64 MiB for
/// each thread. So a process calls this soon after its start.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: they take numbers, and touch nothing but the allocator's own figures and memory that is free.
    // The first two write a figure that other threads may write at the same time, each of which is a valid
    // one, so it is set again each time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn resident() -> Option<usize> {
        let text = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? << 10)
    }

    /// Frees a large piece, which raises the C library's own bound, and then fifty MiB in small ones, the
    /// last first.
    fn takes_and_frees() {
        drop(std::hint::black_box(vec![1_u8; 30 * MIB]));
        let mut pieces: Vec<_> = (0..500).map(|_| vec![1_u8; 100 << 10]).collect();
        while pieces.pop().is_some() {}
    }

    #[test]
    fn r6_10_what_threads_have_taken_and_freed_goes_back_to_the_system() {
        give_back_memory();
        let before = resident().unwrap();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(takes_and_frees)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        give_back_memory();
        let more = resident().unwrap().saturating_sub(before) / MIB;
        assert!(more < 20, "{more} MiB");
    }
}
