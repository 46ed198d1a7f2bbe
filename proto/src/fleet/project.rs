//! What an agent says of a project.

use fallow_domain::agent_state::ProjectState;
use fallow_domain::{Duration, Instant, Share};

use super::limits::DEBT_MAX;
use super::{check, url, v1 as wire};

/// A project on the wire.
#[must_use]
pub fn to_wire(project: &ProjectState) -> wire::ProjectState {
    // By name, so that nothing is forgotten.
    let ProjectState {
        url,
        name,
        share,
        debt,
        cpu_time,
        cpu_in_progress,
        cpu_success,
        cpu_error,
        cpu_late,
        cpu_contested,
        scheduler_rpcs,
        scheduler_failures,
        min_rpc_time,
        jobs_success,
        jobs_error,
        jobs_late,
    } = project;
    let (min_rpc_time, min_rpc_reason) =
        min_rpc_time.as_ref().map_or((0, ""), |(at, why)| (at.as_micros(), why.as_str()));
    wire::ProjectState {
        url: url.to_string(),
        name: name.clone(),
        share: share.get(),
        debt_seconds: debt.as_secs_f64(),
        cpu_time_micros: cpu_time.as_micros(),
        cpu_in_progress_micros: cpu_in_progress.as_micros(),
        cpu_success_micros: cpu_success.as_micros(),
        cpu_error_micros: cpu_error.as_micros(),
        cpu_late_micros: cpu_late.as_micros(),
        scheduler_rpcs: *scheduler_rpcs,
        scheduler_failures: *scheduler_failures,
        min_rpc_time_micros: min_rpc_time,
        min_rpc_reason: min_rpc_reason.to_owned(),
        jobs_success: *jobs_success,
        jobs_error: *jobs_error,
        jobs_late: *jobs_late,
        cpu_contested_micros: cpu_contested.as_micros(),
    }
}

/// A project from the wire.
///
/// # Errors
/// In words, the first thing that cannot be.
pub fn from_wire(wire: wire::ProjectState) -> Result<ProjectState, String> {
    // By name, so that nothing is forgotten.
    let wire::ProjectState {
        url,
        name,
        share,
        debt_seconds,
        cpu_time_micros,
        cpu_in_progress_micros,
        cpu_success_micros,
        cpu_error_micros,
        cpu_late_micros,
        scheduler_rpcs,
        scheduler_failures,
        min_rpc_time_micros,
        min_rpc_reason,
        jobs_success,
        jobs_error,
        jobs_late,
        cpu_contested_micros,
    } = wire;
    let url = url::from_wire(&url)?;
    check::text("name", &name)?;
    check::text("min_rpc_reason", &min_rpc_reason)?;
    let share = check::number("share", share, 0.0, 1e9)?;
    let debt = check::number("debt", debt_seconds, -DEBT_MAX, DEBT_MAX)?;
    let project = ProjectState {
        url,
        name,
        share: Share::new(share).map_err(|invalid| invalid.to_string())?,
        debt: Duration::from_secs_f64(debt),
        cpu_time: check::duration("cpu_time", cpu_time_micros)?,
        cpu_in_progress: check::duration("cpu_in_progress", cpu_in_progress_micros)?,
        cpu_success: check::duration("cpu_success", cpu_success_micros)?,
        cpu_error: check::duration("cpu_error", cpu_error_micros)?,
        cpu_late: check::duration("cpu_late", cpu_late_micros)?,
        cpu_contested: check::duration("cpu_contested", cpu_contested_micros)?,
        scheduler_rpcs,
        scheduler_failures,
        min_rpc_time: min_rpc_time(min_rpc_time_micros, min_rpc_reason)?,
        jobs_success,
        jobs_error,
        jobs_late,
    };
    Ok(project)
}

/// "Never" may be said as the far future.
fn min_rpc_time(micros: i64, reason: String) -> Result<Option<(Instant, String)>, String> {
    if micros < 0 {
        return Err(format!("min_rpc_time is {micros} µs, out of range"));
    }
    Ok((micros > 0 || !reason.is_empty()).then(|| (Instant::from_micros(micros), reason)))
}

#[cfg(test)]
mod tests {
    use fallow_domain::MasterUrl;

    use super::*;

    /// No two values alike: one that took another's place would show.
    fn project() -> ProjectState {
        ProjectState {
            url: MasterUrl::parse("http://127.0.0.1:8080/mersenne/").unwrap(),
            name: "mersenne".into(),
            share: Share::new(75.0).unwrap(),
            debt: Duration::from_millis(-3_500),
            cpu_time: Duration::from_micros(100),
            cpu_in_progress: Duration::from_micros(10),
            cpu_success: Duration::from_micros(20),
            cpu_error: Duration::from_micros(30),
            cpu_late: Duration::from_micros(40),
            cpu_contested: Duration::from_micros(50),
            scheduler_rpcs: 1,
            scheduler_failures: 2,
            min_rpc_time: Some((Instant::from_micros(60), "the project asked for it".into())),
            jobs_success: 3,
            jobs_error: 4,
            jobs_late: 5,
        }
    }

    #[test]
    fn a_project_survives_the_wire() {
        for one in [
            project(),
            ProjectState { min_rpc_time: None, ..project() },
            ProjectState { min_rpc_time: Some((Instant::FAR_FUTURE, "never".into())), ..project() },
            ProjectState { debt: Duration::from_micros(999_999_999_999_999_999), ..project() },
        ] {
            let debt = one.debt.as_secs_f64();
            let read = from_wire(to_wire(&one)).unwrap();
            // A large debt is on the wire as exact as a number of seconds can be.
            assert_eq!(read.debt, Duration::from_secs_f64(debt));
            assert_eq!(ProjectState { debt: one.debt, ..read }, one);
        }
        assert_eq!(from_wire(to_wire(&project())).unwrap().debt, project().debt);
    }

    #[test]
    fn a_url_is_kept_in_the_form_that_an_older_agent_has() {
        let older = wire::ProjectState { url: "http://127.0.0.1:080/%70/".into(), ..to_wire(&project()) };
        assert_eq!(to_wire(&from_wire(older.clone()).unwrap()), older);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused_with_their_name() {
        let good = || to_wire(&project());
        for (bad, said) in [
            (wire::ProjectState { share: f64::NAN, ..good() }, "share is NaN"),
            (wire::ProjectState { share: -1.0, ..good() }, "share is -1"),
            (wire::ProjectState { debt_seconds: f64::INFINITY, ..good() }, "debt is inf"),
            (wire::ProjectState { cpu_time_micros: -1, ..good() }, "cpu_time is -1"),
            (wire::ProjectState { cpu_late_micros: -1, ..good() }, "cpu_late is -1"),
            (wire::ProjectState { cpu_contested_micros: i64::MAX, ..good() }, "cpu_contested is"),
            (wire::ProjectState { min_rpc_time_micros: -1, ..good() }, "min_rpc_time is -1"),
            (wire::ProjectState { name: "n".repeat(2_000), ..good() }, "name has more than"),
            (wire::ProjectState { url: "http://127.0.0.1:8080/mersenne".into(), ..good() }, "canonical"),
        ] {
            let text = from_wire(bad).unwrap_err();
            assert!(text.contains(said), "{text}");
        }
    }
}
