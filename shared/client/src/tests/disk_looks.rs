//! Files that come while the disk is measured: what they take of the volume is theirs, and held against
//! nobody.

use fallow_domain::{Bytes, Duration};

use super::NOW;
use super::comings::new_file;
use super::disk::{asks, deleted, found_with, keep, others, with_two_files};
use crate::state::{FileStatus, Transfer};
use crate::{Direction, DiskFound, Event, FileFound, FileKey};

/// So much is on the disk of a file by now.
fn put(look: &mut DiskFound, key: &FileKey, bytes: u64, is_part: bool) {
    let (blocks, length) = (Bytes(bytes), Bytes(bytes));
    let file = FileFound { key: key.clone(), blocks, length, changed: NOW, is_part };
    look.put([(key.clone(), vec![file])].into());
}

#[test]
fn r4_1_what_comes_or_is_on_its_way_while_the_disk_is_measured_costs_no_other_file() {
    let (mut client, first, second) = with_two_files();
    let now = NOW + Duration::from_mins(1);
    assert!(asks(&mut client, now));
    let came = keep(&mut client, "a", 2, 150);
    let coming = FileKey { project: came.project, name: "coming".to_owned() };
    let mut file = new_file(true);
    file.info.nbytes = Some(Bytes(100));
    file.transfer.as_mut().unwrap().active = true;
    client.insert_file(coming.clone(), file);
    // A look that has passed before that, and asked what is free after it: a part of one had come by then.
    let Event::DiskMeasured(Ok(mut look)) = found_with(&[(&first, 300), (&second, 300)]) else { panic!() };
    look.free = Bytes(look.free.0 - 150 - 40);
    assert_eq!(client.doubtful_files(&look), [came.clone(), coming.clone()]);
    put(&mut look, &came, 150, false);
    put(&mut look, &coming, 30, true);
    // Once more of the same counts once.
    put(&mut look, &coming, 40, true);
    let step = client.handle(now, Event::DiskMeasured(Ok(look)));
    assert_eq!(deleted(&step), vec![]);
    let view = client.disk_view().unwrap();
    assert_eq!((view.limit, view.used), (Bytes(900), Bytes(10 + 600 + 150 + 100)));
    assert_eq!(others(&mut client), [Bytes(0), Bytes(0)]);
}

#[test]
fn r4_1_a_file_that_is_found_as_it_is_recorded_is_not_looked_at_once_more() {
    let (mut client, first, second) = with_two_files();
    let mut waiting = new_file(true);
    waiting.info.nbytes = Some(Bytes(100));
    client.insert_file(FileKey { project: first.project, name: "waiting".to_owned() }, waiting);
    let doubtful = |client: &crate::Client, found: &[(&FileKey, u64)]| {
        let Event::DiskMeasured(Ok(look)) = found_with(found) else { panic!() };
        client.doubtful_files(&look)
    };
    assert_eq!(doubtful(&client, &[(&first, 300), (&second, 300)]), vec![]);
    assert_eq!(doubtful(&client, &[(&first, 300), (&second, 299)]), std::slice::from_ref(&second));
    assert_eq!(doubtful(&client, &[(&second, 300)]), [first]);
}

#[test]
fn r4_1_an_output_that_leaves_its_slot_while_the_disk_is_measured_costs_no_file() {
    let (mut client, first, second) = with_two_files();
    let now = NOW + Duration::from_mins(1);
    assert!(asks(&mut client, now));
    // Its project's directory was looked at before it came there, and its slot after that.
    let output = keep(&mut client, "a", 2, 150);
    client.edit_file(&output, |file| {
        file.found = Some((Bytes(150), "0".repeat(32)));
        file.info.upload_urls = vec!["http://127.0.0.1:9/up".to_owned()];
        file.transfer = new_file(true).transfer.map(|it| Transfer { direction: Direction::Upload, ..it });
    });
    let Event::DiskMeasured(Ok(mut look)) = found_with(&[(&first, 300), (&second, 300)]) else { panic!() };
    look.free = Bytes(look.free.0 - 150);
    assert_eq!(client.doubtful_files(&look), std::slice::from_ref(&output));
    put(&mut look, &output, 150, false);
    assert_eq!(client.doubtful_files(&look), vec![]);
    let step = client.handle(now, Event::DiskMeasured(Ok(look)));
    assert_eq!(deleted(&step), vec![]);
    let view = client.disk_view().unwrap();
    assert_eq!((view.limit, view.used), (Bytes(900), Bytes(10 + 600 + 150)));
}

#[test]
fn r4_7_what_goes_by_a_measurement_takes_nothing_from_then_on_and_each_file_of_it_is_counted_and_named() {
    let (mut client, first, second) = with_two_files();
    let over: Vec<FileKey> = (2..5).map(|number| keep(&mut client, "a", number, 20)).collect();
    for key in &over {
        client.edit_file(key, |file| file.kept.sticky_until = Some(NOW));
    }
    let stray = FileKey { project: second.project, name: "stray".to_owned() };
    let now = NOW + Duration::from_hours(5);
    assert!(asks(&mut client, now));
    let mut found = vec![(&first, 300), (&second, 300), (&stray, 40)];
    found.extend(over.iter().map(|key| (key, 20)));
    let step = client.handle(now, found_with(&found));
    assert_eq!(deleted(&step), [over.clone(), vec![stray]].concat());
    assert_eq!(others(&mut client), [Bytes(0), Bytes(0)]);
    let view = client.disk_view().unwrap();
    // They are on the volume until that is done.
    assert_eq!((view.limit, view.used), (Bytes(900), Bytes(10 + 600)));
    let space = client.disk_space().unwrap();
    assert_eq!((space.deleted_files, space.deleted), (4, Bytes(100)));
    let names = over.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(", ");
    assert!(view.deeds.iter().any(|deed| deed.text.ends_with(&names)), "{:?}", view.deeds);
}

#[test]
fn r4_8_what_a_file_system_frees_in_the_background_costs_no_other_file() {
    let (mut client, first, second) = with_two_files();
    let mut at = NOW + Duration::from_secs(30);
    let step = client.handle(at, Event::VolumeSeen { free: Bytes(90) });
    assert_eq!(deleted(&step), std::slice::from_ref(&first));
    // The file is gone, and its space is not free yet.
    let found = |free: u64| {
        let Event::DiskMeasured(Ok(mut look)) = found_with(&[(&second, 300)]) else { panic!() };
        look.free = Bytes(free);
        Event::DiskMeasured(Ok(look))
    };
    let step = client.handle(at, found(90));
    assert_eq!(deleted(&step), vec![]);
    at = at + Duration::from_secs(4);
    assert!(!asks(&mut client, at));
    at = at + Duration::from_secs(2);
    assert!(asks(&mut client, at), "it is measured once more");
    assert_eq!(deleted(&client.handle(at, found(390))), vec![]);
    // Where it is still short then, it is.
    assert_eq!(
        deleted(&client.handle(at + Duration::from_secs(30), found(90))),
        std::slice::from_ref(&second)
    );
}

#[test]
fn r4_8_deletions_one_after_the_other_put_off_one_measurement_and_not_all() {
    let (mut client, first, second) = with_two_files();
    let at = NOW + Duration::from_secs(30);
    let found = |free: u64| {
        let Event::DiskMeasured(Ok(mut look)) = found_with(&[(&second, 300)]) else { panic!() };
        look.free = Bytes(free);
        Event::DiskMeasured(Ok(look))
    };
    let step = client.handle(at, Event::VolumeSeen { free: Bytes(90) });
    assert_eq!(deleted(&step), std::slice::from_ref(&first));
    assert_eq!(deleted(&client.handle(at, found(90))), vec![]);
    let soon = at + Duration::from_secs(1);
    assert_eq!(deleted(&client.handle(soon, found(90))), std::slice::from_ref(&second));
}

#[test]
fn r4_12_a_file_system_that_has_the_space_of_what_was_given_up_a_moment_later_loses_nothing_more() {
    let (mut client, _, _) = with_two_files();
    // It has been tried for a while by then.
    let now = NOW + Duration::from_secs(20);
    assert_eq!(client.give_up_files(now).len(), 2);
    // Both are gone, and what they took is not free yet.
    let Event::DiskMeasured(Ok(mut look)) = found_with(&[]) else { panic!() };
    look.free = Bytes(90);
    client.handle(now + Duration::from_secs(1), Event::DiskMeasured(Ok(look)));
    assert!(client.disk.suspension().is_none(), "{:?}", client.disk.suspension());
}

#[test]
fn r4_12_a_file_that_is_given_up_while_the_disk_is_measured_counts_no_more_once_it_is_gone() {
    let (mut client, first, second) = with_two_files();
    assert!(asks(&mut client, NOW + Duration::from_mins(1)));
    let at = NOW + Duration::from_mins(2);
    // The look has passed both by then.
    let mut given_up = client.give_up_files(NOW);
    given_up.sort();
    assert_eq!(given_up, [first.clone(), second.clone()]);
    let Event::DiskMeasured(Ok(mut look)) = found_with(&[(&first, 300), (&second, 300)]) else { panic!() };
    assert_eq!(client.doubtful_files(&look), given_up);
    // One is gone; the other could not be deleted.
    look.free = Bytes(look.free.0 + 300);
    look.put([(first.clone(), vec![])].into());
    put(&mut look, &second, 300, false);
    // What is recorded and not there is taken away from the records, and from wherever else it is.
    assert_eq!(deleted(&client.handle(at, Event::DiskMeasured(Ok(look)))), [first]);
    let view = client.disk_view().unwrap();
    assert_eq!((view.limit, view.used), (Bytes(900), Bytes(10 + 300)));
    assert_eq!(others(&mut client), [Bytes(0), Bytes(0)]);
}

#[test]
fn r4_12_what_is_given_up_counts_no_more_and_others_who_take_its_space_are_seen() {
    let (mut client, first, _) = with_two_files();
    assert_eq!(client.give_up_files(NOW).len(), 2);
    assert_eq!(client.disk_view().unwrap().used, Bytes(10));
    // Others have written 500 since: 490 of 1000 are free, of which 100 stay so.
    client.handle(NOW + Duration::from_secs(30), Event::VolumeSeen { free: Bytes(490) });
    let view = client.disk_view().unwrap();
    assert_eq!((view.limit, view.used), (Bytes(10 + 490 - 100), Bytes(10)));
    // A change of one, which is no news of what it takes.
    client.edit_file(&first, |file| file.kept.last_used = Some(NOW));
    assert_eq!(client.disk_view().unwrap().used, Bytes(10));
    // What comes again is there, and may be given up once more.
    client.edit_file(&first, |file| file.status = FileStatus::Absent);
    client.edit_file(&first, |file| file.status = FileStatus::Present);
    client.disk.arrived(&first);
    assert_eq!(client.disk_view().unwrap().used, Bytes(10 + 300));
    assert_eq!(client.give_up_files(NOW), [first]);
}
