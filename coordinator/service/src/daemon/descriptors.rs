//! How many descriptors the coordinator may have, and how many connections each of its ports may have of
//! them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Taken for the limit where the system names none.
const MANY: u64 = 1 << 20;
/// What the coordinator takes for itself, but for half of all at most: twice what it has open when nobody is
/// there.
const OWN: u64 = 40;

/// Connections that each port has places for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// Agents, one each, and operators' tools.
    pub(super) fleet: usize,
    /// Clients of the projects.
    pub(super) projects: usize,
}

impl ConnectionLimits {
    /// Of so many descriptors. An eighth is left for the store and all else. A client of a project may need a
    /// second one for the file that it is sent or sends, so that four sevenths of the rest are for those.
    fn of(descriptors: u64) -> Self {
        let own = (descriptors / 8).max(OWN.min(descriptors / 2));
        let part = |sevenths: u64, most: usize| {
            let part = (descriptors - own) / 7 * sevenths;
            usize::try_from(part).unwrap_or(usize::MAX).clamp(1, most)
        };
        Self { fleet: part(3, 16_384), projects: part(2, 4_096) }
    }
}

/// Asks for as many descriptors as the system allows this process (a terminal gives a thousand, and every one
/// may ask for more), and divides them between the ports. The coordinator starts no other program, which
/// would begin with that limit too.
pub(super) fn connection_limits() -> ConnectionLimits {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    if let Err(error) = raised {
        tracing::warn!(?current, ?maximum, %error, "no more descriptors are to be had than at the start");
    }
    ConnectionLimits::of(getrlimit(Resource::Nofile).current.unwrap_or(MANY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_store_whatever_the_limit() {
        assert_eq!(ConnectionLimits::of(16_384), ConnectionLimits { fleet: 6_144, projects: 4_096 });
        assert_eq!(ConnectionLimits::of(u64::MAX), ConnectionLimits { fleet: 16_384, projects: 4_096 });
        for limit in [16, 64, 256, 1_024, 4_096, 16_384, 1 << 20] {
            let ConnectionLimits { fleet, projects } = ConnectionLimits::of(limit);
            let left = limit - (fleet + 2 * projects) as u64;
            assert!(fleet > 0 && projects > 0 && left >= 40.min(limit / 2).max(limit / 8), "{limit}: {left}");
        }
    }
}
