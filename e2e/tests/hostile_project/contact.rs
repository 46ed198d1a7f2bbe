//! Kinds that keep an agent waiting, or never give it an answer.

use crate::http::Answer;
use crate::kinds::Kind;

/// Bytes per second that would fill anything in no time, and leave the machine time for others.
const FAST: f64 = 13e6;

/// Slow, endless and no answers.
pub(crate) const SLOW: &[Kind] = &[
    Kind {
        name: "reply-at-20-bytes-a-second",
        reply: |visit| Answer::Drip(visit.reply(&" ".repeat(1 << 20)).into(), 20),
        ..Kind::ORDINARY
    },
    Kind {
        name: "reply-without-end",
        reply: |visit| Answer::Endless(visit.reply("").into(), vec![b' '; 64 * 1024], FAST),
        ..Kind::ORDINARY
    },
    Kind { name: "scheduler-says-nothing", reply: |_| Answer::Silence, ..Kind::ORDINARY },
    Kind {
        name: "page-without-end",
        page: |visit| Answer::Endless(visit.page().into(), vec![b'x'; 64 * 1024], FAST),
        ..Kind::ORDINARY
    },
    Kind {
        name: "page-at-20-bytes-a-second",
        page: |visit| Answer::Drip(format!("{}{}", " ".repeat(1 << 19), visit.page()).into(), 20),
        ..Kind::ORDINARY
    },
    Kind { name: "page-says-nothing", page: |_| Answer::Silence, ..Kind::ORDINARY },
];

/// Where an agent is sent on.
pub(crate) const REDIRECTS: &[Kind] = &[
    Kind {
        name: "redirects-in-a-circle",
        reply: |visit| Answer::moved(302, &format!("{}cgi?{}", visit.url, visit.number)),
        ..Kind::ORDINARY
    },
    Kind {
        name: "page-redirects-in-a-circle",
        page: |visit| Answer::moved(302, &visit.url),
        ..Kind::ORDINARY
    },
    Kind {
        name: "redirects-to-a-file",
        reply: |_| Answer::moved(301, "file:///etc/passwd"),
        file: |_| Answer::moved(302, "file:///etc/passwd"),
        ..Kind::ORDINARY
    },
    Kind {
        name: "redirects-to-another-host",
        reply: |visit| Answer::moved(307, &visit.elsewhere),
        ..Kind::ORDINARY
    },
];

/// The statuses that HTTP has, some that it has not, and what is no HTTP.
const STATUSES: [u16; 20] =
    [199, 204, 300, 304, 400, 401, 402, 403, 404, 405, 407, 408, 410, 418, 429, 500, 501, 503, 599, 999];

fn some_failure(number: usize) -> Answer {
    match number % (STATUSES.len() + 4) {
        0 => Answer::Raw(Vec::new()),
        1 => Answer::Raw(b"\0\0\0 this is no HTTP\r\n\r\n".to_vec()),
        2 => Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n".to_vec()),
        3 => Answer::Raw([b"HTTP/1.1 200 OK\r\n", vec![b'x'; 1 << 20].as_slice()].concat()),
        other => Answer::Status(STATUSES[other - 4], String::new()),
    }
}

/// Ten projects of which nothing ever comes. Some have a page, some have none.
pub(crate) const FAILING: &[Kind] = &[
    failing("fails-0"),
    failing("fails-1"),
    failing("fails-2"),
    failing("fails-3"),
    failing("fails-4"),
    failing("fails-5"),
    failing("fails-6"),
    Kind { page: |visit| some_failure(visit.number), ..failing("fails-7") },
    Kind { page: |visit| some_failure(visit.number), ..failing("fails-8") },
    Kind { page: |visit| some_failure(visit.number), ..failing("fails-9") },
];

const fn failing(name: &'static str) -> Kind {
    Kind {
        name,
        reply: |visit| some_failure(visit.number),
        file: |visit| some_failure(visit.number),
        upload: |visit| some_failure(visit.number),
        ..Kind::ORDINARY
    }
}
