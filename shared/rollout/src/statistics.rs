//! Tests of small numbers of hosts.
//!
//! Models: Fisher's exact test (R. A. Fisher, 1935), one-sided, for what a host either shows or not; the
//! rank-sum test (H. B. Mann and D. R. Whitney, 1947), one-sided, for amounts: exact under all ways to deal
//! the ranks, ties included, while the hosts are few, else by the normal distribution with the correction
//! for ties. Hosts are the samples, never their hours: hours of one host are not independent of each other.

/// Hosts up to which ranks are dealt in all ways.
const EXACT_MAX: usize = 100;
/// Fewer new hosts than this are not judged by a curve.
const FEW: usize = 20;

/// How likely it is, if both kinds of hosts were alike, that at least so many of those that show something
/// are among the new ones: `shown` of `of` new ones, and of old ones.
pub(crate) fn fisher(new: (usize, usize), old: (usize, usize)) -> f64 {
    let ((new_shown, new_all), (old_shown, old_all)) = (new, old);
    let (all, shown) = (new_all + old_all, new_shown + old_shown);
    if new_all == 0 || old_all == 0 || shown == 0 {
        return 1.0;
    }
    let whole = ln_choose(all, shown);
    let most = shown.min(new_all);
    let p = (new_shown..=most)
        .filter(|among| shown - among <= old_all)
        .map(|among| (ln_choose(new_all, among) + ln_choose(old_all, shown - among) - whole).exp());
    p.sum::<f64>().min(1.0)
}

fn ln_choose(of: usize, some: usize) -> f64 {
    ln_factorial(of) - ln_factorial(some) - ln_factorial(of - some)
}

/// By Stirling's series, which is exact to ten digits from ten on.
fn ln_factorial(n: usize) -> f64 {
    if n < 10 {
        return (2..=n).map(|factor| (factor as f64).ln()).sum();
    }
    let n = n as f64;
    let tail = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + tail
}

/// How likely it is, if both kinds of hosts were alike, that the amounts of the new ones are so far above
/// those of the old ones.
pub(crate) fn rank_sum(new: &[f64], old: &[f64]) -> f64 {
    if new.is_empty() || old.is_empty() {
        return 1.0;
    }
    // Beside a few new hosts some dozens of old ones say as much as thousands, and are dealt exactly.
    let some = every(old, EXACT_MAX.saturating_sub(new.len()));
    let old = if new.len() < FEW { some.as_slice() } else { old };
    let mut amounts: Vec<(f64, bool)> =
        new.iter().map(|amount| (*amount, true)).chain(old.iter().map(|amount| (*amount, false))).collect();
    amounts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ranks = doubled_ranks(&amounts);
    let observed: usize =
        ranks.iter().zip(&amounts).filter(|(_, (_, is_new))| *is_new).map(|(rank, _)| rank).sum();
    if amounts.len() <= EXACT_MAX {
        return dealt(&ranks, new.len(), observed);
    }
    // Where most amounts are the same, the curve says little: then it is about who has more.
    let (commonest, times) = commonest(&amounts);
    if times * 2 > amounts.len() {
        let above = |amounts: &[f64]| amounts.iter().filter(|amount| **amount > commonest).count();
        let p = fisher((above(new), new.len()), (above(old), old.len()));
        return p.max(normal(&ranks, new.len(), observed));
    }
    normal(&ranks, new.len(), observed)
}

/// The amount that most have, and how many do.
fn commonest(sorted: &[(f64, bool)]) -> (f64, usize) {
    let groups = sorted.chunk_by(|a, b| a.0 == b.0);
    let counted = groups.filter_map(|group| Some((group.first()?.0, group.len())));
    counted.max_by_key(|(_, times)| *times).unwrap_or_default()
}

/// So many of these at most, at equal distances.
fn every(amounts: &[f64], most: usize) -> Vec<f64> {
    let step = amounts.len().div_ceil(most.max(1)).max(1);
    amounts.iter().copied().step_by(step).collect()
}

/// Twice the rank of each, so that those of equal amounts, which share the middle one, are whole.
fn doubled_ranks(sorted: &[(f64, bool)]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(sorted.len());
    for group in sorted.chunk_by(|a, b| a.0 == b.0) {
        let first = ranks.len() + 1;
        let last = ranks.len() + group.len();
        ranks.extend(std::iter::repeat_n(first + last, group.len()));
    }
    ranks
}

/// The part of all ways to deal `some` of the ranks whose sum is at least that.
fn dealt(ranks: &[usize], some: usize, least: usize) -> f64 {
    let most: usize = ranks.iter().sum();
    // ways[k][s]: how many ways there are to take k ranks that add up to s.
    let mut ways = vec![vec![0.0_f64; most + 1]; some + 1];
    if let Some(none) = ways.first_mut().and_then(|row| row.first_mut()) {
        *none = 1.0;
    }
    for rank in ranks {
        for taken in (1..=some).rev() {
            let (before, now) = ways.split_at_mut(taken);
            let (Some(before), Some(now)) = (before.last(), now.first_mut()) else { continue };
            for (with, without) in now.iter_mut().skip(*rank).zip(before) {
                *with += without;
            }
        }
    }
    let last = ways.pop().unwrap_or_default();
    last.iter().skip(least).sum::<f64>() / last.iter().sum::<f64>()
}

fn normal(ranks: &[usize], some: usize, observed: usize) -> f64 {
    let (all, new) = (ranks.len() as f64, some as f64);
    let ranks: Vec<f64> = ranks.iter().map(|doubled| *doubled as f64 / 2.0).collect();
    let mean = f64::midpoint(all, 1.0) * new;
    let middle = f64::midpoint(all, 1.0);
    let spread: f64 = ranks.iter().map(|rank| (rank - middle).powi(2)).sum();
    let variance = new * (all - new) / (all * (all - 1.0)) * spread;
    if variance <= 0.0 {
        return 1.0;
    }
    // Half a rank less: sums are steps, and the curve is not.
    let z = (observed as f64 / 2.0 - mean - 0.5) / variance.sqrt();
    above(z)
}

/// The part of a normal distribution that is above this. Within a tenth of a thousandth of the truth up to
/// 4, and never too small by much beyond (Abramowitz and Stegun, 1964, 26.2.17).
fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let series = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 0.02 * wanted, "{found} is not {wanted}");
    }

    /// From tables, and from the statistics that small waves were planned by.
    #[test]
    fn r6_5_few_hosts_give_the_probabilities_of_the_tables() {
        close(fisher((5, 5), (0, 5)), 0.003_968);
        close(fisher((1, 1), (0, 20)), 1.0 / 21.0);
        close(fisher((3, 4), (1, 4)), 0.242_9);
        assert_eq!((fisher((0, 5), (0, 5)), fisher((0, 0), (0, 5))), (1.0, 1.0));
        let ramp = |from: usize, to: usize| (from..to).map(|n| n as f64).collect::<Vec<_>>();
        close(rank_sum(&ramp(20, 21), &ramp(0, 20)), 1.0 / 21.0);
        close(rank_sum(&ramp(20, 22), &ramp(0, 20)), 0.004_329);
        close(rank_sum(&ramp(5, 8), &ramp(0, 5)), 0.017_86);
        close(rank_sum(&ramp(5, 10), &ramp(0, 5)), 0.003_968);
    }

    #[test]
    fn r6_5_equal_hosts_are_never_told_apart() {
        for (new, old) in [(1, 1), (3, 30), (30, 300)] {
            assert!(rank_sum(&vec![0.3; new], &vec![0.3; old]) > 0.99);
        }
        assert_eq!((rank_sum(&[], &[1.0]), rank_sum(&[1.0], &[])), (1.0, 1.0));
    }

    #[test]
    fn r6_5_many_hosts_are_judged_as_few_ones_are() {
        let new: Vec<f64> = (0..8).map(|n| f64::from(n * 4 + 9)).collect();
        let old: Vec<f64> = (0..32).map(f64::from).collect();
        let exact = rank_sum(&new, &old);
        let mut more = old;
        more.push(16.5);
        let approximate = rank_sum(&new, &more);
        assert!((exact - approximate).abs() < 0.02, "{exact} {approximate}");
    }

    /// Most hosts waste nothing, and some do by chance.
    #[test]
    fn r6_5_one_host_of_hundreds_that_wastes_as_others_do_is_no_proof() {
        let old = |some: usize| [vec![0.2; some], vec![0.0; 400 - some]].concat();
        assert!(rank_sum(&[0.5], &vec![0.0; 40]) > 0.02);
        assert!(rank_sum(&[0.5], &old(4)) > 0.005);
        let mut five = vec![0.0; 5];
        five[0] = 0.9;
        assert!(rank_sum(&five, &old(4)) > 1e-3);
        let thirty = [vec![0.9; 2], vec![0.0; 28]].concat();
        assert!(rank_sum(&thirty, &old(8)) > 1e-3);
        // But many are.
        let thirty = [vec![0.9; 15], vec![0.0; 15]].concat();
        assert!(rank_sum(&thirty, &old(8)) < 1e-6);
    }

    /// A test at a hundredth is wrong once in a hundred: no more often, where nothing is different.
    #[test]
    fn r6_5_hosts_that_differ_by_chance_alone_seldom_fail() {
        use rand::{RngExt as _, SeedableRng as _};
        let mut rng = rand::rngs::StdRng::seed_from_u64(1);
        let mut alarms = [0, 0];
        for _ in 0..2_000 {
            let mut draw = |n: usize| (0..n).map(|_| rng.random::<f64>()).collect::<Vec<_>>();
            let (new, old) = (draw(6), draw(20));
            alarms[0] += i32::from(rank_sum(&new, &old) < 0.01);
            let shown = |hosts: &[f64]| (hosts.iter().filter(|host| **host < 0.2).count(), hosts.len());
            alarms[1] += i32::from(fisher(shown(&new), shown(&old)) < 0.01);
        }
        assert!(alarms[0] <= 35 && alarms[1] <= 35, "{alarms:?} of 2000");
    }
}
