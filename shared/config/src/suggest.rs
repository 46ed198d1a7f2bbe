//! What somebody meant to write.

/// The candidate nearest to `word`, if one is near enough to be meant: within a third of its letters, at
/// least one.
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|&(distance, candidate)| distance <= allowed && distance < candidate.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, changes and swaps of neighbours that make one word of the other. Words are cut at
/// 64 letters.
fn distance(a: &str, b: &str) -> usize {
    let cut = |word: &str| word.chars().take(64).collect::<String>();
    strsim::osa_distance(&cut(a), &cut(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_finds_the_one_that_was_meant() {
        let keys = ["cpus", "flops", "available", "connection_interval"];
        assert_eq!(suggest("cpu", keys), Some("cpus"));
        assert_eq!(suggest("avialable", keys), Some("available"));
        assert_eq!(suggest("FLOPS", keys), Some("flops"));
        assert_eq!(suggest("connection-interval", keys), Some("connection_interval"));
        assert_eq!(suggest("colour", keys), None);
        assert_eq!(suggest("x", keys), None);
    }
}
