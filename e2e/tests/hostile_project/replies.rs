//! Kinds whose replies are too much: too long, too many, too deep, or no reply.

use std::fmt::Write;

use crate::http::Answer;
use crate::kinds::{FAR, Kind, Visit};

/// Much of everything.
pub(crate) const HUGE: &[Kind] = &[
    Kind {
        name: "forty-thousand-versions-and-jobs",
        reply: |visit| {
            let mut content = visit.application("");
            for number in 0..40_000 {
                let _ = writeln!(
                    content,
                    "<app_version><app_name>evil</app_name><version_num>{}</version_num>\
                     <platform>x86_64-pc-linux-gnu</platform>\
                     <file_ref><file_name>program</file_name><main_program/></file_ref></app_version>",
                    101 + number
                );
                content += &Visit::job(&format!("evil_{}_{number}", visit.number), FAR);
            }
            Answer::text(visit.reply(&content))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "a-hundred-thousand-jobs",
        reply: |visit| {
            let mut content = visit.application("");
            for number in 0..100_000 {
                let name = format!("evil_{}_{number}", visit.number);
                let _ = write!(
                    content,
                    "<workunit><name>{name}</name><app_name>evil</app_name></workunit>\
                     <result><name>{name}_0</name><wu_name>{name}</wu_name>\
                     <report_deadline>{FAR}</report_deadline></result>"
                );
            }
            Answer::text(visit.reply(&content))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "applications-and-sticky-files",
        reply: |visit| {
            let mut content = String::new();
            for number in 0..50_000 {
                let name = format!("{}_{number}", visit.number);
                let _ = write!(
                    content,
                    "<app><name>app_{name}</name><user_friendly_name>{name}</user_friendly_name></app>\
                     <file_info><name>file_{name}</name><url>{}download/file_{name}</url><sticky/></file_info>",
                    visit.url
                );
            }
            Answer::text(visit.reply(&content))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "a-flood-of-messages",
        reply: |visit| {
            let message = format!("<message priority=\"notice\">{}</message>\n", "all is well ".repeat(80));
            Answer::text(visit.reply(&message.repeat(20_000)))
        },
        ..Kind::ORDINARY
    },
];

/// No well-formed replies.
pub(crate) const BROKEN: &[Kind] = &[
    Kind {
        name: "a-million-levels",
        reply: |visit| {
            let (open, close) = ("<app_version>".repeat(1_000_000), "</app_version>".repeat(1_000_000));
            Answer::text(visit.reply(&format!("{open}{close}")))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "unclosed-elements",
        reply: |visit| Answer::text(visit.reply(&"<app><name>".repeat(1_000_000))),
        ..Kind::ORDINARY
    },
    Kind {
        name: "nul-bytes",
        reply: |visit| {
            Answer::text(visit.reply(&format!("<app><name>a{}</name></app>", "\0".repeat(1 << 20))))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "half-a-reply",
        reply: |visit| {
            let whole = visit.jobs("");
            Answer::text(&whole[..visit.number * 37 % whole.len()])
        },
        ..Kind::ORDINARY
    },
];
