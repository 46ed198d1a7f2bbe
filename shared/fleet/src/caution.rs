//! What operators are warned of.

use fallow_config::write_duration;
use fallow_domain::{LocalPreferences, Preferences};

/// What these preferences come to together where nobody can have meant that, though each can be meant by
/// itself: a line for each (R6.4).
#[must_use]
pub fn cautions(preferences: &Preferences) -> Vec<String> {
    let Preferences { idle_after, local, .. } = preferences;
    let mut found = Vec::new();
    if let Some(stop) = preferences.stops_before_it_begins() {
        found.push(format!(
            "nothing would ever be computed: computing stops after {} without input (stop_without_input), and begins after \
             {} (idle_after): make stop_without_input the longer one (neither counts on hosts with --never-in-use)",
            write_duration(stop),
            write_duration(*idle_after)
        ));
    }
    let usual = LocalPreferences::default().transfer_period;
    if local.transfer_max.is_none() && local.transfer_period != usual {
        found.push(format!(
            "transfer_period ({}) means nothing without transfer_max, the most that files come to in that time",
            write_duration(local.transfer_period)
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Bytes, Duration};

    use super::*;

    #[test]
    fn r6_4_what_preferences_come_to_together_is_warned_of() {
        let of = |change: &dyn Fn(&mut Preferences)| {
            let mut preferences = Preferences::default();
            change(&mut preferences);
            cautions(&preferences)
        };
        let month = Duration::from_hours(24 * 30);
        let never = |run_in_use, stop| {
            of(&|all| {
                all.run_in_use = run_in_use;
                all.idle_after = Duration::from_mins(10);
                all.local.stop_without_input = Some(Duration::from_mins(stop));
            })
        };
        let said = never(false, 10);
        assert!(said.len() == 1 && said[0].contains("after 10 min without input"), "{said:?}");
        assert!(never(false, 11).is_empty() && never(true, 10).is_empty());
        let said = of(&|all| all.local.transfer_period = month);
        assert!(
            said.len() == 1 && said[0].starts_with("transfer_period (30 days) means nothing"),
            "{said:?}"
        );
        let limited = of(&|all| {
            (all.local.transfer_max, all.local.transfer_period) = (Some(Bytes(10_000_000)), month);
        });
        assert!(limited.is_empty() && of(&|_| ()).is_empty());
    }
}
