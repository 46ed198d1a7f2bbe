//! Which keys a scan covers.

/// A half-open range of keys in byte order: from `start` up to but not including `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl KeyRange {
    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self { start: Vec::new(), end: None }
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self { start: prefix.to_vec(), end: successor(prefix) }
    }

    /// The keys from `start` up to but not including `end`.
    #[must_use]
    pub fn between(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self { start: start.into(), end: Some(end.into()) }
    }

    /// The rest of this range behind `key`: what the next page of a scan covers.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let mut start = key.to_vec();
        start.push(0);
        Self { start: start.max(self.start.clone()), end: self.end.clone() }
    }
}

/// The first key behind all keys that begin with `prefix`, if there is one.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_high_bytes_has_the_right_end() {
        assert_eq!(KeyRange::prefix(b"a\xff\xff").end, Some(b"b".to_vec()));
        assert_eq!(KeyRange::prefix(b"\xff").end, None);
        assert_eq!(KeyRange::prefix(b"").end, None);
    }

    #[test]
    fn the_next_page_begins_right_behind_the_last_key() {
        let next = KeyRange::prefix(b"a").after(b"ab");
        assert_eq!(next, KeyRange::between(b"ab\0".to_vec(), b"b".to_vec()));
    }
}
