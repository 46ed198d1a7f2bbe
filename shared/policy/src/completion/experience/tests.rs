use super::*;
use proptest::prelude::*;

const HOUR: Duration = Duration::from_hours(1);

fn t0() -> Instant {
    Instant::from_secs_f64(1.8e9)
}
fn speed(gflops: f64) -> Speed {
    Speed::new(gflops * 1e9).unwrap()
}
/// A job that was to take an hour at that speed, and took so many times as long.
fn took(ratio: f64, gflops: f64) -> EndedJob {
    EndedJob { by_size: HOUR, actual: HOUR.mul_f64(ratio), speed: speed(gflops) }
}
fn learned(ratios: &[f64]) -> Experience<u32> {
    let mut experience = Experience::default();
    ratios.iter().for_each(|ratio| experience.learn(t0(), &1, took(*ratio, 1.0)));
    experience
}
fn factor(ratios: &[f64]) -> f64 {
    let experience = learned(ratios);
    let factor = experience.factor(&1, speed(1.0)).get();
    assert!((factor - experience.of_project(t0()).get()).abs() < 1e-6, "of one version it is the project's");
    factor
}

#[test]
fn seven_of_ten_jobs_take_no_longer_than_estimated() {
    let ratios: Vec<f64> = (0..30).map(|n| 1.0 + f64::from(n) / 10.0).collect();
    let within = ratios.iter().filter(|ratio| **ratio <= factor(&ratios) * 1.05).count();
    assert!((20..=22).contains(&within), "{within} of 30");
    // The last thirty count.
    let moved: Vec<f64> = [0.1; 30].into_iter().chain([3.0; 30]).collect();
    assert_eq!(factor(&moved), 3.0);
}

#[test]
fn no_single_job_decides_however_absurd_and_however_few_there_are() {
    assert_eq!(factor(&[]), 1.0);
    for absurd in [1e9, 1e-9] {
        assert_eq!(factor(&[absurd]), 1.0);
        for count in 1..40 {
            for at in [0, count / 2, count] {
                let mut ratios = vec![1.0; count];
                ratios.insert(at, absurd);
                assert_eq!(factor(&ratios), 1.0, "one of {} at {at}", count + 1);
            }
        }
    }
}

#[test]
fn too_low_estimates_are_believed_from_the_second_job_and_too_high_ones_from_the_fifth() {
    assert_eq!((factor(&[4.0]), factor(&[4.0; 2])), (1.0, 4.0));
    assert!((factor(&[0.25; 4]), factor(&[0.25; 5])) == (1.0, 0.25));
}

#[test]
fn a_version_without_jobs_is_as_the_projects_others_and_learns_on_from_there() {
    let mut experience = learned(&[4.0; 10]);
    let of = |experience: &Experience<u32>, version| experience.factor(&version, speed(2.0)).get();
    assert_eq!((of(&experience, 1), of(&experience, 2)), (8.0, 4.0), "at twice the speed");
    experience.learn(t0(), &2, took(1.0, 2.0));
    assert_eq!(of(&experience, 2), 4.0);
    (0..8).for_each(|_| experience.learn(t0(), &2, took(1.0, 2.0)));
    assert_eq!((of(&experience, 1), of(&experience, 2)), (8.0, 1.0));
}

/// What jobs take stays as it is when their server has learned how fast the host is.
#[test]
fn a_server_that_corrects_a_versions_speed_is_not_corrected_twice() {
    let mut experience = learned(&[4.0; 10]);
    assert_eq!(experience.factor(&1, speed(1.0)).get(), 4.0);
    assert_eq!(experience.factor(&1, speed(0.25)).get(), 1.0);
    experience.learn(t0(), &1, took(1.0, 0.25));
    assert_eq!(experience.factor(&1, speed(0.25)).get(), 1.0);
}

#[test]
fn the_shortest_of_a_versions_jobs_is_told_once_enough_have_ended() {
    let least = |experience: &Experience<u32>, version| {
        experience.least(&version, speed(2.0)).map(|least| least.get())
    };
    let seven = learned(&[2.0; 7]);
    assert_eq!((least(&seven, 1), least(&seven, 2)), (None, None));
    assert_eq!(
        least(&learned(&[2.0, 3.0, 2.0, 1.5, 2.0, 9.0, 2.0, 2.0]), 1),
        Some(3.0),
        "at twice the speed"
    );
}

#[test]
fn what_projects_are_told_fades_when_nothing_is_sent_any_more_and_only_if_it_is_too_high() {
    let (high, low) = (learned(&[16.0; 10]), learned(&[0.25; 10]));
    let after = |experience: &Experience<u32>, days| experience.of_project(t0() + HOUR * 24 * days).get();
    assert_eq!([6, 8, 15, 22, 36_500].map(|days| after(&high, days)), [16.0, 4.0, 2.0, 2.0_f64.sqrt(), 1.0]);
    assert_eq!((after(&low, 100), after(&high, -100)), (0.25, 16.0));
    assert_eq!(high.factor(&1, speed(1.0)).get(), 16.0, "jobs that are held take as long as they do");
    let adopted = Experience::<u32>::adopted(DurationCorrection::new(4.0));
    assert_eq!((after(&adopted, 0), adopted.factor(&1, speed(1.0)).get()), (4.0, 4.0));
}

#[test]
fn a_factor_moves_by_a_twentieth_or_not_at_all() {
    let mut experience = learned(&[1.0; 30]);
    let before: Vec<f64> = experience.numbers().collect();
    (0..30).for_each(|_| experience.learn(t0(), &1, took(1.04, 1.0)));
    assert_eq!(experience.numbers().collect::<Vec<_>>(), before);
    (0..30).for_each(|_| experience.learn(t0(), &1, took(1.06, 1.0)));
    assert_ne!(experience.numbers().collect::<Vec<_>>(), before);
}

#[test]
fn of_ever_new_versions_the_last_are_remembered_and_it_stays_small() {
    let mut experience = Experience::default();
    for version in 0..1_000_u32 {
        (0..40).for_each(|_| experience.learn(t0(), &version, took(f64::from(version % 3) + 2.0, 1.0)));
        experience.learn(t0(), &0, took(1.0, 1.0));
    }
    let factor = |version| experience.factor(&version, speed(1.0)).get();
    assert_eq!((factor(0), factor(50)), (1.0, factor(5_000)), "the one that goes on is kept");
    assert_eq!(factor(999), 2.0);
    let stored = serde_json::to_string(&experience).unwrap();
    assert!(stored.len() < 16_000, "{} bytes", stored.len());
    assert_eq!(serde_json::from_str::<Experience<u32>>(&stored).unwrap(), experience);
}

#[test]
fn a_version_that_is_forgotten_for_another_leaves_the_numbers_of_all_others_in_their_places() {
    let mut experience = Experience::default();
    let takes = |version: u32| took(2.0 + f64::from(version % VERSIONS_MAX as u32), 1.0);
    let versions = 0..VERSIONS_MAX as u32 + 1;
    versions.for_each(|version| (0..40).for_each(|_| experience.learn(t0(), &version, takes(version))));
    for version in 1..100 {
        let before: Vec<f64> = experience.numbers().skip(1).collect();
        (0..40).for_each(|_| experience.learn(t0(), &(version + VERSIONS_MAX as u32), takes(version)));
        assert_eq!(experience.numbers().skip(1).collect::<Vec<_>>(), before);
    }
}

/// Shows R1.12.
#[test]
fn what_projects_are_told_fades_from_the_time_on_to_which_the_clock_is_set_back() {
    let mut experience = learned(&[16.0; 10]);
    let back = t0() - HOUR * 24 * 365;
    experience.clock_set_back(back);
    assert_eq!(
        [0, 6, 8, 15].map(|days| experience.of_project(back + HOUR * 24 * days).get()),
        [16.0, 16.0, 4.0, 2.0]
    );
    experience.clock_set_back(t0());
    assert_eq!(experience.of_project(back + HOUR * 24 * 8).get(), 4.0, "it was set back, but not as far");
}

#[test]
fn what_is_damaged_is_told_from_what_is_sound() {
    let sound = learned(&[2.0; 3]);
    assert!(sound.is_sound() && Experience::<u32>::default().is_sound());
    let stored = serde_json::to_string(&sound).unwrap();
    for (from, to) in [
        ("\"factor\":2.0", "\"factor\":0.0"),
        ("\"factor\":2.0", "\"factor\":-1"),
        ("\"factor\":2.0", "\"factor\":1e300"),
        ("[2.0,", "[1e30,"),
        ("[2.0,", "[0,"),
        ("\"speed\":1000000000.0", "\"speed\":0"),
    ] {
        assert!(stored.contains(from), "{stored}");
        let read: Experience<u32> = serde_json::from_str(&stored.replace(from, to)).unwrap();
        assert!(!read.is_sound(), "{to}");
    }
    let long = format!("[{}2.0,", "2.0,".repeat(REMEMBERED));
    assert!(!serde_json::from_str::<Experience<u32>>(&stored.replace("[2.0,", &long)).unwrap().is_sound());
}

/// Of any size: a server may name any.
fn any_speed() -> impl Strategy<Value = Speed> {
    (-300..=300).prop_map(|exponent| Speed::new(10_f64.powi(exponent)).unwrap())
}

proptest! {
    #[test]
    fn whatever_jobs_took_it_is_sound_and_factors_are_within_bounds(
        jobs in prop::collection::vec((any::<i64>(), any::<i64>(), any_speed(), 0_u32..20), 0..80),
        asked in any_speed(), days in any::<i32>(),
    ) {
        let mut experience = Experience::default();
        for (by_size, actual, speed, version) in jobs {
            let (by_size, actual) = (Duration::from_micros(by_size), Duration::from_micros(actual));
            experience.learn(t0(), &version, EndedJob { by_size, actual, speed });
        }
        prop_assert!(experience.is_sound());
        let (low, high) = DurationCorrection::RANGE;
        for version in 0..21 {
            let factor = experience.factor(&version, asked).get();
            prop_assert!((low..=high).contains(&factor), "{}", factor);
        }
        let told = experience.of_project(t0() + HOUR * 24 * i64::from(days)).get();
        prop_assert!((low..=high).contains(&told), "{}", told);
    }
}
