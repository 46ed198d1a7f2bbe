//! Whose link counts where two processes have one identity: the question to whoever has it, and what the
//! other is told (R6.10). What follows from the answer is decided in [`super::seat`].

use std::time::Duration;

use fallow_daemon::{causes, clock};
use fallow_proto::fleet::v1 as wire;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Status;
use wire::from_coordinator::Body as FromCoordinator;

use super::Agent;
use super::limits::PROBE;
use super::link::Outgoing;
use super::seat::{Claim, Process, Seat};

/// The link is the caller's, or he is a copy of who has it.
pub(super) async fn take_seat(agent: &Agent, process: &Process) -> Result<u64, Process> {
    let mut silent = None;
    loop {
        let mut claim = None;
        agent.seat.send_if_modified(|seat| {
            let claimed = seat.claim(process, silent);
            let is_taken = matches!(claimed, Claim::Taken(_));
            claim = Some(claimed);
            is_taken
        });
        match claim {
            Some(Claim::Held(number, first)) => match is_there(agent, number).await {
                Answer::Here => return Err(first),
                Answer::Silent => silent = Some(number),
                Answer::Left => {}
            },
            Some(Claim::Taken(number)) => return Ok(number),
            None => {}
        }
    }
}

/// Returns when another connection has the link.
pub(super) async fn is_taken(seat: &mut watch::Receiver<Seat>, number: u64) {
    let _ = seat.wait_for(|seat| seat.number() != number).await;
}

/// What comes of asking who has the link.
enum Answer {
    Here,
    Silent,
    Left,
}

/// Asks the process that has the link under this number whether it is there. All who want the link wait side
/// by side for an answer that was given after they came.
async fn is_there(agent: &Agent, number: u64) -> Answer {
    let (mut answered, mut seat) = (agent.probe_answer.subscribe(), agent.seat.subscribe());
    let mut probe = 0;
    agent.probe.send_modify(|newest| {
        *newest += 1;
        probe = *newest;
    });
    // By seconds that pass here: those for which the coordinator itself stood still are one.
    let silence = async {
        for _ in 0..PROBE.as_secs() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        biased;
        _ = answered.wait_for(|answered| *answered >= probe) => Answer::Here,
        _ = seat.wait_for(|seat| seat.is_left(number)) => Answer::Left,
        () = silence => Answer::Silent,
    }
}

/// Tells the caller that he is a copy, and how the stream ends.
pub(super) async fn tell_copy(agent: &Agent, copy: &Process, first: &Process, outgoing: &Outgoing) -> Status {
    match agent.found_copy(copy, first, clock::now()) {
        Ok(ticket) => {
            let body = Some(FromCoordinator::Copied(wire::Copied { ticket }));
            let told =
                outgoing.send(Box::new(Ok(wire::FromCoordinator { traceparent: String::new(), body })));
            // Who does not take it is told the next time.
            let _ = timeout(Duration::from_secs(1), told).await;
            Status::already_exists(
                "another live process has this host's identity: this one is a copy, and is to become a host of its own",
            )
        }
        Err(error) => Status::unavailable(causes::line(&error)),
    }
}
