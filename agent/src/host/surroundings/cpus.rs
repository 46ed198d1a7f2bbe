//! How long all CPUs have worked: the first lines of `/proc/stat`.

use std::fs;

use fallow_client::CpuWork;
use fallow_domain::Duration;

/// What they have done since the machine is up; none where the kernel does not say.
pub(super) fn worked() -> Option<CpuWork> {
    read(&fs::read_to_string("/proc/stat").ok()?, rustix::param::clock_ticks_per_second())
}

fn read(stat: &str, ticks_per_second: u64) -> Option<CpuWork> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let mut next = || fields.next()?.parse::<u64>().ok();
    // In order: user, nice, system, idle, waiting for disks, interrupts twice. What a machine under this one
    // took away, and guests, which are in `user`, are left out.
    let (user, nice, system, _idle, _wait) = (next()?, next()?, next()?, next()?, next()?);
    let ticks = user + nice + system + next()? + next()?;
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let cpus = stat.lines().filter(is_cpu).count();
    let time = Duration::from_secs_f64(ticks as f64 / ticks_per_second.max(1) as f64);
    Some(CpuWork { time, cpus: u32::try_from(cpus).ok()?.max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_what_the_cpus_did_is_all_but_idling_and_waiting() {
        let stat = "cpu  100 50 25 9999 500 15 10 3 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 5\n";
        let work = CpuWork { time: Duration::from_secs(2), cpus: 2 };
        assert_eq!(read(stat, 100), Some(work));
        for stat in ["", "cpu", "cpu  1 2", "cpu0 1 2 3 4 5 6 7"] {
            assert_eq!(read(stat, 100), None);
        }
        assert!(worked().unwrap().time.is_positive());
    }
}
