//! Names that a request gives, for one line of the log: nobody may have made them here, and there may be very
//! many.

use std::fmt;

use crate::printable;

/// Names that are said.
const FIRST_MAX: usize = 3;
/// Bytes of each.
const NAME_MAX: usize = 64;

/// How many there are, and the first ones.
#[derive(Debug, Default)]
pub(crate) struct LoggedNames {
    count: usize,
    first: Vec<String>,
}

impl LoggedNames {
    /// One more.
    pub(crate) fn note(&mut self, name: &str) {
        self.count += 1;
        if self.first.len() < FIRST_MAX {
            self.first.push(printable::line(name, NAME_MAX));
        }
    }

    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a String>) -> Self {
        let mut all = Self::default();
        names.into_iter().for_each(|name| all.note(name));
        all
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl fmt::Display for LoggedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fallow_boinc::scheduler::{
        OtherResult, ReportedResult, ResultState, SchedulerReply, SchedulerRequest,
    };
    use fallow_domain::{AgentId, Duration, Flops, Instant};
    use fallow_store::{SledStore, Store};
    use tracing::Level;

    use crate::operator_types::{NewAppVersion, NewWorkunit, SubmissionPiece};
    use crate::project::Project;
    use crate::scheduler::heard::Heard;
    use crate::settings::ProjectSettings;

    #[test]
    fn r6_10_however_many_names_a_request_makes_up_there_is_one_line_for_each_kind() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let now = Instant::EPOCH + Duration::from_hours(9);
        let (url, settings) = ("http://127.0.0.1:1", ProjectSettings::default());
        let project = Project::create(store, dir.path(), url, "p", settings, None, now).unwrap();
        let key = project.agent_key(&AgentId("the agent".into()), now).unwrap();
        let account = project.account(&key).unwrap().unwrap();
        let name = |number: u32| format!("{}_{number}", "x".repeat(200));
        let other = |number| OtherResult { name: name(number), ..OtherResult::default() };
        let report = |number| ReportedResult {
            name: name(number),
            state: ResultState::ComputeError,
            exit_status: 1,
            ..ReportedResult::default()
        };
        let request = SchedulerRequest {
            authenticator: key,
            platform_name: "x86_64-pc-linux-gnu".into(),
            other_results: Some((0..9_000).map(other).collect()),
            results: (0..9_000).map(report).collect(),
            ..SchedulerRequest::default()
        };
        let heard = Heard::of(Level::INFO);
        let _listening = tracing::subscriber::set_default(heard.clone());
        let (reply, _) =
            project.scheduler_rpc(request.write().as_bytes(), &account, &project.url, now).unwrap();
        assert_eq!(
            [reply.matches("<result_ack>").count(), reply.matches("<result_abort>").count()],
            [9_000; 2]
        );
        let lines = heard.lines();
        let registered = lines.iter().filter(|line| line.contains("host registered")).count();
        assert_eq!((lines.len(), registered), (3, 1), "{lines:?}");
        for line in lines.iter().filter(|line| !line.contains("host registered")) {
            assert!(
                line.len() < 500 && line.contains("jobs=9000") && line.contains(" and 8997 more"),
                "{line}"
            );
        }
    }

    /// Requests that make up names, and jobs that are lost and aborted, as often as anybody likes.
    #[test]
    fn r6_10_however_often_hosts_lose_and_abort_jobs_and_make_up_names_a_line_of_each_kind_comes_seldom() {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
        let now = Instant::EPOCH + Duration::from_hours(9);
        let (url, settings) = ("http://127.0.0.1:1", ProjectSettings::default());
        let project = Project::create(store, dir.path(), url, "p", settings, None, now).unwrap();
        let program = dir.path().join("program");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        let version = NewAppVersion {
            application: "app".into(),
            version: 100,
            platform: "x86_64-pc-linux-gnu".into(),
            files: vec![program],
            ..NewAppVersion::default()
        };
        project.add_app_version(&version).unwrap();
        let workunits = vec![NewWorkunit::new("app", Flops::new(1e9).unwrap()); 40];
        project.submit_piece(SubmissionPiece::whole(workunits), now).unwrap();
        let heard = Heard::of(Level::INFO);
        let _listening = tracing::subscriber::set_default(heard.clone());
        for turn in 0..20 {
            let key = project.agent_key(&AgentId(format!("agent {turn}")), now).unwrap();
            let account = project.account(&key).unwrap().unwrap();
            let mut request = SchedulerRequest {
                authenticator: key,
                platform_name: "x86_64-pc-linux-gnu".into(),
                cpu_req_secs: 1.0,
                other_results: Some(vec![]),
                ..SchedulerRequest::default()
            };
            request.host_info.m_nbytes = 1e12;
            request.host_info.d_free = 1e12;
            let rpc = |request: &mut SchedulerRequest, later: i64| {
                let now = now + Duration::from_mins(later);
                let (reply, _) =
                    project.scheduler_rpc(request.write().as_bytes(), &account, &project.url, now).unwrap();
                request.rpc_seqno += 1;
                SchedulerReply::parse(reply.as_bytes()).unwrap()
            };
            let job = rpc(&mut request, 0).results[0].name.clone();
            // Lost, and sent again.
            assert_eq!(rpc(&mut request, 1).results[0].name, job);
            request.results = vec![
                ReportedResult {
                    name: job.clone(),
                    state: ResultState::Aborted,
                    ..ReportedResult::default()
                },
                ReportedResult { name: "made_up_1".into(), ..ReportedResult::default() },
            ];
            request.other_results =
                Some(vec![OtherResult { name: "made_up_2".into(), ..OtherResult::default() }]);
            assert!(rpc(&mut request, 2).result_acks.contains(&job));
        }
        let lines = heard.lines();
        for kind in ["host registered", "lost by its host", "a job failed", "not awaited", "told to abort"] {
            let said: Vec<&String> = lines.iter().filter(|line| line.contains(kind)).collect();
            // A slow machine takes more than ten seconds for all this.
            assert!((1..5).contains(&said.len()) && said[0].contains("times=1"), "{kind}: {said:?}");
        }
    }
}
