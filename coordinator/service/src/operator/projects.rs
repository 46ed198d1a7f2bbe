//! Projects and their jobs as operators are told of them, and how a project is made (R6.8, R6.10).

use fallow_boinc::signature::PublicKey;
use fallow_daemon::clock;
use fallow_domain::{Duration, ProjectAssignment, ResourceTypes, Share};
use fallow_proto::operator::v1 as wire;
use fallow_work_server::{Counts, PAGE_MAX, ProjectError, ProjectInfo, ProjectServer, ProjectSettings};
use tonic::{Status, Streaming};

use super::service::OperatorService;
use super::{audit, convert, incoming, status};
use crate::audit::Action;
use crate::document::Author;
use crate::fleet::totals::to_micros;
use crate::roles::Caller;

impl OperatorService {
    pub(super) async fn summaries(&self) -> Result<Vec<wire::ProjectSummary>, Status> {
        let hosted = self
            .blocking(|projects| {
                let with_counts = |info: ProjectInfo| Ok((projects.counts(&info.name)?, info));
                projects.projects().into_iter().map(with_counts).collect::<Result<Vec<_>, ProjectError>>()
            })
            .await?;
        let set = self.documents.set();
        let mut summaries = Vec::new();
        for assignment in set.fleet.projects.iter().chain(&set.foreign()) {
            let found = hosted.iter().find(|(_, info)| info.name == assignment.name);
            let mut last_refusal =
                found.and_then(|(_, info)| info.last_refusal.clone()).map(convert::refusal);
            if let Some(refusal) = &mut last_refusal {
                refusal.agent_name = self.fleet.name_of(&refusal.agent_id);
            }
            let summary = self.summary(assignment, found.map(|(counts, _)| *counts));
            summaries.push(wire::ProjectSummary { last_refusal, ..summary });
        }
        Ok(summaries)
    }

    fn summary(&self, assignment: &ProjectAssignment, counts: Option<Counts>) -> wire::ProjectSummary {
        let amounts = self.fleet.project_totals(&assignment.url);
        let hosted = counts.is_some();
        let counts = counts.unwrap_or_default();
        wire::ProjectSummary {
            name: assignment.name.clone(),
            url: assignment.url.to_string(),
            share: assignment.share.get(),
            cpu_time_micros: to_micros(amounts.cpu),
            cpu_contested_micros: to_micros(amounts.contested),
            debt_seconds: to_micros(amounts.debt) as f64 / 1e6,
            workunits: counts.workunits,
            workunits_validated: counts.workunits_validated,
            workunits_failed: counts.workunits_failed,
            jobs_unsent: counts.jobs_unsent,
            jobs_in_progress: counts.jobs_in_progress,
            jobs_over: counts.jobs_over,
            hosted,
            account_key: assignment.account_key.reveal().to_owned(),
            last_refusal: None,
        }
    }

    pub(super) async fn create(
        &self,
        author: Author,
        request: wire::CreateProjectRequest,
    ) -> Result<wire::ProjectSummary, Status> {
        let share = Share::given(request.share).map_err(|error| status::of_invalid(&error))?;
        let author = Author { emergency: request.emergency, ..author };
        // Before the project is made, which would be in no document.
        self.documents.require_free(&author).map_err(|error| status::of_document(&error))?;
        let mut settings = ProjectSettings::default();
        if request.request_delay_micros != 0 {
            settings.request_delay = Duration::from_micros(request.request_delay_micros);
        }
        for wire::Setting { key, value } in &request.settings {
            settings.set(key, value).map_err(|error| status::of_invalid(&error))?;
        }
        let given = Some(&request.code_sign_key).filter(|key| !key.is_empty());
        let key = given.map(|key| PublicKey::parse(key)).transpose();
        let key = key.map_err(|error| Status::invalid_argument(format!("no code-signing key: {error}")))?;
        let known = self.documents.document().projects.iter().any(|project| project.name == request.name);
        let name = request.name;
        let record = author.record(Action::ProjectCreated, &name);
        let make = move |projects: &ProjectServer| {
            let info = match projects.create_project_signed_by(&name, settings, key.as_ref()) {
                // Made before, by a call that did not get as far as the document.
                Err(ProjectError::ProjectExists { .. }) if !known => {
                    let mut made = projects.projects().into_iter().filter(|info| info.name == name);
                    let fits = |info: &ProjectInfo| {
                        key.as_ref().is_none_or(|key| key.fingerprint() == info.code_sign_key)
                    };
                    let made = made.find(fits);
                    made.ok_or(ProjectError::ProjectExists { name })
                }
                made => made,
            }?;
            let record = record.changed("", &format!("{} share {}", info.url, share.get()));
            Ok((info, Some(record)))
        };
        let info = self.recorded(make).await?;
        let assignment = ProjectAssignment {
            name: info.name,
            url: info.url,
            account_key: info.account_key,
            share,
            code_sign_key: Some(info.code_sign_key),
            without: ResourceTypes::default(),
        };
        let put = self.documents.put_project(author, clock::now(), assignment.clone()).await;
        put.map_err(|error| status::of_document(&error))?;
        Ok(self.summary(&assignment, Some(Counts::default())))
    }

    pub(super) async fn jobs(
        &self,
        caller: Caller,
        request: wire::ListJobsRequest,
    ) -> Result<wire::ListJobsReply, Status> {
        let mut reply = self.jobs_of_projects(caller, request).await?;
        let jobs = reply.workunits.iter_mut().flat_map(|workunit| &mut workunit.jobs);
        for job in jobs.filter(|job| !job.agent_id.is_empty()) {
            job.agent_name = self.fleet.name_of(&job.agent_id);
        }
        Ok(reply)
    }

    async fn jobs_of_projects(
        &self,
        caller: Caller,
        request: wire::ListJobsRequest,
    ) -> Result<wire::ListJobsReply, Status> {
        let limit = page_size(request.limit);
        let wire::ListJobsRequest { project, after, .. } = request;
        self.blocking(move |projects| {
            if !project.is_empty() {
                return page(
                    projects,
                    &project,
                    Some(after).filter(|name| !name.is_empty()).as_deref(),
                    limit,
                );
            }
            // All projects, one after the other, in order of their names.
            let (from, mut after) = match after.split_once('/') {
                Some((project, name)) => (project.to_owned(), Some(name.to_owned())),
                None => (String::new(), None),
            };
            let mut reply = wire::ListJobsReply::default();
            let told = projects.projects().into_iter().filter(|info| caller.is_told_of(&info.name));
            for info in told.filter(|info| info.name >= from) {
                let after = after.take().filter(|_| info.name == from);
                if reply.workunits.len() >= limit {
                    reply.more = true;
                    break;
                }
                let rest = page(projects, &info.name, after.as_deref(), limit - reply.workunits.len())?;
                reply.workunits.extend(rest.workunits);
                reply.more = rest.more;
                if rest.more {
                    break;
                }
            }
            Ok(reply)
        })
        .await
    }

    /// The version of an application that a call is for, if that is for one of the caller's projects.
    pub(super) async fn announced(
        &self,
        caller: &Caller,
        author: &Author,
        parts: &mut Streaming<wire::AddAppVersionPart>,
    ) -> Result<wire::AddAppVersionRequest, Status> {
        let announced = incoming::announced(parts).await?;
        self.require_project(caller, author, "AddAppVersion", &announced.project)?;
        Ok(announced)
    }

    /// Takes a submission, or a piece of one, or says whether it would be taken.
    pub(super) async fn take(
        &self,
        author: Author,
        request: wire::SubmitRequest,
    ) -> Result<wire::SubmitReply, Status> {
        let (project, piece) = convert::piece(request)?;
        let said = audit::piece(&piece);
        let done = author.record(Action::Submitted, &project).changed("", &said);
        let agents = (self.fleet.enrolled() as u64, self.fleet.copied() as u64);
        let (of, name) = (project.clone(), project.clone());
        let submit = move |projects: &ProjectServer| {
            let taken = projects.submit_piece(&of, piece)?;
            // What was only checked, or taken before, changes nothing.
            let is_new = taken.known < taken.names.len() as u64;
            Ok((taken, Some(done).filter(|_| is_new)))
        };
        let taken = self.recorded(submit).await?;
        let outside = self.blocking(move |projects| Ok(projects.accounts_outside(&project)? as u64)).await?;
        let nobody_has_project = self.documents.why_nobody_has(&name).unwrap_or_default();
        Ok(wire::SubmitReply { nobody_has_project, ..convert::taken(taken, agents, outside) })
    }
}

/// How much of a list is asked for at once.
pub(super) fn page_size(limit: u32) -> usize {
    match limit as usize {
        0 => PAGE_MAX,
        limit => limit.min(PAGE_MAX),
    }
}

fn page(
    projects: &ProjectServer,
    project: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<wire::ListJobsReply, ProjectError> {
    let page = projects.list_workunits(project, after, limit)?;
    let workunits = page.items.into_iter().map(|view| convert::workunit(project, view)).collect();
    Ok(wire::ListJobsReply { workunits, more: page.more })
}
