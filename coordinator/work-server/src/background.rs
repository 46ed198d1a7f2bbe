//! The server's background work: passed deadlines, comparisons of outputs, files that nobody needs any more.
//! BOINC's servers have a process for each of them: transitioner, validator and file deleter.
//!
//! All of it is found in indexes, never by looking through all jobs, and each step is a transaction of its
//! own: a crash at any moment leaves the rest in the index. Only what no record speaks of is looked for in
//! the directory (`orphans`).

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration as StdDuration;

use fallow_daemon::lock;
use fallow_domain::Instant;
use fallow_store::Entry;
use tracing::{debug, error, info, warn};

use super::comparator;
use super::credit;
use super::error::ProjectError;
use super::index;
use super::layout::remove_if_there;
use super::names::output_name;
use super::project::Project;
use super::server::Shared;
use super::store_keys::{job_of, tail};
use super::txn::Txn;
use super::validate::{self, Comparison};
use super::workunit::{Validation, Workunit, WorkunitState};

/// How long passed deadlines may go unnoticed.
const INTERVAL: StdDuration = StdDuration::from_secs(1);
/// Steps between two looks at the other indexes and projects.
const STEPS: usize = 256;

/// Wakes the background thread.
#[derive(Default)]
pub(crate) struct Wakeup {
    state: Mutex<WakeupState>,
    changed: Condvar,
}

#[derive(Default)]
struct WakeupState {
    is_notified: bool,
    stopped: bool,
}

impl Wakeup {
    /// Wakes it now: there is something to compare.
    pub(crate) fn notify(&self) {
        fallow_daemon::lock(&self.state).is_notified = true;
        self.changed.notify_all();
    }

    /// The thread shall end.
    pub(crate) fn stop(&self) {
        fallow_daemon::lock(&self.state).stopped = true;
        self.changed.notify_all();
    }

    /// Waits until it is notified, or for the interval. Says whether to go on.
    fn wait(&self) -> bool {
        let state = fallow_daemon::lock(&self.state);
        let waited =
            self.changed.wait_timeout_while(state, INTERVAL, |state| !state.is_notified && !state.stopped);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_notified = false;
        !state.stopped
    }
}

/// Starts the thread.
pub(crate) fn spawn(shared: Arc<Shared>) -> Result<JoinHandle<()>, ProjectError> {
    let turn = move || {
        while shared.wakeup.wait() {
            if let Err(problem) = run(&shared) {
                // The work stays in its index and is tried again.
                error!(error = &problem as &dyn std::error::Error, "background work of the projects failed");
            }
        }
    };
    let thread = std::thread::Builder::new().name("project-work".to_owned());
    thread.spawn(turn).map_err(|source| ProjectError::File {
        action: "start a thread for",
        path: "background work of projects".into(),
        source,
    })
}

/// Does all there is to do in all projects. Waits for another one that does.
pub(crate) fn run(shared: &Shared) -> Result<(), ProjectError> {
    let _alone = lock(&shared.background);
    let mut failure = Ok(());
    for project in shared.all() {
        // One project's bad file does not hold up the others.
        if let Err(problem) = run_project(&project, &shared.held, shared.now()) {
            failure = Err(problem);
        }
    }
    failure
}

fn run_project(project: &Project, held: &RwLock<()>, now: Instant) -> Result<(), ProjectError> {
    loop {
        let deleted = unless_held(held, || project.delete_files(now))?.unwrap_or_default();
        if deleted + project.transition(now)? + project.validate(now)? == 0 {
            return unless_held(held, || project.remove_orphans(now)).map(drop);
        }
    }
}

/// Removes files; what somebody copies at this moment is removed later. Nobody who wants to copy waits
/// for anything else: comparisons take long.
fn unless_held<T>(
    held: &RwLock<()>,
    remove: impl FnOnce() -> Result<T, ProjectError>,
) -> Result<Option<T>, ProjectError> {
    let free = held.try_write().ok();
    free.map(|_free| remove()).transpose()
}

impl Project {
    /// Gives up jobs whose deadline has passed (BOINC: transitioner). Gives the number of them.
    fn transition(&self, now: Instant) -> Result<usize, ProjectError> {
        let prefix = self.keys.deadlines();
        let end = self.keys.deadline(now, "", 0);
        let due = |key: &[u8]| key.get(..prefix.len() + 16) < end.get(..prefix.len() + 16);
        let first = self.read().scan(&prefix, None, STEPS)?;
        let passed: Vec<_> = first.into_iter().map(|(key, _)| key).take_while(|key| due(key)).collect();
        for key in &passed {
            // Behind the time, WORKUNIT/INDEX.
            let job = tail(key, &prefix).split_once('/').and_then(|(_, job)| job_of(job));
            self.transact(|txn| {
                let Some((name, index)) = job else { return self.drop_stale(txn, key) };
                let before = index::read(txn, &self.keys, name)?;
                let Some(before) = before else { return self.drop_stale(txn, key) };
                let mut after = before.clone();
                if !txn.contains(key)? {
                    // Reported or sent again since we looked.
                    return Ok(());
                }
                if !after.give_up(index) {
                    return self.drop_stale(txn, key);
                }
                if let Some(times) = self.log_limits.late.allow() {
                    let (job, host) =
                        (after.job_name(index), before.jobs.get(index as usize).map(|job| job.host));
                    info!(project = %self.name, %job, host, times, "the deadline passed without a report");
                }
                index::write(txn, &self.keys, Some(&before), &after, now)
            })?;
        }
        Ok(passed.len())
    }

    /// Compares what is to be compared (BOINC: validator). Gives the number of workunits that this changed.
    fn validate(&self, now: Instant) -> Result<usize, ProjectError> {
        let prefix = self.keys.to_compare();
        let (mut changed, mut page) = (0, self.read().scan(&prefix, None, STEPS)?);
        while changed == 0
            && let Some((last, _)) = page.last().cloned()
        {
            changed += self.validate_page(&prefix, page, now)?;
            // Those that failed stay where they are: the ones behind them have their turn all the same.
            page = self.read().scan(&prefix, Some(&last), STEPS)?;
        }
        Ok(changed)
    }

    fn validate_page(&self, prefix: &[u8], page: Vec<Entry>, now: Instant) -> Result<usize, ProjectError> {
        let mut changed = 0;
        for (key, _) in page {
            let workunit = index::read(&self.read(), &self.keys, tail(&key, prefix))?;
            let Some(workunit) = workunit.filter(|workunit| !workunit.to_compare().is_empty()) else {
                // Decided since we looked, or an entry that nothing stands behind.
                self.drop_unless_compared(prefix, &key)?;
                continue;
            };
            let comparison = match self.compare(&workunit) {
                Ok(comparison) => comparison,
                Err(problem) => {
                    // Try again at the next turn; the other workunits do not wait for it.
                    error!(
                        project = %self.name, workunit = %workunit.name,
                        error = &problem as &dyn std::error::Error, "cannot compare outputs"
                    );
                    continue;
                }
            };
            changed += usize::from(self.apply_comparison(&workunit, &comparison, now)?);
        }
        Ok(changed)
    }

    fn drop_unless_compared(&self, prefix: &[u8], key: &[u8]) -> Result<(), ProjectError> {
        self.transact(|txn| {
            let workunit = index::read(txn, &self.keys, tail(key, prefix))?;
            let is_stale = workunit.is_none_or(|workunit| workunit.to_compare().is_empty());
            if is_stale && txn.contains(key)? { self.drop_stale(txn, key) } else { Ok(()) }
        })
    }

    /// Compares files, without the lock: they may be large.
    fn compare(&self, workunit: &Workunit) -> Result<Comparison, ProjectError> {
        let agrees = comparator::find(&workunit.comparator)?;
        let candidates = workunit.to_compare();
        let there = |index: &u32| {
            let job = workunit.job_name(*index);
            let mut paths = (0..workunit.outputs.len()).map(|at| self.layout.upload(&output_name(&job, at)));
            paths.all(|path| path.is_file())
        };
        let (readable, unreadable): (Vec<u32>, Vec<u32>) = candidates.into_iter().partition(there);
        let mut failure = None;
        let mut agree = |a: u32, b: u32| {
            let (a, b) = (workunit.job_name(a), workunit.job_name(b));
            (0..workunit.outputs.len()).all(|at| {
                let (left, right) = (output_name(&a, at), output_name(&b, at));
                let path = self.layout.upload(&left);
                agrees(&path, &self.layout.upload(&right)).unwrap_or_else(|source: io::Error| {
                    failure = Some(ProjectError::File { action: "compare", path, source });
                    false
                })
            })
        };
        let mut comparison = match workunit.state {
            WorkunitState::Validated { canonical } if unreadable.contains(&canonical) => {
                let path = self.layout.upload(&output_name(&workunit.job_name(canonical), 0));
                let source = io::Error::from(io::ErrorKind::NotFound);
                return Err(ProjectError::File { action: "find the canonical output", path, source });
            }
            WorkunitState::Validated { canonical } => validate::check_pair(canonical, &readable, &mut agree),
            _ => {
                let quorum = workunit.rules.quorum as usize;
                validate::check_set(&readable, quorum, |job| workunit.account_of(job), &mut agree)
            }
        };
        comparison.unreadable = unreadable;
        failure.map_or(Ok(comparison), Err)
    }

    fn apply_comparison(
        &self,
        compared: &Workunit,
        comparison: &Comparison,
        at: Instant,
    ) -> Result<bool, ProjectError> {
        self.transact(|txn| {
            let now = index::read(txn, &self.keys, &compared.name)?;
            let Some(before) = now else { return Ok(false) };
            // A report that came meanwhile is compared at the next turn, with all others; the index still
            // says so.
            if before.to_compare() != compared.to_compare() || before.state != compared.state {
                return Ok(true);
            }
            let mut after = before.clone();
            after.take_comparison(comparison);
            credit::settle(txn, &self.keys, &mut after, at)?;
            for job in after.jobs.iter().filter(|job| job.granted.is_some()) {
                lock(&self.asking).not_new((job.account, job.host), self.settings().poll, at);
            }
            self.log_comparison(&before, &after);
            index::write(txn, &self.keys, Some(&before), &after, at)?;
            Ok(true)
        })
    }

    fn log_comparison(&self, before: &Workunit, after: &Workunit) {
        let (project, workunit) = (&self.name, &after.name);
        match &after.state {
            WorkunitState::Validated { canonical } if before.state == WorkunitState::Active => {
                let (canonical, agreeing) = (after.job_name(*canonical), after.agreeing());
                info!(%project, %workunit, %canonical, agreeing, "validated");
            }
            WorkunitState::Failed { reason } => warn!(%project, %workunit, %reason, "given up"),
            _ => debug!(%project, %workunit, "compared"),
        }
        for job in after.jobs.iter().filter(|job| job.validation == Some(Validation::Invalid)) {
            let old = before.jobs.get(job.index as usize).and_then(|job| job.validation);
            if old != Some(Validation::Invalid) {
                warn!(%project, job = %after.job_name(job.index), host = job.host, "differs from the canonical job");
            }
        }
    }

    /// Deletes the files of decided workunits, but for canonical outputs (BOINC: file deleter). Gives the
    /// number of workunits.
    fn delete_files(&self, now: Instant) -> Result<usize, ProjectError> {
        let prefix = self.keys.all_cleanup();
        let (mut cleaned, mut page) = (0, self.read().scan(&prefix, None, STEPS)?);
        while cleaned == 0
            && let Some((last, _)) = page.last().cloned()
        {
            for (key, _) in page {
                let Some(workunit) = index::read(&self.read(), &self.keys, tail(&key, &prefix))? else {
                    self.transact(|txn| self.drop_stale(txn, &key))?;
                    continue;
                };
                if let Err(problem) = self.delete_files_of(&workunit) {
                    // Try again at the next turn; the other workunits do not wait for it.
                    error!(
                        project = %self.name, workunit = %workunit.name,
                        error = &problem as &dyn std::error::Error, "cannot delete files that nobody needs"
                    );
                    continue;
                }
                cleaned += usize::from(self.note_files_deleted(&workunit, &key, now)?);
            }
            page = self.read().scan(&prefix, Some(&last), STEPS)?;
        }
        Ok(cleaned)
    }

    /// Notes that a workunit's files are gone. Not if a late report came meanwhile: then there may be more of
    /// them.
    fn note_files_deleted(&self, cleaned: &Workunit, key: &[u8], now: Instant) -> Result<bool, ProjectError> {
        self.transact(|txn| {
            let Some(before) = index::read(txn, &self.keys, &cleaned.name)? else { return Ok(false) };
            if before != *cleaned {
                return Ok(false);
            }
            let mut after = before.clone();
            after.files_deleted = true;
            index::write(txn, &self.keys, Some(&before), &after, now)?;
            if txn.contains(key)? {
                self.drop_stale(txn, key)?;
            }
            Ok(true)
        })
    }

    /// An index entry that no workunit stands behind: it would come up for ever.
    fn drop_stale(&self, txn: &mut Txn<'_>, key: &[u8]) -> Result<(), ProjectError> {
        warn!(project = %self.name, key = %key.escape_ascii(), "an index entry without its workunit is dropped");
        txn.delete(key.to_vec());
        Ok(())
    }

    fn delete_files_of(&self, workunit: &Workunit) -> Result<(), ProjectError> {
        let keep = match workunit.state {
            WorkunitState::Validated { canonical } => Some(canonical),
            _ => None,
        };
        for job in workunit.jobs.iter().filter(|job| job.host != 0) {
            let name = workunit.job_name(job.index);
            for position in 0..workunit.outputs.len() {
                let output = output_name(&name, position);
                remove_if_there(&self.layout.partial(&output))?;
                if keep != Some(job.index) {
                    remove_if_there(&self.layout.upload(&output))?;
                }
            }
        }
        // What hosts keep is there for the next workunit that reads it.
        let mut own = workunit.inputs.iter().filter(|input| !input.sticky);
        own.try_for_each(|input| remove_if_there(&self.layout.download(&input.file_name)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use fallow_store::{Batch, SledStore, Store};

    use super::*;
    use crate::{ProjectServer, ProjectSettings};

    #[test]
    fn r6_9_who_needs_all_files_to_stay_waits_for_no_other_work_than_a_removal() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let server = ProjectServer::open(store.clone(), dir.path(), "http://127.0.0.1:1").unwrap();
        server.create_project("p", ProjectSettings::default()).unwrap();
        let project = server.shared().project("p").unwrap();
        let (held, is_held) = mpsc::channel();
        let in_time = std::thread::scope(|scope| {
            let beside = |_: &mut Txn<'_>| {
                // There is something to do, and it cannot be done as long as this goes on.
                let passed = project.keys.deadline(Instant::EPOCH, "w", 0);
                let _ = store.apply(Batch::new().put(passed, *b""))?;
                scope.spawn(|| server.run_background_work().unwrap());
                while server.shared().background.try_lock().is_ok() {
                    std::thread::yield_now();
                }
                let (server, held) = (&server, &held);
                scope.spawn(move || {
                    (0..1_000).for_each(|_| drop(server.hold_files()));
                    held.send(()).unwrap();
                });
                Ok(is_held.recv_timeout(StdDuration::from_secs(10)).is_ok())
            };
            project.transact(beside).unwrap()
        });
        assert!(in_time);
    }
}
