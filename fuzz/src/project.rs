//! What servers and clients of projects send each other.

use fallow_boinc::account::{AccountFile, AccountOut, ProjectConfig, resource_share};
use fallow_boinc::app_config::AppConfig;
use fallow_boinc::client_state::{ClientState, overlay_preferences};
use fallow_boinc::names::{api_version, is_file_name, is_open_name};
use fallow_boinc::scheduler::{GlobalPreferences, PreferenceFile, SchedulerReply, SchedulerRequest};
use fallow_boinc::signature::{PrivateKey, PublicKey, md5_hex};
use fallow_boinc::transfer::{DataServerReply, HEAD_MAX, Head, UploadRequest};
use fallow_boinc::xml::{Reader, escape, unescape};
use fallow_boinc::{master, xml};
use fallow_domain::{Bytes, MasterUrl};
use fallow_preferences::{Origin, OwnerFile, Source, Values, client_config, in_force, of_override, of_site};

use crate::{Target, comes_back};

pub(crate) const TARGETS: &[Target] = &[
    Target::new("scheduler_request", "cgi-cgi.request", |bytes| {
        let Ok(request) = SchedulerRequest::parse(bytes) else { return };
        comes_back(&request, |text| SchedulerRequest::parse(text).unwrap(), SchedulerRequest::write);
        let _ = request.host_info.to_facts(Vec::new());
        if let Some(preferences) = &request.global_preferences {
            possible(preferences);
        }
    }),
    Target::new("scheduler_reply", "cgi-cgi.response", |bytes| {
        let Ok(reply) = SchedulerReply::parse(bytes) else { return };
        let names =
            reply.files.iter().map(|file| &file.name).chain(reply.results.iter().map(|job| &job.name));
        names.for_each(|name| assert!(is_file_name(name), "{name:?} is no file's name"));
        comes_back(&reply, |text| SchedulerReply::parse(text).unwrap(), SchedulerReply::write);
    }),
    Target::new("client_state", "client_state.xml", |bytes| {
        let _ = ClientState::parse(bytes);
    }),
    Target::new("preference_file", "", |bytes| {
        let mut preferences = GlobalPreferences::default();
        if overlay_preferences(&mut preferences, bytes).is_ok() {
            possible(&preferences);
        }
        for venue in ["", "home"] {
            let Ok(file) = PreferenceFile::parse(bytes, venue) else { continue };
            let said = [of_site(&file, &mut |_| ()), of_override(&file, &mut |_| ())];
            for said in said {
                let values = in_force(&[Source::says(Origin::Override, said)]).values;
                assert_eq!(values.check(), Ok(()));
            }
        }
        if let Ok(said) = client_config(bytes) {
            let values = in_force(&[Source::limits(Origin::ClientConfig, said)]).values;
            assert_eq!(values.check(), Ok(()));
        }
    }),
    Target::new("app_config", "", |bytes| match AppConfig::parse(bytes) {
        Ok((file, notes)) => {
            assert!(file.apps.iter().all(|app| !app.name.is_empty() && app.line > 0));
            assert!(notes.iter().all(|note| note.line > 0));
        }
        Err(faults) => assert!(!faults.is_empty()),
    }),
    Target::new("owner_file", "", |bytes| {
        let Ok(file) = OwnerFile::read("f", &String::from_utf8_lossy(bytes)) else { return };
        let before = Values::default();
        let after = in_force(&[Source::limits(Origin::OwnerFile, file.0)]).values;
        assert_eq!(after.check(), Ok(()));
        assert!(after.fleet.cpu_fraction <= before.fleet.cpu_fraction);
        assert!(!after.fleet.run_in_use && !after.fleet.local.run_on_batteries);
    }),
    Target::new("signature", "", |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (key, signature) = text.split_once("\n\n").unwrap_or((&text, ""));
        let Ok(key) = PublicKey::parse(key) else { return };
        assert_eq!(PublicKey::parse(&key.to_text()).unwrap(), key);
        let _ = key.verify_file(&md5_hex(b"file"), signature);
        let _ = key.verify_upload("name", Bytes(1), signature);
    }),
    Target::new("private_key", "", |bytes| {
        let _ = PrivateKey::from_pem(&String::from_utf8_lossy(bytes));
    }),
    Target::new("master_page", "", |bytes| {
        let urls = master::scheduler_urls(bytes);
        let page = master::write("name", "about", &urls);
        // A line of a page is cut after so many bytes, so a long address is not found again.
        for url in master::scheduler_urls(page.as_bytes()) {
            assert!(urls.contains(&url), "{url}");
        }
    }),
    Target::new("account_reply", "account.php.response", |bytes| {
        let Ok(answer) = AccountOut::parse(bytes) else { return };
        comes_back(&answer, |text| AccountOut::parse(text).unwrap(), AccountOut::write);
    }),
    Target::new("account_file", "account_127", |bytes| {
        let Ok(file) = AccountFile::parse(bytes) else { return };
        let _ = resource_share(&file.project_preferences.clone().unwrap_or_default());
        comes_back(&file, |text| AccountFile::parse(text).unwrap(), AccountFile::write);
    }),
    Target::new("project_config", "", |bytes| {
        let Ok(config) = ProjectConfig::parse(bytes) else { return };
        comes_back(&config, |text| ProjectConfig::parse(text).unwrap(), ProjectConfig::write);
    }),
    Target::new("upload_request", "upload_handler.request", |bytes| {
        let Ok(Head::Complete { request, data_at }) = UploadRequest::parse(bytes) else { return };
        assert!(data_at <= bytes.len().min(HEAD_MAX));
        // A head as long as is allowed may become longer when it is written in full.
        if request.write().len() < HEAD_MAX {
            let again = |text: &[u8]| match UploadRequest::parse(text).unwrap() {
                Head::Complete { request, .. } => request,
                Head::Incomplete => panic!("the head is whole: {}", String::from_utf8_lossy(text)),
            };
            comes_back(&request, again, UploadRequest::write);
        }
    }),
    Target::new("upload_reply", "upload_handler.response", |bytes| {
        let Ok(reply) = DataServerReply::parse(bytes) else { return };
        comes_back(&reply, |text| DataServerReply::parse(text).unwrap(), DataServerReply::write);
    }),
    Target::new("xml", "client_state.xml", walk),
    Target::new("xml_text", "", |bytes| {
        let text = unescape(bytes);
        let (mut escaped, mut again) = (String::new(), String::new());
        escape(&text, &mut escaped);
        // The writer drops control characters, once.
        escape(&unescape(escaped.as_bytes()), &mut again);
        assert_eq!(again, escaped);
        let _ = xml::find(bytes, b"</", 0);
    }),
    Target::new("names", "", |bytes| {
        let _ = api_version(bytes);
        let text = String::from_utf8_lossy(bytes);
        if is_file_name(&text) {
            assert!(is_open_name(&text));
            let path = std::path::Path::new(text.as_ref());
            assert!(path.components().count() == 1 && path.is_relative(), "{text:?}");
        }
        if let Ok(url) = MasterUrl::parse(&text) {
            assert_eq!(MasterUrl::parse(url.as_str()).as_ref(), Ok(&url));
            let stem = url.stem();
            assert!(!stem.contains('/') && stem != "." && stem != "..", "{stem:?}");
        }
    }),
];

/// What preferences mean here is never what nobody could have meant.
fn possible(preferences: &GlobalPreferences) {
    let ours = preferences.to_domain();
    assert_eq!(ours.check_set(), Ok(()));
    assert!(ours.usable_cpus(8) <= 8);
}

/// Reads elements in each of the ways there are, which the elements' first letters choose.
fn walk(bytes: &[u8]) {
    let mut reader = Reader::new("input", bytes);
    let Ok(root) = reader.root("client_state") else { return };
    let mut open = vec![root];
    while let Some(parent) = open.last().copied() {
        let Ok(child) = reader.next_child(&parent) else { return };
        let Some(tag) = child else {
            open.pop();
            continue;
        };
        let ended = match tag.name.bytes().next().unwrap_or(0) % 5 {
            0 => reader.text(&tag).is_err(),
            1 => reader.raw(&tag).is_err(),
            2 => reader.skip(&tag).is_err(),
            3 => {
                let (mut number, mut text) = (0.0_f64, String::new());
                let _ = tag.attribute("priority");
                reader.clone().set(&tag, &mut number).is_err() | reader.set(&tag, &mut text).is_err()
            }
            _ => {
                open.push(tag);
                false
            }
        };
        if ended {
            return;
        }
    }
}
