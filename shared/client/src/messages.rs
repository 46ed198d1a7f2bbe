//! What projects have to say to their users, and how much of it is told.
//!
//! A project may send messages with every reply, and be answered often. It is heard like anybody: some
//! messages at once, then one a minute, so that no project fills the log of a host. Of those beyond, only
//! their number is told (R1.3: replies may come often).

use std::collections::BTreeMap;

use fallow_boinc::scheduler::{Priority, SchedulerReply};
use fallow_domain::{Duration, Instant, ProjectId, printable};

use crate::NoticeLevel;
use crate::machine::Client;

/// Most messages of a project that are told at once.
const AT_ONCE: f64 = 15.0;
/// Another one is told after so long.
const EACH: Duration = Duration::from_mins(1);

/// Longest text that is kept of what a project said when it sent no work, in bytes.
const NO_WORK_MAX: usize = 500;

/// What a project said when it sent no work the last time. Kept in memory only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWork {
    /// When.
    pub at: Instant,
    /// In its words, on one line.
    pub said: String,
}

/// What projects say. Not stored.
#[derive(Debug, Default)]
pub(crate) struct Hearings {
    by_project: BTreeMap<ProjectId, Hearing>,
    no_work: BTreeMap<ProjectId, NoWork>,
}

impl Hearings {
    /// What a project said when it sent no work the last time.
    pub(crate) fn no_work(&self, project: ProjectId) -> Option<&NoWork> {
        self.no_work.get(&project)
    }

    /// A project is detached.
    pub(crate) fn forget(&mut self, project: ProjectId) {
        self.by_project.remove(&project);
        self.no_work.remove(&project);
    }
}

/// How much of what a project says is still to be told.
#[derive(Clone, Copy, Debug)]
struct Hearing {
    left: f64,
    as_of: Instant,
    /// Messages that were not told, and whose number was not either.
    untold: usize,
}

impl Hearing {
    fn begun(now: Instant) -> Self {
        Self { left: AT_ONCE, as_of: now, untold: 0 }
    }

    /// Whether the next message is told.
    fn hears(&mut self, now: Instant) -> bool {
        let waited = now.since(self.as_of).max(Duration::ZERO);
        self.left = (self.left + waited.as_secs_f64() / EACH.as_secs_f64()).min(AT_ONCE);
        self.as_of = now;
        let hears = self.left >= 1.0;
        if hears {
            self.left -= 1.0;
        } else {
            self.untold += 1;
        }
        hears
    }
}

impl Client {
    /// Tells what a project says in a reply.
    pub(crate) fn apply_messages(&mut self, id: ProjectId, reply: &SchedulerReply) {
        self.note_no_work(id, reply);
        let now = self.now();
        let mut told = false;
        for message in &reply.messages {
            if !self.hearings.by_project.entry(id).or_insert_with(|| Hearing::begun(now)).hears(now) {
                continue;
            }
            told = true;
            let level = if message.priority == Priority::Low { NoticeLevel::Info } else { NoticeLevel::Warn };
            self.notice(level, Some(id), format!("the project says: {}", message.text));
        }
        if let Some(hearing) =
            self.hearings.by_project.get_mut(&id).filter(|hearing| told && hearing.untold > 0)
        {
            let untold = std::mem::take(&mut hearing.untold);
            let text = format!("... and {untold} more messages, which are not told: it says too much");
            self.notice(NoticeLevel::Warn, Some(id), text);
        }
    }

    /// Keeps what a project says with a reply without work, until it sends some.
    fn note_no_work(&mut self, id: ProjectId, reply: &SchedulerReply) {
        if !reply.results.is_empty() {
            self.hearings.no_work.remove(&id);
        } else if !reply.messages.is_empty() {
            let said = reply.messages.iter().take(NO_WORK_MAX).map(|message| message.text.trim());
            let said = printable::joined(&said.collect::<Vec<_>>().join("; "), NO_WORK_MAX);
            self.hearings.no_work.insert(id, NoWork { at: self.now(), said });
        }
    }
}
