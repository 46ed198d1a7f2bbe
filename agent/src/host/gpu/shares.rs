//! What each process has a GPU of AMD's or Intel's do, from one look to the next (R3.14).
//!
//! Model: the kernel counts for how long engines have worked for somebody. Who has them compute for a tenth
//! of the time, or draw for half of it, is on the device; who only draws now and then is so by the memory
//! that he holds, as for NVIDIA's devices. How busy the whole device is says whether somebody is on it who
//! cannot be seen. It counts only if it was so at two looks in a row: what ended just now is in it, too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fallow_domain::Bytes;

use super::fdinfo::{Held, Meter};
use super::sysfs::{Card, Place};
use super::{Load, OnDevice};

/// Who has engines compute for this part of the time is on the device.
const COMPUTES: f64 = 0.1;
/// Who has them draw for this part of the time is so, too: a game, and no desktop.
const DRAWS: f64 = 0.5;
/// Between looks that are nearer to each other nothing is told from engines.
const APART_MIN: Duration = Duration::from_millis(500);
/// Who has AMD's node for computing open and holds so much of a device computes on it.
const KFD_MIN: Bytes = Bytes(16 << 20);
/// A device with less memory of its own shares the machine's: what is held of any memory counts there.
const OWN_MIN: Bytes = Bytes(2 << 30);

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(super) struct Shares {
    at: Option<Instant>,
    held: BTreeMap<(u32, Place), Held>,
    busy: BTreeMap<Place, u8>,
}

impl Shares {
    /// Takes in a look: who is on the cards, and how much of each is used by all together.
    pub(super) fn seen(
        &mut self,
        cards: &[Card],
        held: BTreeMap<(u32, Place), Held>,
        now: Instant,
    ) -> (Vec<OnDevice>, Vec<Load>) {
        let passed =
            self.at.map(|at| now.saturating_duration_since(at)).filter(|passed| *passed >= APART_MIN);
        let mut processes = Vec::new();
        let mut loads = Vec::new();
        for card in cards {
            let (kind, address) = (card.kind, card.address());
            let has_own = card.memory.is_some_and(|memory| memory >= OWN_MIN);
            for ((pid, _), now) in held.iter().filter(|((_, place), _)| *place == card.place) {
                let before = self.held.get(&(*pid, card.place));
                let part = |of: fn(&Held) -> &BTreeMap<(u64, String), Meter>| match (before, passed) {
                    (Some(before), Some(passed)) => most(of(before), of(now), passed),
                    _ => 0.0,
                };
                let by_kfd = now.has_kfd && now.all >= KFD_MIN;
                let works =
                    by_kfd || part(|held| &held.computed) >= COMPUTES || part(|held| &held.drawn) >= DRAWS;
                let memory = Some(if has_own { now.own } else { now.all });
                processes.push(OnDevice { kind, address: address.clone(), pid: *pid, draws: !works, memory });
            }
            let busy = self.busy.get(&card.place).copied().zip(card.busy).map(|(a, b)| a.min(b));
            loads.push(Load { kind, address, used: card.used.filter(|_| has_own), busy });
        }
        if passed.is_some() || self.at.is_none() {
            (self.at, self.held) = (Some(now), held);
            self.busy = cards.iter().filter_map(|card| Some((card.place, card.busy?))).collect();
        }
        (processes, loads)
    }
}

/// The greatest part of the time that one of the engines has worked meanwhile.
fn most(
    before: &BTreeMap<(u64, String), Meter>,
    now: &BTreeMap<(u64, String), Meter>,
    passed: Duration,
) -> f64 {
    let part = |(key, now): (&(u64, String), &Meter)| {
        let before = before.get(key)?;
        let worked = now.worked.checked_sub(before.worked)? as f64;
        let of = match (now.passed, before.passed) {
            (Some(now), Some(before)) => now.checked_sub(before)? as f64,
            _ => passed.as_secs_f64() * 1e9,
        };
        (of > 0.0).then_some(worked / of)
    };
    now.iter().filter_map(part).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use fallow_domain::ResourceType;

    use super::*;

    const PLACE: Place = (0, 3, 0, 0);

    fn card(memory: u64, used: u64, busy: u8) -> Card {
        Card {
            place: PLACE,
            kind: ResourceType::Amd,
            driver: "amdgpu".into(),
            model: "Radeon".into(),
            memory: Some(Bytes::from_mebibytes(memory)),
            used: Some(Bytes::from_mebibytes(used)),
            busy: Some(busy),
        }
    }

    /// What one process has: what worked for it, in milliseconds.
    fn held(computed: u64, drawn: u64) -> BTreeMap<(u32, Place), Held> {
        let meter = |ms: u64| Meter { worked: ms * 1_000_000, passed: None };
        let one = Held {
            own: Bytes::from_mebibytes(100),
            all: Bytes::from_mebibytes(300),
            computed: [((1, "compute".into()), meter(computed))].into(),
            drawn: [((1, "gfx".into()), meter(drawn))].into(),
            has_kfd: false,
        };
        [((77, PLACE), one)].into()
    }

    #[test]
    fn r3_14_who_has_a_gpu_compute_or_draw_all_the_time_is_told_from_a_desktop() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let cards = [card(8_000, 500, 0)];
        for (computed, drawn, draws) in
            [(0, 0, true), (100, 0, true), (300, 0, false), (0, 900, true), (0, 1_100, false)]
        {
            let mut shares = Shares::default();
            let (first, _) = shares.seen(&cards, held(50, 50), begun);
            assert!(first[0].draws, "nothing is known of the time before");
            let (second, _) = shares.seen(&cards, held(50 + computed, 50 + drawn), after(2_000));
            assert_eq!(second[0].draws, draws, "{computed} {drawn}");
            let (third, _) = shares.seen(&cards, held(50 + computed, 50 + drawn), after(4_000));
            assert!(third[0].draws, "it has ended");
        }
    }

    #[test]
    fn r3_14_who_computes_by_amds_own_node_is_on_the_devices_that_he_holds_memory_of() {
        for (mebibytes, draws) in [(15, true), (16, false)] {
            let mut held = held(0, 0);
            let one = held.get_mut(&(77, PLACE)).unwrap();
            (one.has_kfd, one.all) = (true, Bytes::from_mebibytes(mebibytes));
            let (processes, _) = Shares::default().seen(&[card(8_000, 500, 0)], held, Instant::now());
            assert_eq!(processes[0].draws, draws, "{mebibytes}");
        }
    }

    #[test]
    fn r3_14_cycles_are_compared_with_those_that_passed() {
        let of = |worked, passed| -> BTreeMap<(u64, String), Meter> {
            [((1, "ccs".into()), Meter { worked, passed: Some(passed) })].into()
        };
        let second = Duration::from_secs(1);
        assert_eq!(most(&of(10, 100), &of(60, 200), second), 0.5);
        assert_eq!(most(&of(10, 100), &of(60, 100), second), 0.0, "no time has passed");
        assert_eq!(most(&of(60, 200), &of(10, 100), second), 0.0, "it was counted anew");
    }

    #[test]
    fn r3_14_a_device_is_busy_only_if_it_was_so_at_two_looks() {
        let (begun, mut shares) = (Instant::now(), Shares::default());
        let mut look = |busy, ms| {
            shares.seen(&[card(8_000, 500, busy)], BTreeMap::new(), begun + Duration::from_millis(ms)).1[0]
                .busy
        };
        assert_eq!(
            [look(90, 0), look(80, 2_000), look(5, 4_000), look(99, 6_000)],
            [None, Some(80), Some(5), Some(5)]
        );
    }

    #[test]
    fn r3_14_where_a_device_shares_the_machines_memory_any_memory_that_is_held_counts() {
        for (memory, counts, used) in [(8_000, 100, Some(Bytes::from_mebibytes(500))), (512, 300, None)] {
            let (processes, loads) =
                Shares::default().seen(&[card(memory, 500, 0)], held(0, 0), Instant::now());
            assert_eq!(processes[0].memory, Some(Bytes::from_mebibytes(counts)), "{memory}");
            assert_eq!(loads[0].used, used, "{memory}");
        }
    }
}
