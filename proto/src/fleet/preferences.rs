//! Preferences, as a document holds them and operators set them.

use fallow_domain::{Bytes, Duration, Fraction, Hours, Invalid, MasterUrl, Preferences, RequiredLayer};

use super::limits::LAYERS;
use super::{local_preferences, v1 as wire};

/// Preferences on the wire.
#[must_use]
pub fn to_wire(preferences: &Preferences) -> wire::Preferences {
    let idle = Preferences::default().idle_after;
    // By name, so that none is forgotten.
    let Preferences {
        cpu_fraction,
        cpu_time_fraction,
        buffer_min,
        buffer_additional,
        scheduling_period,
        checkpoint_period,
        leave_in_memory,
        suspended,
        memory_fraction,
        disk_fraction,
        disk_free_min,
        connection_interval,
        excluded_devices,
        hours,
        run_in_use,
        run_gpu_in_use,
        idle_after,
        required_layers,
        jobs_network,
        local,
    } = preferences;
    wire::Preferences {
        cpu_fraction: cpu_fraction.get(),
        cpu_time_fraction: cpu_time_fraction.get(),
        buffer_min_micros: buffer_min.as_micros(),
        buffer_additional_micros: buffer_additional.as_micros(),
        scheduling_period_micros: scheduling_period.as_micros(),
        checkpoint_period_micros: checkpoint_period.as_micros(),
        leave_in_memory: *leave_in_memory,
        suspended: *suspended,
        memory_fraction: memory_fraction.get(),
        disk_fraction: disk_fraction.get(),
        disk_free_min_bytes: disk_free_min.0,
        connection_interval_micros: connection_interval.as_micros(),
        excluded_devices: excluded_devices.iter().map(ToString::to_string).collect(),
        hours: if hours.is_always() { String::new() } else { hours.to_string() },
        run_in_use: *run_in_use,
        run_gpu_in_use: *run_gpu_in_use,
        // As those leave it out who do not know it.
        idle_after_micros: if *idle_after == idle { 0 } else { idle_after.as_micros() },
        required_layers: required_layers.iter().map(ToString::to_string).collect(),
        jobs_network: jobs_network.as_ref().map(|projects| wire::JobsNetwork {
            project_urls: projects.iter().map(ToString::to_string).collect(),
        }),
        local: local_preferences::to_wire(local).map(Box::new),
    }
}

/// Preferences as they are set. That they are all said is said, too: whoever leaves [`Preferences::local`]
/// out does not know them.
#[must_use]
pub fn to_set(preferences: &Preferences) -> wire::Preferences {
    let mut wire = to_wire(preferences);
    wire.local.get_or_insert_default();
    wire
}

/// Preferences from the wire.
///
/// # Errors
/// [`Invalid`] for the first value that cannot be meant.
pub fn from_wire(wire: &wire::Preferences) -> Result<Preferences, Invalid> {
    // By name, so that none is forgotten.
    let wire::Preferences {
        cpu_fraction,
        cpu_time_fraction,
        buffer_min_micros,
        buffer_additional_micros,
        scheduling_period_micros,
        checkpoint_period_micros,
        leave_in_memory,
        suspended,
        memory_fraction,
        disk_fraction,
        disk_free_min_bytes,
        connection_interval_micros,
        excluded_devices,
        hours,
        run_in_use,
        run_gpu_in_use,
        idle_after_micros,
        required_layers,
        jobs_network,
        local,
    } = wire;
    let projects = jobs_network.as_ref().map(|wire| &wire.project_urls);
    if let Some(many) = projects.map(Vec::len).filter(|len| *len > Preferences::NETWORK_PROJECTS_MAX) {
        return Err(Invalid::new("projects whose jobs may have the network", many, "at most 64 of them"));
    }
    if required_layers.len() > LAYERS {
        return Err(Invalid::new("required layers", required_layers.len(), "at most 32 of them"));
    }
    let preferences = Preferences {
        cpu_fraction: Fraction::new(*cpu_fraction)?,
        cpu_time_fraction: Fraction::new(*cpu_time_fraction)?,
        buffer_min: Duration::from_micros(*buffer_min_micros),
        buffer_additional: Duration::from_micros(*buffer_additional_micros),
        scheduling_period: Duration::from_micros(*scheduling_period_micros),
        checkpoint_period: Duration::from_micros(*checkpoint_period_micros),
        leave_in_memory: *leave_in_memory,
        suspended: *suspended,
        memory_fraction: Fraction::new(*memory_fraction)?,
        disk_fraction: Fraction::new(*disk_fraction)?,
        disk_free_min: Bytes(*disk_free_min_bytes),
        connection_interval: Duration::from_micros(*connection_interval_micros),
        excluded_devices: excluded_devices.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        hours: if hours.is_empty() { Hours::default() } else { Hours::of_stored(hours)? },
        run_in_use: *run_in_use,
        run_gpu_in_use: *run_gpu_in_use,
        idle_after: match *idle_after_micros {
            0 => Preferences::default().idle_after,
            micros => Duration::from_micros(micros),
        },
        required_layers: required_layers
            .iter()
            .map(|name| RequiredLayer::of_stored(name))
            .collect::<Result<_, _>>()?,
        jobs_network: projects
            .map(|urls| urls.iter().map(|url| MasterUrl::parse(url)).collect::<Result<_, _>>())
            .transpose()?,
        local: local_preferences::from_wire(local.as_deref())?,
    };
    preferences.check()?;
    Ok(preferences)
}

#[cfg(test)]
mod tests {
    use fallow_domain::LocalPreferences;

    use super::*;

    /// No two alike, and none of them the default: one that took another's place would show.
    fn preferences() -> Preferences {
        Preferences {
            cpu_fraction: Fraction::clamped(0.5),
            cpu_time_fraction: Fraction::clamped(0.6),
            buffer_min: Duration::from_secs(61),
            buffer_additional: Duration::from_secs(62),
            scheduling_period: Duration::from_secs(63),
            checkpoint_period: Duration::from_secs(64),
            leave_in_memory: true,
            suspended: true,
            memory_fraction: Fraction::clamped(0.7),
            disk_fraction: Fraction::clamped(0.8),
            disk_free_min: Bytes(65),
            connection_interval: Duration::from_secs(66),
            excluded_devices: ["amd:0", "nvidia:1"].iter().map(|name| name.parse().unwrap()).collect(),
            hours: "mon-fri 18:00-08:00, sun".parse().unwrap(),
            run_in_use: true,
            run_gpu_in_use: true,
            idle_after: Duration::from_secs(67),
            // One that only a newer version knows is among them.
            required_layers: ["files", "newer"].map(|name| RequiredLayer::of_stored(name).unwrap()).into(),
            jobs_network: Some([MasterUrl::parse("http://example.org/a/").unwrap()].into()),
            local: LocalPreferences { run_on_batteries: true, ..LocalPreferences::default() },
        }
    }

    #[test]
    fn preferences_survive_the_wire() {
        let nobody = Preferences { jobs_network: Some([].into()), ..Preferences::default() };
        for one in [preferences(), Preferences::default(), nobody] {
            assert_eq!(from_wire(&to_wire(&one)).unwrap(), one);
        }
    }

    #[test]
    fn preferences_that_cannot_be_meant_are_refused() {
        let good = to_wire(&Preferences::default());
        let with = || good.clone();
        for bad in [
            wire::Preferences::default(),
            wire::Preferences { cpu_fraction: f64::NAN, ..with() },
            wire::Preferences { cpu_fraction: 1.5, ..with() },
            wire::Preferences { buffer_min_micros: -1, ..with() },
            wire::Preferences { scheduling_period_micros: i64::MAX, ..with() },
            wire::Preferences { excluded_devices: vec!["gpu 0".to_owned()], ..with() },
            wire::Preferences { hours: "18-8".to_owned(), ..with() },
            wire::Preferences { idle_after_micros: 1, ..with() },
            wire::Preferences { required_layers: vec!["no name".to_owned()], ..with() },
            wire::Preferences { required_layers: vec!["files".to_owned(); LAYERS + 1], ..with() },
        ] {
            assert!(from_wire(&bad).is_err(), "{bad:?}");
        }
    }
}
