//! Rollouts, as operators see them and tell them what to do (R6.5).

use fallow_domain::{Duration, Invalid};
use fallow_proto::operator::v1 as wire;
use fallow_rollout::{Gate, Gates, HostNow, Order, Phase, Plan, Rollout};

use crate::fleet::Host;

/// Hosts that refuse a version, of which it is said why.
const REFUSING_MAX: usize = 100;
/// Rollouts that are listed at once.
const ROLLOUTS_MAX: usize = 100;

/// How many rollouts an operator asks for.
pub(super) fn limit(limit: u32) -> usize {
    match limit as usize {
        0 => 10,
        limit => limit.min(ROLLOUTS_MAX),
    }
}

/// An order, if it is one.
pub(super) fn order(order: wire::RolloutOrder) -> Result<Order, Invalid> {
    match order {
        wire::RolloutOrder::Approve => Ok(Order::Approve),
        wire::RolloutOrder::Pause => Ok(Order::Pause),
        wire::RolloutOrder::Resume => Ok(Order::Resume),
        wire::RolloutOrder::Promote => Ok(Order::Promote),
        wire::RolloutOrder::TakeBack => Ok(Order::TakeBack),
        wire::RolloutOrder::Unspecified => {
            Err(Invalid::new("order to a rollout", "(none)", "approve, pause, resume, promote or abort"))
        }
    }
}

/// Which rollout and which next wave an order is for, as far as it says so.
pub(super) fn seen(order: &wire::OrderRolloutRequest) -> (Option<u64>, Option<usize>) {
    let rollout = Some(order.rollout).filter(|number| *number != 0);
    (rollout, Some(order.wave as usize).filter(|wave| *wave != 0))
}

/// Which of the versions that were taken back a host had, the newest first: those of whose it is known, and
/// that of the newest rollout. The rollouts come the oldest first.
pub(super) fn taken_back(rollouts: &[Rollout], host: &Host) -> Vec<wire::TakenBackVersion> {
    let newest = rollouts.last().map(|newest| newest.number);
    let told = |rollout: &Rollout| {
        let Phase::TakenBack { by, .. } = &rollout.phase else { return None };
        // One that says so for the first time when it comes again did so, too.
        let says_so = host.state.rolled_back.as_ref().is_some_and(|one| one.version == rollout.candidate);
        let had = match rollout.was_taken_from(&host.agent) {
            _ if says_so || rollout.went_back(&host.agent) => wire::HadVersion::WentBack,
            Some(true) => wire::HadVersion::TakenBack,
            Some(false) => wire::HadVersion::Never,
            None => wire::HadVersion::Unspecified,
        };
        let had_it = matches!(had, wire::HadVersion::TakenBack | wire::HadVersion::WentBack);
        (had_it || newest == Some(rollout.number)).then(|| wire::TakenBackVersion {
            rollout: rollout.number,
            version: rollout.candidate.0,
            by_version: by.0,
            had: had.into(),
        })
    };
    rollouts.iter().rev().filter_map(told).collect()
}

/// How changes go out; none: to all hosts at once.
pub(super) fn plan(plan: wire::RolloutPlan) -> Result<Option<Plan>, Invalid> {
    let wire::RolloutPlan { waves, soak_micros, without_gates, approval_over } = plan;
    if waves.is_empty() {
        return Ok(None);
    }
    let without = without_gates.iter().map(|gate| gate.parse()).collect::<Result<Vec<Gate>, _>>()?;
    let plan = Plan::new(&waves, Duration::from_micros(soak_micros))?;
    Ok(Some(Plan { gates: Gates::without(&without), approval_over, ..plan }))
}

/// The same for the wire.
pub(super) fn plan_to_wire(plan: Option<&Plan>) -> wire::RolloutPlan {
    let Some(plan) = plan else { return wire::RolloutPlan::default() };
    let without = Gate::ALL.into_iter().filter(|gate| !plan.gates.has(*gate));
    wire::RolloutPlan {
        waves: plan.written(),
        soak_micros: plan.soak.as_micros(),
        without_gates: without.map(|gate| gate.to_string()).collect(),
        approval_over: plan.approval_over,
    }
}

/// A rollout; with what its hosts are like now, if it is open.
pub(super) fn to_wire(rollout: &Rollout, hosts: &[HostNow]) -> wire::Rollout {
    let phase = match rollout.phase {
        Phase::Waiting => wire::RolloutPhase::Waiting,
        Phase::Watching => wire::RolloutPhase::Watching,
        Phase::Paused { .. } => wire::RolloutPhase::Paused,
        Phase::Completed => wire::RolloutPhase::Completed,
        Phase::TakenBack { .. } => wire::RolloutPhase::TakenBack,
    };
    let (taken_back_by, had_it) = match rollout.phase {
        Phase::TakenBack { by, had, .. } => (by.0, had),
        _ => (0, 0),
    };
    let released: Vec<_> =
        hosts.iter().filter(|host| rollout.is_released_to(&host.id, &host.groups)).collect();
    let count = |is_so: &dyn Fn(&HostNow) -> bool| released.iter().filter(|host| is_so(host)).count() as u64;
    let has = |host: &HostNow| host.version == rollout.candidate;
    let refusing = |host: &&HostNow| {
        let reason = host.turned_down(rollout.candidate).filter(|_| host.version <= rollout.candidate)?;
        Some(wire::RefusingHost { agent_id: host.id.0.clone(), name: host.name.clone(), reason })
    };
    let step = |step: &fallow_rollout::Step| wire::RolloutStep {
        at_micros: step.at.as_micros(),
        what: step.what.clone(),
    };
    wire::Rollout {
        number: rollout.number,
        base_version: rollout.base.0,
        version: rollout.candidate.0,
        plan: Some(plan_to_wire(Some(&rollout.plan))),
        begun_by: rollout.begun_by.clone(),
        begun_at_micros: rollout.begun_at.as_micros(),
        changes_hosts: rollout.changes_hosts,
        phase: phase.into(),
        stands: rollout.stands(),
        released_waves: u32::try_from(rollout.released).unwrap_or(u32::MAX),
        waves: u32::try_from(rollout.plan.waves.len()).unwrap_or(u32::MAX),
        taken_back_by,
        had_it,
        steps: rollout.steps.iter().map(step).collect(),
        hosts: hosts.len() as u64,
        released_hosts: released.len() as u64,
        have_it: count(&has),
        off: count(&|host| !host.connected && !has(host)),
        refusing: hosts.iter().filter_map(|host| refusing(&host)).take(REFUSING_MAX).collect(),
    }
}
