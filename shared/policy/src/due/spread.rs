//! How the projects that stop at a level share the types that ran out there.
//!
//! Each type is first divided in proportion to what the projects need of the exhausted types together.
//! Where a limit binds, some projects then have more than they need and others less. The difference is
//! passed on along chains: one project gives up a part of one type, another takes it and gives up a part of
//! a second type, and so on until a project that has too little takes what is given up.

use fallow_domain::{PerType, ResourceType};

use super::{Seeker, TypeSet, give};

/// A project that stops: what it is to get of the exhausted types together, and what it has of each.
struct Row {
    need: f64,
    has: PerType<f64>,
    limit: PerType<f64>,
}

impl Row {
    fn lacks(&self) -> f64 {
        self.need - self.has.iter().map(|(_, has)| has).sum::<f64>()
    }
}

/// Gives the projects that stop at `level` all that they can use of the other types, and of the exhausted
/// ones what lifts them to the level.
pub(super) fn spread(
    stop: &[Seeker],
    level: f64,
    exhausted: TypeSet,
    left: &mut PerType<f64>,
    due: &mut [PerType<f64>],
) {
    let mut rows: Vec<Row> = stop
        .iter()
        .map(|seeker| {
            let outside = exhausted.sum_outside(&seeker.limit);
            let need = (level * seeker.weight - outside).clamp(0.0, exhausted.sum(&seeker.limit));
            Row { need, has: PerType::default(), limit: seeker.limit }
        })
        .collect();
    if exhausted.0.is_power_of_two() {
        for row in &mut rows {
            exhausted.kinds().for_each(|kind| row.has[kind] = row.need);
        }
    } else {
        exhausted.kinds().for_each(|kind| in_proportion(&mut rows, kind, left[kind]));
        settle(&mut rows, exhausted, exhausted.sum(left) * 1e-12);
    }
    for (seeker, row) in stop.iter().zip(&rows) {
        let part = PerType::from_fn(|kind| match exhausted.has(kind) {
            true => row.has[kind],
            false => seeker.limit[kind],
        });
        give(seeker, part, left, due);
    }
}

/// Divides `total` of one type by need, nobody getting more than its limit: who is limited most comes first.
fn in_proportion(rows: &mut [Row], kind: ResourceType, total: f64) {
    let mut order: Vec<usize> =
        (0..rows.len()).filter(|i| rows[*i].need > 0.0 && rows[*i].limit[kind] > 0.0).collect();
    let ratio = |i: usize| rows[i].limit[kind] / rows[i].need;
    order.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)).then(a.cmp(b)));
    let mut needs: f64 = order.iter().map(|i| rows[*i].need).sum();
    let mut left = total;
    for i in order {
        let row = &mut rows[i];
        let fair = if row.need < needs { left * (row.need / needs) } else { left };
        row.has[kind] = fair.min(row.limit[kind]);
        left -= row.has[kind];
        needs -= row.need;
    }
}

/// Moves what some have too much to those that have too little.
fn settle(rows: &mut [Row], exhausted: TypeSet, hair: f64) {
    // Each chain ends a surplus, a lack, or one of the few holdings on its way; the bound is for rounding.
    let mut chains = 64 + 16 * rows.len();
    for giver in 0..rows.len() {
        while rows[giver].lacks() < -hair && chains > 0 {
            chains -= 1;
            let Some(chain) = find_chain(rows, exhausted, giver, hair) else { break };
            follow(rows, giver, &chain);
        }
    }
}

/// Hands one type on: who takes it, and what.
struct Link {
    taker: usize,
    kind: ResourceType,
}

/// The shortest chain from one that has too much to one that lacks something.
fn find_chain(rows: &[Row], exhausted: TypeSet, giver: usize, hair: f64) -> Option<Vec<Link>> {
    // For each type, who gives it up, and what he takes instead.
    let mut given_by: PerType<Option<(usize, Option<ResourceType>)>> = PerType::default();
    let mut reached: Vec<ResourceType> =
        exhausted.kinds().filter(|kind| rows[giver].has[*kind] > hair).collect();
    for kind in &reached {
        given_by[*kind] = Some((giver, None));
    }
    let mut next = 0;
    while let Some(kind) = reached.get(next).copied() {
        next += 1;
        for (taker, row) in rows.iter().enumerate() {
            if row.limit[kind] - row.has[kind] <= hair {
                continue;
            }
            if row.lacks() > hair {
                return Some(trace(&given_by, Link { taker, kind }));
            }
            for other in exhausted.kinds().filter(|other| row.has[*other] > hair) {
                if given_by[other].is_none() {
                    given_by[other] = Some((taker, Some(kind)));
                    reached.push(other);
                }
            }
        }
    }
    None
}

fn trace(given_by: &PerType<Option<(usize, Option<ResourceType>)>>, last: Link) -> Vec<Link> {
    let mut chain = vec![last];
    while let Some((giver, Some(instead))) = chain.last().and_then(|link| given_by[link.kind]) {
        chain.push(Link { taker: giver, kind: instead });
    }
    chain.reverse();
    chain
}

fn follow(rows: &mut [Row], giver: usize, chain: &[Link]) {
    let lacks = chain.last().map_or(0.0, |link| rows[link.taker].lacks());
    let mut amount = lacks.min(-rows[giver].lacks());
    let mut from = giver;
    for link in chain {
        let taker = &rows[link.taker];
        amount = amount.min(rows[from].has[link.kind]).min(taker.limit[link.kind] - taker.has[link.kind]);
        from = link.taker;
    }
    from = giver;
    for link in chain {
        rows[from].has[link.kind] -= amount;
        rows[link.taker].has[link.kind] += amount;
        from = link.taker;
    }
}
