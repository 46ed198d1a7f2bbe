//! Outputs that applications want sent before their job ends: looked at beside the supervisor's looks.
//!
//! Model: one look at a time for each task, in a thread of its own at idle priority, for to work out the sum
//! of a large output takes longer than a second. What is asked for meanwhile is looked at once more after it,
//! and what found no space a minute later.
//! So no job holds up the heartbeats of others (R6.10).

use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fallow_client::OutputFound;

use super::early_door::EarlyDoor;
use super::messages;
use super::record::Output;
use super::slot_dir::SlotDir;
use crate::sys::{self, Urgency};

/// How long it takes until a look that found no space is made once more.
const LATER: Duration = Duration::from_secs(60);
/// After this long, the engine is offered again what it had no room for.
const NO_ROOM: Duration = Duration::from_secs(1);

/// The looks at one task's outputs.
#[derive(Debug, Default)]
pub(super) struct EarlyLook {
    wanted: bool,
    running: Option<JoinHandle<bool>>,
    /// When one is made without news.
    later: Option<Instant>,
}

impl EarlyLook {
    /// To be called at each look at tasks: starts a look if there is `news`, or was some since the last one
    /// began, and none goes on. `work` makes what the look does, which says whether there is to be another
    /// one later.
    pub(super) fn look<W: FnOnce() -> bool + Send + 'static>(
        &mut self,
        news: bool,
        work: impl FnOnce() -> W,
    ) {
        self.wanted |= news;
        if self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let now = Instant::now();
        if self.running.take().is_some_and(|over| over.join().unwrap_or(false)) {
            self.later = Some(now + LATER);
        }
        self.wanted |= self.later.take_if(|at| *at <= now).is_some();
        if !self.wanted {
            return;
        }
        let work = work();
        let look = move || {
            sys::lower(Urgency::Idle);
            work()
        };
        self.running = std::thread::Builder::new().name("upload".into()).spawn(look).ok();
        // No thread, no look: the next second tries again.
        self.wanted = self.running.is_none();
    }
}

/// What a look does: offers to the engine, which may have no room for it yet, each output of a task that is
/// asked for, as long as the `door` is open. True when one found no space.
pub(super) fn offer(
    place: &SlotDir,
    project: &Path,
    made: &[Output],
    door: &EarlyDoor,
    offer: impl Fn(OutputFound) -> bool,
) -> bool {
    let mut lacks_space = false;
    for output in messages::upload_requests(place, made) {
        let look = || messages::output_now(place, project, output, made, door);
        let now = door.is_open().then(look).unwrap_or(Ok(None));
        lacks_space |= now.is_err();
        if now.is_err() || !door.is_open() {
            messages::ask_again(place, output);
            continue;
        }
        let Ok(Some(output)) = now else { continue };
        while !offer(output.clone()) {
            std::thread::sleep(NO_ROOM);
        }
    }
    lacks_space
}
