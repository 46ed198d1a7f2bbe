//! The supervisor of tasks: how it is started, and how it and the sensors tell the engine.

use std::path::Path;
use std::sync::Arc;

use fallow_client::Event;
use fallow_domain::{Duration, HostFacts};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::settings::Settings;
use super::{Input, QUEUE};
use crate::confine::Confinement;
use crate::error::AgentError;
use crate::guard::GuardHandle;
use crate::host::owner::Tell;
use crate::supervise::groups::Groups;
use crate::supervise::{Context, Supervisor, life_mark};
use crate::users::Users;

pub(super) fn supervisor(
    settings: &Settings,
    facts: &HostFacts,
    confinement: &Confinement,
    (life, groups): (String, Arc<Groups>),
    inputs: mpsc::Sender<Input>,
) -> Result<Supervisor, AgentError> {
    let fail = |what: &str| {
        let what = what.to_owned();
        move |error| AgentError::system(what, error)
    };
    let mark = life_mark(&settings.dir, &life);
    let place = groups.jobs().map(Path::to_path_buf);
    let users = confinement.users().map(Users::block);
    let guard = GuardHandle::start(settings.guard.clone(), mark, settings.guard_grace, place, users)
        .map_err(fail("cannot start the guard process"))?;
    let for_offers = inputs.clone();
    let offer = move |event: Event| {
        // The other half is for what must not be lost, and must not hold up heartbeats.
        for_offers.capacity() > QUEUE / 2 && for_offers.try_send(event.into()).is_ok()
    };
    let report = move |event: Event| match inputs.try_reserve() {
        Ok(place) => {
            place.send(event.into());
            None
        }
        Err(TrySendError::Full(())) => Some(event),
        // The engine has ended: nobody is left who could be told.
        Err(TrySendError::Closed(())) => None,
    };
    let context = Context {
        dir: settings.dir.clone(),
        life,
        guard,
        confinement: confinement.clone(),
        groups,
        memory: facts.memory,
        send_event: Arc::new(report),
        try_send_event: Arc::new(offer),
    };
    Supervisor::start(context).map_err(fail("cannot start the supervisor"))
}

/// How the sensors tell: what is to be stopped for somebody is stopped before the engine has heard of it,
/// which may just have much to store.
pub(super) fn owner_tells(supervisor: &Supervisor, inputs: mpsc::Sender<Input>) -> Tell {
    let freezer = Arc::clone(supervisor.freezer());
    Arc::new(move |event| {
        match &event {
            Event::OwnerInput { ago } if *ago == Duration::ZERO => freezer.input(),
            Event::OwnerUnseen(true) => freezer.input(),
            _ => {}
        }
        // Where the engine has ended, nobody is left who could be told.
        !matches!(inputs.try_send(event.into()), Err(TrySendError::Full(_)))
    })
}
