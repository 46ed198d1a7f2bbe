//! Which versions of the documents a host was given: what it says of others counts for nothing (R6.10).

use std::collections::BTreeSet;

use fallow_domain::DocumentVersion;
use serde::{Deserialize, Serialize};

/// So many versions are remembered of a host, the newest.
const KEPT: usize = 32;

/// The versions that a host was given. The default is that of one that was never linked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Given {
    /// From this one on all that it was given are known; of earlier ones nothing is. But some may be lacking:
    /// what an older binary gave that ran meanwhile and keeps no record; what a host was given under an
    /// earlier id that enrolled anew with its store; and what could not be stored before a restart.
    from: DocumentVersion,
    versions: BTreeSet<DocumentVersion>,
}

impl Given {
    /// Of a host of which nothing was kept until it was given this version.
    pub(super) fn since(version: DocumentVersion) -> Self {
        Self { from: version, versions: BTreeSet::from([version]) }
    }

    /// Notes that it is given a version. True if that is news.
    pub(super) fn give(&mut self, version: DocumentVersion) -> bool {
        let is_news = self.versions.insert(version);
        while self.versions.len() > KEPT {
            let Some(oldest) = self.versions.pop_first() else { break };
            self.from = self.from.max(oldest.next());
        }
        is_news
    }

    /// Whether it was given a version; none where that is not known.
    pub(super) fn has(&self, version: DocumentVersion) -> Option<bool> {
        (version >= self.from).then(|| self.versions.contains(&version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn version(number: u64) -> DocumentVersion {
        DocumentVersion(number)
    }

    #[test]
    fn r6_10_it_is_known_which_versions_a_host_was_given_since_they_are_kept() {
        let mut given = Given::default();
        assert!(given.give(version(2)) && given.give(version(4)) && !given.give(version(4)));
        let of = |given: &Given| [1, 2, 3, 4, 5].map(|number| given.has(version(number)));
        assert_eq!(of(&given), [Some(false), Some(true), Some(false), Some(true), Some(false)]);
        let mut later = Given::since(version(3));
        later.give(version(5));
        assert_eq!(of(&later), [None, None, Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn r6_10_of_a_host_that_was_given_very_many_versions_the_newest_are_kept() {
        let mut given = Given::default();
        (0..1_000).for_each(|number| assert!(given.give(version(2 * number))));
        assert_eq!(given.versions.len(), KEPT);
        let oldest = 2 * (1_000 - KEPT as u64);
        assert_eq!((given.has(version(oldest - 2)), given.has(version(oldest - 1))), (None, Some(false)));
        assert_eq!(given.has(version(oldest)), Some(true));
    }
}
