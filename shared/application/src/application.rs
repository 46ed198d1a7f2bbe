//! The application's handle: start, report, checkpoint, finish.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fallow_boinc::runtime::files;
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_boinc::runtime::init_data::{AppInitData, MAPPED_CHANNEL};
use fallow_domain::Duration;

use crate::checkpoint::write_atomically;
use crate::clock::{sleep_one_tick, ticks};
use crate::error::StartError;
use crate::lock::SlotLock;
use crate::mapping::Mapping;
use crate::watch::ClientWatch;
use crate::{files as slot, link::Link, tick};

/// The version of BOINC's application interface that this library speaks, as servers' tools look for it in an
/// executable. From 6.0 on, clients offer the mapped channel.
#[used]
pub static API_VERSION: [u8; 18] = *b"API_VERSION_8.0.0\0";

/// How long to wait for another instance in the slot to end (BOINC: 35 s) ...
const LOCK_WAIT: Duration = Duration::from_secs(35);
/// ... and when to be started again if it does not (BOINC: 600 s).
const LOCKED_DELAY: Duration = Duration::from_secs(600);
/// How long to wait at the end for the client to read the last status but one (BOINC always sleeps 2 s).
const LAST_STATUS_WAIT: Duration = Duration::from_secs(2);

/// A running application. One per process; computing threads share it by reference.
#[derive(Debug)]
pub struct Application {
    link: Arc<Link>,
    // Never read, held for as long as the process lives.
    _lock: SlotLock,
}

impl Application {
    /// Starts in the current directory: finds out about the client, locks the slot, opens the channel.
    ///
    /// Under a client this ends the process, to be started again later, when another instance holds the slot
    /// for 35 s.
    ///
    /// # Errors
    /// [`StartError`] when the directory cannot be locked, or, standalone, is taken by another instance.
    pub fn start() -> Result<Self, StartError> {
        // A use that no linker can see through keeps the marker in the executable.
        std::hint::black_box(&API_VERSION);
        let init_data = slot::init_data();
        if init_data.is_none() {
            eprintln!("no {} that can be read: running standalone", files::INIT_DATA);
        }
        let watch = init_data.as_ref().and_then(|data| ClientWatch::new(data.client_pid));
        let lock = lock_slot(init_data.is_some(), watch.as_ref())?;
        let mapping = init_data.as_ref().and_then(open_channel);
        let link = Arc::new(Link::new(mapping, init_data));
        let thread_link = Arc::clone(&link);
        std::thread::Builder::new()
            .name("client".into())
            .spawn(move || tick::run(&thread_link, watch.as_ref()))
            .map_err(StartError::Thread)?;
        Ok(Self { link, _lock: lock })
    }

    /// What the client said last; none when standalone.
    pub fn init_data(&self) -> Option<Arc<AppInitData>> {
        self.link.init_data()
    }

    /// Says how much of the job is done, from 0 to 1. Sleeps here while suspended: call it often.
    pub fn fraction_done(&self, fraction: f64) {
        self.link.set_fraction(fraction);
        self.poll();
    }

    /// Sleeps here while suspended.
    pub fn poll(&self) {
        self.link.pause_point();
    }

    /// True when the client's checkpoint period has passed since the last checkpoint. Sleeps here while
    /// suspended.
    pub fn time_to_checkpoint(&self) -> bool {
        self.poll();
        self.link.time_to_checkpoint()
    }

    /// To be called when a checkpoint is on the disk: the client then knows that no work up to here can be
    /// lost.
    pub fn checkpoint_completed(&self) {
        self.link.checkpoint_completed();
    }

    /// Writes a checkpoint in one file, so that it is there whole or not at all, and tells the client.
    ///
    /// # Errors
    /// When it cannot be written; the old one is then still there, and the next attempt is due a period
    /// later.
    pub fn save_checkpoint(&self, path: &Path, content: &str) -> io::Result<()> {
        let written = write_atomically(path, content.as_bytes());
        match written {
            Ok(()) => self.link.checkpoint_completed(),
            Err(_) => self.link.checkpoint_postponed(),
        }
        written
    }

    /// Does what must not be cut off by quit, abort or the end of the client, such as writing several files
    /// that belong together. Keep it short: a client that waits 60 s kills the process.
    pub fn uninterrupted<R>(&self, work: impl FnOnce() -> R) -> R {
        let _section = self.link.critical_section();
        work()
    }

    /// True when the client wants no network use now. False when standalone.
    pub fn network_suspended(&self) -> bool {
        self.link.network_suspended()
    }

    /// CPU time of the job over all starts.
    pub fn cpu_time(&self) -> Duration {
        self.link.cpu_time()
    }

    /// Ends the job: tells the client that it is finished, and exits with `status` (0 for success). Outputs
    /// have to be on the disk before.
    ///
    /// BOINC's library always sleeps 2 s here, so that the client has read the status before the last. This
    /// one waits only until it has, 2 s at most, and not at all when standalone.
    pub fn finish(&self, status: i32) -> ! {
        self.end(&Finish { status, ..Finish::SUCCESS })
    }

    /// Like [`Application::finish`], with a message that the client logs.
    pub fn finish_with_message(&self, status: i32, message: impl Into<String>) -> ! {
        self.end(&Finish { status, message: Some(message.into()), notice: false })
    }

    /// Exits and asks to be started again after `delay`, for what will pass: a licence, a full disk, a lock.
    pub fn temporary_exit(&self, delay: Duration, reason: impl Into<String>) -> ! {
        let _section = self.link.critical_section();
        temporary_exit(&TemporaryExit { delay, reason: reason.into(), notice: false })
    }

    fn end(&self, finish: &Finish) -> ! {
        // From here on the end cannot be taken for a quit.
        let _section = self.link.critical_section();
        if finish.status == 0 {
            self.link.set_fraction(1.0);
        }
        for _ in 0..ticks(LAST_STATUS_WAIT) {
            if self.link.send_status() {
                break;
            }
            sleep_one_tick();
        }
        if self.link.init_data().is_some()
            && let Err(error) = write_atomically(files::FINISH.as_ref(), finish.write().as_bytes())
        {
            // Exit 0 without the file means another start, which is right for a disk that is full for now.
            eprintln!("cannot write {}: {error}; the client will start this job again", files::FINISH);
        }
        std::process::exit(finish.status)
    }
}

fn temporary_exit(exit: &TemporaryExit) -> ! {
    eprintln!("{}: exiting, to be started again in {}", exit.reason, exit.delay);
    if let Err(error) = write_atomically(files::TEMPORARY_EXIT.as_ref(), exit.write().as_bytes()) {
        eprintln!("cannot write {}: {error}", files::TEMPORARY_EXIT);
    }
    std::process::exit(0)
}

/// Waits for the lock as BOINC does, but leaves early with a client that is gone.
fn lock_slot(has_client: bool, watch: Option<&ClientWatch>) -> Result<SlotLock, StartError> {
    for tick in 0..ticks(LOCK_WAIT) {
        let lock =
            SlotLock::try_acquire().map_err(|source| StartError::Lock { file: files::LOCK, source })?;
        match lock {
            Some(lock) => return Ok(lock),
            None if !has_client => return Err(StartError::Occupied),
            None => sleep_one_tick(),
        }
        if tick.is_multiple_of(10) && watch.is_some_and(ClientWatch::is_gone) {
            std::process::exit(0);
        }
    }
    temporary_exit(&TemporaryExit {
        delay: LOCKED_DELAY,
        reason: "another instance holds the slot's lock".into(),
        notice: false,
    })
}

/// The channel, if the client offers one that we know. Without it the job is computed all the same.
fn open_channel(data: &AppInitData) -> Option<Mapping> {
    if data.shm_key != MAPPED_CHANNEL {
        eprintln!(
            "the client offers SysV shared memory, which this library lacks: running without a channel"
        );
        return None;
    }
    Mapping::open(files::CHANNEL.as_ref())
        .inspect_err(|error| eprintln!("cannot map {}: {error}: running without a channel", files::CHANNEL))
        .ok()
}
