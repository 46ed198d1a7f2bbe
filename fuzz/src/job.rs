//! What jobs and the client tell each other in a slot, and what our applications read.

use std::sync::atomic::{AtomicU8, Ordering};

use fallow_application::checkpoint::{seal, unseal};
use fallow_boinc::runtime::channel::{Channel, Channels, FILE_LEN};
use fallow_boinc::runtime::finish::{Finish, TemporaryExit};
use fallow_boinc::runtime::init_data::AppInitData;
use fallow_boinc::runtime::message::{AppStatus, Heartbeat, ProcessControl, TrickleUp};
use fallow_boinc::runtime::softlink;

use crate::{Target, comes_back};

pub(crate) const TARGETS: &[Target] = &[
    Target::new("init_data", "init_data.xml", |bytes| {
        let Ok(data) = AppInitData::read(bytes) else { return };
        comes_back(&data, |text| AppInitData::read(text).unwrap(), AppInitData::write);
    }),
    Target::new("channel", "", |bytes| {
        let memory: Vec<AtomicU8> = (0..FILE_LEN).map(|_| AtomicU8::new(0)).collect();
        // As a job may leave it: any bytes anywhere.
        memory.iter().zip(bytes).for_each(|(there, byte)| there.store(*byte, Ordering::Relaxed));
        let Some(channels) = Channels::new(&memory) else { return };
        use Channel::{AppStatus, ControlReply, ControlRequest, GraphicsReply, Heartbeat, TrickleUp};
        for channel in [ControlRequest, ControlReply, GraphicsReply, Heartbeat, AppStatus, TrickleUp] {
            if let Some(text) = channels.receive(channel) {
                message(&text);
            }
            assert!(channels.send(channel, "<heartbeat/>"), "a channel that was read takes a message");
        }
    }),
    Target::new("message", "", |bytes| message(&String::from_utf8_lossy(bytes))),
    Target::new("soft_link", "", |bytes| {
        if let Some(target) = softlink::resolve(bytes) {
            assert!(!target.is_empty() && target.len() <= softlink::READ_MAX);
        }
    }),
    Target::new("finish_file", "", |bytes| {
        let finish = Finish::read(bytes);
        comes_back(&finish, Finish::read, Finish::write);
        let _ = fallow_boinc::runtime::exit::Ended::Code(finish.status).meaning(Some(&finish), None);
    }),
    Target::new("temporary_exit_file", "", |bytes| {
        let Some(exit) = TemporaryExit::read(bytes) else { return };
        assert!(exit.delay.as_micros() >= 0);
        comes_back(&exit, |text| TemporaryExit::read(text).unwrap(), TemporaryExit::write);
    }),
    Target::new("job_input", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(range) = text.parse::<fallow_mersenne::Range>() {
            assert_eq!(range.to_string().parse(), Ok(range));
        }
        if let Ok(range) = text.parse::<fallow_totient::Range>() {
            assert_eq!(range.to_string().parse(), Ok(range));
        }
    }),
    Target::new("job_output", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let _ = fallow_mersenne::Report::parse(&text);
        let _ = fallow_totient::Report::parse(&text);
    }),
    Target::new("checkpoint", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        for kind in ["mersenne checkpoint 1", "k"] {
            if let Ok(body) = unseal(kind, &text) {
                assert_eq!(seal(kind, body), text);
            }
            assert_eq!(unseal(kind, &seal(kind, &text)).unwrap(), text);
        }
    }),
];

/// Any text as any message.
fn message(text: &str) {
    if let Some(status) = AppStatus::parse(text) {
        let written = status.text();
        assert_eq!(AppStatus::parse(&written).map(|again| again.text()), Some(written));
    }
    if let Some(beat) = Heartbeat::parse(text) {
        let written = beat.text();
        assert_eq!(Heartbeat::parse(&written).map(|again| again.text()), Some(written));
    }
    if let Some(control) = ProcessControl::parse(text) {
        assert_eq!(ProcessControl::parse(control.text()), Some(control));
    }
    let trickle = TrickleUp::parse(text);
    assert_eq!(TrickleUp::parse(&trickle.text()).text(), trickle.text());
}
