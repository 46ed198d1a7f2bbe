//! The document's form on the wire, and preferences back from it.

use fallow_domain::{Bytes, Duration, FleetDocument, Fraction, Invalid, Preferences};
use fallow_proto::fleet::v1 as proto;

/// A document as agents and operators get it.
#[must_use]
pub fn to_wire(document: &FleetDocument) -> proto::Document {
    let projects = document.projects.iter().map(|project| proto::ProjectAssignment {
        name: project.name.clone(),
        url: project.url.to_string(),
        account_key: project.account_key.reveal().to_owned(),
        share: project.share.get(),
    });
    proto::Document {
        version: document.version.0,
        projects: projects.collect(),
        preferences: Some(preferences_to_wire(&document.preferences)),
    }
}

/// Preferences on the wire.
#[must_use]
pub fn preferences_to_wire(preferences: &Preferences) -> proto::Preferences {
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
    } = preferences;
    proto::Preferences {
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
    }
}

/// Preferences from the wire.
///
/// # Errors
/// [`Invalid`] for the first value that cannot be meant.
pub fn preferences_from_wire(wire: &proto::Preferences) -> Result<Preferences, Invalid> {
    let proto::Preferences {
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
    } = wire;
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
    };
    preferences.check()?;
    Ok(preferences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_survive_the_wire() {
        let excluded_devices = ["amd:0", "nvidia:1"].iter().map(|name| name.parse().unwrap()).collect();
        let preferences = Preferences { suspended: true, excluded_devices, ..Preferences::default() };
        assert_eq!(preferences_from_wire(&preferences_to_wire(&preferences)).unwrap(), preferences);
    }

    #[test]
    fn preferences_that_cannot_be_meant_are_refused() {
        let good = preferences_to_wire(&Preferences::default());
        let with = || good.clone();
        for bad in [
            proto::Preferences::default(),
            proto::Preferences { cpu_fraction: f64::NAN, ..with() },
            proto::Preferences { cpu_fraction: 1.5, ..with() },
            proto::Preferences { buffer_min_micros: -1, ..with() },
            proto::Preferences { scheduling_period_micros: i64::MAX, ..with() },
            proto::Preferences { excluded_devices: vec!["gpu 0".to_owned()], ..with() },
        ] {
            assert!(preferences_from_wire(&bad).is_err(), "{bad:?}");
        }
    }
}
