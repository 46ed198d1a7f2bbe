//! How long hosts are waited for, all that have the version to have or those of the newest wave alone.
//!
//! - As long as one of them has not had its time: whoever is there with the version has half of the soak
//!   time to show how it fares, and whoever is there without it has three times the soak time to take it,
//!   be it in the middle of the night, in the morning or after a weekend. That another host hangs takes
//!   nothing from that.
//! - Where none is there, until none has been for three days, and three times the soak time at least.
//! - Where they come and go and none stays for long enough, three days and ten times the soak time in all.
//!
//! What then is to be said is for somebody to look at.

use fallow_domain::Duration;

use crate::Soak;
use crate::judge::Judgement;

/// So many times the soak time hosts are waited for that are there and do not take the version.
pub(crate) const PATIENCE: i64 = 3;
/// Hosts none of which is there are waited for over a long weekend.
const WEEKEND: Duration = Duration::from_hours(72);
/// So many times the soak time longer, where they come and go.
const COMING: i64 = 10;

/// What is to be said of hosts that had the patience of three times the soak time, of which none has the
/// version for long enough and few, or none, are there without it. `there`: how long the wave had been
/// watched when one of them was there last.
pub(crate) fn coming(soak: &Soak, soak_time: Duration, there: Duration, who: &str) -> Judgement {
    let watched = soak.watched();
    if watched >= WEEKEND + soak_time * COMING {
        return Judgement::Uncertain(format!(
            "none of {who} has been there with it for half of {soak_time}, in {watched}: they come and go, or do not take it"
        ));
    }
    match watched - there < WEEKEND {
        true => Judgement::Watch,
        false => Judgement::Uncertain(format!("none of {who} is there: they are off, or their networks are")),
    }
}
