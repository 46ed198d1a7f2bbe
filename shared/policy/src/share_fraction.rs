//! Share fractions: a project's weight over the sum of the weights that count.
//!
//! A share of zero means "only when nobody else can": it counts for nothing beside any other share. When all
//! shares are zero nobody is preferred, and the fractions are equal.

use std::collections::BTreeMap;

use fallow_domain::{ProjectId, Share};

/// The fraction of each project among those given; they sum to 1 unless there are none.
pub fn share_fractions(projects: impl IntoIterator<Item = (ProjectId, Share)>) -> BTreeMap<ProjectId, f64> {
    let mut fractions: BTreeMap<ProjectId, f64> =
        projects.into_iter().map(|(id, share)| (id, share.get())).collect();
    let sum: f64 = fractions.values().sum();
    let count = fractions.len() as f64;
    for fraction in fractions.values_mut() {
        *fraction = if sum > 0.0 { *fraction / sum } else { 1.0 / count };
    }
    fractions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fractions(shares: &[f64]) -> Vec<f64> {
        let projects = (1..).zip(shares).map(|(id, share)| (ProjectId(id), Share::new(*share).unwrap()));
        share_fractions(projects).into_values().collect()
    }

    #[test]
    fn fractions_are_weights_over_their_sum() {
        assert_eq!(fractions(&[75.0, 25.0]), [0.75, 0.25]);
        assert_eq!(fractions(&[100.0, 0.0]), [1.0, 0.0]);
    }

    #[test]
    fn projects_that_all_have_share_zero_are_equals() {
        assert_eq!(fractions(&[0.0, 0.0]), [0.5, 0.5]);
        assert!(fractions(&[]).is_empty());
    }
}
