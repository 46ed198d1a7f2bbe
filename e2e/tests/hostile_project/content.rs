//! Kinds whose replies are well formed and say what cannot be meant.

use crate::http::Answer;
use crate::kinds::{FAR, Kind, Visit};

/// Numbers, names and keys.
pub(crate) const CONTENT: &[Kind] = &[
    Kind {
        name: "request-delays",
        reply: |visit| {
            let delays = ["-1", "1e300", "nan", "inf", "-1e300", "1e-300", "0x7fffffffffffffff", "", "later"];
            Answer::text(visit.reply_after(delays[visit.number % delays.len()], ""))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "deadlines",
        reply: |visit| {
            let mut content = visit.application("");
            for (number, deadline) in ["0", "1", "-5e9", "1e18", "1e300", "nan", "inf"].iter().enumerate() {
                content += &Visit::job(&format!("evil_{}_{number}", visit.number), deadline);
            }
            Answer::text(visit.reply(&content))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "the-same-name-again",
        reply: |visit| {
            let content = visit.application("") + &Visit::job("evil", FAR) + &Visit::job("evil_0", FAR);
            Answer::text(visit.reply(&content.repeat(500)))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "names-of-other-places",
        reply: |visit| {
            let names = [
                "../../escaped",
                "/tmp/escaped",
                "..",
                ".",
                "a/b",
                "%2e%2e%2fescaped",
                "a\\b",
                "\u{1b}[2J",
                "a\nb",
            ];
            let name = names[visit.number % names.len()];
            let file = format!(
                "<file_info><name>{name}</name><url>{}download/x</url><sticky/></file_info>\n\
                 <app_version><app_name>evil</app_name><version_num>7</version_num>\
                 <platform>x86_64-pc-linux-gnu</platform><file_ref><file_name>{name}</file_name>\
                 <open_name>../../../escaped</open_name><main_program/></file_ref></app_version>",
                visit.url
            );
            Answer::text(visit.reply(&(file + &Visit::job(name, FAR))))
        },
        file: |_| Answer::text("escaped"),
        ..Kind::ORDINARY
    },
    Kind {
        name: "names-of-10000-characters",
        reply: |visit| {
            let name = "n".repeat(10_000);
            Answer::text(visit.reply(&(visit.application("") + &Visit::job(&name, FAR))))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "files-without-a-good-signature",
        reply: |visit| {
            let signature = format!("<file_signature>\n{}\n.\n</file_signature>", "00".repeat(128));
            Answer::text(visit.jobs(&signature))
        },
        file: |_| Answer::text(PROGRAM),
        ..Kind::ORDINARY
    },
    Kind {
        name: "another-key-each-time",
        reply: |visit| {
            let digits = format!("{:0>256}", format!("{:x}1", visit.number));
            let modulus = format!("f{}", &digits[1..]);
            let exponent = format!("{:0>256}", "10001");
            let key = format!("<code_sign_key>\n1024\n{modulus}\n{exponent}\n.\n</code_sign_key>\n");
            Answer::text(visit.reply(&key))
        },
        ..Kind::ORDINARY
    },
    Kind {
        name: "a-key-of-512-bits",
        reply: |visit| {
            let (modulus, exponent) = ("f".repeat(128), format!("{:0>128}", "3"));
            let key = format!("<code_sign_key>\n512\n{modulus}\n{exponent}\n.\n</code_sign_key>\n");
            let signature = format!("<file_signature>\n{}\n.\n</file_signature>", "00".repeat(64));
            Answer::text(visit.jobs(&signature).replace("<app>", &format!("{key}<app>")))
        },
        file: |_| Answer::text(PROGRAM),
        ..Kind::ORDINARY
    },
    Kind {
        name: "jobs-of-others",
        reply: |visit| {
            let mut content = String::new();
            for job in 0..200 {
                for name in [format!("good_{job}_0"), format!("never_sent_{job}")] {
                    content += &format!(
                        "<result_ack><name>{name}</name></result_ack><result_abort><name>{name}</name></result_abort>\
                         <result_abort_if_not_started><name>{name}</name></result_abort_if_not_started>\
                         <delete_file_info>in</delete_file_info>\n"
                    );
                }
            }
            Answer::text(visit.reply(&content))
        },
        ..Kind::ORDINARY
    },
];

/// A program that would leave a trace if it were ever run.
const PROGRAM: &str = "#!/bin/sh\ntouch ../../escaped\n";
