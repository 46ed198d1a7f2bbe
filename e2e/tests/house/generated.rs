//! Documents that are made of the code.

use std::collections::BTreeSet;
use std::fs;

use crate::tree::root;

/// Writes them anew.
pub(crate) const COMMAND: &str = "FALLOW_WRITE_DOCS=1 cargo test --locked -p fallow-e2e --test house";

/// Compares a document with what it should be, and says how they differ; writes it first if asked to.
pub(crate) fn check(document: &str, right: &str) {
    let path = root().join(document);
    if std::env::var("FALLOW_WRITE_DOCS").is_ok_and(|value| value == "1") {
        // Whole or not at all: other tests read it meanwhile.
        let new = path.with_extension("new");
        fs::write(&new, right).unwrap();
        fs::rename(&new, &path).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let (had, has): (BTreeSet<_>, BTreeSet<_>) = (found.lines().collect(), right.lines().collect());
    let gone = had.difference(&has).map(|line| format!("  no longer: {line}"));
    let wrong: Vec<String> =
        gone.chain(has.difference(&had).map(|line| format!("  lacks: {line}"))).collect();
    let wrong = wrong.join("\n");
    assert!(
        found == right,
        "{document} is not what the code says; write it anew with\n    {COMMAND}\n{wrong}"
    );
}
