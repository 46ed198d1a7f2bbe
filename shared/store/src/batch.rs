//! A batch: what must hold, and what is then written, all or nothing.

use std::collections::BTreeMap;

/// Writes that are applied together, if all preconditions hold.
///
/// A key written twice keeps the last write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub(crate) preconditions: Vec<Precondition>,
    pub(crate) writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// What is left of the volume's space: 0, all of it may be taken; 1, what [`Batch::yielding`] leaves; 2,
    /// what [`Batch::yielding_first`] does.
    pub(crate) yields: u8,
}

/// Something that must be so before a batch is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing is stored under the key.
    Absent(Vec<u8>),
    /// Exactly this value is stored under the key.
    Equals(Vec<u8>, Vec<u8>),
}

/// Whether a batch was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a batch whose precondition does not hold is not applied"]
pub enum BatchResult {
    /// All writes are in the store.
    Applied {
        /// Number of batches this store ever applied, this one included: it only grows.
        revision: u64,
    },
    /// Nothing was written: a precondition does not hold.
    Conflict {
        /// The key it speaks of.
        key: Vec<u8>,
        /// What is stored there.
        found: Option<Vec<u8>>,
    },
}

impl BatchResult {
    /// Whether the batch was applied.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Applied { .. })
    }
}

impl Batch {
    /// A batch that does nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that nothing is stored under `key`.
    #[must_use]
    pub fn require_absent(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.preconditions.push(Precondition::Absent(key.into()));
        self
    }

    /// Requires that exactly `value` is stored under `key`.
    #[must_use]
    pub fn require_value(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.preconditions.push(Precondition::Equals(key.into(), value.into()));
        self
    }

    /// Leaves the last of the volume's space to other batches: 64 MiB, or an eighth of a small one. For what
    /// others cause, so that they cannot take the space in which somebody could stop them.
    #[must_use]
    pub fn yielding(mut self) -> Self {
        self.yields = 1;
        self
    }

    /// Leaves as much again to those that yield. For what can wait until there is space, so that it cannot
    /// keep the news from being stored that others bring.
    #[must_use]
    pub fn yielding_first(mut self) -> Self {
        self.yields = 2;
        self
    }

    /// Stores `value` under `key`.
    #[must_use]
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.add_put(key, value);
        self
    }

    /// Removes `key`; removing what is not there is no error.
    #[must_use]
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.add_delete(key);
        self
    }

    /// As [`Batch::put`], for loops.
    pub fn add_put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.writes.insert(key.into(), Some(value.into()));
    }

    /// As [`Batch::delete`], for loops.
    pub fn add_delete(&mut self, key: impl Into<Vec<u8>>) {
        self.writes.insert(key.into(), None);
    }

    /// Whether the batch writes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Number of keys written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }
}
