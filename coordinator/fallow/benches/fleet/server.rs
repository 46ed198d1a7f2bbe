//! The two servers that are measured, each as a process of its own.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use fallow_coordinator::operator::TokenFile;
use fallow_proto::fleet::v1 as wire;
use fallow_proto::operator::v1::{
    CreateProjectRequest, CreateTokensRequest, GetDocumentRequest, SetPreferencesRequest,
};
use fallow_tls::{AccessString, Purpose};
use prost::Message as _;

use crate::Failure;
use crate::bare::Bare;
use crate::peers::{Client, connect};
use crate::support::Running;

/// The argument with which this program is the bare server.
pub(crate) const BARE: &str = "--bare-server";

/// A server under measurement.
pub(crate) enum Server {
    /// The coordinator, with an operator's connection to it.
    Coordinator { running: Running, access: AccessString, operator: Box<Client>, _dir: tempfile::TempDir },
    /// tonic alone: it sends this document, under another version each time.
    Bare { running: Running, access: AccessString, newest: u64, _dir: tempfile::TempDir },
}

impl Server {
    /// The coordinator, which has a project.
    pub(crate) async fn coordinator() -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let running = Running::start(dir.path());
        let access = TokenFile::read(&dir.path().join("coordinator/operator.token"))?;
        let mut operator = Box::new(connect(&access).await?);
        let project = CreateProjectRequest { name: "mersenne".into(), share: 75.0, ..Default::default() };
        operator.create_project(project).await?;
        Ok(Self::Coordinator { running, access, operator, _dir: dir })
    }

    /// tonic alone, which sends what the coordinator sent.
    pub(crate) fn bare(document: &wire::Document) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("document");
        std::fs::write(&file, document.encode_to_vec())?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(BARE).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running(command.spawn()?);
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let access = AccessString::parse(&line, Purpose::Operator)?;
        Ok(Self::Bare { running, access, newest: document.version, _dir: dir })
    }

    pub(crate) fn access(&self) -> &AccessString {
        match self {
            Self::Coordinator { access, .. } | Self::Bare { access, .. } => access,
        }
    }

    /// A secret with which so many agents may enrol.
    pub(crate) async fn token(&mut self, agents: usize) -> Result<String, Failure> {
        let Self::Coordinator { operator, .. } = self else { return Ok(String::new()) };
        let request = CreateTokensRequest { count: 1, uses: u32::try_from(agents)?, ..Default::default() };
        Ok(operator.create_tokens(request).await?.into_inner().tokens.remove(0))
    }

    /// Has it send another document, and gives when that began and which version it is.
    pub(crate) async fn change(&mut self, round: u32) -> Result<(Instant, u64), Failure> {
        match self {
            Self::Coordinator { operator, access, .. } => {
                let began = Instant::now();
                if let Ok(newest) = set_preferences(operator, round).await {
                    return Ok((began, newest));
                }
                // Where strangers press, an operator's connection that does nothing gives way.
                **operator = connect(access).await?;
                Ok((Instant::now(), set_preferences(operator, round).await?))
            }
            Self::Bare { running, newest, .. } => {
                *newest += 1;
                let began = Instant::now();
                let input = running.0.stdin.as_mut().ok_or("no input")?;
                writeln!(input, "{newest}")?;
                Ok((began, *newest))
            }
        }
    }

    /// Memory that it has in use, kilobytes.
    pub(crate) fn resident(&self) -> Result<u64, Failure> {
        let status = Path::new("/proc").join(self.process().id().to_string()).join("status");
        let status = std::fs::read_to_string(status)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.split_whitespace().next().unwrap_or_default().parse()?)
    }

    fn process(&self) -> &Child {
        match self {
            Self::Coordinator { running, .. } | Self::Bare { running, .. } => &running.0,
        }
    }
}

async fn set_preferences(operator: &mut Client, round: u32) -> Result<u64, Failure> {
    let document = operator.get_document(GetDocumentRequest::default()).await?.into_inner().document;
    let document = document.ok_or("there is no document")?;
    let mut preferences = document.preferences.ok_or("it holds no preferences")?;
    preferences.cpu_fraction = if round.is_multiple_of(2) { 0.5 } else { 0.75 };
    let request = SetPreferencesRequest { preferences: Some(preferences), ..Default::default() };
    let reply = operator.set_preferences(request).await?.into_inner();
    Ok(reply.document.ok_or("no document was made")?.version)
}

/// Is the bare server: says where it is, then sends the document of this file under each version that a line
/// of its input names, until there is none.
pub(crate) fn serve(file: &Path) -> Result<(), Failure> {
    let document = wire::Document::decode(std::fs::read(file)?.as_slice())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bare = runtime.block_on(Bare::start())?;
    println!("{}", bare.access.reveal());
    bare.document.send_replace(Some(document.clone()));
    for line in std::io::stdin().lines() {
        let version = line?.trim().parse()?;
        bare.document.send_replace(Some(wire::Document { version, ..document.clone() }));
    }
    Ok(())
}
