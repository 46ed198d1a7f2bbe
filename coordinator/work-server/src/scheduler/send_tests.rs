//! What a host is told of jobs that it is not sent, without a process around it.

use std::sync::Arc;

use fallow_domain::{AgentId, Flops};
use fallow_policy::send::{SendChoice, SendPolicy, WhyNotSent};
use fallow_store::{SledStore, Store};

use super::*;
use crate::operator_types::{NewAppVersion, NewWorkunit, SubmissionPiece};
use crate::settings::ProjectSettings;

const FIRST_RPC: &[u8] =
    include_bytes!("../../../../shared/boinc/fixtures/captures/04_POST_anchor_cgi-cgi.request");

/// Sends nothing, and looks at no host's jobs to find that out.
struct Never;

impl SendPolicy for Never {
    fn name(&self) -> &'static str {
        "WS0"
    }
    fn summary(&self) -> &'static str {
        "nothing"
    }
    fn decide(
        &self,
        situation: &SendSituation<'_>,
        offers: &mut dyn Iterator<Item = Offer<usize>>,
    ) -> SendDecision<usize> {
        let late = WhyNotSent::MissesDeadline(Duration::from_hours(1));
        SendDecision {
            send: Vec::new(),
            refused: offers.map(|offer| (offer.id, late)).collect(),
            trial: None,
            open: situation.demand,
        }
    }
}

#[test]
fn r5_6_what_a_policy_refuses_without_a_list_of_the_hosts_jobs_is_told_too() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SledStore::open(dir.path().join("store")).unwrap());
    let now = Instant::EPOCH + Duration::from_hours(9);
    let settings = ProjectSettings::default();
    let project = Project::create(store, dir.path(), "http://127.0.0.1:1", "p", settings, None, now).unwrap();
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
    let piece = SubmissionPiece::whole(vec![NewWorkunit::new("app", Flops::new(1e9).unwrap())]);
    project.submit_piece(piece, now).unwrap();

    let body = FIRST_RPC.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let mut request = SchedulerRequest::parse(&FIRST_RPC[body..]).unwrap();
    request.authenticator = project.agent_key(&AgentId("the agent".into()), now).unwrap();
    (request.cpu_req_secs, request.work_req_seconds) = (1.0, 1.0);
    assert!(request.in_progress_results.is_none());
    let account = project.account(&request.authenticator).unwrap().unwrap();
    let told = |now| {
        let (reply, _) =
            project.scheduler_rpc(request.write().as_bytes(), &account, &project.url, now).unwrap();
        reply
    };
    project.send_by(SendChoice::new(&Never));
    let refused = told(now);
    assert!(refused.contains("Tasks won't finish in time on this computer"), "{refused}");
    project.send_by(SendChoice::default());
    let sent = told(now + Duration::from_mins(1));
    assert!(sent.contains("<result>"), "{sent}");
}
