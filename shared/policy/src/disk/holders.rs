//! What the server knows of which host holds which sticky file, apart from the files of its jobs (R4.11).
//!
//! Hosts tell what they hold. Asked for it, a host sends a whole list, which replaces what was known. In
//! between, the files that it was sent are added. The server uses this in two ways. It sends jobs to hosts
//! that have their inputs. And it repeats a request for a deletion with each reply, until the host's list no
//! longer has the file.
//!
//! A list is untrusted, so its length is bounded. Not in here: storing it, and the files themselves.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::Bytes;

/// Files of one host that are kept in mind; what a list has beyond is not. 10,000 sticky files of one project
/// are far more than any host was seen to have.
pub const FILES_PER_HOST_MAX: usize = 10_000;

/// Which host holds which file. `Host` is whatever the server calls its hosts.
#[derive(Clone, Debug)]
pub struct FileHolders<Host> {
    by_host: BTreeMap<Host, Holdings>,
    by_file: BTreeMap<String, BTreeSet<Host>>,
}

#[derive(Clone, Debug, Default)]
struct Holdings {
    files: BTreeMap<String, Bytes>,
    to_delete: BTreeSet<String>,
    list_wanted: bool,
}

/// How much of a job's input a host has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// Bytes that are there.
    pub held: Bytes,
    /// Bytes that would have to be sent.
    pub to_send: Bytes,
}

impl<Host> Default for FileHolders<Host> {
    fn default() -> Self {
        Self { by_host: BTreeMap::new(), by_file: BTreeMap::new() }
    }
}

impl<Host: Ord + Clone> FileHolders<Host> {
    /// A host's list came: it holds these and nothing else. Returns how many of the list were beyond
    /// [`FILES_PER_HOST_MAX`] and are not known.
    pub fn listed(&mut self, host: &Host, files: impl IntoIterator<Item = (String, Bytes)>) -> usize {
        let mut files = files.into_iter();
        let list: BTreeMap<String, Bytes> = files.by_ref().take(FILES_PER_HOST_MAX).collect();
        let beyond = files.count();
        let holdings = self.by_host.entry(host.clone()).or_default();
        holdings.list_wanted = false;
        holdings.to_delete.retain(|name| list.contains_key(name));
        let before = std::mem::replace(&mut holdings.files, list);
        for name in holdings.files.keys().filter(|name| !before.contains_key(*name)) {
            self.by_file.entry(name.clone()).or_default().insert(host.clone());
        }
        let gone: Vec<&String> = before.keys().filter(|name| !holdings.files.contains_key(*name)).collect();
        for name in gone {
            unlist(&mut self.by_file, name, host);
        }
        beyond
    }

    /// A host got a file.
    pub fn got(&mut self, host: &Host, name: &str, bytes: Bytes) {
        let holdings = self.by_host.entry(host.clone()).or_default();
        if holdings.files.len() < FILES_PER_HOST_MAX || holdings.files.contains_key(name) {
            holdings.files.insert(name.to_owned(), bytes);
            self.by_file.entry(name.to_owned()).or_default().insert(host.clone());
        }
    }

    /// A host is no longer of this project.
    pub fn forget(&mut self, host: &Host) {
        let Some(holdings) = self.by_host.remove(host) else { return };
        for name in holdings.files.keys() {
            unlist(&mut self.by_file, name, host);
        }
    }

    /// Ask this host for its list with the next reply (BOINC: `request_file_list`).
    pub fn want_list(&mut self, host: &Host) {
        self.by_host.entry(host.clone()).or_default().list_wanted = true;
    }

    /// Whether the next reply asks for the list.
    pub fn is_list_wanted(&self, host: &Host) -> bool {
        self.by_host.get(host).is_some_and(|holdings| holdings.list_wanted)
    }

    /// All who hold this file are to delete it.
    pub fn want_deleted(&mut self, name: &str) {
        for host in self.by_file.get(name).into_iter().flatten() {
            if let Some(holdings) = self.by_host.get_mut(host) {
                holdings.to_delete.insert(name.to_owned());
                // Only a list shows that it is gone.
                holdings.list_wanted = true;
            }
        }
    }

    /// One host is to delete this file: what was stored of an earlier [`FileHolders::want_deleted`].
    pub fn want_deleted_by(&mut self, host: &Host, name: &str) {
        if let Some(holdings) =
            self.by_host.get_mut(host).filter(|holdings| holdings.files.contains_key(name))
        {
            holdings.to_delete.insert(name.to_owned());
        }
    }

    /// What a host holds, for storing it.
    pub fn files(&self, host: &Host) -> impl Iterator<Item = (&str, Bytes)> {
        let files = self.by_host.get(host).into_iter().flat_map(|holdings| &holdings.files);
        files.map(|(name, bytes)| (name.as_str(), *bytes))
    }

    /// What the next reply to a host asks it to delete (BOINC: `delete_file_info`).
    pub fn to_delete(&self, host: &Host) -> impl Iterator<Item = &str> {
        self.by_host.get(host).into_iter().flat_map(|holdings| &holdings.to_delete).map(String::as_str)
    }

    /// Who holds a file.
    pub fn holders(&self, name: &str) -> impl Iterator<Item = &Host> {
        self.by_file.get(name).into_iter().flatten()
    }

    /// How much of these inputs a host has. A file of another size than the job's is another file.
    pub fn locality<'i>(&self, host: &Host, inputs: impl IntoIterator<Item = (&'i str, Bytes)>) -> Locality {
        let holdings = self.by_host.get(host);
        let mut locality = Locality::default();
        for (name, bytes) in inputs {
            let is_held =
                holdings.is_some_and(|h| h.files.get(name) == Some(&bytes) && !h.to_delete.contains(name));
            let part = if is_held { &mut locality.held } else { &mut locality.to_send };
            *part = part.plus(bytes);
        }
        locality
    }
}

/// Puts jobs in the order in which a host is offered them: those first of whose inputs it has any, and of
/// these the one with the fewest bytes to send, then the most bytes held. Equal ones, and those without any
/// input there, keep the order in which they came.
pub fn prefer_local<Job>(jobs: &mut [Job], locality: impl Fn(&Job) -> Locality) {
    jobs.sort_by_cached_key(|job| match locality(job) {
        Locality { held: Bytes(0), .. } => (true, Bytes(0), std::cmp::Reverse(Bytes(0))),
        Locality { held, to_send } => (false, to_send, std::cmp::Reverse(held)),
    });
}

fn unlist<Host: Ord>(by_file: &mut BTreeMap<String, BTreeSet<Host>>, name: &str, host: &Host) {
    if let Some(hosts) = by_file.get_mut(name) {
        hosts.remove(host);
        if hosts.is_empty() {
            by_file.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(files: &[(&str, u64)]) -> Vec<(String, Bytes)> {
        files.iter().map(|(name, size)| ((*name).to_owned(), Bytes(*size))).collect()
    }

    fn holders(holders: &FileHolders<u32>, name: &str) -> Vec<u32> {
        holders.holders(name).copied().collect()
    }

    #[test]
    fn r4_11_a_list_replaces_what_was_known_of_a_host() {
        let mut known = FileHolders::default();
        known.want_list(&1);
        assert!(known.is_list_wanted(&1));
        known.listed(&1, list(&[("a", 1), ("b", 2)]));
        known.got(&2, "b", Bytes(2));
        assert!(!known.is_list_wanted(&1));
        assert_eq!((holders(&known, "a"), holders(&known, "b")), (vec![1], vec![1, 2]));
        known.listed(&1, list(&[("c", 3)]));
        assert_eq!((holders(&known, "a"), holders(&known, "b")), (vec![], vec![2]));
        known.forget(&2);
        assert!(holders(&known, "b").is_empty() && known.by_file.len() == 1);
    }

    #[test]
    fn r4_11_a_deletion_is_asked_for_until_the_hosts_list_no_longer_has_the_file() {
        let mut known = FileHolders::default();
        known.listed(&1, list(&[("a", 1), ("b", 2)]));
        known.want_deleted("a");
        known.want_deleted("unknown");
        let asked = |known: &FileHolders<u32>| known.to_delete(&1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((asked(&known), known.is_list_wanted(&1)), (vec!["a".to_owned()], true));
        known.listed(&1, list(&[("a", 1), ("b", 2)]));
        assert_eq!(asked(&known), ["a"]);
        known.listed(&1, list(&[("b", 2)]));
        assert!(asked(&known).is_empty());
    }

    #[test]
    fn r4_11_jobs_go_where_their_inputs_are() {
        let mut known = FileHolders::default();
        known.listed(&1, list(&[("genome", 1_000), ("old", 5)]));
        let inputs = [vec![("other", 9)], vec![("genome", 1_000), ("small", 1)], vec![("old", 6)]];
        let mut jobs = vec![0, 1, 2];
        let locality =
            |job: &usize| known.locality(&1, inputs[*job].iter().map(|(name, size)| (*name, Bytes(*size))));
        assert_eq!(locality(&1), Locality { held: Bytes(1_000), to_send: Bytes(1) });
        assert_eq!(locality(&2), Locality { held: Bytes(0), to_send: Bytes(6) });
        prefer_local(&mut jobs, locality);
        assert_eq!(jobs[0], 1);
        let mut elsewhere = vec![0, 1, 2];
        prefer_local(&mut elsewhere, |job| Locality { held: Bytes(0), to_send: Bytes(9 - *job as u64) });
        assert_eq!(elsewhere, [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn r4_11_who_holds_a_file_is_what_the_hosts_said(
            said in prop::collection::vec((0..4_u32, 0..5_u8, prop::collection::vec(0..6_u8, 0..5)), 0..40),
        ) {
            let (mut known, mut model) = (FileHolders::default(), BTreeMap::<u32, BTreeSet<u8>>::new());
            for (host, what, names) in said {
                let files = names.iter().map(|name| (name.to_string(), Bytes(1)));
                match what {
                    0 => {
                        known.forget(&host);
                        model.remove(&host);
                    }
                    1 | 2 => {
                        known.listed(&host, files);
                        model.insert(host, names.into_iter().collect());
                    }
                    _ => {
                        files.for_each(|(name, bytes)| known.got(&host, &name, bytes));
                        model.entry(host).or_default().extend(names);
                    }
                }
            }
            for name in 0..6_u8 {
                let hold = model.iter().filter(|(_, files)| files.contains(&name)).map(|(host, _)| *host);
                prop_assert_eq!(holders(&known, &name.to_string()), hold.collect::<Vec<_>>());
            }
            prop_assert!(known.by_file.values().all(|hosts| !hosts.is_empty()));
        }
    }

    #[test]
    fn r4_11_an_endless_list_is_cut() {
        let mut known = FileHolders::default();
        let files = (0..FILES_PER_HOST_MAX + 3).map(|n| (n.to_string(), Bytes(1)));
        assert_eq!(known.listed(&1, files), 3);
        known.got(&1, "one more", Bytes(1));
        assert!(holders(&known, "one more").is_empty());
    }
}
