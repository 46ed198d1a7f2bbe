//! What keeps jobs in their slots on this host, looked at and said when the agent starts.

use std::collections::BTreeSet;

use super::settings::Settings;
use crate::confine::{self, Confinement, Layer};
use crate::error::AgentError;
use crate::supervise::agent_mark;
use crate::supervise::groups::{self, Groups};

/// Looks how jobs can be confined here, and says it.
pub(super) fn confinement(settings: &Settings) -> Result<Confinement, AgentError> {
    let confinement = match settings.unconfined {
        true => Confinement::none(),
        false => Confinement::probe(settings.allowed, settings.dir.path())
            .without(&settings.without_layers)
            .asked_again(settings.layers_again),
    };
    let layers = confinement.layers();
    let on: Vec<&str> = layers.iter().filter(|layer| layer.on).map(|layer| layer.name.as_str()).collect();
    tracing::info!(on = on.join(" "), "jobs are confined");
    let is_root = rustix::process::geteuid().is_root();
    for layer in layers.iter().filter(|layer| !layer.on) {
        if layer.name == confine::USER && !is_root {
            // Nobody else can have it.
            tracing::info!("jobs have no users of their own: {}", layer.why);
            continue;
        }
        if layer.name == confine::TMP {
            tracing::info!("jobs have no /tmp of their own: {}", layer.why);
            continue;
        }
        tracing::warn!(layer = layer.name, "jobs are not confined in one respect: {}", layer.why);
    }
    let missing = confinement.missing();
    if settings.require_confinement && !missing.is_empty() {
        let named: Vec<String> =
            missing.iter().map(|layer| format!("{} ({})", layer.name, layer.why)).collect();
        return Err(AgentError::bad_input(format!(
            "jobs cannot be confined on this host as --require-confinement asks for: {}; mend that, or leave the option out to \
             compute all the same",
            named.join("; ")
        )));
    }
    if is_root && !settings.unconfined && !settings.root_without_confinement && confinement.is_bare() {
        let why = missing.iter().map(|layer| layer.why.as_str()).collect::<BTreeSet<_>>();
        return Err(AgentError::bad_input(format!(
            "this agent is root's, and nothing on this host keeps its jobs from what is root's: {}; mend that, run the agent as \
             another user, who owns nothing else, or give it --root-without-confinement to compute all the same",
            why.into_iter().collect::<Vec<_>>().join("; ")
        )));
    }
    Ok(confinement)
}

/// Looks whether tasks can be in control groups here, and says it.
pub(super) fn groups(settings: &Settings, life: &str) -> Groups {
    let is_unwanted =
        settings.unconfined || settings.without_layers.iter().any(|layer| layer == groups::LAYER);
    let groups = match is_unwanted {
        true => Groups::none("switched off"),
        false => Groups::at_start(&agent_mark(&settings.dir), life, settings.layers_again),
    };
    let Layer { on, why, .. } = groups.layer();
    match on {
        true => tracing::info!("jobs are in {why}"),
        // Nothing is missing: other means do the same.
        false => tracing::info!("jobs are in no control groups: {why}"),
    }
    groups
}
