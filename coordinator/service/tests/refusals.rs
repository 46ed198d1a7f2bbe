//! Everybody whom a coordinator refuses hears why, and stands in the audit log with who he was, what he
//! wanted and why he did not get it (R6.10). Which documents hosts refuse is shown with real agents in
//! `e2e/tests/signing.rs`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

mod peers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fallow_coordinator::audit::refusals::AN_HOUR;
use fallow_coordinator::daemon::{Coordinator, Options, StartError};
use fallow_daemon::{causes, clock};
use fallow_proto::fleet::v1::RenewRequest;
use fallow_proto::fleet::v1::fleet_client::FleetClient;
use fallow_proto::operator::v1::{
    AuditActor, AuditEntry, CreateOperatorRequest, CreateTokensRequest, ListAuditRequest, ListHostsRequest,
    ListTokensRequest, OperatorRole, RevokeHostRequest, RevokeOperatorRequest, RevokeTokenRequest,
    SetSharesRequest,
};
use fallow_tls::{AccessString, Authority, HostCredentials, HostKey, Purpose};
use peers::{
    Agent, Client, Identity, PATIENCE, certified_by, channel, connect, enroll, forged, hello, tokens,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Who stands in the audit log.
type Who<'a> = (AuditActor, &'a str);

const STRANGER: Who<'static> = (AuditActor::Stranger, "");

/// A coordinator, what its owner sees, and the refusals that were seen.
struct Refusals {
    dir: tempfile::TempDir,
    coordinator: Coordinator,
    owner: Client,
    seen: usize,
}

impl Refusals {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let coordinator = off_loopback(dir.path()).await;
        let owner = connect(coordinator.access()).await.unwrap();
        Self { dir, coordinator, owner, seen: 0 }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn access(&self) -> AccessString {
        self.coordinator.access().clone()
    }

    async fn identity(&mut self) -> Identity {
        let token = tokens(&mut self.owner, 1).await.remove(0);
        enroll(self.coordinator.access(), &token).await.unwrap()
    }

    /// All refusals on record.
    async fn recorded(&mut self) -> Vec<AuditEntry> {
        let entries = self.owner.list_audit(ListAuditRequest::default()).await.unwrap().into_inner().entries;
        entries.into_iter().filter(|entry| entry.refused).collect()
    }

    /// What is on record next; refusals are stored when there is a thread for it.
    async fn next(&mut self) -> AuditEntry {
        let found = timeout(PATIENCE, async {
            loop {
                let recorded = self.recorded().await;
                if let Some(next) = recorded.get(self.seen) {
                    return next.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let next = found.await.expect("an entry in the audit log");
        self.seen += 1;
        next
    }

    /// Somebody was told this. It says `said`, and one line more is on record: of whom and of what, with
    /// `why`.
    async fn shows(&mut self, told: &str, said: &str, who: Who<'_>, what: (&str, &str), why: &str) {
        assert!(told.contains(said), "told {told:?}, not {said:?}");
        let entry = self.next().await;
        assert_eq!((entry.actor_kind(), entry.actor.as_str()), who, "{entry:?}");
        assert_eq!((entry.action.as_str(), entry.object.as_str()), what, "{entry:?}");
        assert!(entry.reason.contains(why), "{entry:?} does not say {why:?}");
        assert!(entry.from.starts_with("127.0.0.1:"), "{entry:?}");
        assert_eq!(self.recorded().await.len(), self.seen, "one line for each");
        println!("{:<20} {:<32} {told}", entry.action, entry.object);
    }

    /// What a host hears that shows this certificate and names itself so.
    async fn link(&self, credentials: Option<Arc<HostCredentials>>, identity: &Identity) -> String {
        let channel = channel(&identity.access, credentials).await.unwrap();
        let mut agent = Agent::open_over(channel, hello(identity, "e", 0)).await;
        agent.next().await.unwrap_err().message().to_owned()
    }

    /// What somebody hears who asks for a certificate and shows this one.
    async fn renew(&self, credentials: Arc<HostCredentials>) -> String {
        let certificate_request = HostKey::generate().unwrap().certificate_request().unwrap();
        let status = match channel(self.coordinator.access(), Some(credentials)).await {
            Ok(channel) => {
                FleetClient::new(channel).renew(RenewRequest { certificate_request }).await.unwrap_err()
            }
            Err(error) => return causes::line(&error),
        };
        causes::line(&status)
    }
}

/// A coordinator that serves its projects by TLS alone, as it does on all but loopback addresses.
async fn off_loopback(dir: &Path) -> Coordinator {
    loop {
        // Somebody else may take it meanwhile.
        let port = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let options = Options {
            http: Some(([0, 0, 0, 0], port).into()),
            projects_url: Some(format!("https://127.0.0.1:{port}")),
            ..Options::at(dir)
        };
        match Coordinator::start(options).await {
            Ok(coordinator) => return coordinator,
            Err(StartError::Listen { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Says something in plain text, and gives the answer.
async fn plain(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
    answer
}

fn port(url: &str) -> u16 {
    url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn r6_10_who_shows_a_certificate_that_is_not_good_hears_why_and_is_in_the_audit_log() {
    let mut fleet = Refusals::start().await;
    let [host, other] = [fleet.identity().await, fleet.identity().await];
    let (id, now, dir) = (host.agent_id.clone(), clock::now(), fleet.dir().to_owned());
    let month_ago = now - fallow_domain::Duration::from_hours(30 * 24);
    let key = HostKey::generate().unwrap();
    let link = ("link refused", "a link");
    let itself = (AuditActor::Agent, id.as_str());

    let told = fleet.link(None, &host).await;
    let said = "needs a host's certificate";
    fleet.shows(&told, said, STRANGER, link, said).await;
    let told = fleet.link(Some(forged(&dir, &id, &key, now)), &host).await;
    let said = "a key that is not this host's";
    fleet.shows(&told, said, itself, link, said).await;
    let told = fleet.link(Some(forged(&dir, &id, &host.key, month_ago)), &host).await;
    fleet.shows(&told, "has expired", itself, link, "has expired").await;
    let told = fleet.link(Some(other.credentials()), &host).await;
    let said = "names another host than the certificate";
    fleet.shows(&told, said, (AuditActor::Agent, &other.agent_id), link, said).await;
    let told = fleet.link(Some(forged(&dir, "nobody", &key, now)), &host).await;
    let said = "does not know this host";
    fleet.shows(&told, said, (AuditActor::Agent, "nobody"), link, said).await;

    let revoke = RevokeHostRequest { host: id.clone(), reason: "stolen".into() };
    fleet.owner.revoke_host(revoke).await.unwrap();
    let told = fleet.link(Some(host.credentials()), &host).await;
    let said = "taken out of the fleet by an operator (stolen)";
    fleet.shows(&told, said, itself, link, said).await;
    let told = fleet.renew(host.credentials()).await;
    fleet.shows(&told, said, itself, ("link refused", "a newer certificate"), said).await;
    fleet.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_certificate_of_another_authority_is_refused_and_is_in_the_audit_log() {
    let mut fleet = Refusals::start().await;
    let host = fleet.identity().await;
    let (now, key) = (clock::now(), HostKey::generate().unwrap());
    let month_ago = now - fallow_domain::Duration::from_hours(30 * 24);
    let (elsewhere, ..) = Authority::create(now).unwrap();
    let what = ("certificate refused", "a connection to the fleet's port");
    for at in [now, month_ago] {
        let told = fleet.renew(certified_by(&elsewhere, &host.agent_id, &key, at)).await;
        let alert = if told.contains("UnknownCA") { "UnknownCA" } else { "DecryptError" };
        fleet.shows(&told, alert, STRANGER, what, "is of another authority than this fleet's").await;
    }
    // The authority's own, which is no host's.
    let read = |name: &str| std::fs::read_to_string(fleet.dir().join(name)).unwrap();
    let der = CertificateDer::from_pem_slice(read("authority.pem").as_bytes()).unwrap();
    let credentials = Arc::new(HostCredentials::default());
    credentials.replace(&der, &HostKey::from_pem(&read("authority.key")).unwrap()).unwrap();
    let told = fleet.renew(credentials).await;
    fleet.shows(&told, "alert", STRANGER, what, "the certificate that was shown cannot be used").await;
    // And those who are of the fleet are served as before.
    Agent::link(&host, hello(&host, "e", 0)).await;
    fleet.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_who_speaks_without_tls_is_told_so_and_is_in_the_audit_log_so_many_times_an_hour() {
    let mut fleet = Refusals::start().await;
    let fleets = port(&fleet.access().addresses[0].to_string());
    let projects = port(&fleet.coordinator.http_url());
    let why = "speaks without TLS";
    for (port, what, said) in [
        (fleets, "a connection to the fleet's port", "for agents and operators' tools of the fleet"),
        (projects, "a connection to the projects' port", "use https"),
    ] {
        let told = plain(port).await;
        assert!(told.starts_with("HTTP/1.1 400"), "{told}");
        fleet.shows(&told, said, STRANGER, ("plain text refused", what), why).await;
    }
    for _ in 0..2 * AN_HOUR {
        plain(fleets).await;
    }
    while fleet.seen < AN_HOUR as usize {
        fleet.next().await;
    }
    // Nobody can fill the log; and who is refused for something else stands in it all the same.
    let refused = enroll(fleet.coordinator.access(), "no token").await.err().unwrap();
    let what = ("enrolment refused", "host");
    fleet.shows(refused.message(), "not one of this coordinator's", STRANGER, what, refused.message()).await;
    assert_eq!(fleet.seen, AN_HOUR as usize + 1);
    fleet.coordinator.stop().await.unwrap();
}

#[tokio::test]
async fn r6_10_a_token_that_is_spent_expired_or_revoked_enrols_nobody_and_is_in_the_audit_log() {
    let mut fleet = Refusals::start().await;
    let [spent, revoked] = tokens(&mut fleet.owner, 2).await.try_into().unwrap();
    let short = CreateTokensRequest { life_micros: 1, ..Default::default() };
    let expired = fleet.owner.create_tokens(short).await.unwrap().into_inner().tokens.remove(0);
    enroll(fleet.coordinator.access(), &spent).await.unwrap();
    let listed = fleet.owner.list_tokens(ListTokensRequest {}).await.unwrap().into_inner().tokens;
    let unused = listed.iter().find(|token| token.used == 0 && token.expires_at_micros > clock_micros());
    let id = unused.unwrap().id.clone();
    fleet.owner.revoke_token(RevokeTokenRequest { id }).await.unwrap();
    for (token, said) in [
        (&spent, "was used before, 1 of 1 times"),
        (&expired, "has expired"),
        (&revoked, "was revoked"),
        (&"0".repeat(64), "not one of this coordinator's"),
    ] {
        let told = enroll(fleet.coordinator.access(), token).await.err().unwrap().message().to_owned();
        assert!(told.contains("make another with `fallow tokens create`") || told.contains("make one with"));
        fleet.shows(&told, said, STRANGER, ("enrolment refused", "host"), said).await;
    }
    fleet.coordinator.stop().await.unwrap();
}

fn clock_micros() -> i64 {
    clock::now().as_micros()
}

#[tokio::test]
async fn r6_10_an_operator_without_the_token_or_the_role_hears_why_and_is_in_the_audit_log() {
    let mut fleet = Refusals::start().await;
    let request =
        CreateOperatorRequest { name: "ann".into(), role: OperatorRole::Viewer.into(), ..Default::default() };
    let line = fleet.owner.create_operator(request).await.unwrap().into_inner().access;
    let mut ann = connect(&AccessString::parse(&line, Purpose::Operator).unwrap()).await.unwrap();
    let named = (AuditActor::NamedOperator, "ann");

    let told = ann.set_shares(SetSharesRequest::default()).await.unwrap_err().message().to_owned();
    let said = "ann has the role viewer, and `fallow shares set` needs the role operator";
    fleet.shows(&told, said, named, ("not allowed", "SetShares"), said).await;
    fleet.owner.revoke_operator(RevokeOperatorRequest { name: "ann".into() }).await.unwrap();
    let told = ann.list_hosts(ListHostsRequest::default()).await.unwrap_err().message().to_owned();
    let said = "the operator's token of ann was revoked";
    fleet.shows(&told, said, named, ("operator refused", "ListHosts"), said).await;
    let wrong = AccessString { secret: "0".repeat(64), ..fleet.access() };
    let mut wrong = connect(&wrong).await.unwrap();
    let told = wrong.list_hosts(ListHostsRequest::default()).await.unwrap_err().message().to_owned();
    let said = "the operator's token is wrong";
    fleet.shows(&told, said, STRANGER, ("operator refused", "ListHosts"), said).await;
    fleet.coordinator.stop().await.unwrap();
}
