//! A client with one project whose scheduler's answers are given by hand, one by one.

use fallow_boinc::scheduler::{
    App, AppVersion, FileInfo, FileRef, ResultJob, SchedulerReply, SchedulerRequest, Workunit,
};
use fallow_client::{
    Change, Client, ClientConfig, Effect, Event, FileKey, RequestedBy, Startup, Step, TaskSetup,
};
use fallow_domain::{Bytes, Duration, Instant, MasterUrl, ProjectId};

use crate::world::{attach_unseen, host, version};

pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef";
const PLATFORM: &str = "x86_64-pc-linux-gnu";

/// A client with one project, its schedulers' answers given by hand.
pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) now: Instant,
    pub(crate) project: ProjectId,
    /// What is stored.
    pub(crate) store: std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) notices: Vec<String>,
    pub(crate) request: Option<SchedulerRequest>,
    /// Whatever is downloaded comes at once.
    pub(crate) downloads_end: bool,
    /// Tasks that were started.
    pub(crate) started: Vec<TaskSetup>,
    /// Downloads that were begun.
    pub(crate) begun: Vec<fallow_client::Download>,
    /// Names of files whose transfer was given up.
    pub(crate) cancelled: Vec<String>,
    /// Names of files that were to be deleted.
    pub(crate) deleted: Vec<String>,
}

pub(crate) fn url() -> MasterUrl {
    MasterUrl::parse("http://127.0.0.1/p/").unwrap()
}

impl Bench {
    pub(crate) fn new() -> Self {
        let client = Client::restore(ClientConfig::new(1, version()), []).unwrap();
        let now = Instant::from_secs_f64(1.8e9);
        let mut bench = Self {
            client,
            now,
            project: ProjectId(0),
            store: std::collections::BTreeMap::new(),
            notices: Vec::new(),
            request: None,
            downloads_end: false,
            started: Vec::new(),
            begun: Vec::new(),
            cancelled: Vec::new(),
            deleted: Vec::new(),
        };
        bench.turn(Event::Started(Box::new(Startup {
            host: host(),
            slots: Vec::new(),
            files: Vec::new(),
            doomed: Vec::new(),
        })));
        bench.turn(attach_unseen(url(), KEY, None));
        bench
    }

    pub(crate) fn turn(&mut self, event: Event) {
        self.now = self.now + Duration::from_secs(1);
        let Step { actions, changes, .. } = self.client.handle(self.now, event);
        for Change { key, value } in changes {
            match value {
                Some(value) => self.store.insert(key, value),
                None => self.store.remove(&key),
            };
        }
        let (mut downloads, mut pages) = (Vec::new(), Vec::new());
        for action in actions {
            match action.effect {
                Effect::Notice { text, .. } => self.notices.push(text),
                Effect::CallScheduler { project, mut request, .. } => {
                    self.client.list_jobs(project, &mut request);
                    self.request = Some(*request);
                }
                Effect::FetchMasterPage { project, .. } => {
                    let outcome = Ok(vec!["http://127.0.0.1/p/cgi".to_owned()]);
                    pages.push(Event::MasterPageRead { project, outcome });
                }
                Effect::CancelTransfer { file } => self.cancelled.push(file.name),
                Effect::DeleteFile { file, .. } => self.deleted.push(file.name),
                Effect::StartTask(setup) => self.started.push(*setup),
                Effect::Download(download) => {
                    let file = download.file.clone();
                    downloads.push(Event::DownloadEnded { file, outcome: Ok(Bytes(10)) });
                    self.begun.push(*download);
                }
                _ => {}
            }
        }
        pages.into_iter().for_each(|read| self.turn(read));
        if self.downloads_end {
            downloads.into_iter().for_each(|ended| self.turn(ended));
        }
    }

    /// As after a kill: the client is taken up from what is stored.
    pub(crate) fn restart(&mut self) {
        self.restart_with(Vec::new());
    }

    /// The same, with these files in the project's directory.
    pub(crate) fn restart_with(&mut self, files: Vec<(FileKey, Bytes)>) {
        self.client = Client::restore(ClientConfig::new(1, version()), self.store.clone()).unwrap();
        self.request = None;
        self.turn(Event::Started(Box::new(Startup {
            host: host(),
            slots: Vec::new(),
            files,
            doomed: Vec::new(),
        })));
    }

    /// Waits for the next request and answers it.
    pub(crate) fn answer(&mut self, reply: &SchedulerReply) -> SchedulerRequest {
        if self.request.is_none() {
            self.now = self.now + Duration::from_hours(1);
            self.turn(Event::ContactRequested { url: url(), by: RequestedBy::Fleet });
        }
        let request = self.request.take().expect("a request");
        let reply = SchedulerReply::parse(reply.write().as_bytes()).unwrap();
        self.turn(Event::SchedulerAnswered { project: self.project, outcome: Ok(Box::new(reply)) });
        request
    }

    /// Answers the next request, and gives the downloads that are begun then.
    pub(crate) fn downloads_of(&mut self, reply: &SchedulerReply) -> Vec<fallow_client::Download> {
        let before = self.begun.len();
        self.answer(reply);
        self.begun.split_off(before)
    }

    pub(crate) fn stored(&self, prefix: &str) -> usize {
        self.store.keys().filter(|key| key.starts_with(prefix.as_bytes())).count()
    }

    pub(crate) fn notices_with(&self, text: &str) -> usize {
        self.notices.iter().filter(|notice| notice.contains(text)).count()
    }
}

pub(crate) fn file(name: &str) -> FileInfo {
    let download_urls = vec![format!("http://127.0.0.1/p/download/{name}")];
    FileInfo { name: name.to_owned(), download_urls, ..FileInfo::default() }
}

pub(crate) fn refer(name: &str) -> FileRef {
    FileRef { file_name: name.to_owned(), ..FileRef::default() }
}

pub(crate) fn add_version(reply: &mut SchedulerReply, app: &str, number: u32) {
    let program = format!("{app}_{number}");
    reply.apps.push(App { name: app.to_owned(), ..App::default() });
    reply.files.push(file(&program));
    reply.app_versions.push(AppVersion {
        app_name: app.to_owned(),
        version_num: number,
        platform: PLATFORM.to_owned(),
        files: vec![refer(&program)],
        ..AppVersion::default()
    });
}

pub(crate) fn add_job(reply: &mut SchedulerReply, app: &str, number: u32, name: &str) {
    reply.files.push(file(&format!("{name}_in")));
    reply.workunits.push(Workunit {
        name: format!("{name}_wu"),
        app_name: app.to_owned(),
        files: vec![refer(&format!("{name}_in"))],
        ..Workunit::default()
    });
    reply.results.push(ResultJob {
        name: name.to_owned(),
        wu_name: format!("{name}_wu"),
        report_deadline: Instant::from_secs_f64(1.9e9),
        platform: PLATFORM.to_owned(),
        version_num: number,
        ..ResultJob::default()
    });
}
