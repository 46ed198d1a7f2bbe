//! Memory that was freed. The one place of this crate with unsafe code.

#![allow(unsafe_code)]

/// Gives freed memory back to the system. The C library keeps it for later otherwise, for each thread apart,
/// and what one large message took would be the process's for good.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes a number, touches nothing but memory that is free, and may be called from any thread
    // at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
