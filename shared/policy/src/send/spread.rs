//! How much of a batch one host may hold, while there is less of it than the hosts ask for (R6.8).
//!
//! Why: a host asks for what its buffer lacks, which may be hours of work. Of 600 jobs of a second the first
//! three hosts that ask would take all, and the others of the fleet idle until those are done. And the last
//! jobs of any batch lie in the queue of a host that works through others first, while those beside it have
//! nothing left.
//!
//! Model: guided self-scheduling. A host may hold no more jobs than its part of those that wait: their number
//! times its instances, over [`FACTOR`] times those of all hosts that asked of late, rounded up. So parts
//! shrink with what is left, and the last jobs go to whoever is free first. What it holds already counts:
//! who asks again gets no more than who asks once. A part is never smaller than one job for each of its
//! instances, and instances that it names as idle get a job each, whatever it holds.
//!
//! Only a small batch is spread. Where there is enough for all hosts, if each asked for as much an instance
//! as this one, requests are filled as if this were not there, so that no host asks more often. A host whose
//! replies are full wants far more than it asks for at a time: where others ask too, a batch is small for it
//! as well if it would hold more than what is then left for all others, and more than [`FEW`] jobs an
//! instance.
//!
//! Whoever holds little comes again soon: after a part ([`EARLY`]) of what its jobs are estimated to take, as
//! estimates may be that much too long, but so that all hosts together make [`RPCS_PER_SECOND`] requests at
//! most. Never later than after the project's own delay, and then as well where it is the only host.
//!
//! Source: Polychronopoulos and Kuck, "Guided Self-Scheduling: A Practical Scheduling Scheme for Parallel
//! Supercomputers", IEEE Transactions on Computers C-36 (1987): with `FACTOR` 1, and processors that ask
//! when they have nothing left. Half of that is what Hummel, Schonberg and Flynn take in "Factoring",
//! Communications of the ACM 35 (1992): of jobs or hosts that differ, the first part takes longest to show
//! it. That what is held counts, and that there is a project's delay, is our own.
//!
//! Not in here: jobs that wait but that this host could not run, or has a copy of, count as if it could; so
//! do hosts that asked for another application, or have enough by now. Hosts of different speed get parts of
//! the same size: the slower come again later. Jobs of different length count as one each, and so do
//! instances of different types. Whoever asks for a little each time is not cut as long as it holds few, and
//! may hold more than its part in the end.

use std::fmt;

use fallow_domain::{Duration, PerType, ResourceType, Usage};

/// A host's part is what would fall to it if there were so many times as many hosts.
pub const FACTOR: u64 = 2;
/// Whoever holds no more jobs than this for each instance holds few, however small the batch is.
pub const FEW: u64 = 4;
/// A host comes again when so much of the estimated time of its jobs has passed: some take a twentieth of
/// what was estimated.
pub const EARLY: f64 = 0.05;
/// Requests that hosts make in a second at most, all together, because they are told to come again soon. One
/// costs a server a millisecond or two.
pub const RPCS_PER_SECOND: f64 = 100.0;
/// No host comes again sooner.
pub const SOONEST: Duration = Duration::from_micros(250_000);

/// A fraction of an instance that rounding leaves gets no job.
const HAIR: f64 = 1e-6;

/// The hosts that asked for work of late, whoever asks now included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskingFleet {
    /// How many.
    pub hosts: u64,
    /// Instances of all types that they have together.
    pub instances: u64,
}

/// A host that asks, and what there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpreadSituation {
    /// Jobs of the project that wait for a host.
    pub unsent: u64,
    /// Who shares them.
    pub fleet: AskingFleet,
    /// Instances of all types that this host has.
    pub instances: u64,
    /// Jobs of the project that it holds.
    pub held: u64,
    /// Instances that it names as idle, by type.
    pub idle: PerType<f64>,
}

/// Why a host gets fewer jobs than it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasItsPart {
    /// Jobs that it may hold.
    pub part: u64,
    /// Jobs that wait.
    pub unsent: u64,
    /// Hosts that asked of late.
    pub hosts: u64,
}

/// What one reply gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Of the jobs that could be sent, in their order: whether each is.
    pub send: Vec<bool>,
    /// Why some are not.
    pub why: Option<HasItsPart>,
}

impl SpreadSituation {
    /// The most jobs that the host may hold while the batch is spread.
    pub fn part(&self) -> u64 {
        let (own, all) = self.instances_of();
        let part = (u128::from(self.unsent) * u128::from(own)).div_ceil(u128::from(all) * u128::from(FACTOR));
        u64::try_from(part).unwrap_or(u64::MAX).max(own)
    }

    /// Whether there is less than all hosts together ask for, if each asks for so many jobs an instance as
    /// this one; or whether this one would hold many, and more than it leaves to others.
    pub fn is_small(&self, wanted: u64) -> bool {
        let (own, all) = self.instances_of();
        let (holds, left) = (self.held.saturating_add(wanted), self.unsent.saturating_sub(wanted));
        let has_most = holds > left.max(own.saturating_mul(FEW));
        self.fleet.hosts > 1 && has_most
            || u128::from(self.unsent) * u128::from(own) < u128::from(wanted) * u128::from(all)
    }

    /// Its own instances, and those of all hosts.
    fn instances_of(&self) -> (u64, u64) {
        let own = self.instances.max(1);
        (own, self.fleet.instances.max(own))
    }

    /// Which of the jobs are sent that could be, by what each uses.
    pub fn spread(&self, jobs: &[Usage]) -> Spread {
        let part = self.part();
        let mut room = match self.is_small(jobs.len() as u64) {
            true => part.saturating_sub(self.held),
            false => u64::MAX,
        };
        // No more can idle than there are.
        let (own, _) = self.instances_of();
        let mut idle = self.idle.map(|_, idle| idle.min(own as f64));
        let mut takes = |usage: &Usage| {
            let kind = usage.main_type();
            let is_taken = room > 0 || idle[kind] > HAIR;
            if is_taken {
                room = room.saturating_sub(1);
                idle[kind] -= usage.of(kind);
            }
            is_taken
        };
        let send: Vec<bool> = jobs.iter().map(&mut takes).collect();
        let is_cut = send.contains(&false);
        let why = HasItsPart { part, unsent: self.unsent, hosts: self.fleet.hosts.max(1) };
        Spread { send, why: is_cut.then_some(why) }
    }

    /// When the host may come again that now holds so many jobs of a mean estimate, in a project with this
    /// delay whose replies have so many jobs at most.
    pub fn comes_again(&self, holds: u64, estimate: Duration, usual: Duration, reply_max: u64) -> Duration {
        let (own, _) = self.instances_of();
        if self.fleet.hosts < 2 || !self.is_small(reply_max.saturating_mul(own)) {
            return usual;
        }
        let lasts = estimate.max(Duration::ZERO).mul_f64(holds as f64 / own as f64 * EARLY);
        let all = Duration::from_secs_f64(self.fleet.hosts as f64 / RPCS_PER_SECOND);
        lasts.max(all).max(SOONEST).min(usual)
    }
}

/// Instances of all types.
pub fn instances(of: &PerType<u32>) -> u64 {
    ResourceType::ALL.into_iter().map(|kind| u64::from(of[kind])).sum()
}

impl fmt::Display for HasItsPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, unsent, hosts } = self;
        write!(f, "it may hold {part} of the {unsent} jobs that wait, as {hosts} hosts ask for work")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CPU: Usage = Usage::ONE_CPU;

    /// A host of one CPU among so many like it.
    fn among(hosts: u64, unsent: u64, held: u64) -> SpreadSituation {
        let fleet = AskingFleet { hosts, instances: hosts };
        SpreadSituation { unsent, fleet, instances: 1, held, idle: PerType::cpu(0.0) }
    }

    fn sent(situation: &SpreadSituation, jobs: usize) -> usize {
        situation.spread(&vec![CPU; jobs]).send.iter().filter(|sent| **sent).count()
    }

    #[test]
    fn r6_8_what_one_host_of_a_fleet_gets_of_a_batch() {
        for (hosts, unsent, held, wanted, expected, what) in [
            (30, 600, 0, 100, 10, "a part"),
            (30, 600, 4, 100, 6, "what it holds counts"),
            (30, 600, 10, 100, 0, "it has its part"),
            (30, 600, 90, 100, 0, "it has more than its part"),
            (30, 601, 0, 100, 11, "rounded up"),
            (30, 59, 0, 100, 1, "the last go to whoever is free"),
            (30, 1, 0, 100, 1, "and the very last"),
            (30, 1, 1, 100, 0, "who is busy leaves it to others"),
            (30, 2_999, 0, 100, 50, "not enough for all"),
            (30, 3_000, 0, 100, 100, "enough for all"),
            (30, 3_000, 900, 100, 100, "however much it holds"),
            (30, 600, 0, 20, 20, "enough for all that ask for so little"),
            (30, 600, 0, 21, 10, "not enough for all that ask for one more"),
            (1, 60, 0, 60, 60, "nobody else is there"),
            (0, 60, 0, 60, 60, "whoever asks is there"),
        ] {
            assert_eq!(sent(&among(hosts, unsent, held), wanted), expected, "{what}");
        }
    }

    #[test]
    fn r6_8_a_host_with_more_instances_has_a_larger_part_and_each_has_a_job() {
        let of = |instances, unsent, held| SpreadSituation {
            instances,
            fleet: AskingFleet { hosts: 10, instances: 40 },
            ..among(10, unsent, held)
        };
        assert_eq!(sent(&of(16, 100, 0), 100), 20);
        assert_eq!(sent(&of(1, 100, 0), 100), 2);
        assert_eq!(sent(&of(16, 10, 0), 100), 16, "as many as it has instances");
        assert_eq!(sent(&of(16, 10, 12), 100), 4);
    }

    #[test]
    fn r6_8_a_host_with_most_of_the_instances_gets_no_more_than_half_by_full_replies() {
        let (mut unsent, mut held) = (2_000, 0);
        loop {
            let fleet = AskingFleet { hosts: 2, instances: 132 };
            let host = SpreadSituation { instances: 128, fleet, ..among(2, unsent, held) };
            match sent(&host, 100) as u64 {
                0 => break,
                given => (unsent, held) = (unsent - given, held + given),
            }
        }
        assert_eq!((unsent, held), (1_000, 1_000));
    }

    #[test]
    fn r3_2_an_idle_instance_gets_a_job_whatever_the_host_holds() {
        let mut idle = among(30, 100, 50);
        idle.idle[ResourceType::Nvidia] = 1.0;
        let gpu = Usage::ONE_CPU.with_coprocessor(ResourceType::Nvidia, 0.5);
        let jobs = [CPU, gpu, CPU, gpu, gpu];
        assert_eq!(idle.spread(&jobs).send, [false, true, false, true, false]);
        let of_two = SpreadSituation { instances: 2, idle: PerType::cpu(2.0), ..idle };
        assert_eq!(sent(&of_two, 100), 2);
        assert_eq!(
            sent(&SpreadSituation { idle: PerType::cpu(4_096.0), ..of_two }, 100),
            2,
            "not more than it has"
        );
    }

    #[test]
    fn r6_8_a_host_whose_request_is_cut_is_told_by_what() {
        let said = |hosts, unsent, held, wanted| {
            among(hosts, unsent, held).spread(&vec![CPU; wanted]).why.map(|why| why.to_string())
        };
        let part = "it may hold 10 of the 600 jobs that wait, as 30 hosts ask for work";
        assert_eq!(said(30, 600, 3, 100).as_deref(), Some(part));
        assert_eq!(said(30, 600, 3, 7), None, "it got all that it asked for");
        assert_eq!(said(30, 6_000, 3, 100), None);
    }

    #[test]
    fn r6_8_who_holds_little_comes_again_soon_and_the_fleet_makes_no_storm() {
        let usual = Duration::from_secs(7);
        let after = |hosts, unsent, holds, estimate| {
            among(hosts, unsent, 0)
                .comes_again(holds, Duration::from_secs(estimate), usual, 100)
                .as_secs_f64()
        };
        for (hosts, unsent, holds, estimate, expected, what) in [
            (30, 600, 10, 1, 0.5, "a twentieth of ten seconds"),
            (30, 600, 1, 1, 0.3, "30 hosts make 100 requests in a second"),
            (3, 60, 1, 1, 0.25, "no host alone makes more than four"),
            (30, 600, 10, 60, 7.0, "it has work for long enough"),
            (5_000, 600, 1, 1, 7.0, "a large fleet waits as ever"),
            (30, 3_000, 1, 1, 7.0, "there is enough for all"),
            (1, 60, 1, 1, 7.0, "nobody shares with it"),
            (30, 0, 1, 1, 0.3, "the last job is reported soon as well"),
        ] {
            assert_eq!(after(hosts, unsent, holds, estimate), expected, "{what}");
        }
    }

    fn situations() -> impl Strategy<Value = SpreadSituation> {
        let host = (0_u64..20, 0_u64..300, 0_u32..9);
        (0_u64..5_000, 0_u64..200, 0_u64..2_000, host).prop_map(|(unsent, hosts, all, (own, held, idle))| {
            SpreadSituation {
                unsent,
                fleet: AskingFleet { hosts, instances: all },
                instances: own,
                held,
                idle: PerType::cpu(f64::from(idle)),
            }
        })
    }

    proptest! {
        #[test]
        fn r6_8_jobs_are_cut_from_the_end_and_only_where_there_is_not_enough_for_all(
            situation in situations(), wanted in 0_usize..100,
        ) {
            let spread = situation.spread(&vec![CPU; wanted]);
            let given = spread.send.iter().filter(|sent| **sent).count();
            prop_assert!(spread.send[..given].iter().all(|sent| *sent), "the first ones");
            prop_assert_eq!(spread.why.is_some(), given < wanted);
            let least = situation.instances.max(1).saturating_sub(situation.held);
            let idle = (situation.idle[ResourceType::Cpu] as u64).min(situation.instances.max(1));
            prop_assert!(given as u64 >= least.max(idle).min(wanted as u64), "no instance idles");
            if !situation.is_small(wanted as u64) {
                prop_assert_eq!(given, wanted);
            }
            let alone = SpreadSituation { idle: PerType::cpu(0.0), ..situation };
            let held = alone.held + alone.spread(&vec![CPU; wanted]).send.iter().filter(|sent| **sent).count() as u64;
            prop_assert!(!alone.is_small(wanted as u64) || held <= alone.part().max(alone.held));
        }

        /// Hosts that work in any order and at any speed: whoever has nothing left asks.
        #[test]
        fn r6_8_a_batch_of_like_jobs_ends_on_all_hosts_at_almost_the_same_time(
            speeds in prop::collection::vec(1_u64..8, 1..40), jobs in 1_u64..3_000,
        ) {
            let hosts = speeds.len() as u64;
            let (mut unsent, mut free_at) = (jobs, vec![0; speeds.len()]);
            let mut ended: u64 = 0;
            while unsent > 0 {
                let next = (0..speeds.len()).min_by_key(|host| free_at[*host]).unwrap();
                let given = sent(&among(hosts, unsent, 0), 100.min(unsent as usize)) as u64;
                prop_assert!(given > 0);
                unsent -= given;
                free_at[next] += given * 840 / speeds[next];
                ended = ended.max(free_at[next]);
            }
            // As if the jobs could be cut at will, and then the longest part of the slowest host.
            let best = jobs * 840 / speeds.iter().sum::<u64>();
            let slowest = 840 / speeds.iter().min().unwrap();
            let largest = if jobs < 100 * hosts { jobs.div_ceil(FACTOR * hosts) } else { 100 };
            prop_assert!(ended <= best + slowest * largest, "{ended} of {best}");
        }
    }
}
