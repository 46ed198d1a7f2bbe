//! What a change of documents makes different, host by host (R6.5). Hosts that were taken out of the fleet
//! are asked for nothing, and do not count.

use std::collections::BTreeMap;

use fallow_domain::AgentId;
use fallow_fleet::{DocumentSet, Selector, ValueChange, differences};

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
