use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// A Monday at midnight.
const MONDAY: Instant = Instant::from_micros(1_800_230_400_000_000);

/// A host that has been on by a rule, looked at every ten minutes, from a Monday on.
fn host(days: i64, is_on: impl Fn(i64, i64) -> bool) -> (OnTime, Instant) {
    let mut on_time = OnTime::default();
    let step = Duration::from_mins(10);
    let mut now = MONDAY;
    on_time.observe(now, is_on(0, 0));
    for minute in (0..days * 24 * 60).step_by(10) {
        now = now + step;
        on_time.observe(now, is_on(minute / (24 * 60), minute % (24 * 60) / 60));
    }
    (on_time, now)
}

fn hours(on_time: &OnTime, from: Instant, length: Duration, sureness: Sureness) -> f64 {
    on_time.within(from, length, sureness).as_secs_f64() / 3_600.0
}

#[test]
fn a_host_that_is_always_on_is_on_for_as_long_as_any_window() {
    let (on_time, now) = host(20, |_, _| true);
    for (length, part) in [(HOUR, 0.99), (HOUR * 7, 0.99), (DAY, 0.98), (DAY * 4, 0.97)] {
        let sure = on_time.within(now, length, Sureness::Sure);
        assert!(sure > length.mul_f64(part) && sure <= length, "{length} {sure}");
    }
}

#[test]
fn a_host_of_which_nothing_is_known_is_trusted_for_the_greater_part() {
    let on_time = OnTime::default();
    assert_eq!(on_time.within(MONDAY, DAY, Sureness::Sure), DAY.mul_f64(0.8));
    assert_eq!(on_time.within(MONDAY, DAY, Sureness::Possible), DAY);
    assert_eq!(on_time.within(MONDAY, Duration::ZERO, Sureness::Hope), Duration::ZERO);
}

#[test]
fn office_hours_are_learned_and_a_deadline_over_the_weekend_is_seen_through() {
    let (on_time, now) = host(42, |day, hour| day % 7 < 5 && (8..18).contains(&hour));
    let friday_at_four = now + DAY * 4 + HOUR * 16;
    let tuesday_at_ten = now + DAY + HOUR * 10;
    let weekend = hours(&on_time, friday_at_four, DAY * 2, Sureness::Sure);
    assert!(
        (0.5..3.0).contains(&weekend),
        "{weekend}: two hours until the evening, and nothing until Monday"
    );
    let midweek = hours(&on_time, tuesday_at_ten, DAY, Sureness::Sure);
    assert!((6.0..10.5).contains(&midweek), "{midweek}: eight today and two tomorrow");
    // The mean says the same of both.
    let mean = on_time.share().get();
    assert!((0.25..0.35).contains(&mean), "{mean}");
}

#[test]
fn a_host_that_is_on_for_days_and_off_for_days_is_sure_of_little_and_may_hope_for_all() {
    // On for three days in six, by turns that keep to no day of the week.
    let (on_time, now) = host(120, |day, _| (day / 3) % 2 == 0);
    let (sure, hope) =
        (hours(&on_time, now, DAY * 2, Sureness::Sure), hours(&on_time, now, DAY * 2, Sureness::Hope));
    assert!(sure < 10.0 && hope > 38.0, "{sure} {hope}");
    // Another one, on for as long in turns of minutes, is sure of nearly its share.
    let mut minutes = OnTime::default();
    for step in 0..120 * 24 * 6 {
        minutes.observe(MONDAY + Duration::from_mins(10) * step, step % 2 == 0);
    }
    let even = hours(&minutes, MONDAY + DAY * 120, DAY * 2, Sureness::Sure);
    assert!((22.0..26.0).contains(&even), "{even}");
}

#[test]
fn new_habits_are_learned_within_weeks() {
    let (before, _) = host(60, |_, hour| hour < 12);
    let mut on_time = before;
    let moved = MONDAY + DAY * 60;
    for step in 1..=21 * 24 {
        let now = moved + HOUR * step;
        on_time.observe(now, (step - 1) % 24 >= 12);
    }
    let noon = moved + DAY * 21 + HOUR * 12;
    let afternoon = hours(&on_time, noon, HOUR * 12, Sureness::Possible);
    assert!(afternoon > 9.0, "{afternoon}");
}

#[test]
fn what_is_stored_says_the_same_when_it_is_read() {
    let (on_time, now) = host(30, |day, hour| (day + hour) % 3 != 0);
    let text = serde_json::to_string(&on_time).unwrap();
    assert!(text.len() < 40_000, "{} bytes", text.len());
    let again: OnTime = serde_json::from_str(&text).unwrap();
    assert_eq!(again, on_time);
    for length in [HOUR, DAY, DAY * 9] {
        assert_eq!(again.within(now, length, Sureness::Sure), on_time.within(now, length, Sureness::Sure));
    }
}

#[test]
fn r1_12_a_clock_that_is_set_by_weeks_and_back_takes_no_habit_away() {
    let (mut on_time, now) = host(30, |_, _| true);
    let before = hours(&on_time, now, DAY, Sureness::Sure);
    on_time.observe(now + DAY * 21, false);
    on_time.observe(now + HOUR, true);
    on_time.observe(now + HOUR * 3, true);
    let after = hours(&on_time, now + HOUR * 3, DAY, Sureness::Sure);
    assert!(after > before - 1.0, "{before} {after}");
}

#[test]
fn what_is_damaged_is_told_from_what_is_sound() {
    let (on_time, _) = host(30, |_, hour| hour < 9);
    assert!(on_time.is_sound() && OnTime::default().is_sound());
    let text = serde_json::to_string(&on_time).unwrap();
    let damaged = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        let read: OnTime = serde_json::from_str(&text.replacen(from, to, 1)).unwrap();
        assert!(!read.is_sound(), "{to}");
    };
    damaged("\"past\":[", "\"past\":[1801,");
    damaged("\"all\":[", "\"all\":[-1.0,0.0],\"none\":[");
    damaged("\"bins\":[", "\"bins\":[1.0,");
    damaged("\"weight\":", "\"weight\":1e300,\"none\":");
}

proptest! {
    #[test]
    fn r1_12_however_a_clock_jumps_on_time_stays_within_the_window_and_surer_is_never_more(
        jumps in prop::collection::vec((-400_000_000_i64..400_000_000, any::<bool>()), 1..60),
        length in 1_i64..5_000_000,
    ) {
        let mut on_time = OnTime::default();
        let mut now = MONDAY;
        for (secs, on) in jumps {
            // Mostly hours, and now and then years.
            let secs = if secs % 7 == 0 { secs } else { secs % 40_000 };
            now = now + Duration::from_secs(secs);
            on_time.observe(now, on);
            prop_assert!(on_time.past.len() <= 2 * SLOTS_MAX);
        }
        let length = Duration::from_secs(length);
        let [sure, possible, hope] = [Sureness::Sure, Sureness::Possible, Sureness::Hope]
            .map(|sureness| on_time.within(now, length, sureness));
        prop_assert!(Duration::ZERO <= sure && sure <= possible && possible <= hope && hope <= length);
    }

    #[test]
    fn how_often_it_looks_makes_no_difference(
        stretches in prop::collection::vec((1_i64..20_000, any::<bool>()), 1..40), parts in 2_i64..20,
    ) {
        let (mut once, mut often) = (OnTime::default(), OnTime::default());
        let mut now = MONDAY;
        once.observe(now, true);
        often.observe(now, true);
        for (secs, on) in stretches {
            for part in 1..=parts {
                often.observe(now + Duration::from_secs(secs * part), on);
            }
            now = now + Duration::from_secs(secs * parts);
            once.observe(now, on);
        }
        prop_assert_eq!(once, often);
    }
}
