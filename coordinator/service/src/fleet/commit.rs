//! Group commit: the changes of many agents go to the store in one batch.
//!
//! A batch costs about the same whether it holds one message or a thousand, so one thread takes whatever has
//! come in the meantime, stores it whole and tells all senders. Each message's entries and number are in the
//! same batch, therefore applied together or not at all. What is stored survives the death of the process;
//! after a power cut the coordinator may hold an earlier position, from which the agents go on (their amounts
//! are totals). On a volume that is filling up agents' changes are refused before operators' are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fallow_store::{Batch, Store, StoreError};
use tokio::sync::{mpsc, oneshot};

use super::state::Writes;

/// Changes that wait to be stored. Senders wait when it is full.
const QUEUE: usize = 4_096;
/// Writes of one batch: keeps the time of a batch at some tens of milliseconds.
const GROUP_WRITES: usize = 8_192;
/// Bytes of their keys and values: about what as many jobs take. All agents wait for the batch that they
/// are in, so none of them makes it much longer.
const GROUP_BYTES: usize = 4 << 20;
/// How long it may take to find out for which of them there is space.
const PARTED: Duration = Duration::from_secs(1);

/// The answer to a change: stored, or why not.
pub type Stored = Result<(), NotStored>;

/// The changes of one connection. Once one of them fails none behind it is stored: it would carry a later
/// number than the one that is missing.
#[derive(Clone, Debug, Default)]
pub struct CommitSequence(Arc<AtomicBool>);

/// A change that is not in the store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotStored {
    /// The store said why: of this change, or of those together that were tried with it.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// It was not tried.
    #[error("an earlier change of the same agent was not stored")]
    EarlierFailed,
}

impl NotStored {
    /// Whether there is no space for it.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Store(error) if matches!(**error, StoreError::Full { .. }))
    }
}

struct Request {
    stream: CommitSequence,
    writes: Writes,
    done: oneshot::Sender<Stored>,
}

/// Where changes are handed in. The thread ends when the last of these is dropped.
#[derive(Clone)]
pub struct Commits(mpsc::Sender<Request>);

impl Commits {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(store: Arc<dyn Store>) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        std::thread::Builder::new().name("fleet-commit".into()).spawn(move || run(&*store, receiver))?;
        Ok(Self(sender))
    }

    /// Hands in a change; waits for room. Changes are stored in the order they were handed in.
    pub async fn send(&self, stream: &CommitSequence, writes: Writes) -> oneshot::Receiver<Stored> {
        let (done, answer) = oneshot::channel();
        // If the thread is gone, `done` is dropped with the request and the receiver says so.
        let _ = self.0.send(Request { stream: stream.clone(), writes, done }).await;
        answer
    }

    /// Hands in a change by itself, if there is room for it at once.
    pub fn hand_in(&self, writes: Writes) -> Option<oneshot::Receiver<Stored>> {
        let (done, answer) = oneshot::channel();
        let request = Request { stream: CommitSequence::default(), writes, done };
        self.0.try_send(request).ok().map(|()| answer)
    }
}

fn run(store: &dyn Store, mut requests: mpsc::Receiver<Request>) {
    while let Some(first) = requests.blocking_recv() {
        let (mut group, mut writes, mut bytes) = (Vec::new(), 0, 0);
        let mut next = Some(first);
        while let Some(request) = next {
            writes += request.writes.len();
            bytes += request.bytes();
            group.push(request);
            let is_full = writes >= GROUP_WRITES || bytes >= GROUP_BYTES;
            next = if is_full { None } else { requests.try_recv().ok() };
        }
        store_group(store, group, Instant::now() + PARTED);
    }
}

/// Stores changes together. Where there is no space for all of them, either half is tried by itself, and so
/// on: one that is long takes none of the others with it. Beyond `until` there are no halves any more: others
/// wait.
fn store_group(store: &dyn Store, group: Vec<Request>, until: Instant) {
    let (mut group, behind): (Vec<_>, Vec<_>) =
        group.into_iter().partition(|request| !request.stream.has_failed());
    // Nobody to tell is no matter.
    behind.into_iter().for_each(|request| drop(request.done.send(Err(NotStored::EarlierFailed))));
    if group.is_empty() {
        return;
    }
    let stored = apply(store, &group);
    if group.len() > 1 && stored.as_ref().is_err_and(NotStored::is_full) && Instant::now() < until {
        let behind = group.split_off(group.len() / 2);
        store_group(store, group, until);
        store_group(store, behind, until);
        return;
    }
    for Request { stream, done, .. } in group {
        if stored.is_err() {
            stream.0.store(true, Ordering::Relaxed);
        }
        let _ = done.send(stored.clone());
    }
}

fn apply(store: &dyn Store, group: &[Request]) -> Stored {
    let mut batch = Batch::new().yielding();
    for (key, value) in group.iter().flat_map(|request| &request.writes) {
        match value {
            Some(value) => batch.add_put(key.clone(), value.clone()),
            None => batch.add_delete(key.clone()),
        }
    }
    store.apply(batch).map(drop).map_err(|error| NotStored::Store(Arc::new(error)))
}

impl CommitSequence {
    fn has_failed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Request {
    /// Of all keys and values.
    fn bytes(&self) -> usize {
        self.writes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_store::{BatchResult, Entry, KeyRange};
    use std::sync::Mutex;

    /// A store that fails once, and holds each batch until it is let go.
    struct FailsOnce(Mutex<bool>, Mutex<Vec<Batch>>);

    impl Store for FailsOnce {
        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(None)
        }
        fn scan(&self, _: &KeyRange, _: usize) -> Result<Vec<Entry>, StoreError> {
            Ok(Vec::new())
        }
        fn apply(&self, batch: Batch) -> Result<BatchResult, StoreError> {
            if std::mem::take(&mut *self.0.lock().unwrap()) {
                let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
                return Err(StoreError::Full { dir: "there".into(), source });
            }
            self.1.lock().unwrap().push(batch);
            Ok(BatchResult::Applied { revision: 1 })
        }
        fn apply_durable(&self, batch: Batch) -> Result<BatchResult, StoreError> {
            self.apply(batch)
        }
        fn copy(&self, _: &mut fallow_store::TakeCopied<'_>) -> Result<(), StoreError> {
            Ok(())
        }

        fn flush(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    /// A store that has no space for some batches.
    struct Lacks(fn(&Batch) -> bool, Mutex<Vec<Batch>>);

    impl Lacks {
        fn space(lacks: fn(&Batch) -> bool) -> Self {
            Self(lacks, Mutex::default())
        }
    }

    impl Store for Lacks {
        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(None)
        }
        fn scan(&self, _: &KeyRange, _: usize) -> Result<Vec<Entry>, StoreError> {
            Ok(Vec::new())
        }
        fn apply(&self, batch: Batch) -> Result<BatchResult, StoreError> {
            if (self.0)(&batch) {
                let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
                return Err(StoreError::Full { dir: "there".into(), source });
            }
            self.1.lock().unwrap().push(batch);
            Ok(BatchResult::Applied { revision: 1 })
        }
        fn apply_durable(&self, batch: Batch) -> Result<BatchResult, StoreError> {
            self.apply(batch)
        }
        fn copy(&self, _: &mut fallow_store::TakeCopied<'_>) -> Result<(), StoreError> {
            Ok(())
        }
        fn flush(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[test]
    fn r6_3_whoever_hands_a_change_in_does_not_wait_for_the_store() {
        static GOES: AtomicBool = AtomicBool::new(false);
        let store = Arc::new(Lacks::space(|_| {
            while !GOES.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        }));
        let commits = Commits::start(store.clone()).unwrap();
        let write = |number: usize| vec![(number.to_be_bytes().to_vec(), None)];
        const ALL: usize = 2 * (QUEUE + GROUP_WRITES);
        let taken = (0..ALL).filter(|number| commits.hand_in(write(*number)).is_some()).count();
        assert!((QUEUE..ALL).contains(&taken), "{taken}");
        GOES.store(true, Ordering::Relaxed);
        // What was taken is stored, in any number of batches.
        let last = vec![(b"last".to_vec(), None)];
        let answer = tokio::runtime::Runtime::new().unwrap().block_on(async {
            let stored = commits.send(&CommitSequence::default(), last).await;
            stored.await.unwrap()
        });
        answer.unwrap();
        let stored: usize = store.1.lock().unwrap().iter().map(|batch| batch.len()).sum();
        assert_eq!(stored, taken + 1);
    }

    #[tokio::test]
    async fn r6_3_no_change_is_stored_behind_one_of_the_same_agent_that_failed() {
        let store = Arc::new(FailsOnce(Mutex::new(true), Mutex::default()));
        let commits = Commits::start(store.clone()).unwrap();
        let (broken, sound) = (CommitSequence::default(), CommitSequence::default());
        let write = |key: &[u8]| vec![(key.to_vec(), Some(b"v".to_vec()))];
        let first = commits.send(&broken, write(b"1")).await.await.unwrap();
        assert!(matches!(first, Err(NotStored::Store(_))));
        let second = commits.send(&broken, write(b"2")).await.await.unwrap();
        assert!(matches!(second, Err(NotStored::EarlierFailed)));
        assert!(commits.send(&sound, write(b"3")).await.await.unwrap().is_ok());
        assert_eq!(store.1.lock().unwrap().len(), 1);
    }

    #[test]
    fn r6_10_where_there_is_no_space_for_all_changes_of_a_batch_each_has_what_there_is_for_it() {
        let (sender, requests) = mpsc::channel(QUEUE);
        let (hostile, mut sent) = (CommitSequence::default(), 0);
        let mut send = |stream: &CommitSequence, writes: u8| {
            sent += 1;
            let writes = (0..writes).map(|number| (vec![sent, number], Some(vec![1]))).collect();
            let (done, answer) = oneshot::channel();
            sender.try_send(Request { stream: stream.clone(), writes, done }).ok().unwrap();
            answer
        };
        let mut answers = vec![send(&CommitSequence::default(), 3), send(&hostile, 50), send(&hostile, 1)];
        answers.extend((0..3).map(|_| send(&CommitSequence::default(), 3)));
        drop(sender);
        let store = Lacks::space(|batch| batch.len() > 10);
        run(&store, requests);
        let said: Vec<_> = answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect();
        assert_eq!(
            said.iter().map(Result::is_ok).collect::<Vec<_>>(),
            [true, false, false, true, true, true]
        );
        assert!(said[1].as_ref().is_err_and(NotStored::is_full));
        assert!(matches!(said[2], Err(NotStored::EarlierFailed)), "behind one of the same agent that failed");
        assert_eq!(store.1.lock().unwrap().iter().map(Batch::len).sum::<usize>(), 12);
    }

    #[test]
    fn r6_10_among_many_changes_the_one_without_space_is_found_in_few_tries() {
        let key = |number: u16| number.to_be_bytes().to_vec();
        let changes = || {
            let change = |number| {
                let value = if number == 333 { vec![1; 100_000] } else { vec![1] };
                let (done, answer) = oneshot::channel();
                let writes = vec![(key(number), Some(value))];
                (Request { stream: CommitSequence::default(), writes, done }, answer)
            };
            (0..1_000).map(change).unzip::<_, _, Vec<_>, Vec<_>>()
        };
        let store = Lacks::space(|batch| format!("{batch:?}").len() > 200_000);
        let (group, answers) = changes();
        store_group(&store, group, Instant::now() + Duration::from_secs(600));
        let refused = answers
            .into_iter()
            .enumerate()
            .filter_map(|(number, mut answer)| answer.try_recv().unwrap().is_err().then_some(number));
        assert_eq!(refused.collect::<Vec<_>>(), [333]);
        let stored = std::mem::take(&mut *store.1.lock().unwrap());
        assert!(stored.len() < 50 && stored.iter().map(Batch::len).sum::<usize>() == 999, "{}", stored.len());
        // When the time for that is over, all are refused together.
        let (group, mut answers) = changes();
        store_group(&store, group, Instant::now());
        assert!(answers.iter_mut().all(|answer| answer.try_recv().unwrap().is_err()));
    }

    #[test]
    fn r6_10_a_batch_has_so_many_writes_and_so_many_bytes() {
        let batches = |changes: usize, each: usize, bytes: usize| -> Vec<usize> {
            let (sender, requests) = mpsc::channel(QUEUE);
            let mut answers = Vec::new();
            for number in 0..changes {
                let key = |write: usize| [number.to_be_bytes(), write.to_be_bytes()].concat();
                let writes = (0..each).map(|write| (key(write), Some(vec![0; bytes]))).collect();
                let (done, answer) = oneshot::channel();
                answers.push(answer);
                sender.try_send(Request { stream: CommitSequence::default(), writes, done }).ok().unwrap();
            }
            drop(sender);
            let store = FailsOnce(Mutex::new(false), Mutex::default());
            run(&store, requests);
            assert!(answers.into_iter().all(|mut answer| answer.try_recv().unwrap().is_ok()));
            store.1.lock().unwrap().iter().map(Batch::len).collect()
        };
        // As many small ones as have come, and no more than go into one batch.
        assert_eq!(batches(60, 1, 300), [60]);
        assert!(batches(20, 1_000, 10)[0] < GROUP_WRITES + 1_000);
        // Of a megabyte there are few in a batch, and whoever comes behind them waits for no more.
        assert_eq!(batches(20, 1, 1 << 20), [4; 5]);
        // One that is longer by itself is stored whole.
        assert_eq!(batches(3, 1, GROUP_BYTES + 1), [1; 3]);
    }
}
