//! A project server that means ill, in many kinds: each is an ordinary project but for what it names.
//!
//! One server has all kinds, each under a path of its own, so that an agent can be attached to several at
//! once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::http::{Answer, Request, Server};

/// A kind of hostility. What a kind does not say is as an ordinary project does it.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Its path.
    pub(crate) name: &'static str,
    /// The master page.
    pub(crate) page: fn(&Visit) -> Answer,
    /// What the scheduler answers.
    pub(crate) reply: fn(&Visit) -> Answer,
    /// What a download gets.
    pub(crate) file: fn(&Visit) -> Answer,
    /// What an upload gets.
    pub(crate) upload: fn(&Visit) -> Answer,
}

impl Kind {
    /// No hostility at all.
    pub(crate) const ORDINARY: Self = Self {
        name: "ordinary",
        page: |visit| Answer::text(visit.page()),
        reply: |visit| Answer::text(visit.reply("")),
        file: |_| Answer::Status(404, String::new()),
        upload: |_| Answer::text("<data_server_reply>\n<status>0</status>\n</data_server_reply>\n"),
    };
}

/// A request to a hostile project.
pub(crate) struct Visit {
    /// The project's URL.
    pub(crate) url: String,
    /// How many requests came before, to all kinds of this server.
    pub(crate) number: usize,
    /// Another server, on another address.
    pub(crate) elsewhere: String,
}

impl Visit {
    pub(crate) fn page(&self) -> String {
        fallow_boinc::master::write("Hostile", "", &[format!("{}cgi", self.url)])
    }

    /// A reply that an agent has to take, with something in it.
    pub(crate) fn reply(&self, content: &str) -> String {
        self.reply_after("1", content)
    }

    /// The same with another delay until the next request.
    pub(crate) fn reply_after(&self, delay: &str, content: &str) -> String {
        format!(
            "<scheduler_reply>\n<scheduler_version>803</scheduler_version>\n<dont_use_dcf/>\n\
             <request_delay>{delay}</request_delay>\n<project_name>Hostile</project_name>\n\
             <hostid>7</hostid>\n{content}\n</scheduler_reply>\n"
        )
    }

    /// An application, its one version and its one file, of which only the URL is said.
    pub(crate) fn application(&self, file_info: &str) -> String {
        format!(
            "<app><name>evil</name></app>\n\
             <file_info><name>program</name><url>{}download/program</url><executable/>{file_info}</file_info>\n\
             <app_version><app_name>evil</app_name><version_num>100</version_num>\
             <platform>x86_64-pc-linux-gnu</platform>\
             <file_ref><file_name>program</file_name><main_program/></file_ref></app_version>\n",
            self.url
        )
    }

    /// A job of that application.
    pub(crate) fn job(name: &str, deadline: &str) -> String {
        format!(
            "<workunit><name>{name}</name><app_name>evil</app_name>\
             <rsc_fpops_est>1e15</rsc_fpops_est></workunit>\n\
             <result><name>{name}_0</name><wu_name>{name}</wu_name>\
             <report_deadline>{deadline}</report_deadline>\
             <platform>x86_64-pc-linux-gnu</platform><version_num>100</version_num></result>\n"
        )
    }

    /// Some jobs whose application has to be downloaded first, however the kind serves that.
    pub(crate) fn jobs(&self, file_info: &str) -> String {
        let mut content = self.application(file_info);
        for job in 0..8 {
            content += &Self::job(&format!("evil_{}_{job}", self.number), FAR);
        }
        self.reply(&content)
    }
}

/// A deadline of a job that nothing is wrong with.
pub(crate) const FAR: &str = "4e9";

/// The server.
pub(crate) struct Hostile {
    server: Server,
    elsewhere: Server,
}

impl Hostile {
    pub(crate) fn start(kinds: &'static [Kind]) -> Self {
        let elsewhere = Server::start(2, |_, _| Answer::Status(404, String::new()));
        let number = Arc::new(AtomicUsize::new(0));
        let other = elsewhere.url("");
        let server = Server::start(1, move |request, address| {
            let number = number.fetch_add(1, Ordering::Relaxed);
            answer(kinds, request, address, number, &other)
        });
        Self { server, elsewhere }
    }

    pub(crate) fn url(&self, kind: &str) -> String {
        self.server.url(&format!("{kind}/"))
    }

    /// What a kind was asked for.
    pub(crate) fn asked(&self, kind: &str, rest: &str) -> Vec<Request> {
        self.server.asked(&format!("{kind}/{rest}"))
    }

    /// What came to the other address.
    pub(crate) fn asked_elsewhere(&self) -> Vec<Request> {
        self.elsewhere.asked("")
    }
}

fn answer(kinds: &[Kind], request: &Request, address: &str, number: usize, elsewhere: &str) -> Answer {
    let (name, rest) = request.path.split_once('/').unwrap_or((&request.path, ""));
    let Some(kind) = kinds.iter().find(|kind| kind.name == name) else {
        return Answer::Status(404, String::new());
    };
    let url = format!("http://{address}/{name}/");
    let visit = Visit { url, number, elsewhere: elsewhere.to_owned() };
    match (rest, request.method.as_str()) {
        ("", _) => (kind.page)(&visit),
        (rest, _) if rest.starts_with("cgi") => (kind.reply)(&visit),
        (rest, _) if rest.starts_with("file_upload_handler") => (kind.upload)(&visit),
        _ => (kind.file)(&visit),
    }
}
