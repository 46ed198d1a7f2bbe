//! What an agent says of its host's disk (R4.13): how it stands, and what was decided.

use fallow_domain::agent_state::{DiskAct, DiskDecision, DiskSpace};
use fallow_domain::{Bytes, Instant};

use super::limits::{DISK_DECISIONS, DISK_NAME_BYTES, DISK_RULE_BYTES, DISK_WHY_BYTES};
use super::{check, url, v1 as wire};

/// Decisions on the wire.
#[must_use]
pub fn to_wire(decisions: &[DiskDecision]) -> wire::DiskDecisions {
    wire::DiskDecisions { decisions: decisions.iter().map(decision_to_wire).collect() }
}

/// Decisions from the wire.
///
/// # Errors
/// In words, the first thing that cannot be.
pub fn from_wire(wire: wire::DiskDecisions) -> Result<Vec<DiskDecision>, String> {
    let wire::DiskDecisions { decisions } = wire;
    if decisions.len() > DISK_DECISIONS {
        return Err(format!("{} decisions about a disk are more than {DISK_DECISIONS}", decisions.len()));
    }
    decisions.into_iter().map(decision_from_wire).collect()
}

/// A decision on the wire.
#[must_use]
pub fn decision_to_wire(decision: &DiskDecision) -> wire::DiskDecision {
    let DiskDecision { at, what, project, name, bytes, rule, why } = decision;
    let act = match what {
        DiskAct::Deleted => wire::DiskAct::Deleted,
        DiskAct::GivenBack => wire::DiskAct::GivenBack,
        DiskAct::Suspended => wire::DiskAct::Suspended,
        DiskAct::Resumed => wire::DiskAct::Resumed,
        DiskAct::Other => wire::DiskAct::Unspecified,
    };
    wire::DiskDecision {
        at_micros: at.as_micros(),
        act: act.into(),
        project_url: project.as_ref().map(ToString::to_string).unwrap_or_default(),
        name: name.clone(),
        bytes: bytes.0,
        rule: rule.clone(),
        why: why.clone(),
    }
}

/// What was decided, by its number on the wire.
#[must_use]
pub fn act_from_wire(number: i32) -> DiskAct {
    match wire::DiskAct::try_from(number) {
        Ok(wire::DiskAct::Deleted) => DiskAct::Deleted,
        Ok(wire::DiskAct::GivenBack) => DiskAct::GivenBack,
        Ok(wire::DiskAct::Suspended) => DiskAct::Suspended,
        Ok(wire::DiskAct::Resumed) => DiskAct::Resumed,
        Ok(wire::DiskAct::Unspecified) | Err(_) => DiskAct::Other,
    }
}

fn decision_from_wire(wire: wire::DiskDecision) -> Result<DiskDecision, String> {
    let wire::DiskDecision { at_micros, act, project_url, name, bytes, rule, why } = wire;
    let at = check::micros("a decision's time", at_micros)?;
    check::text_within("a decision's name", &name, DISK_NAME_BYTES)?;
    check::text_within("a decision's rule", &rule, DISK_RULE_BYTES)?;
    check::text_within("a decision's reason", &why, DISK_WHY_BYTES)?;
    let project = match project_url.as_str() {
        "" => None,
        given => Some(url::from_wire(given)?),
    };
    let what = act_from_wire(act);
    Ok(DiskDecision { at: Instant::from_micros(at), what, project, name, bytes: Bytes(bytes), rule, why })
}

/// How it stands with a disk, on the wire.
pub(super) fn space_to_wire(space: &DiskSpace) -> wire::DiskSpace {
    // By name, so that nothing is forgotten.
    let DiskSpace { limit, limited_by, used, missing, is_suspended, deleted_files, deleted, jobs_given_back } =
        space;
    wire::DiskSpace {
        limit_bytes: limit.0,
        limited_by: limited_by.clone(),
        used_bytes: used.0,
        missing_bytes: missing.0,
        suspended: *is_suspended,
        deleted_files: *deleted_files,
        deleted_bytes: deleted.0,
        jobs_given_back: *jobs_given_back,
    }
}

pub(super) fn space_from_wire(wire: wire::DiskSpace) -> Result<DiskSpace, String> {
    let wire::DiskSpace {
        limit_bytes,
        limited_by,
        used_bytes,
        missing_bytes,
        suspended,
        deleted_files,
        deleted_bytes,
        jobs_given_back,
    } = wire;
    check::text("limited_by", &limited_by)?;
    Ok(DiskSpace {
        limit: Bytes(limit_bytes),
        limited_by,
        used: Bytes(used_bytes),
        missing: Bytes(missing_bytes),
        is_suspended: suspended,
        deleted_files,
        deleted: Bytes(deleted_bytes),
        jobs_given_back,
    })
}

#[cfg(test)]
mod tests {
    use fallow_domain::MasterUrl;

    use super::*;

    fn decision() -> DiskDecision {
        DiskDecision {
            at: Instant::from_micros(11),
            what: DiskAct::Deleted,
            project: Some(MasterUrl::parse("http://127.0.0.1:1/a/").unwrap()),
            name: "in_7".into(),
            bytes: Bytes(12),
            rule: "R4.8".into(),
            why: "each project loses a file in turn".into(),
        }
    }

    #[test]
    fn r4_13_a_decision_survives_the_wire_and_one_of_a_newer_agent_is_something_that_was_done() {
        let acts =
            [DiskAct::Deleted, DiskAct::GivenBack, DiskAct::Suspended, DiskAct::Resumed, DiskAct::Other];
        let mut all: Vec<DiskDecision> =
            acts.into_iter().map(|what| DiskDecision { what, ..decision() }).collect();
        all.push(DiskDecision { project: None, name: String::new(), ..decision() });
        assert_eq!(from_wire(to_wire(&all)), Ok(all));
        assert_eq!(act_from_wire(77), DiskAct::Other);
    }

    #[test]
    fn r4_13_decisions_that_are_too_many_too_long_or_cannot_be_are_refused_with_what_is_wrong() {
        let many = vec![decision(); DISK_DECISIONS];
        assert!(from_wire(to_wire(&many)).is_ok());
        let why = from_wire(to_wire(&vec![decision(); 20_000])).unwrap_err();
        assert_eq!(why, "20000 decisions about a disk are more than 20");
        type Spoil = fn(&mut wire::DiskDecision);
        let cases: [(Spoil, &str); 8] = [
            (|d| d.at_micros = -1, "a decision's time is -1"),
            (|d| d.name = "n".repeat(DISK_NAME_BYTES + 1), "name has more than 255 bytes"),
            (|d| d.name = "\u{1b}[2J".into(), "name has"),
            (|d| d.rule = "r".repeat(DISK_RULE_BYTES + 1), "rule has more than 32 bytes"),
            (|d| d.rule = "\r".into(), "rule has"),
            (|d| d.why = "w".repeat(DISK_WHY_BYTES + 1), "reason has more than 600 bytes"),
            (|d| d.why = "\0".into(), "reason has"),
            (|d| d.project_url = "no URL".into(), "URL"),
        ];
        for (spoil, expected) in cases {
            let mut bad = decision_to_wire(&decision());
            spoil(&mut bad);
            let why = from_wire(wire::DiskDecisions { decisions: vec![bad] }).unwrap_err();
            assert!(why.contains(expected), "{why} lacks {expected}");
        }
    }
}
