//! What a change of documents makes different, host by host (R6.5). Hosts that were taken out of the fleet
//! are asked for nothing, and do not count.

use std::collections::BTreeMap;

use fallow_domain::AgentId;
use fallow_fleet::{DocumentSet, Effective, GroupName, Selector, ValueChange, cautions, differences};

use super::Fleet;

/// What a change makes different.
#[derive(Debug, Default)]
pub struct Preview {
    /// Hosts of the fleet.
    pub hosts: u64,
    /// Hosts that it makes different.
    pub changed_hosts: u64,
    /// The values that become others, each with the agents of its hosts.
    pub values: BTreeMap<ValueChange, Vec<AgentId>>,
}

impl Fleet {
    /// What hosts are asked for with some documents that they are not with others, before their owners'
    /// limits.
    #[must_use]
    pub fn preview(&self, before: &DocumentSet, after: &DocumentSet) -> Preview {
        let mut preview = Preview::default();
        for agent in self.members() {
            preview.hosts += 1;
            let labels = agent.labels();
            let changes = differences(before, after, &labels);
            preview.changed_hosts += u64::from(!changes.is_empty());
            for change in changes {
                preview.values.entry(change).or_default().push(agent.id.clone());
            }
        }
        preview
    }

    /// What operators are warned of with some documents, each with the number of its hosts. A fleet that has
    /// none yet is warned of what the fleet-wide document comes to.
    #[must_use]
    pub fn cautions(&self, set: &DocumentSet) -> BTreeMap<String, u64> {
        // Hosts of the same groups are asked for the same.
        let mut of_groups: BTreeMap<Vec<&GroupName>, Vec<String>> = BTreeMap::new();
        let mut found = BTreeMap::new();
        let mut hosts = 0_u64;
        for agent in self.members() {
            hosts += 1;
            let labels = agent.labels();
            let groups = set.groups.of(&labels).into_iter().map(|(name, _)| name).collect();
            let said = of_groups
                .entry(groups)
                .or_insert_with(|| cautions(&Effective::of(set, &labels).preferences()));
            for caution in said {
                *found.entry(caution.clone()).or_default() += 1;
            }
        }
        if hosts == 0 {
            found.extend(cautions(&set.fleet.preferences).into_iter().map(|caution| (caution, 0)));
        }
        found
    }

    /// How many hosts each of these selectors chooses.
    #[must_use]
    pub fn chosen(&self, selectors: &[&Selector]) -> Vec<u64> {
        let mut chosen = vec![0; selectors.len()];
        for agent in self.members() {
            // They cost more than a look at them.
            let labels = agent.labels();
            for (count, selector) in chosen.iter_mut().zip(selectors) {
                *count += u64::from(selector.chooses(&labels));
            }
        }
        chosen
    }
}
