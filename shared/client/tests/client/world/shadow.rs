//! A client that keeps no records beside one that does: it is told the same, and must do the same.

use fallow_client::{Action, Client, ClientConfig, Effect, Event, Step};
use fallow_domain::Instant;

/// The client without records.
pub(super) struct Shadow {
    client: Client,
    /// It never follows another policy, and learns for none.
    learns_less: bool,
    turns: u64,
}

/// Both clients are compared in all that they know after so many events.
const COMPARED_EVERY: u64 = 32;

impl Shadow {
    pub(super) fn new(
        config: &ClientConfig,
        learns_less: bool,
        stored: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let may_change_policy = config.may_change_policy && !learns_less;
        let config = ClientConfig { may_change_policy, ..config.clone() };
        let client = Client::restore(config, stored).unwrap().without_records();
        Self { client, learns_less, turns: 0 }
    }

    /// The same in another life.
    pub(super) fn restarted(
        &self,
        config: &ClientConfig,
        stored: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Self {
        Self::new(config, self.learns_less, stored)
    }

    pub(super) fn handle(&mut self, now: Instant, event: Event) -> Step {
        self.turns += 1;
        self.client.handle(now, event)
    }

    /// Asserts that the two clients have done the same: the same actions by the same rules, in the same
    /// order, the same wake-up, and the same accounts.
    pub(super) fn assert_alike(&self, other: &Client, theirs: &Step, own: &Step) {
        assert!(own.changes.is_empty() && own.touched.is_empty() && !own.durable, "it keeps no records");
        let (own_actions, their_actions) = (told(&own.actions), told(&theirs.actions));
        assert_eq!(own_actions.len(), own.actions.len(), "nor tells anybody anything");
        assert_eq!(own_actions, their_actions);
        assert_eq!(own.wake_at, theirs.wake_at);
        assert_eq!(self.client.totals(), other.totals());
        assert_eq!(self.client.workload_sums(), other.workload_sums());
        if !self.learns_less && self.turns.is_multiple_of(COMPARED_EVERY) {
            self.assert_same_mind(other);
        }
    }

    /// Asserts that they differ in nothing that they know, to the last bit: state, accounts, metrics, queue,
    /// timers, random stream.
    fn assert_same_mind(&self, other: &Client) {
        assert_eq!(self.client.host_view(), other.host_view());
        assert_eq!(self.client.project_views(), other.project_views());
        let (own, theirs) = (format!("{:?}", self.client), format!("{other:?}"));
        let differs = own.bytes().zip(theirs.bytes()).position(|(own, other)| own != other);
        let at = differs.unwrap_or(own.len().min(theirs.len())).saturating_sub(100);
        let part = |text: &str| text.chars().skip(at).take(200).collect::<String>();
        assert!(own == theirs, "without records: ...{}\nwith: ...{}", part(&own), part(&theirs));
    }
}

/// What is done and by which rule, but for what people are told.
fn told(actions: &[Action]) -> Vec<String> {
    let done = actions.iter().filter(|action| !matches!(action.effect, Effect::Notice { .. }));
    done.map(|Action { effect, reason }| format!("{} {effect:?}", reason.rule)).collect()
}
