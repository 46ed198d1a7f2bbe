//! What the client has decided to do in the present step, in order.

use crate::{Action, Effect, Reason};

/// The actions of a step.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    decided: Vec<Action>,
}

impl Actions {
    /// One more is to be done, after those before.
    pub(crate) fn add(&mut self, effect: Effect, reason: Reason) {
        self.decided.push(Action { effect, reason });
    }

    /// The step is over: all that is to be done.
    pub(crate) fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.decided)
    }

    /// What has been decided so far.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Action> {
        self.decided.iter()
    }
}
