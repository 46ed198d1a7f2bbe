//! How much new hosts of one account may hold together: those that have returned no valid result (R6.8).
//!
//! Why: whoever has the key of an account that is no agent's makes as many hosts of it as he likes. Would
//! each have a part of a batch, the parts of all others would be small, and what they were sent would come
//! back after its deadlines only.
//!
//! Model: the new hosts of an account count as one host, with the instances of all of them. Together they
//! hold no more than that host's part of what waits, and each no more than a job for each of its instances.
//! But each has one job in any case, so that it can show what it is worth: who brings a room full of new
//! machines sees all of them at work. With its first valid result a host is new no longer.
//!
//! A job that fails at once, or returns nonsense, would make room for the next. So what a new host is sent
//! comes at longer and longer intervals ([`super::TopUps`]), whatever it returns.
//!
//! Not in here: how many new hosts an account may bring in what time.

use fallow_domain::{PerType, ResourceType, Usage};

use super::spread::FACTOR;

/// The new hosts of an account, the one that asks among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewHosts {
    /// Jobs of the project that wait for a host.
    pub unsent: u64,
    /// Instances of all hosts that asked of late; new ones count as these do.
    pub fleet_instances: u64,
    /// Instances that they count for.
    pub instances: u64,
    /// Jobs of the project that they hold.
    pub held: u64,
}

impl NewHosts {
    /// The most jobs that they may hold together: as one host.
    fn part(&self) -> u64 {
        let own = self.instances.max(1);
        let all = self.fleet_instances.max(own);
        let part = (u128::from(self.unsent) * u128::from(own)).div_ceil(u128::from(all) * u128::from(FACTOR));
        u64::try_from(part).unwrap_or(u64::MAX).max(own)
    }

    /// The most jobs that one of them may hold, which has so many instances and holds so many of these jobs.
    pub fn most(&self, instances: u64, held: u64) -> u64 {
        let room = self.part().saturating_sub(self.held);
        instances.max(1).min(held.saturating_add(room)).max(1)
    }

    /// Which of the jobs are sent to one of them that could be, by what each uses: for each type no more than
    /// it has instances, and `at_most` in all.
    pub fn cut(&self, instances: &PerType<u32>, held: u64, at_most: u64, jobs: &[Usage]) -> Vec<bool> {
        let all = super::spread::instances(instances);
        let mut left = self.most(all, held).saturating_sub(held).min(at_most);
        let mut of_type = instances.map(|kind, count| match kind {
            ResourceType::Cpu => (*count).max(1),
            _ => *count,
        });
        let mut takes = |usage: &Usage| {
            let of_type = &mut of_type[usage.main_type()];
            let is_taken = left > 0 && *of_type > 0;
            if is_taken {
                (left, *of_type) = (left - 1, *of_type - 1);
            }
            is_taken
        };
        jobs.iter().map(&mut takes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_8_new_hosts_hold_a_job_an_instance_each_and_a_part_together_and_one_job_in_any_case() {
        let new = |unsent, held| NewHosts { unsent, fleet_instances: 40, instances: 10, held };
        for (unsent, of_all, instances, held, most, what) in [
            (600, 0, 4, 0, 4, "a job for each instance"),
            (600, 4, 4, 4, 4, "and no more"),
            (600, 74, 4, 0, 1, "a part of 75, less what the others hold"),
            (600, 75, 4, 0, 1, "one job in any case"),
            (600, 75, 4, 2, 2, "but no second one"),
            (1, 8, 4, 0, 2, "a part is no smaller than their instances"),
            (0, 0, 0, 0, 1, "whatever it says of itself"),
        ] {
            assert_eq!(new(unsent, of_all).most(instances, held), most, "{what}");
        }
    }

    #[test]
    fn r3_2_a_new_host_has_a_job_for_each_type_though_others_wait_before_it() {
        let new = NewHosts { unsent: 600, fleet_instances: 3, instances: 3, held: 0 };
        let gpu = Usage::ONE_CPU.with_coprocessor(ResourceType::Nvidia, 0.5);
        let jobs = [Usage::ONE_CPU, Usage::ONE_CPU, Usage::ONE_CPU, gpu, gpu];
        let mut instances = PerType::cpu(2);
        instances[ResourceType::Nvidia] = 1;
        assert_eq!(new.cut(&instances, 0, 9, &jobs), [true, true, false, true, false]);
        assert_eq!(new.cut(&instances, 0, 1, &jobs), [true, false, false, false, false]);
    }
}
