//! Built-in scenarios (R5.15, R3.13).

use std::num::NonZeroU32;

use fallow_domain::{Duration, Flops, Fraction, Share, Speed};

use super::{
    ApplicationModel, Availability, ClientModel, CoprocessorKind, CoprocessorModel, CoprocessorUse,
    HostModel, OffKind, ProjectModel, Scenario, Uses,
};

const BASE_SHARE: f64 = 100.0;
const BASE_CPUS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// 1e9 FLOPS.
fn base_speed() -> Speed {
    speed(1e9)
}

/// A speed that is known to be one.
fn speed(flops: f64) -> Speed {
    #[allow(clippy::unwrap_used, reason = "called with constants above 0 only")]
    Speed::new(flops).unwrap()
}

fn share(value: f64) -> Share {
    Share::new(value).unwrap_or_default()
}

impl Default for HostModel {
    /// The base host (R5.15): 2 CPUs of 1e9 FLOPS, on 0.8 of the time for 1000 s on average.
    fn default() -> Self {
        Self {
            cpus: BASE_CPUS,
            flops: base_speed(),
            available: Availability::OnOff {
                fraction: Fraction::clamped(0.8),
                mean: Duration::from_secs(1000),
            },
            off: OffKind::Suspend,
            connection_interval: Duration::ZERO,
            coprocessors: Vec::new(),
            memory: None,
            disk: None,
            download: None,
            upload: None,
        }
    }
}

impl Scenario {
    /// The built-in scenario of that name: `base`, `batch300`, `gpu`, or `mixM` such as `mix20` (up to 1000
    /// projects).
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        match name {
            "base" => Some(Self::base()),
            "batch300" => Some(Self::batch300()),
            "gpu" => Some(Self::gpu()),
            _ => {
                let m = name.strip_prefix("mix")?.parse().ok()?;
                (1..=1000).contains(&m).then(|| Self::mix(m))
            }
        }
    }

    /// The base values of R5.15: one project, 100 days.
    #[must_use]
    pub fn base() -> Self {
        Self {
            name: "base".into(),
            duration: Duration::from_hours(100 * 24),
            hosts: NonZeroU32::MIN,
            host: HostModel::default(),
            client: ClientModel::default(),
            projects: vec![ProjectModel::new("p1", share(BASE_SHARE), ApplicationModel::base("p1", 1))],
            outages: Vec::new(),
        }
    }

    /// The mix of R5.15: projects `p1` to `pM`, the i-th with i times the base size, latency bound and share.
    /// A mix of 0 is one of 1.
    #[must_use]
    pub fn mix(m: u32) -> Self {
        let m = m.max(1);
        let project = |i: u32| {
            let name = format!("p{i}");
            ProjectModel::new(name.clone(), share(BASE_SHARE * f64::from(i)), ApplicationModel::base(name, i))
        };
        Self { name: format!("mix{m}"), projects: (1..=m).map(project).collect(), ..Self::base() }
    }

    /// A batch on a fleet: 300 hosts of one CPU each that come and go, and 6,000 jobs of 10 s that are said
    /// to take 30 s. One host's buffer has room for a thousand of them, so that a few hosts take all if
    /// nobody spreads them.
    #[must_use]
    pub fn batch300() -> Self {
        let size = |secs: f64| Flops::new(secs * 1e9).unwrap_or_default();
        let job = ApplicationModel {
            estimated_flops: size(30.0),
            jobs: Some(6_000),
            ..ApplicationModel::of_size("batch", size(10.0))
        };
        let batch = ProjectModel::new("batch", share(BASE_SHARE), job);
        Self {
            name: "batch300".into(),
            duration: Duration::from_hours(24),
            hosts: NonZeroU32::MIN.saturating_add(299),
            host: HostModel { cpus: NonZeroU32::MIN, ..HostModel::default() },
            projects: vec![ProjectModel { request_delay: Duration::from_secs(7), ..batch }],
            ..Self::base()
        }
    }

    /// The example of R3.13: equal shares; project `a` has jobs for the GPU only, `b` for both; the GPU is
    /// twice as fast as the CPU; one of each, always on, for 10 days. Jobs take an hour.
    #[must_use]
    pub fn gpu() -> Self {
        let nvidia = Uses {
            cpus: 0.0,
            coprocessor: Some(CoprocessorUse { kind: CoprocessorKind::Nvidia, instances: 1.0 }),
        };
        let hour = |name: &str, flops: f64, uses| ApplicationModel {
            uses,
            ..ApplicationModel::of_size(name, Flops::new(flops).unwrap_or_default())
        };
        let mut b = ProjectModel::new("b", share(BASE_SHARE), hour("gpu", 7.2e12, nvidia));
        b.applications.push(hour("cpu", 3.6e12, Uses::ONE_CPU));
        Self {
            name: "gpu".into(),
            duration: Duration::from_hours(240),
            hosts: NonZeroU32::MIN,
            host: HostModel {
                cpus: NonZeroU32::MIN,
                available: Availability::Always,
                coprocessors: vec![CoprocessorModel {
                    kind: CoprocessorKind::Nvidia,
                    count: NonZeroU32::MIN,
                    flops: speed(2e9),
                }],
                ..HostModel::default()
            },
            client: ClientModel::default(),
            projects: vec![ProjectModel::new("a", share(BASE_SHARE), hour("a", 7.2e12, nvidia)), b],
            outages: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_15_the_base_scenario_is_as_published() {
        let base = Scenario::base();
        let application = &base.projects[0].applications[0];
        assert_eq!(application.estimated_flops.at(base.host.flops), Duration::from_secs(13_000));
        assert_eq!(application.latency_bound, Duration::from_secs(9 * 86_400));
        assert_eq!(base.host.cpus.get(), 2);
        assert_eq!(base.check(), []);
    }

    #[test]
    fn r5_15_a_mix_scales_size_latency_bound_and_share() {
        let mix = Scenario::mix(20);
        assert_eq!(mix.projects.len(), 20);
        let last = &mix.projects[19];
        assert_eq!(last.share.get(), 2000.0);
        assert_eq!(last.applications[0].latency_bound, Duration::from_secs(180 * 86_400));
        assert_eq!(last.applications[0].true_flops.mean.get(), 2.6e14);
        assert_eq!(mix.check(), []);
    }

    #[test]
    fn built_in_scenarios_are_found_by_name() {
        for name in ["base", "batch300", "gpu", "mix1", "mix20"] {
            assert_eq!(Scenario::built_in(name).unwrap().name, name);
        }
        assert_eq!(Scenario::built_in("mix0"), None);
        assert_eq!(Scenario::built_in("lab"), None);
    }

    #[test]
    fn r3_13_the_example_makes_sense() {
        assert_eq!(Scenario::gpu().check(), []);
    }
}
