//! How many descriptors the coordinator may have, and how many connections each of its ports may have of
//! them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Taken for the limit where the system names none.
const MANY: u64 = 1 << 20;
/// What the coordinator takes for itself, but for half of all at most: twice what it has open when nobody is
/// there.
const OWN: u64 = 40;
/// What it takes for itself at most.
const MOST_OWN: u64 = 1_024;

/// Connections that each port has places for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// Agents, one each, and operators' tools.
    pub(super) fleet: usize,
    /// Clients of the projects.
    pub(super) projects: usize,
}

impl ConnectionLimits {
    /// Of so many descriptors. An eighth, and 1,024 at most, is left for the store and all else. Agents stay
    /// connected, clients of projects come and go: four sevenths of the rest are for agents. A client of a
    /// project may need a second descriptor, for the file that it is sent or sends. With 20,000 descriptors
    /// there are places for more than 10,000 agents.
    fn of(descriptors: u64) -> Self {
        let own = (descriptors / 8).min(MOST_OWN).max(OWN.min(descriptors / 2));
        let part = |fourteenths: u64, most: usize| {
            let part = (descriptors - own) / 14 * fourteenths;
            usize::try_from(part).unwrap_or(usize::MAX).clamp(1, most)
        };
        Self { fleet: part(8, 16_384), projects: part(3, 4_096) }
    }
}

/// Asks for as many descriptors as the system allows this process (a terminal gives a thousand, and every
/// one may ask for more), and divides them between the ports. The coordinator starts no other program, which
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
        assert_eq!(ConnectionLimits::of(16_384), ConnectionLimits { fleet: 8_776, projects: 3_291 });
        assert_eq!(ConnectionLimits::of(20_000), ConnectionLimits { fleet: 10_840, projects: 4_065 });
        assert_eq!(ConnectionLimits::of(u64::MAX), ConnectionLimits { fleet: 16_384, projects: 4_096 });
        for limit in [16, 64, 256, 1_024, 4_096, 16_384, 1 << 20] {
            let ConnectionLimits { fleet, projects } = ConnectionLimits::of(limit);
            let left = limit - (fleet + 2 * projects) as u64;
            assert!(
                fleet > 0 && projects > 0 && left >= 40.min(limit / 2).max(limit / 8).min(1_024),
                "{limit}: {left}"
            );
        }
    }
}
