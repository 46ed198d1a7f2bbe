//! Kinds whose replies are too deep, or no replies.

use crate::http::Answer;
use crate::kinds::Kind;

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
