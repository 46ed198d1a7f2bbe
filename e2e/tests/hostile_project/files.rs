//! Kinds whose files are the trouble.

use std::io::Write;

use crate::http::Answer;
use crate::kinds::{FAR, Kind, Visit};

/// Its file is said to be one of the host's own.
pub(crate) const NOT_OF_A_SERVER: &str = "download-from-a-file";

/// Downloads that never become a file, and uploads that nobody takes.
pub(crate) const FILES: &[Kind] = &[
    Kind {
        name: "download-without-end",
        reply: |visit| Answer::text(visit.jobs("")),
        // Slow, for this build of the agent is not optimised, and takes ten times the CPU time for what
        // comes.
        file: |_| Answer::Endless(Vec::new(), vec![0; 64 * 1024], 4e5),
        ..Kind::ORDINARY
    },
    Kind {
        name: "download-larger-than-announced",
        reply: |visit| Answer::text(visit.jobs("<nbytes>1000</nbytes>")),
        file: |_| Answer::Endless(Vec::new(), vec![0; 256 * 1024], 5e7),
        ..Kind::ORDINARY
    },
    Kind {
        name: "downloads-that-always-fail",
        reply: |visit| Answer::text(visit.jobs("")),
        file: |_| Answer::Status(503, String::new()),
        ..Kind::ORDINARY
    },
    Kind {
        name: "downloads-that-change",
        reply: |visit| Answer::text(visit.jobs("<md5_cksum>d41d8cd98f00b204e9800998ecf8427e</md5_cksum>")),
        file: |visit| Answer::text(format!("version {}", visit.number)),
        ..Kind::ORDINARY
    },
    Kind {
        name: "downloads-that-never-start",
        reply: |visit| Answer::text(visit.jobs("")),
        file: |_| Answer::Silence,
        ..Kind::ORDINARY
    },
    Kind {
        name: "downloads-at-20-bytes-a-second",
        reply: |visit| Answer::text(visit.jobs("")),
        file: |_| Answer::Drip(vec![0; 1 << 20], 20),
        ..Kind::ORDINARY
    },
    Kind {
        name: "gzip-bomb",
        reply: |visit| {
            let url = format!("<gzipped_url>{}download/program.gz</gzipped_url>", visit.url);
            Answer::text(visit.jobs(&format!("{url}<nbytes>10000000</nbytes>")))
        },
        file: |_| Answer::Body(bomb()),
        ..Kind::ORDINARY
    },
    Kind {
        name: NOT_OF_A_SERVER,
        reply: |visit| {
            let files = "<app><name>evil</name></app>\n<file_info><name>program</name>\
                <url>file:///etc/passwd</url><executable/></file_info>\
                <app_version><app_name>evil</app_name><version_num>100</version_num>\
                <platform>x86_64-pc-linux-gnu</platform>\
                <file_ref><file_name>program</file_name><main_program/></file_ref></app_version>\n";
            let job = Visit::job(&format!("evil_{}", visit.number), FAR);
            Answer::text(visit.reply(&format!("{files}{job}")))
        },
        ..Kind::ORDINARY
    },
];

/// A few megabytes that become some hundred, where ten were announced.
fn bomb() -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..512 {
        packed.write_all(&zeros).unwrap();
    }
    packed.finish().unwrap()
}
