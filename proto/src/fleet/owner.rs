//! The limits of a host's owner, as its agent tells them.

use fallow_domain::agent_state::OwnerWord;
use fallow_domain::{Fraction, OwnerLimits};

use super::limits::{DECLINED, OWNER_PLACES};
use super::{check, preferences, v1 as wire};

/// An owner's limits on the wire.
#[must_use]
pub fn to_wire(owner: &OwnerLimits) -> wire::OwnerLimits {
    // By name, so that none is forgotten.
    let OwnerLimits {
        suspended,
        cpu_fraction,
        cpu_time_fraction,
        memory_fraction,
        disk_fraction,
        excluded_devices,
    } = owner;
    wire::OwnerLimits {
        suspended: *suspended,
        cpu_fraction: cpu_fraction.map(Fraction::get),
        cpu_time_fraction: cpu_time_fraction.map(Fraction::get),
        memory_fraction: memory_fraction.map(Fraction::get),
        disk_fraction: disk_fraction.map(Fraction::get),
        excluded_devices: excluded_devices.iter().map(ToString::to_string).collect(),
    }
}

/// An owner's limits from the wire.
///
/// # Errors
/// In words, the first thing that cannot be.
pub fn from_wire(wire: &wire::OwnerLimits) -> Result<OwnerLimits, String> {
    // By name, so that none is forgotten.
    let wire::OwnerLimits {
        suspended,
        cpu_fraction,
        cpu_time_fraction,
        memory_fraction,
        disk_fraction,
        excluded_devices,
    } = wire;
    if excluded_devices.len() > DECLINED {
        return Err(format!("{} excluded devices are more than {DECLINED}", excluded_devices.len()));
    }
    let fraction = |part: &Option<f64>| part.map(Fraction::new).transpose().map_err(|bad| bad.to_string());
    let devices = excluded_devices.iter().map(|name| name.parse());
    Ok(OwnerLimits {
        suspended: *suspended,
        cpu_fraction: fraction(cpu_fraction)?,
        cpu_time_fraction: fraction(cpu_time_fraction)?,
        memory_fraction: fraction(memory_fraction)?,
        disk_fraction: fraction(disk_fraction)?,
        excluded_devices: devices
            .collect::<Result<_, _>>()
            .map_err(|bad: fallow_domain::Invalid| bad.to_string())?,
    })
}

/// An owner's word on the wire.
#[must_use]
pub fn word_to_wire(word: &OwnerWord) -> wire::OwnerWord {
    let OwnerWord { said, preferences, places } = word;
    let place =
        |(key, place): (&String, &String)| wire::OwnerPlace { key: key.clone(), place: place.clone() };
    wire::OwnerWord {
        said: *said,
        preferences: Some(preferences::to_wire(preferences)),
        places: places.iter().map(place).collect(),
    }
}

/// An owner's word from the wire.
///
/// # Errors
/// In words, the first thing that cannot be.
pub fn word_from_wire(wire: wire::OwnerWord) -> Result<OwnerWord, String> {
    let wire::OwnerWord { said, preferences, places } = wire;
    if places.len() > OWNER_PLACES {
        return Err(format!("{} places of an owner's word are more than {OWNER_PLACES}", places.len()));
    }
    let preferences = preferences.ok_or("an owner's word has no preferences")?;
    let preferences = preferences::from_wire(&preferences).map_err(|bad| bad.to_string())?;
    let place = |wire::OwnerPlace { key, place }| {
        check::text("key of an owner's word", &key)?;
        check::text("place of an owner's word", &place)?;
        Ok((key, place))
    };
    Ok(OwnerWord { said, preferences, places: places.into_iter().map(place).collect::<Result<_, String>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_4_an_owners_limits_survive_the_wire() {
        let limits = OwnerLimits {
            suspended: true,
            cpu_fraction: Some(Fraction::clamped(0.1)),
            cpu_time_fraction: Some(Fraction::clamped(0.2)),
            memory_fraction: Some(Fraction::clamped(0.3)),
            disk_fraction: Some(Fraction::clamped(0.4)),
            excluded_devices: ["nvidia:0".parse().unwrap()].into(),
        };
        for one in [limits, OwnerLimits::default()] {
            assert_eq!(from_wire(&to_wire(&one)), Ok(one));
        }
        // His hours and the document's may have no minute in common.
        let [night, day] = ["mon-fri 18:00-08:00", "mon-fri 09:00-17:00"].map(|hours| hours.parse().unwrap());
        let hours = fallow_domain::Hours::and(&night, &day);
        assert!(hours.is_never());
        let preferences = fallow_domain::Preferences { hours, ..Default::default() };
        let word = OwnerWord { said: 1, preferences, ..OwnerWord::default() };
        assert_eq!(word_from_wire(word_to_wire(&word)), Ok(word));
        let many = vec![wire::OwnerPlace::default(); OWNER_PLACES + 1];
        let many = wire::OwnerWord { places: many, ..word_to_wire(&OwnerWord::default()) };
        assert!(word_from_wire(many).unwrap_err().contains("are more than"));
        let none = wire::OwnerWord::default();
        assert!(word_from_wire(none).unwrap_err().contains("has no preferences"));
        let bad = wire::OwnerLimits { excluded_devices: vec!["gpu".into()], ..Default::default() };
        assert!(from_wire(&bad).unwrap_err().contains("nvidia:0"));
    }
}
