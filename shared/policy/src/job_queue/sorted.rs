//! A sorted sequence of jobs in chunks: as cheap to walk through as an array, and cheap to change in the
//! middle.
//!
//! A chunk holds up to `CHUNK` jobs, so that a change moves a few kilobytes whatever the length, and sums
//! over its jobs, so that whoever looks for something can pass over whole chunks.

use fallow_domain::{Duration, Instant, JobId};

/// Jobs in a chunk at most.
const CHUNK: usize = 128;

/// What a simulation of the queue has to know of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) deadline: Instant,
    /// Running time left.
    pub(crate) left: Duration,
    pub(crate) id: JobId,
    /// Instances of its main type.
    pub(crate) amount: f32,
    /// CPUs.
    pub(crate) cpus: f32,
    /// Whether it could run now.
    pub(crate) ready: bool,
}

/// A job's key: the earliest deadline first, of equal ones the shortest.
pub(crate) type SortKey = (Instant, Duration, JobId);

impl Entry {
    pub(crate) const fn sort_key(&self) -> SortKey {
        (self.deadline, self.left, self.id)
    }
}

/// Sums over some jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Instance-seconds left of the main type, and of the CPU.
    pub(crate) work: f64,
    pub(crate) cpu_work: f64,
    /// Instances of the main type that they would use at once.
    pub(crate) amount: f64,
    /// The most seconds left of any.
    pub(crate) longest: f64,
    /// The most and the least instances of the main type, the most CPUs of any.
    pub(crate) largest: f32,
    pub(crate) smallest: f32,
    pub(crate) most_cpus: f32,
}

impl Summary {
    /// Of no jobs.
    pub(crate) const NONE: Self = Self {
        work: 0.0,
        cpu_work: 0.0,
        amount: 0.0,
        longest: 0.0,
        largest: 0.0,
        smallest: f32::INFINITY,
        most_cpus: 0.0,
    };

    pub(crate) fn add(&mut self, entry: &Entry) {
        let (left, amount) = (entry.left.as_secs_f64(), f64::from(entry.amount));
        self.work += left * amount;
        self.cpu_work += left * f64::from(entry.cpus);
        self.amount += amount;
        self.longest = self.longest.max(left);
        self.largest = self.largest.max(entry.amount);
        self.smallest = self.smallest.min(entry.amount);
        self.most_cpus = self.most_cpus.max(entry.cpus);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.work += other.work;
        self.cpu_work += other.cpu_work;
        self.amount += other.amount;
        self.longest = self.longest.max(other.longest);
        self.largest = self.largest.max(other.largest);
        self.smallest = self.smallest.min(other.smallest);
        self.most_cpus = self.most_cpus.max(other.most_cpus);
    }
}

/// Some jobs in sequence.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) entries: Vec<Entry>,
    pub(crate) summary: Summary,
}

impl Chunk {
    fn new(entries: Vec<Entry>) -> Self {
        let mut chunk = Self { entries, summary: Summary::NONE };
        chunk.sum_up();
        chunk
    }

    /// Adds up anew: sums that are corrected bit by bit would drift.
    fn sum_up(&mut self) {
        let mut summary = Summary::NONE;
        for entry in &self.entries {
            summary.add(entry);
        }
        self.summary = summary;
    }
}

/// Jobs by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct SortedJobs {
    chunks: Vec<Chunk>,
}

impl SortedJobs {
    pub(crate) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| &chunk.entries)
    }

    /// The chunk in which a key is, or would be put.
    fn chunk_of(&self, key: &SortKey) -> usize {
        let after = |chunk: &Chunk| chunk.entries.last().is_some_and(|last| last.sort_key() < *key);
        self.chunks.partition_point(after)
    }

    pub(crate) fn insert(&mut self, entry: Entry) {
        let key = entry.sort_key();
        let at = self.chunk_of(&key).min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            let mut entries = Vec::with_capacity(8);
            entries.push(entry);
            self.chunks.push(Chunk::new(entries));
            return;
        };
        let within = chunk.entries.partition_point(|other| other.sort_key() < key);
        chunk.entries.insert(within, entry);
        if chunk.entries.len() > CHUNK {
            // Jobs mostly arrive in order of deadline: a chunk that grows at its end stays full.
            let half = if within == CHUNK { CHUNK - CHUNK / 8 } else { CHUNK / 2 };
            let mut rest = Vec::with_capacity(CHUNK + 1);
            rest.extend(chunk.entries.drain(half..));
            chunk.sum_up();
            self.chunks.insert(at + 1, Chunk::new(rest));
        } else {
            chunk.summary.add(&entry);
        }
    }

    pub(crate) fn remove(&mut self, key: &SortKey) {
        let at = self.chunk_of(key);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        if let Ok(within) = chunk.entries.binary_search_by(|other| other.sort_key().cmp(key)) {
            chunk.entries.remove(within);
            chunk.sum_up();
        }
        if chunk.entries.is_empty() {
            self.chunks.remove(at);
        } else if let Some(next) = self.chunks.get(at + 1)
            && self.chunks[at].entries.len() + next.entries.len() <= CHUNK / 2
        {
            let next = self.chunks.remove(at + 1);
            self.chunks[at].entries.extend(next.entries);
            self.chunks[at].sum_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(hour: i64, id: u64) -> Entry {
        let deadline = Instant::EPOCH + Duration::from_hours(hour);
        Entry { deadline, left: Duration::ZERO, id: JobId(id), amount: 1.0, cpus: 1.0, ready: true }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_sorted_list_would(
            changes in prop::collection::vec((any::<bool>(), 0_i64..40, 0_u64..60), 0..3_000),
        ) {
            let (mut sorted, mut plain) = (SortedJobs::default(), std::collections::BTreeSet::new());
            for (add, hour, id) in changes {
                let entry = entry(hour, id);
                if add && plain.insert(entry.sort_key()) {
                    sorted.insert(entry);
                } else if !add {
                    plain.remove(&entry.sort_key());
                    sorted.remove(&entry.sort_key());
                }
            }
            prop_assert_eq!(sorted.iter().map(Entry::sort_key).collect::<Vec<_>>(), Vec::from_iter(plain));
            prop_assert!(sorted.chunks().iter().all(|c| !c.entries.is_empty() && c.entries.len() <= CHUNK));
        }
    }
}
