//! Terms: versions that are newer than all before, also than those that this coordinator does not know any
//! more (R6.5).

use fallow_domain::{DocumentVersion, Instant};
use tokio::sync::OwnedMutexGuard;

use super::{Author, DocumentError, Documents, Making, blocking};

impl Documents {
    /// The documents as hosts have them become the first version of a term, for all hosts at once; a change
    /// that is going out in waves is taken back, and one that waits to be signed is not in it. `change` says
    /// what is changed, after the version that is said again. Gives the version. Blocks.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub fn begin_term_now(
        &self,
        author: Author,
        now: Instant,
        term: u64,
        change: &str,
    ) -> Result<DocumentVersion, DocumentError> {
        let alone = self.changing.clone().blocking_lock_owned();
        begin(self.making_term(author, now), alone, term, change)
    }

    /// The same, where blocking is not fine.
    ///
    /// # Errors
    /// [`DocumentError`]; nothing is changed then.
    pub async fn begin_term(
        self: std::sync::Arc<Self>,
        author: Author,
        now: Instant,
        term: u64,
        change: String,
    ) -> Result<DocumentVersion, DocumentError> {
        let making = self.making_term(author, now);
        let alone = self.changing.clone().lock_owned().await;
        blocking(move || begin(making, alone, term, &change)).await
    }

    fn making_term(&self, author: Author, now: Instant) -> Making {
        // Hosts that it would not reach at once follow versions that nobody knows here.
        self.making(Author { emergency: true, by_rule: true, ..author }, now)
    }
}

/// Makes the first version of a term.
fn begin(
    making: Making,
    alone: OwnedMutexGuard<()>,
    term: u64,
    change: &str,
) -> Result<DocumentVersion, DocumentError> {
    let (_, set) = making.make(alone, |set| {
        let again = set.fleet.version;
        set.fleet.version = DocumentVersion::first_of(term);
        Ok(format!("version {again} again, {change}"))
    })?;
    Ok(set.fleet.version)
}
