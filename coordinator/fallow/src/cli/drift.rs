//! Hosts that do not follow what they are to follow, and why (R6.5).

use fallow_domain::{DocumentVersion, Instant};
use fallow_proto::operator::v1::Host;

use super::table::{self, Column, Column::Text};

/// Why a host does not follow the version that it is to have, in words; none for one that does. Of one that
/// was taken out of the fleet nothing is wanted. `newest` is the coordinator's newest version.
pub(super) fn cause(host: &Host, newest: u64, now: Instant) -> Option<String> {
    let state = host.state.as_ref();
    let follows = DocumentVersion(state.map_or(0, |state| state.document_version));
    let wanted = DocumentVersion(host.wanted_version);
    if host.revoked_at_micros == 0 && host.follows_unknown {
        let newest = DocumentVersion(newest);
        return Some(format!(
            "follows a version that this coordinator does not have, until version {newest} is signed: `fallow organisation sign`"
        ));
    }
    if host.revoked_at_micros != 0 || (follows == wanted && !host.has_old_content) {
        return None;
    }
    let refusal = state.filter(|state| {
        !state.document_refusal.is_empty() && state.document_refused_version == host.wanted_version
    });
    let went_back = state.filter(|state| state.document_rolled_back_version == host.wanted_version);
    let went_back = went_back.map(|state| state.document_rollback.as_str());
    let said = match refusal {
        _ if host.last_seen_micros == 0 => "has not been here yet: gets it when it comes".to_owned(),
        _ if follows > DocumentVersion(newest) => {
            "follows a version that this coordinator does not have: `fallow restore --new-term` begins a new term"
                .to_owned()
        }
        Some(state) => format!("refuses it: {}", state.document_refusal),
        None if went_back.is_some_and(|why| !why.is_empty()) => {
            format!("went back from it: {}", went_back.unwrap_or_default())
        }
        None if !host.connected => {
            format!("is off, seen {}: gets it when it comes", table::ago(host.last_seen_micros, now))
        }
        None if follows == wanted => "is about to get what it says for its new labels".to_owned(),
        None => "is about to get it: it is linked, and has not said yet that it follows it".to_owned(),
    };
    Some(said)
}

/// The columns of those hosts.
pub(super) fn columns() -> Vec<(Column, u8)> {
    vec![
        (Text("name"), 0),
        (Text("agent"), 9),
        (Text("follows"), 0),
        (Text("is to follow"), 0),
        (Text("why not"), 0),
    ]
}

/// A host's row, if it belongs there.
pub(super) fn row(host: &Host, name: String, newest: u64, now: Instant) -> Option<Vec<String>> {
    let why = cause(host, newest, now)?;
    let follows = host.state.as_ref().map_or(0, |state| state.document_version);
    let versions = [follows, host.wanted_version].map(|version| DocumentVersion(version).to_string());
    let [follows, wanted] = versions;
    Some(vec![name, host.agent_id.clone(), follows, wanted, why])
}

#[cfg(test)]
mod tests {
    use fallow_proto::fleet::v1::HostState;

    use super::*;

    #[test]
    fn r6_5_a_host_that_follows_another_version_than_it_should_says_why() {
        let now = Instant::from_micros(7_200_000_000);
        let host = |follows: u64, connected: bool| Host {
            state: Some(HostState { document_version: follows, ..HostState::default() }),
            wanted_version: 5,
            connected,
            last_seen_micros: 3_600_000_000,
            ..Host::default()
        };
        let why = |host: Host| cause(&host, 6, now).unwrap_or_default();
        assert_eq!(why(host(5, true)), "");
        assert!(why(host(4, true)).starts_with("is about to get it"));
        assert!(why(host(4, false)).starts_with("is off, seen 1 h ago"), "{}", why(host(4, false)));
        assert!(why(Host { last_seen_micros: 0, ..host(0, false) }).starts_with("has not been here yet"));
        assert!(why(Host { has_old_content: true, ..host(5, true) }).contains("new labels"));
        for newer in [7, DocumentVersion::first_of(1).0] {
            assert!(why(host(newer, true)).contains("fallow restore"), "{newer}");
            assert!(why(host(newer, false)).contains("fallow restore"), "{newer}");
        }
        // What is to take its place waits to be signed, so that it is to keep it.
        let unknown = Host { follows_unknown: true, wanted_version: 7, ..host(7, true) };
        assert!(why(unknown.clone()).contains("until version 6 is signed"), "{}", why(unknown));
        let mut refusing = host(4, true);
        let state = refusing.state.as_mut().unwrap();
        (state.document_refusal, state.document_refused_version) = ("no project".into(), 5);
        assert_eq!(why(refusing.clone()), "refuses it: no project");
        // Of a version that it is not to have any more.
        refusing.wanted_version = 6;
        assert!(why(refusing.clone()).starts_with("is about to get it"));
        let mut back = host(4, true);
        let state = back.state.as_mut().unwrap();
        (state.document_rollback, state.document_rolled_back_version) = ("silence".into(), 5);
        assert_eq!(why(back), "went back from it: silence");
        refusing.revoked_at_micros = 1;
        assert_eq!(why(refusing), "");
    }
}
