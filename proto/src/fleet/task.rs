//! What an agent says of a task.

use fallow_domain::agent_state::{Phase, TaskState};
use fallow_domain::{Fraction, Instant};

use super::{check, url, v1 as wire};

/// A task on the wire.
#[must_use]
pub fn to_wire(task: &TaskState) -> wire::TaskState {
    // By name, so that nothing is forgotten.
    let TaskState { project, name, phase, cpu_time, checkpoint_cpu_time, fraction_done, deadline } = task;
    wire::TaskState {
        project_url: project.to_string(),
        name: name.clone(),
        phase: phase_to_wire(*phase).into(),
        cpu_time_micros: cpu_time.as_micros(),
        fraction_done: fraction_done.get(),
        deadline_micros: deadline.as_micros(),
        checkpoint_cpu_micros: checkpoint_cpu_time.as_micros(),
    }
}

/// A task from the wire.
///
/// # Errors
/// In words, the first thing that cannot be.
pub fn from_wire(wire: wire::TaskState) -> Result<TaskState, String> {
    // By name, so that nothing is forgotten.
    let wire::TaskState {
        project_url,
        name,
        phase,
        cpu_time_micros,
        fraction_done,
        deadline_micros,
        checkpoint_cpu_micros,
    } = wire;
    let project = url::from_wire(&project_url)?;
    if name.is_empty() || name.len() > 255 {
        return Err("a task's name has 1 to 255 bytes".to_owned());
    }
    let known = wire::TaskPhase::try_from(phase).map_err(|_| format!("phase {phase} is not known"))?;
    Ok(TaskState {
        project,
        name,
        phase: phase_from_wire(known),
        cpu_time: check::duration("cpu_time", cpu_time_micros)?,
        checkpoint_cpu_time: check::duration("checkpoint_cpu", checkpoint_cpu_micros)?,
        fraction_done: Fraction::clamped(check::number("fraction_done", fraction_done, 0.0, 1.0)?),
        deadline: Instant::from_micros(deadline_micros),
    })
}

fn phase_to_wire(phase: Option<Phase>) -> wire::TaskPhase {
    match phase {
        None => wire::TaskPhase::Unspecified,
        Some(Phase::Downloading) => wire::TaskPhase::Downloading,
        Some(Phase::Ready) => wire::TaskPhase::Ready,
        Some(Phase::Running) => wire::TaskPhase::Running,
        Some(Phase::Preempted) => wire::TaskPhase::Preempted,
        Some(Phase::Uploading) => wire::TaskPhase::Uploading,
        Some(Phase::ReadyToReport) => wire::TaskPhase::ReadyToReport,
        Some(Phase::Failed) => wire::TaskPhase::Failed,
    }
}

fn phase_from_wire(phase: wire::TaskPhase) -> Option<Phase> {
    Some(match phase {
        wire::TaskPhase::Unspecified => return None,
        wire::TaskPhase::Downloading => Phase::Downloading,
        wire::TaskPhase::Ready => Phase::Ready,
        wire::TaskPhase::Running => Phase::Running,
        wire::TaskPhase::Preempted => Phase::Preempted,
        wire::TaskPhase::Uploading => Phase::Uploading,
        wire::TaskPhase::ReadyToReport => Phase::ReadyToReport,
        wire::TaskPhase::Failed => Phase::Failed,
    })
}

#[cfg(test)]
mod tests {
    use fallow_domain::{Duration, MasterUrl};

    use super::*;

    fn task() -> TaskState {
        TaskState {
            project: MasterUrl::parse("http://127.0.0.1:8080/mersenne/").unwrap(),
            name: "m_1_0".into(),
            phase: Some(Phase::Running),
            cpu_time: Duration::from_micros(20),
            checkpoint_cpu_time: Duration::from_micros(10),
            fraction_done: Fraction::clamped(0.25),
            deadline: Instant::from_micros(30),
        }
    }

    #[test]
    fn a_task_survives_the_wire_in_every_phase() {
        for number in 0..=7 {
            let phase = phase_from_wire(wire::TaskPhase::try_from(number).unwrap());
            assert_eq!(phase.is_none(), number == 0);
            let one = TaskState { phase, ..task() };
            assert_eq!(to_wire(&one).phase, number);
            assert_eq!(from_wire(to_wire(&one)), Ok(one));
        }
    }

    #[test]
    fn tasks_that_cannot_be_are_refused_with_what_is_wrong() {
        let good = || to_wire(&task());
        for (bad, said) in [
            (wire::TaskState { phase: 8, ..good() }, "phase 8 is not known"),
            (wire::TaskState { name: String::new(), ..good() }, "1 to 255 bytes"),
            (wire::TaskState { name: "n".repeat(256), ..good() }, "1 to 255 bytes"),
            (wire::TaskState { cpu_time_micros: -1, ..good() }, "cpu_time is -1"),
            (wire::TaskState { checkpoint_cpu_micros: -1, ..good() }, "checkpoint_cpu is -1"),
            (wire::TaskState { fraction_done: 1.5, ..good() }, "fraction_done is 1.5"),
            (wire::TaskState { fraction_done: f64::NAN, ..good() }, "fraction_done is NaN"),
            (wire::TaskState { project_url: "x".into(), ..good() }, "project URL"),
        ] {
            let text = from_wire(bad).unwrap_err();
            assert!(text.contains(said), "{text}");
        }
    }
}
