//! What keeps jobs in their slots, as the client is told of it (R6.10).

use std::time::Duration;

use fallow_client::Event;
use fallow_policy::confinement::HostLayer;

use super::Engine;
use crate::confine::Layer;
use crate::error::AgentError;

impl Engine {
    /// The layers as they are now, and whether jobs have control groups.
    pub(super) fn layers(&self) -> Vec<Layer> {
        self.confinement.layers().into_iter().chain([self.groups.layer()]).collect()
    }

    /// Where some were lost, tries whether the host has them again, if that is due: no job starts meanwhile,
    /// which would have it done.
    pub(super) fn look_for_lost_layers(&self) {
        if self.lost_layers_due_in() != Some(Duration::ZERO) {
            return;
        }
        tokio::task::block_in_place(|| {
            self.confinement.look_again();
            self.groups.look_again();
        });
    }

    /// How long until that is due, if some were lost.
    pub(super) fn lost_layers_due_in(&self) -> Option<Duration> {
        [self.confinement.look_due_in(), self.groups.look_due_in()].into_iter().flatten().min()
    }

    /// Tells the client of them, if they are not what it was told: one may be lost while jobs start, and come
    /// back.
    pub(super) async fn tell_layers(&mut self) -> Result<(), AgentError> {
        let layers = host_layers(&self.layers(), &self.confinement.missing());
        if self.told_layers.as_ref() == Some(&layers) {
            return Ok(());
        }
        self.told_layers = Some(layers.clone());
        self.tell(Event::LayersSeen(layers), None).await
    }
}

/// The layers as the client is told of them. Of those that are off, the `missing` ones could be on.
fn host_layers(layers: &[Layer], missing: &[Layer]) -> Vec<HostLayer> {
    let told = |layer: &Layer| HostLayer {
        name: layer.name.clone(),
        off: (!layer.on).then(|| layer.why.clone()),
        is_of_all: layer.on || missing.iter().any(|one| one.name == layer.name),
    };
    layers.iter().map(told).collect()
}
