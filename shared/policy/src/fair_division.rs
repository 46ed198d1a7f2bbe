//! Max-min fair division by weight: the project worst off for its share gets as much as it can use first
//! (R3.3, for one resource type).
//!
//! Model: water rises in all vessels at a speed given by their weights; one that is full takes no more, and the rest
//! goes to the others. Weights of zero get what all others together cannot use, in equal parts.

use std::collections::BTreeMap;

use fallow_domain::{ProjectId, Share};

/// One that takes part in the division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The project.
    pub project: ProjectId,
    /// Its weight.
    pub share: Share,
    /// The most that it can use, in the unit of the total; not negative.
    pub limit: f64,
}

/// Divides `total` among the claims. The parts sum to the total or to the sum of the limits, whichever is less.
pub fn fair_division(total: f64, claims: &[Claim]) -> BTreeMap<ProjectId, f64> {
    let mut parts: BTreeMap<ProjectId, f64> = claims.iter().map(|claim| (claim.project, 0.0)).collect();
    let (weighted, others): (Vec<Claim>, Vec<Claim>) = claims.iter().partition(|c| c.share.get() > 0.0);
    let left = pour(total, weighted.iter().map(|c| (c.project, c.share.get(), c.limit)), &mut parts);
    pour(left, others.iter().map(|c| (c.project, 1.0, c.limit)), &mut parts);
    parts
}

/// Pours `total` over (project, weight, limit); returns what nobody could use. Vessels are filled in the order in
/// which they get full, so one pass suffices.
fn pour(
    total: f64,
    vessels: impl Iterator<Item = (ProjectId, f64, f64)>,
    parts: &mut BTreeMap<ProjectId, f64>,
) -> f64 {
    let mut vessels: Vec<_> = vessels.collect();
    vessels.sort_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)).then(a.0.cmp(&b.0)));
    let mut weights: f64 = vessels.iter().map(|(_, weight, _)| weight).sum();
    let mut left = total.max(0.0);
    for (project, weight, limit) in vessels {
        // The last one takes the rest, whatever rounding left of the weights.
        let fair = if weight < weights { left * (weight / weights) } else { left };
        let part = fair.min(limit.max(0.0));
        parts.insert(project, part);
        left -= part;
        weights -= weight;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claims(rows: &[(f64, f64)]) -> Vec<Claim> {
        let claim = |(id, (share, limit)): (u32, &(f64, f64))| Claim {
            project: ProjectId(id),
            share: Share::new(*share).unwrap(),
            limit: *limit,
        };
        (1..).zip(rows).map(claim).collect()
    }

    fn divide(total: f64, rows: &[(f64, f64)]) -> Vec<f64> {
        fair_division(total, &claims(rows)).into_values().collect()
    }

    #[test]
    fn r3_3_what_one_cannot_use_goes_to_the_others_by_weight() {
        assert_eq!(divide(4.0, &[(75.0, 9.0), (25.0, 9.0)]), [3.0, 1.0]);
        assert_eq!(divide(4.0, &[(75.0, 1.0), (25.0, 9.0)]), [1.0, 3.0]);
        assert_eq!(divide(4.0, &[(50.0, 1.0), (20.0, 9.0), (10.0, 9.0)]), [1.0, 2.0, 1.0]);
        assert_eq!(divide(4.0, &[(50.0, 1.0), (50.0, 1.0)]), [1.0, 1.0]);
    }

    #[test]
    fn a_weight_of_zero_gets_what_the_others_cannot_use() {
        assert_eq!(divide(4.0, &[(100.0, 3.0), (0.0, 9.0), (0.0, 9.0)]), [3.0, 0.5, 0.5]);
    }

    proptest! {
        #[test]
        fn r3_3_nothing_is_lost_and_no_limit_exceeded(
            total in 0.0..100.0_f64, rows in prop::collection::vec((0.0..100.0_f64, 0.0..20.0_f64), 0..8),
        ) {
            let parts = divide(total, &rows);
            let usable: f64 = rows.iter().map(|(_, limit)| limit).sum();
            prop_assert!((parts.iter().sum::<f64>() - total.min(usable)).abs() < 1e-9);
            for (part, (_, limit)) in parts.iter().zip(&rows) {
                prop_assert!(*part >= 0.0 && part <= limit);
            }
        }
    }
}
