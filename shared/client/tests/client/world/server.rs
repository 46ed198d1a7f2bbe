//! The modelled projects: what their schedulers answer.

use fallow_boinc::scheduler::{
    App, AppVersion, FileInfo, FileRef, ReportedResult, ResultJob, SchedulerReply, SchedulerRequest, Workunit,
};
use fallow_client::{TransferError, TransferErrorKind};
use fallow_domain::{Bytes, Duration, Flops, Instant, ProjectId, Speed};

use super::World;

/// The code-signing key of a real project.
pub(crate) const CODE_SIGN_KEY: &str = "1024
9e31905d6574e27184a385b459286c85fa1cf264293014ba64f861f985f69935
9d7962c88d1b0db43a0f1ba2ae53db9e8de584a8d7731548f31b683f18abeb85
a60acf8452f49a81f2b21c7e2eca6bb4fb661288d0204ec12154b6db66c7bbfa
9aaa861293ad1e5fd8a1eb42edcdfe8c8322fcc12fab85f102b00d030a3de7c7
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000010001
.";

/// A modelled project: a finite supply of equal jobs.
#[derive(Default)]
pub(crate) struct Project {
    pub(crate) supply: u64,
    pub(crate) sent: u64,
    pub(super) cpu: Duration,
    pub(crate) down: bool,
    /// How long its scheduler takes to answer, beyond what all take.
    pub(crate) answers_in: Duration,
    /// It wants each result at once.
    pub(crate) report_immediately: bool,
    pub(crate) calls: Vec<Instant>,
    pub(crate) reports: Vec<ReportedResult>,
}

impl World {
    /// How much longer than others a project's scheduler takes to answer.
    pub(super) fn answers_in(&self, id: ProjectId) -> Duration {
        let name = self.urls[&id].trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        self.projects[name].answers_in
    }

    pub(super) fn serve(
        &mut self,
        id: ProjectId,
        request: &SchedulerRequest,
    ) -> Result<Box<SchedulerReply>, TransferError> {
        let (now, url) = (self.now, self.urls[&id].clone());
        let name = url.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
        let project = self.projects.get_mut(&name).unwrap();
        project.calls.push(now);
        if project.down {
            return Err(TransferError::new(TransferErrorKind::Transient, "connection refused"));
        }
        // What crosses the wire is the text; so the formats take part.
        let text = request.write();
        let request = SchedulerRequest::parse(text.as_bytes()).unwrap();
        self.requests.push(text);
        let mut reply = SchedulerReply {
            hostid: (request.hostid == 0).then_some(7),
            request_delay: Duration::from_secs(1),
            code_sign_key: Some(CODE_SIGN_KEY.to_owned()),
            message_ack: !request.trickles.is_empty() && !self.acks_no_trickles,
            result_acks: request.results.iter().map(|result| result.name.clone()).collect(),
            ..SchedulerReply::default()
        };
        project.reports.extend(request.results);
        let of_coprocessors = request.coprocs.iter().map(|of| of.req_secs);
        let mut seconds = of_coprocessors.fold(request.cpu_req_secs, f64::max);
        while seconds > 0.0 && project.sent < project.supply {
            seconds -= project.cpu.as_secs_f64();
            add_job(&mut reply, &name, &url, project.sent, project.cpu, now);
            project.sent += 1;
        }
        reply.results.iter_mut().for_each(|result| result.report_immediately = project.report_immediately);
        if let Some(alter) = self.alter {
            alter(&mut reply, project.calls.len() - 1);
        }
        Ok(Box::new(SchedulerReply::parse(reply.write().as_bytes()).unwrap()))
    }
}

fn add_job(reply: &mut SchedulerReply, project: &str, url: &str, number: u64, cpu: Duration, now: Instant) {
    let file = |name: &str, urls: &[String], upload: bool| FileInfo {
        name: name.to_owned(),
        download_urls: if upload { Vec::new() } else { urls.to_vec() },
        upload_urls: if upload { urls.to_vec() } else { Vec::new() },
        max_nbytes: upload.then_some(Bytes(1000)),
        ..FileInfo::default()
    };
    let (app, stem) = (format!("{project}_app"), format!("{project}_{number}"));
    let (input, output) = (format!("{stem}_in"), format!("{stem}_out"));
    let refer = |name: &str, open: &str, main| FileRef {
        file_name: name.to_owned(),
        open_name: Some(open.to_owned()),
        main_program: main,
        ..FileRef::default()
    };
    let download = |name: &str| vec![format!("{url}download/{name}")];
    if reply.apps.is_empty() {
        reply.apps.push(App { name: app.clone(), ..App::default() });
        reply.files.push(file(&app, &download(&app), false));
        reply.app_versions.push(AppVersion {
            app_name: app.clone(),
            version_num: 100,
            platform: "x86_64-pc-linux-gnu".to_owned(),
            api_version: Some("8.0.0".to_owned()),
            files: vec![refer(&app, &app, true)],
            flops: Some(Speed::new(1e9).unwrap()),
            ..AppVersion::default()
        });
    }
    reply.files.push(file(&input, &download(&input), false));
    reply.files.push(file(&output, &[format!("{url}file_upload_handler")], true));
    reply.workunits.push(Workunit {
        name: stem.clone(),
        app_name: app,
        rsc_fpops_est: Some(Flops::new(cpu.as_secs_f64() * 1e9).unwrap()),
        rsc_fpops_bound: Some(Flops::new(cpu.as_secs_f64() * 1e12).unwrap()),
        files: vec![refer(&input, "in", false)],
        ..Workunit::default()
    });
    reply.results.push(ResultJob {
        name: format!("{stem}_0"),
        wu_name: stem,
        report_deadline: now + Duration::from_hours(24 * 7),
        files: vec![refer(&output, "out", false)],
        platform: "x86_64-pc-linux-gnu".to_owned(),
        version_num: 100,
        ..ResultJob::default()
    });
}
