//! The operator service itself.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fallow_domain::{DocumentVersion, Duration, Labels, printable};
use fallow_fleet::{Contents, LabelEdit, Selector};
use fallow_proto::fleet::document;
use fallow_proto::operator::v1 as wire;
use fallow_telemetry::opentelemetry::metrics::Histogram;
use fallow_telemetry::{KeyValue, RateLimit, names};
use fallow_tls::{AccessString, Purpose};
use fallow_work_server::{ProjectError, ProjectInfo, ProjectServer};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};
use tracing::{Instrument as _, Span};
use wire::operator_server::Operator as Service;

use super::call::{
    author_of, caller_of, code_name, document_for, full_name, is_own_failure, project_for, span_of,
};
use super::listed::Listed;
use super::projects::page_size;
use super::{
    audit, backups, convert, documents, groups, incoming, operators, organisation, rollouts, status, told,
    unblocked,
};
use crate::audit::{Action, AuditLog, Record};
use crate::backup::{self, Source};
use crate::document::{Author, Documents, FleetChange};
use crate::fleet::token::{self, TokenTerms};
use crate::fleet::{Fleet, Revoked};
use crate::kept::on_a_thread;
use crate::roles::{Caller, Operators};
use fallow_daemon::clock;
use fallow_store::Store;

static FAILED: RateLimit = RateLimit::new();
/// Of those that look like failures of this server, for each method: a request that is no message looks so,
/// too, and is not to hide others.
static OWN_FAILED: Mutex<BTreeMap<&str, RateLimit>> = Mutex::new(BTreeMap::new());
/// Bytes of the log that the reason takes for which a call failed.
const REASON: usize = 1_000;

/// Serves the operator contract.
#[derive(Clone)]
pub struct OperatorService {
    store: Arc<dyn Store>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) documents: Arc<Documents>,
    pub(super) projects: ProjectServer,
    operators: Arc<Operators>,
    access: AccessString,
    stop: watch::Sender<bool>,
    restarts: Arc<AtomicBool>,
    source: Source,
    calls: Histogram<f64>,
    listed: Arc<Listed>,
}

type Reply<T> = Result<Response<T>, Status>;

impl OperatorService {
    /// For a server that is reached by `access`. `stop` becomes true when an operator shuts the coordinator
    /// down, and `restarts` before that, if it is to begin anew. Backups are made of `source`.
    #[must_use]
    pub fn new(
        fleet: Arc<Fleet>,
        documents: Arc<Documents>,
        operators: Arc<Operators>,
        access: AccessString,
        (stop, restarts): (watch::Sender<bool>, Arc<AtomicBool>),
        source: Source,
    ) -> Self {
        // `fallow.rpcs` counts scheduler RPCs.
        let calls = names::CALL_DURATION.seconds_histogram(&fallow_telemetry::meter("fallow_coordinator"));
        let (store, projects) = (source.store.clone(), source.projects.clone());
        let listed = Arc::default();
        Self { store, fleet, documents, projects, operators, access, stop, restarts, source, calls, listed }
    }

    /// The organisation, with what there is for it to sign.
    async fn organisation(&self) -> Result<wire::Organisation, Status> {
        let (documents, authority) = (self.documents.clone(), self.access.authority.to_string());
        unblocked(move || {
            let known = documents.organisation().map_err(|error| status::of_store(&error))?;
            let to_sign = documents.to_sign().map_err(|error| status::of_document(&error))?;
            Ok(organisation::to_wire(&known, authority, to_sign))
        })
        .await?
    }

    /// Runs a call in a span of its own, in the caller's trace, and counts it.
    async fn call<T, W>(&self, method: &'static str, span: Span, work: W) -> Reply<T>
    where
        W: Future<Output = Result<T, Status>>,
    {
        let began = std::time::Instant::now();
        let result = work.instrument(span.clone()).await;
        let code = result.as_ref().err().map_or(tonic::Code::Ok, Status::code);
        let attributes = [
            KeyValue::new("rpc.system.name", "grpc"),
            KeyValue::new("rpc.method", full_name(method)),
            KeyValue::new("rpc.response.status_code", code_name(code)),
        ];
        span.record("rpc.response.status_code", code_name(code));
        // A caller's mistake is no failure of this server's, and success needs no word.
        if is_own_failure(code) {
            span.record("otel.status_code", "error");
        }
        self.calls.record(began.elapsed().as_secs_f64(), &attributes);
        if let Err(status) = &result {
            let _entered = span.enter();
            // Whoever may call can have it fail as often, and with as long a name, as he likes.
            let times = match is_own_failure(code) {
                true => fallow_daemon::lock(&OWN_FAILED).entry(method).or_default().allow(),
                false => FAILED.allow(),
            };
            if let Some(times) = times {
                let reason = printable::line(status.message(), REASON);
                tracing::warn!(method, code = ?status.code(), reason, times, "an operator's call failed");
            }
        }
        result.map(Response::new).map_err(told::within)
    }

    /// Runs what blocks on a thread where that is fine.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ProjectServer) -> Result<T, ProjectError> + Send + 'static,
    ) -> Result<T, Status> {
        let projects = self.projects.clone();
        let span = Span::current();
        let done = on_a_thread(move || span.in_scope(|| work(&projects))).await;
        done.map_err(|died| Status::internal(died.to_string()))?.map_err(|error| status::of_project(&error))
    }

    /// Does what an operator asks for, and keeps on record if it is refused.
    async fn or_refused<T>(
        &self,
        asked: Record,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        work.await.inspect_err(|status| self.audit().refused(asked.refused(status.message())))
    }

    /// Changes something of the projects and keeps on record what was done, if anything was: in one go,
    /// whether or not the caller goes away meanwhile.
    pub(super) async fn recorded<T: Send + 'static>(
        &self,
        change: impl FnOnce(&ProjectServer) -> Result<(T, Option<Record>), ProjectError> + Send + 'static,
    ) -> Result<T, Status> {
        let audit = self.audit().clone();
        let change = move |projects: &ProjectServer| {
            let (changed, record) = change(projects)?;
            record.map_or(Ok(()), |record| audit.done(&record))?;
            Ok(changed)
        };
        self.blocking(change).await
    }

    fn audit(&self) -> &Arc<AuditLog> {
        self.fleet.audit()
    }

    /// Refuses a call for a project that is none of the caller's, and keeps that on record.
    pub(super) fn require_project(
        &self,
        caller: &Caller,
        author: &Author,
        method: &str,
        project: &str,
    ) -> Result<(), Status> {
        caller.may_use(project).map_err(|refusal| {
            let status = status::of_refusal(&refusal);
            self.audit().refused(author.record(Action::NotAllowed, method).refused(status.message()));
            status
        })
    }
}

#[tonic::async_trait]
impl Service for OperatorService {
    async fn create_tokens(
        &self,
        request: Request<wire::CreateTokensRequest>,
    ) -> Reply<wire::CreateTokensReply> {
        let span = span_of(&request, "CreateTokens");
        let author = author_of(&request, &span);
        let asked = author.record(Action::TokensCreated, "");
        let wire::CreateTokensRequest { count, uses, life_micros, labels } = request.into_inner();
        let (store, access, documents) = (self.store.clone(), self.access.clone(), self.documents.clone());
        let work = async move {
            let labels = Labels::read(labels.iter().map(String::as_str));
            let defaults = TokenTerms::default();
            let terms = TokenTerms {
                uses: uses.max(1),
                life: if life_micros == 0 { defaults.life } else { Duration::from_micros(life_micros) },
                labels: labels.map_err(|error| status::of_invalid(&error))?,
            };
            let create = move || token::create(&*store, &author, clock::now(), count.max(1), &terms);
            let tokens = unblocked(create).await?.map_err(|error| status::of_token(&error))?;
            tracing::info!(count = tokens.len(), uses, "enrolment tokens made");
            let organisation = documents.organisation().map_err(|error| status::of_store(&error))?.keys;
            let string = |secret: &String| AccessString {
                purpose: Purpose::Enrolment,
                secret: secret.clone(),
                organisation: organisation.clone(),
                ..access.clone()
            };
            let strings = tokens.iter().map(|secret| string(secret).reveal()).collect();
            Ok(wire::CreateTokensReply { tokens, strings })
        };
        self.call("CreateTokens", span, self.or_refused(asked, work)).await
    }

    async fn list_tokens(&self, request: Request<wire::ListTokensRequest>) -> Reply<wire::ListTokensReply> {
        let span = span_of(&request, "ListTokens");
        let store = self.store.clone();
        let work = async move {
            let tokens = unblocked(move || token::list(&*store)).await?;
            let tokens = tokens.map_err(|error| status::of_store(&error))?;
            Ok(wire::ListTokensReply { tokens: tokens.iter().map(convert::token).collect() })
        };
        self.call("ListTokens", span, work).await
    }

    async fn revoke_token(
        &self,
        request: Request<wire::RevokeTokenRequest>,
    ) -> Reply<wire::RevokeTokenReply> {
        let span = span_of(&request, "RevokeToken");
        let author = author_of(&request, &span);
        let asked = author.record(Action::TokenRevoked, &request.get_ref().id);
        let (store, id) = (self.store.clone(), request.into_inner().id);
        let work = async move {
            let revoked = unblocked(move || token::revoke(&*store, &author, &id)).await?;
            revoked.map_err(|error| status::of_token(&error))?;
            Ok(wire::RevokeTokenReply {})
        };
        self.call("RevokeToken", span, self.or_refused(asked, work)).await
    }

    async fn revoke_host(&self, request: Request<wire::RevokeHostRequest>) -> Reply<wire::RevokeHostReply> {
        let span = span_of(&request, "RevokeHost");
        let (fleet, projects) = (self.fleet.clone(), self.projects.clone());
        let author = author_of(&request, &span);
        let wire::RevokeHostRequest { host, reason } = request.into_inner();
        let mut asked = author.record(Action::HostRevoked, &host);
        if !reason.trim().is_empty() {
            asked = asked.because(&reason);
        }
        let work = async move {
            let revoked = unblocked(move || {
                let revoked = fleet
                    .revoke(&author, &host, &reason, clock::now())
                    .map_err(|error| status::of_member(&error))?;
                projects.close_agent(&revoked.agent).map_err(|error| status::of_project(&error))?;
                Ok::<_, Status>(revoked)
            });
            let Revoked { agent, open_token, copies } = revoked.await??;
            Ok(wire::RevokeHostReply {
                agent_id: agent.0,
                open_token: open_token.unwrap_or_default(),
                copies: copies.into_iter().map(|copy| copy.0).collect(),
            })
        };
        self.call("RevokeHost", span, self.or_refused(asked, work)).await
    }

    async fn forget_host(&self, request: Request<wire::ForgetHostRequest>) -> Reply<wire::ForgetHostReply> {
        let span = span_of(&request, "ForgetHost");
        let (fleet, projects) = (self.fleet.clone(), self.projects.clone());
        let author = author_of(&request, &span);
        let host = request.into_inner().host;
        let asked = author.record(Action::HostForgotten, &host);
        let work = async move {
            let forgotten = unblocked(move || {
                let agent = fleet.forget(&author, &host).map_err(|error| status::of_member(&error))?;
                projects.close_agent(&agent).map_err(|error| status::of_project(&error))?;
                Ok::<_, Status>(agent)
            });
            Ok(wire::ForgetHostReply { agent_id: forgotten.await??.0 })
        };
        self.call("ForgetHost", span, self.or_refused(asked, work)).await
    }

    async fn list_hosts(&self, request: Request<wire::ListHostsRequest>) -> Reply<wire::ListHostsReply> {
        let span = span_of(&request, "ListHosts");
        let (fleet, documents) = (self.fleet.clone(), self.documents.clone());
        let work = async move {
            let selector: Selector =
                request.get_ref().selector.parse().map_err(|error| status::of_invalid(&error))?;
            let list = move || {
                let release = documents.release();
                let newest = crate::document::set_of(release.newest.as_deref());
                // Also while the newest waits for its signature.
                let base = crate::document::set_of(release.base().map(|base| &**base));
                let mut contents = [Contents::of(&newest), Contents::of(&base)];
                let chosen = fleet.hosts().filter(|host| selector.chooses(&host.labels));
                let mut room = convert::HOSTS_BYTES;
                let followed = base.fleet.version;
                // Numbers that hosts name, and whether there are such versions.
                let mut known = BTreeMap::new();
                let mut is_unknown = |has: DocumentVersion| {
                    let is_known = || documents.has_version(has).unwrap_or(true);
                    release.is_held && has > followed && !*known.entry(has).or_insert_with(is_known)
                };
                let hosts = chosen
                    .map(|host| {
                        let [of_newest, of_base] = &mut contents;
                        let wanted = host.wanted(&release);
                        let said = match wanted == newest.fleet.version {
                            true => convert::host(&host, &newest, of_newest),
                            false => convert::host(&host, &base, of_base),
                        };
                        let follows_unknown = is_unknown(host.state.document_version);
                        let said = wire::Host { wanted_version: wanted.0, follows_unknown, ..said };
                        convert::within(said, &mut room)
                    })
                    .collect();
                wire::ListHostsReply { hosts, document_version: newest.fleet.version.0 }
            };
            unblocked(list).await
        };
        self.call("ListHosts", span, work).await
    }

    async fn list_projects(
        &self,
        request: Request<wire::ListProjectsRequest>,
    ) -> Reply<wire::ListProjectsReply> {
        let span = span_of(&request, "ListProjects");
        let work = async {
            let caller = caller_of(&request)?;
            let told = self.summaries().await?.into_iter().filter(|project| caller.is_told_of(&project.name));
            Ok(wire::ListProjectsReply {
                projects: told.map(|project| project_for(&caller, project)).collect(),
            })
        };
        self.call("ListProjects", span, work).await
    }

    async fn list_jobs(&self, request: Request<wire::ListJobsRequest>) -> Reply<wire::ListJobsReply> {
        let span = span_of(&request, "ListJobs");
        let author = author_of(&request, &span);
        let work = async {
            let caller = caller_of(&request)?;
            let request = request.into_inner();
            if !request.project.is_empty() {
                self.require_project(&caller, &author, "ListJobs", &request.project)?;
            }
            self.jobs(caller, request).await
        };
        self.call("ListJobs", span, work).await
    }

    async fn set_shares(&self, request: Request<wire::SetSharesRequest>) -> Reply<wire::DocumentReply> {
        let span = span_of(&request, "SetShares");
        let (author, caller) = (author_of(&request, &span), caller_of(&request)?);
        let wire::SetSharesRequest { shares, emergency, message } = request.into_inner();
        let author = Author { emergency, ..author.saying(message) };
        let shares = documents::shares(shares);
        let named =
            shares.iter().map(|(name, share)| format!("{name}={share}")).collect::<Vec<_>>().join(" ");
        let asked = author.record(Action::DocumentChanged, &format!("shares {named}"));
        let work = async {
            let change = FleetChange::Shares(shares);
            let reply = documents::change(&self.fleet, &self.documents, author, change).await?;
            Ok(document_for(&caller, reply))
        };
        self.call("SetShares", span, self.or_refused(asked, work)).await
    }

    async fn set_preferences(
        &self,
        request: Request<wire::SetPreferencesRequest>,
    ) -> Reply<wire::DocumentReply> {
        let span = span_of(&request, "SetPreferences");
        let (author, caller) = (author_of(&request, &span), caller_of(&request)?);
        let wire::SetPreferencesRequest { preferences, emergency, message, made_from } = request.into_inner();
        let author = Author { emergency, ..author.saying(message) };
        let asked = author.record(Action::DocumentChanged, "preferences");
        let work = async {
            let change = documents::preferences(preferences, made_from)?;
            let reply = documents::change(&self.fleet, &self.documents, author, change).await?;
            Ok(document_for(&caller, reply))
        };
        self.call("SetPreferences", span, self.or_refused(asked, work)).await
    }

    async fn preview_shares(&self, request: Request<wire::SetSharesRequest>) -> Reply<wire::PreviewReply> {
        let span = span_of(&request, "PreviewShares");
        let author = author_of(&request, &span);
        let wire::SetSharesRequest { shares, emergency, message: _ } = request.into_inner();
        let (author, change) =
            (Author { emergency, ..author }, FleetChange::Shares(documents::shares(shares)));
        let work = documents::preview(self.fleet.clone(), self.documents.clone(), author, change);
        self.call("PreviewShares", span, work).await
    }

    async fn preview_preferences(
        &self,
        request: Request<wire::SetPreferencesRequest>,
    ) -> Reply<wire::PreviewReply> {
        let span = span_of(&request, "PreviewPreferences");
        let author = author_of(&request, &span);
        let wire::SetPreferencesRequest { preferences, emergency, message: _, made_from } =
            request.into_inner();
        let author = Author { emergency, ..author };
        let work = async {
            let change = documents::preferences(preferences, made_from)?;
            documents::preview(self.fleet.clone(), self.documents.clone(), author, change).await
        };
        self.call("PreviewPreferences", span, work).await
    }

    async fn change_groups(
        &self,
        request: Request<wire::ChangeGroupsRequest>,
    ) -> Reply<wire::ChangeGroupsReply> {
        let span = span_of(&request, "ChangeGroups");
        let author = author_of(&request, &span);
        let wire::ChangeGroupsRequest { message, dry_run, .. } = request.get_ref();
        let (author, is_only_asked) = (author.saying(message.clone()), *dry_run);
        let asked = author.record(Action::DocumentChanged, "groups");
        let work = groups::change(self.fleet.clone(), self.documents.clone(), author, request.into_inner());
        match is_only_asked {
            true => self.call("ChangeGroups", span, work).await,
            false => self.call("ChangeGroups", span, self.or_refused(asked, work)).await,
        }
    }

    async fn list_groups(&self, request: Request<wire::ListGroupsRequest>) -> Reply<wire::ListGroupsReply> {
        let span = span_of(&request, "ListGroups");
        let (fleet, documents) = (self.fleet.clone(), self.documents.clone());
        self.call("ListGroups", span, unblocked(move || groups::list(&fleet, &documents.set()))).await
    }

    async fn label_host(&self, request: Request<wire::LabelHostRequest>) -> Reply<wire::LabelHostReply> {
        let span = span_of(&request, "LabelHost");
        let author = author_of(&request, &span);
        let wire::LabelHostRequest { host, changes } = request.into_inner();
        let asked = author.record(Action::HostLabelled, &host).changed("", &changes.join(" "));
        let work = async {
            let edit = LabelEdit::read(changes.iter().map(String::as_str));
            let edit = edit.map_err(|error| status::of_invalid(&error))?;
            let labels = self.fleet.relabel(&author, &host, &edit).await;
            let labels = labels.map_err(|error| status::of_label(&error))?;
            Ok(wire::LabelHostReply { labels: convert::labels_to_wire(&labels) })
        };
        self.call("LabelHost", span, self.or_refused(asked, work)).await
    }

    async fn explain_host(
        &self,
        request: Request<wire::ExplainHostRequest>,
    ) -> Reply<wire::ExplainHostReply> {
        let span = span_of(&request, "ExplainHost");
        let (fleet, documents) = (self.fleet.clone(), self.documents.clone());
        let explain = move || {
            let explained = fleet.explain(&request.get_ref().host, &documents.release());
            let explained = explained.map_err(|error| status::of_unknown_host(&error))?;
            let newest = documents.rollouts(rollouts::limit(0)).map_err(|error| status::of_store(&error))?;
            let taken_back = rollouts::taken_back(&newest, &explained.host);
            Ok(wire::ExplainHostReply { taken_back, ..groups::explained(&explained) })
        };
        let work = async { unblocked(explain).await? };
        self.call("ExplainHost", span, work).await
    }

    async fn list_documents(
        &self,
        request: Request<wire::ListDocumentsRequest>,
    ) -> Reply<wire::ListDocumentsReply> {
        let span = span_of(&request, "ListDocuments");
        let documents = self.documents.clone();
        let limit = groups::limit(request.get_ref().limit);
        let work = async {
            let read = unblocked(move || documents.history(limit)).await?;
            let read = read.map_err(|error| status::of_store(&error))?;
            Ok(wire::ListDocumentsReply { documents: read.into_iter().map(groups::version).collect() })
        };
        self.call("ListDocuments", span, work).await
    }

    async fn get_document_version(
        &self,
        request: Request<wire::GetDocumentVersionRequest>,
    ) -> Reply<wire::DocumentContent> {
        let span = span_of(&request, "GetDocumentVersion");
        let (documents, request) = (self.documents.clone(), request.into_inner());
        let work = async { unblocked(move || documents::content(&documents, &request)).await? };
        self.call("GetDocumentVersion", span, work).await
    }

    async fn get_document_difference(
        &self,
        request: Request<wire::GetDocumentDifferenceRequest>,
    ) -> Reply<wire::DocumentDifference> {
        let span = span_of(&request, "GetDocumentDifference");
        let (documents, request) = (self.documents.clone(), request.into_inner());
        let work = async { unblocked(move || documents::difference(&documents, &request)).await? };
        self.call("GetDocumentDifference", span, work).await
    }

    async fn list_rollouts(
        &self,
        request: Request<wire::ListRolloutsRequest>,
    ) -> Reply<wire::ListRolloutsReply> {
        let span = span_of(&request, "ListRollouts");
        let (fleet, documents, listed) = (self.fleet.clone(), self.documents.clone(), self.listed.clone());
        let limit = rollouts::limit(request.get_ref().limit);
        let list = move || {
            let said = documents.rollouts(limit).map_err(|error| status::of_store(&error))?;
            let plan = documents.plan().map_err(|error| status::of_store(&error))?;
            let list = |rollout| listed.list(rollout, Instant::now, || fleet.hosts_listed(rollout));
            let rollouts = said.iter().map(list);
            Ok(wire::ListRolloutsReply {
                rollouts: rollouts.collect(),
                plan: Some(rollouts::plan_to_wire(plan.as_ref())),
            })
        };
        self.call("ListRollouts", span, async { unblocked(list).await? }).await
    }

    async fn order_rollout(&self, request: Request<wire::OrderRolloutRequest>) -> Reply<wire::Rollout> {
        let span = span_of(&request, "OrderRollout");
        let author = author_of(&request, &span);
        let wire = request.into_inner();
        let author = author.saying(wire.message.clone());
        let order = rollouts::order(wire.order()).map_err(|error| status::of_invalid(&error));
        let said = order.as_ref().map_or("an unknown order", |order| order.as_str());
        let asked = author.record(Action::RolloutStepped, said);
        let work = async {
            let told = self.documents.order(author, clock::now(), order?, rollouts::seen(&wire)).await;
            let told = told.map_err(|error| status::of_document(&error))?;
            let fleet = self.fleet.clone();
            unblocked(move || rollouts::to_wire(&told, &fleet.hosts_of(&told))).await
        };
        self.call("OrderRollout", span, self.or_refused(asked, work)).await
    }

    async fn get_organisation(
        &self,
        request: Request<wire::GetOrganisationRequest>,
    ) -> Reply<wire::Organisation> {
        let span = span_of(&request, "GetOrganisation");
        let briefly = request.into_inner().briefly;
        let work = async {
            let all = self.organisation().await?;
            let brief = |all| wire::Organisation { documents: String::new(), before: None, ..all };
            Ok(if briefly { brief(all) } else { all })
        };
        self.call("GetOrganisation", span, work).await
    }

    async fn set_organisation(
        &self,
        request: Request<wire::SetOrganisationRequest>,
    ) -> Reply<wire::Organisation> {
        let span = span_of(&request, "SetOrganisation");
        let author = author_of(&request, &span);
        let wire::SetOrganisationRequest { keys, message } = request.into_inner();
        let author = author.saying(message);
        let asked = author.record(Action::OrganisationSet, "keys that documents are signed with");
        let work = async {
            let keys = organisation::keys(&keys).map_err(|error| status::of_invalid(&error))?;
            let set = self.documents.set_organisation(author, clock::now(), keys).await;
            set.map_err(|error| status::of_document(&error))?;
            self.organisation().await
        };
        self.call("SetOrganisation", span, self.or_refused(asked, work)).await
    }

    async fn sign_documents(
        &self,
        request: Request<wire::SignDocumentsRequest>,
    ) -> Reply<wire::SignDocumentsReply> {
        let span = span_of(&request, "SignDocuments");
        let author = author_of(&request, &span);
        let wire::SignDocumentsRequest { document_version, signed, message, emergency } =
            request.into_inner();
        let author = Author { emergency, ..author.saying(message) };
        let version = DocumentVersion(document_version);
        let asked = author.record(Action::DocumentSigned, &format!("version {version}"));
        let work = async {
            let signed = organisation::signed(signed).map_err(|error| status::of_invalid(&error))?;
            let authority = self.access.authority.to_string();
            let followed = self.documents.release();
            let signed = self.documents.sign(author, clock::now(), authority, version, signed).await;
            let signed = signed.map_err(|error| status::of_document(&error))?;
            let rollout = self.documents.rollout_of(signed);
            let changed_hosts = match rollout {
                0 => documents::went_out(&self.fleet, &followed, &self.documents.release()).await?,
                _ => 0,
            };
            Ok(wire::SignDocumentsReply { document_version: signed.0, rollout, changed_hosts })
        };
        self.call("SignDocuments", span, self.or_refused(asked, work)).await
    }

    async fn set_rollout_plan(
        &self,
        request: Request<wire::SetRolloutPlanRequest>,
    ) -> Reply<wire::RolloutPlan> {
        let span = span_of(&request, "SetRolloutPlan");
        let author = author_of(&request, &span);
        let wire::SetRolloutPlanRequest { plan, message } = request.into_inner();
        let author = author.saying(message);
        let asked = author.record(Action::RolloutPlanned, "how changes go out");
        let work = async {
            let given = plan.ok_or_else(|| Status::invalid_argument("the request holds no plan"))?;
            let plan = rollouts::plan(given).map_err(|error| status::of_invalid(&error))?;
            let said = rollouts::plan_to_wire(plan.as_ref());
            let set = self.documents.set_plan(author, plan).await;
            set.map_err(|error| status::of_document(&error))?;
            Ok(said)
        };
        self.call("SetRolloutPlan", span, self.or_refused(asked, work)).await
    }

    async fn list_audit(&self, request: Request<wire::ListAuditRequest>) -> Reply<wire::ListAuditReply> {
        let span = span_of(&request, "ListAudit");
        let log = self.audit().clone();
        let work = async {
            let query = audit::query(request.into_inner())?;
            let page = unblocked(move || log.page(&query)).await?;
            Ok(audit::page(page.map_err(|error| status::of_store(&error))?))
        };
        self.call("ListAudit", span, work).await
    }

    async fn get_document(&self, request: Request<wire::GetDocumentRequest>) -> Reply<wire::DocumentReply> {
        let span = span_of(&request, "GetDocument");
        let release = self.documents.release();
        let said = if request.get_ref().released { release.base() } else { release.newest.as_ref() };
        let said = crate::document::set_of(said.map(|said| &**said)).fleet;
        let document = Some(document::to_wire(&said));
        let caller = caller_of(&request)?;
        let open = release.open().filter(|(rollout, _)| rollout.candidate == said.version);
        let rollout = open.map_or(0, |(rollout, _)| rollout.number);
        let work = async {
            Ok(document_for(&caller, wire::DocumentReply { document, rollout, ..Default::default() }))
        };
        self.call("GetDocument", span, work).await
    }

    async fn create_project(
        &self,
        request: Request<wire::CreateProjectRequest>,
    ) -> Reply<wire::ProjectSummary> {
        let span = span_of(&request, "CreateProject");
        let (author, caller) = (author_of(&request, &span), caller_of(&request)?);
        let request = request.into_inner();
        let asked = author.record(Action::ProjectCreated, &request.name);
        let work = async { Ok(project_for(&caller, self.create(author, request).await?)) };
        self.call("CreateProject", span, self.or_refused(asked, work)).await
    }

    async fn set_project(&self, request: Request<wire::SetProjectRequest>) -> Reply<wire::ProjectSettings> {
        let span = span_of(&request, "SetProject");
        let author = author_of(&request, &span);
        let wire::SetProjectRequest { name, settings } = request.into_inner();
        let changes: Vec<(String, String)> =
            settings.into_iter().map(|setting| (setting.key, setting.value)).collect();
        let named = changes.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        let asked = author.record(Action::ProjectChanged, &name).changed("", &named);
        let done = author.record(Action::ProjectChanged, &name);
        let work = async {
            let by = author.actor.name().to_owned();
            let change = move |projects: &ProjectServer| {
                let before = projects.project(&name)?;
                let settings = projects.change_settings(&name, &changes)?;
                // What is taken is short; how it was written need not be.
                let said = printable::line(&named, REASON);
                tracing::info!(project = name, by, changes = said, "settings of a project are changed");
                let done = done.changed(&audit::said(&before, &changes), &named);
                Ok((convert::settings(&ProjectInfo { settings, ..before }), Some(done)))
            };
            self.recorded(change).await
        };
        self.call("SetProject", span, self.or_refused(asked, work)).await
    }

    async fn get_project(&self, request: Request<wire::GetProjectRequest>) -> Reply<wire::ProjectSettings> {
        let span = span_of(&request, "GetProject");
        let name = request.into_inner().name;
        let work =
            async { self.blocking(move |projects| Ok(convert::settings(&projects.project(&name)?))).await };
        self.call("GetProject", span, work).await
    }

    async fn add_app_version(
        &self,
        request: Request<Streaming<wire::AddAppVersionPart>>,
    ) -> Reply<wire::AddAppVersionReply> {
        let span = span_of(&request, "AddAppVersion");
        let (author, caller) = (author_of(&request, &span), caller_of(&request)?);
        let mut parts = request.into_inner();
        let announced = match self.announced(&caller, &author, &mut parts).await {
            Ok(announced) => announced,
            Err(refused) => return self.call("AddAppVersion", span, async { Err(refused) }).await,
        };
        let asked = author.record(Action::AppVersionAdded, &audit::announced(&announced));
        let work = async {
            let received = incoming::receive(&self.projects, announced, parts).await?;
            let done = author.record(Action::AppVersionAdded, &audit::version(&received));
            let add = move |projects: &ProjectServer| {
                // Its directory stays until this is over, also if the caller goes away meanwhile.
                let received = received;
                let file_names = projects.add_app_version(&received.project, &received.version)?;
                let done = done.changed("", &file_names.join(" "));
                Ok((file_names, Some(done)))
            };
            let file_names = self.recorded(add).await?;
            Ok(wire::AddAppVersionReply { file_names })
        };
        self.call("AddAppVersion", span, self.or_refused(asked, work)).await
    }

    async fn submit(&self, request: Request<wire::SubmitRequest>) -> Reply<wire::SubmitReply> {
        let span = span_of(&request, "Submit");
        let (author, caller) = (author_of(&request, &span), caller_of(&request)?);
        let request = request.into_inner();
        let asked = author.record(Action::Submitted, &request.project);
        let is_only_asked = request.check_only;
        let work = async {
            // Its refusal is on record by itself.
            self.require_project(&caller, &author, "Submit", &request.project)?;
            let take = self.take(author, request);
            if is_only_asked { take.await } else { self.or_refused(asked, take).await }
        };
        self.call("Submit", span, work).await
    }

    async fn get_job(&self, request: Request<wire::GetJobRequest>) -> Reply<wire::JobReport> {
        let span = span_of(&request, "GetJob");
        let (author, caller) = (author_of(&request, &span), caller_of(&request)?);
        let wire::GetJobRequest { project, name } = request.into_inner();
        let work = async {
            self.require_project(&caller, &author, "GetJob", &project)?;
            let report = self
                .blocking(move |projects| Ok(convert::job_report(&project, projects.job(&project, &name)?)));
            let mut report = report.await?;
            if report.job.as_ref().is_some_and(|job| job.sent_at_micros == 0) {
                report.nobody_has_project =
                    self.documents.why_nobody_has(&report.project).unwrap_or_default();
            }
            if let Some(job) = report.job.as_mut().filter(|job| !job.agent_id.is_empty()) {
                job.agent_name = self.fleet.name_of(&job.agent_id);
            }
            Ok(report)
        };
        self.call("GetJob", span, work).await
    }

    async fn list_results(
        &self,
        request: Request<wire::ListResultsRequest>,
    ) -> Reply<wire::ListResultsReply> {
        let span = span_of(&request, "ListResults");
        let (author, caller) = (author_of(&request, &span), caller_of(&request)?);
        let wire::ListResultsRequest { project, after, limit } = request.into_inner();
        let work = async {
            self.require_project(&caller, &author, "ListResults", &project)?;
            let limit = page_size(limit);
            let after = Some(after).filter(|name| !name.is_empty());
            let page = self
                .blocking(move |projects| projects.list_results(&project, after.as_deref(), limit))
                .await?;
            let results = page.items.into_iter().map(convert::result).collect();
            Ok(wire::ListResultsReply { results, more: page.more })
        };
        self.call("ListResults", span, work).await
    }

    async fn shutdown(&self, request: Request<wire::ShutdownRequest>) -> Reply<wire::ShutdownReply> {
        let span = span_of(&request, "Shutdown");
        let author = author_of(&request, &span);
        let work = async {
            tracing::info!(by = author.actor.name(), "an operator shuts the coordinator down");
            let (audit, stop) = (self.audit().clone(), self.stop.clone());
            let record = author.record(Action::Shutdown, "coordinator");
            let shut_down = move || {
                // A full disk keeps nobody from it.
                if let Err(error) = audit.done(&record) {
                    let error = fallow_daemon::causes::line(&error);
                    tracing::error!(error, "the shutdown is not in the audit log");
                }
                stop.send_replace(true);
            };
            unblocked(shut_down).await?;
            Ok(wire::ShutdownReply {})
        };
        self.call("Shutdown", span, work).await
    }

    type BackupStream = backups::Parts;

    async fn backup(&self, request: Request<wire::BackupRequest>) -> Reply<Self::BackupStream> {
        let span = span_of(&request, "Backup");
        let author = author_of(&request, &span);
        let author = author.saying(request.into_inner().message);
        let parts = backups::begin(self.source.clone(), author, self.audit().clone());
        self.call("Backup", span, async { Ok(parts) }).await
    }

    async fn restore(&self, request: Request<wire::RestoreRequest>) -> Reply<wire::RestoreReply> {
        let span = span_of(&request, "Restore");
        let (dir, stop) = (self.source.dir.clone(), self.stop.clone());
        let (restarts, id) = (self.restarts.clone(), request.into_inner().id);
        let restore = move || match backup::arm(&dir, &id) {
            Ok(true) => {
                tracing::info!("the coordinator begins anew, with a backup");
                restarts.store(true, Ordering::Relaxed);
                stop.send_replace(true);
                Ok(wire::RestoreReply {})
            }
            Ok(false) => {
                let text = "no such backup is unpacked in this coordinator's directory: `fallow restore FILE` does that, too";
                Err(Status::failed_precondition(text))
            }
            Err(error) => Err(backups::of_backup(&error)),
        };
        self.call("Restore", span, async { unblocked(restore).await? }).await
    }

    async fn begin_term(&self, request: Request<wire::BeginTermRequest>) -> Reply<wire::BeginTermReply> {
        let span = span_of(&request, "BeginTerm");
        let author = author_of(&request, &span);
        let author = author.saying(request.into_inner().message);
        let asked = author.record(Action::TermBegun, "the documents");
        let work = backups::begin_term(self.documents.clone(), self.fleet.clone(), author);
        self.call("BeginTerm", span, self.or_refused(asked, work)).await
    }

    async fn create_operator(
        &self,
        request: Request<wire::CreateOperatorRequest>,
    ) -> Reply<wire::CreateOperatorReply> {
        let span = span_of(&request, "CreateOperator");
        let author = author_of(&request, &span);
        let asked = author.record(Action::OperatorCreated, &request.get_ref().name);
        let (operators, projects, access) =
            (self.operators.clone(), self.projects.clone(), self.access.clone());
        let create = move || operators::create(&operators, &author, &projects, &access, request.into_inner());
        let work = async { unblocked(create).await? };
        self.call("CreateOperator", span, self.or_refused(asked, work)).await
    }

    async fn list_operators(
        &self,
        request: Request<wire::ListOperatorsRequest>,
    ) -> Reply<wire::ListOperatorsReply> {
        let span = span_of(&request, "ListOperators");
        self.call("ListOperators", span, async { Ok(operators::list(&self.operators)) }).await
    }

    async fn revoke_operator(
        &self,
        request: Request<wire::RevokeOperatorRequest>,
    ) -> Reply<wire::RevokeOperatorReply> {
        let span = span_of(&request, "RevokeOperator");
        let author = author_of(&request, &span);
        let name = request.into_inner().name;
        let asked = author.record(Action::OperatorRevoked, &name);
        let operators = self.operators.clone();
        let revoke = move || operators.revoke(&author, &name, clock::now());
        let work = async {
            unblocked(revoke).await?.map_err(|error| status::of_operator(&error))?;
            Ok(wire::RevokeOperatorReply {})
        };
        self.call("RevokeOperator", span, self.or_refused(asked, work)).await
    }
}
