//! Work that may take long or never end, such as a read of a driver's file, in a thread of the runtime's.
//!
//! Where the system gives no thread the runtime panics. Whoever looks at the machine now and then is not to
//! end by that: the next look may do.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::task::{JoinHandle, spawn_blocking};

/// Work that has begun. Whoever drops it hears nothing of its end; it goes on to it all the same.
pub(super) struct Work<T>(JoinHandle<T>);

impl<T: Send + 'static> Work<T> {
    /// Begins `work`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn begin(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        // Nothing of it is used after a panic but the work, which the runtime keeps and does later.
        let begun = catch_unwind(AssertUnwindSafe(|| spawn_blocking(work)));
        begun.map(Self).map_err(|_| io::Error::other("the system gives no thread for it"))
    }

    /// Waits for what comes of it.
    ///
    /// # Errors
    /// It panicked.
    pub(super) async fn end(&mut self) -> io::Result<T> {
        Ok((&mut self.0).await?)
    }

    /// Whether it goes on.
    pub(super) fn goes_on(&self) -> bool {
        !self.0.is_finished()
    }
}

/// Has `work` done, and waits for what comes of it.
///
/// # Errors
/// The system gives no thread, or it panicked.
pub(super) async fn done<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    Work::begin(work)?.end().await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_says_what_comes_of_it_or_that_it_panicked() {
        assert_eq!(done(|| 7).await.unwrap(), 7);
        done(|| panic!("this work panics")).await.map_err(|error: io::Error| error.to_string()).unwrap_err();
    }

    #[tokio::test]
    async fn work_goes_on_until_it_has_ended() {
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let work = Work::begin(move || waits.recv()).unwrap();
        assert!(work.goes_on());
        drop(go);
        while work.goes_on() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    #[ignore = "not a test: run alone in a process by the test below"]
    fn without_threads() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Of all that this user has, and that is one at least.
        let was = rustix::process::getrlimit(rustix::process::Resource::Nproc);
        let limit = |current| {
            let limit = rustix::process::Rlimit { current, maximum: was.maximum };
            rustix::process::setrlimit(rustix::process::Resource::Nproc, limit).unwrap();
        };
        runtime.block_on(async {
            limit(Some(1));
            let failed = done(|| 7).await;
            limit(was.current);
            println!("\nfailed: {}, then: {:?}", failed.is_err(), done(|| 7).await.ok());
        });
    }

    #[test]
    fn where_the_system_gives_no_thread_work_fails_and_the_next_is_done() {
        // Root's threads are not counted. Whoever else it is has to reach the program.
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let program = dir.path().join("tests");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(program);
        command.args(["host::work::tests::without_threads", "--exact", "--ignored", "--nocapture"]);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("failed: true, then: Some(7)"), "{said}");
    }
}
