//! What is taken of one reply (R6.10), however much a server puts into it.
//!
//! A reply is taken in and stored in one step, and meanwhile the owner has no answer. So what exceeds any
//! real reply is left out before: a shell calls [`cut`] where it reads the reply, beside whatever waits for
//! the client. Jobs are left out whole, with their workunits and files; the server learns of it as of any
//! lost job.

use std::collections::{BTreeMap, BTreeSet};

use fallow_boinc::scheduler::{FileRef, SchedulerReply};

use crate::budget::VERSIONS_MAX;

/// Jobs of one reply. No request asks for more than a thousand jobs of a type, and no server of BOINC's sends
/// as many.
const JOBS_MAX: usize = 2_000;
/// Files of one reply: three for each job.
const FILES_MAX: usize = 6_000;

/// The files that a reply describes, and of them those that what is taken needs.
struct Files {
    described: BTreeSet<String>,
    needed: BTreeSet<String>,
}

impl Files {
    /// Takes the files of something, all or none, and says which.
    fn take<'a>(&mut self, refs: impl Iterator<Item = &'a FileRef>) -> bool {
        let names = refs.map(|file| file.file_name.as_str());
        let is_new = |name: &&str| self.described.contains(*name) && !self.needed.contains(*name);
        let new: BTreeSet<&str> = names.filter(is_new).collect();
        let fits = self.needed.len() + new.len() <= FILES_MAX;
        if fits {
            self.needed.extend(new.into_iter().map(str::to_owned));
        }
        fits
    }
}

/// How many jobs, application versions and files.
fn sizes(reply: &SchedulerReply) -> [usize; 3] {
    [reply.results.len(), reply.app_versions.len(), reply.files.len()]
}

/// Leaves out what no host takes of one reply. Says what that was, for the owner, or nothing if nothing was
/// left out.
pub fn cut(reply: &mut SchedulerReply) -> Option<String> {
    let sent = sizes(reply);
    let most = [JOBS_MAX, VERSIONS_MAX, FILES_MAX];
    if sent.iter().zip(most).all(|(sent, most)| *sent <= most) && reply.workunits.len() <= JOBS_MAX {
        return None;
    }
    let described = reply.files.iter().map(|file| file.name.clone()).collect();
    let mut files = Files { described, needed: BTreeSet::new() };
    let mut versions = 0;
    reply.app_versions.retain(|version| {
        let fits = versions < VERSIONS_MAX && files.take(version.files.iter());
        versions += usize::from(fits);
        fits
    });
    let inputs: BTreeMap<&str, &[FileRef]> =
        reply.workunits.iter().map(|workunit| (workunit.name.as_str(), workunit.files.as_slice())).collect();
    let mut workunits = BTreeSet::new();
    let mut jobs = 0;
    reply.results.retain(|job| {
        let inputs = inputs.get(job.wu_name.as_str()).copied().unwrap_or_default();
        let fits = jobs < JOBS_MAX && files.take(inputs.iter().chain(&job.files));
        if fits {
            jobs += 1;
            workunits.insert(job.wu_name.clone());
        }
        fits
    });
    reply.workunits.retain(|workunit| workunits.contains(&workunit.name));
    // Files that the project wants to be kept without a job, as far as there is room.
    let mut others = FILES_MAX - files.needed.len();
    reply.files.retain(|file| {
        let needed = files.needed.contains(&file.name);
        let fits = needed || others > 0;
        others -= usize::from(fits && !needed);
        fits
    });
    let kept = sizes(reply);
    let [jobs, versions, files] = [0, 1, 2].map(|kind| sent[kind] - kept[kind]);
    (jobs + versions + files > 0).then(|| {
        format!(
            "the project sent more than a host takes of one reply; left out: {jobs} jobs, {versions} application versions, \
             {files} files (the most are {JOBS_MAX} jobs, {VERSIONS_MAX} versions, {FILES_MAX} files)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_boinc::scheduler::{AppVersion, FileInfo, ResultJob, Workunit};

    fn refs(names: &[String]) -> Vec<FileRef> {
        names.iter().map(|name| FileRef { file_name: name.clone(), ..FileRef::default() }).collect()
    }

    fn add_job(reply: &mut SchedulerReply, name: &str, files: &[String]) {
        let info = |name: &String| FileInfo { name: name.clone(), ..FileInfo::default() };
        reply.files.extend(files.iter().map(info));
        let wu_name = format!("wu_{name}");
        reply.workunits.push(Workunit { name: wu_name.clone(), files: refs(files), ..Workunit::default() });
        reply.results.push(ResultJob { name: name.to_owned(), wu_name, ..ResultJob::default() });
    }

    #[test]
    fn r6_10_a_reply_of_a_usual_size_stays_as_it_is() {
        let mut reply = SchedulerReply::default();
        for number in 0..JOBS_MAX {
            add_job(&mut reply, &format!("job{number}"), &[format!("in{number}")]);
        }
        let whole = reply.clone();
        assert_eq!(cut(&mut reply), None);
        assert_eq!(reply, whole);
    }

    #[test]
    fn r6_10_of_a_huge_reply_the_first_jobs_are_taken_whole_with_all_that_they_need() {
        let mut reply = SchedulerReply::default();
        // Files that nobody needs come first and leave the jobs their room.
        reply.files.extend(
            (0..50_000).map(|number| FileInfo { name: format!("sticky{number}"), ..FileInfo::default() }),
        );
        for number in 0..40_000 {
            let version = AppVersion { version_num: number, ..AppVersion::default() };
            reply.app_versions.push(version);
            add_job(&mut reply, &format!("job{number}"), &[format!("in{number}"), "shared".to_owned()]);
        }
        let said = cut(&mut reply).unwrap();
        assert!(said.contains("left out: 38000 jobs, 39000 application versions"), "{said}");
        assert_eq!((reply.app_versions.len(), reply.workunits.len()), (VERSIONS_MAX, JOBS_MAX));
        let kept: BTreeSet<&str> = reply.files.iter().map(|file| file.name.as_str()).collect();
        assert!(kept.len() <= FILES_MAX && kept.contains("sticky0"), "{}", kept.len());
        for (number, (workunit, job)) in reply.workunits.iter().zip(&reply.results).enumerate() {
            assert_eq!((job.name.clone(), &job.wu_name), (format!("job{number}"), &workunit.name));
            assert!(workunit.files.iter().all(|file| kept.contains(file.file_name.as_str())), "{number}");
        }
    }

    #[test]
    fn r6_10_a_job_of_too_many_files_is_left_out_and_others_are_taken() {
        let mut reply = SchedulerReply::default();
        let many: Vec<String> = (0..=FILES_MAX).map(|number| format!("in{number}")).collect();
        add_job(&mut reply, "large", &many);
        add_job(&mut reply, "small", &["in".to_owned()]);
        assert!(cut(&mut reply).unwrap().contains("left out: 1 jobs"));
        assert_eq!(reply.results[0].name, "small");
        assert_eq!((reply.results.len(), reply.workunits.len()), (1, 1));
        assert!(reply.files.iter().any(|file| file.name == "in") && reply.files.len() <= FILES_MAX);
    }
}
