//! Whole lives of a disk, by seeds: files arrive, jobs come, run and end, others fill the volume and put
//! files among a project's, somebody deletes some, time passes, and the agent crashes at any point between
//! planning, deleting and recording.
//!
//! What lies on the disk, what is recorded and which jobs there are is kept here, apart from what is tested.
//! Each plan is compared with the plain reading of R4 in `model.rs` and carried out step by step. Nothing
//! that a job needs ever goes by a plan; computing is suspended exactly while the limit is exceeded; after a
//! crash what is found is believed, and what nobody owns goes after its grace.

use std::collections::{BTreeMap, BTreeSet};

use fallow_domain::{Bytes, Duration, Fraction, Instant, ProjectId};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::properties::{Pair, Told, at, check_admission, check_shrink, check_sums};
use super::reconcile::{FileLocation, Mismatch, ORPHAN_GRACE, Orphans, Recorded, reconcile};
use super::*;

/// How many lives, and from which seed on: `FALLOW_DISK_LIVES=50000 FALLOW_DISK_SEED=1`.
const LIVES: u64 = 1_000;
/// What happens in one of them.
const EVENTS: usize = 50;
/// The volume.
const SIZE: u64 = 400;
const PROJECTS: u64 = 3;

type Key = (u32, u8);

/// What a record says of a file.
#[derive(Clone, Copy, Debug)]
struct Kept {
    size: u64,
    priority: i64,
    days: [i64; 3],
}

struct Life {
    rng: Pcg64Mcg,
    pair: Pair,
    now: Instant,
    on_disk: BTreeMap<Key, u64>,
    /// When what nobody owns came there.
    changed: BTreeMap<Key, Instant>,
    records: BTreeMap<Key, Kept>,
    jobs: BTreeMap<u64, (u32, JobStage, BTreeSet<u8>)>,
    jobs_ever: u64,
    choices: BTreeMap<u32, DeletionChoice>,
    /// What others have written to the volume.
    foreign: u64,
    free_min: u64,
    /// The agent goes down after so many more steps that it carries out.
    crashes_after: Option<u64>,
}

/// The agent has gone down.
struct Crashed;

impl Life {
    fn new(seed: u64) -> Self {
        let choice = |project: u32| DeletionChoice { priority: project == 2, expiration: project == 3 };
        let mut life = Self {
            rng: Pcg64Mcg::seed_from_u64(seed),
            pair: Pair::default(),
            now: at(100),
            on_disk: BTreeMap::new(),
            changed: BTreeMap::new(),
            records: BTreeMap::new(),
            jobs: BTreeMap::new(),
            jobs_ever: 0,
            choices: (1..=3).map(|project| (project, choice(project))).collect(),
            foreign: 0,
            free_min: 20,
            crashes_after: None,
        };
        life.start();
        life
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.rng.next_u64() % below
    }

    fn key(&mut self) -> Key {
        (1 + self.draw(PROJECTS) as u32, self.draw(8) as u8)
    }

    fn ours(&self) -> u64 {
        self.on_disk.values().sum()
    }

    /// One more step is carried out, unless the agent goes down before it.
    fn step(&mut self) -> Result<(), Crashed> {
        match &mut self.crashes_after {
            Some(0) => Err(Crashed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// What was known is made anew from records and disk.
    fn start(&mut self) {
        self.crashes_after = None;
        self.pair = Pair::default();
        self.pair.tell(Told::Day { day: self.day() });
        self.pair.tell(Told::Limit { bytes: SIZE });
        for (project, choice) in self.choices.clone() {
            self.pair.tell(Told::Project { project, share: project, choice });
        }
        for (key, kept) in self.records.clone() {
            self.tell_file(key, kept);
        }
        self.look();
        self.tell_jobs();
    }

    fn day(&self) -> i64 {
        self.now.since(at(0)).as_days_f64() as i64
    }

    fn tell_file(&mut self, (project, name): Key, Kept { size, priority, days }: Kept) {
        self.pair.tell(Told::File { project, name, size, priority, days });
    }

    /// Whether a job needs a file: by the list of jobs alone.
    fn is_needed(&self, (project, name): Key) -> bool {
        self.jobs.values().any(|(of, _, names)| *of == project && names.contains(&name))
    }

    /// What lies there is looked at and believed, and the volume is measured.
    fn look(&mut self) {
        let place =
            |(project, name): Key| FileLocation { project: Some(ProjectId(project)), name: name.to_string() };
        let key = |place: &FileLocation| (place.project.unwrap().0, place.name.parse().unwrap());
        let recorded =
            self.records.iter().map(|(key, kept)| (place(*key), Recorded::Whole(Bytes(kept.size))));
        let found = self.on_disk.iter().map(|(key, bytes)| (place(*key), Bytes(*bytes))).collect();
        let since = |key: &Key| self.changed.get(key).copied().unwrap_or(self.now);
        let orphans = Orphans::since(self.on_disk.keys().map(|key| (place(*key), since(key))));
        let told = reconcile(&recorded.collect(), &found, &orphans, self.now);
        for mismatch in told.mismatches {
            match mismatch {
                Mismatch::Missing { location, .. } => self.forget(key(&location)),
                Mismatch::Resized { location, found, .. } => {
                    let (project, name) = key(&location);
                    self.records.get_mut(&(project, name)).unwrap().size = found.0;
                    self.pair.tell(Told::Resized { project, name, size: found.0 });
                }
            }
        }
        for removal in told.remove {
            let key = key(&removal.location);
            assert!(!self.records.contains_key(&key) && removal.age >= ORPHAN_GRACE, "{removal:?}");
            self.on_disk.remove(&key);
        }
        for project in 1..=PROJECTS as u32 {
            let is_stray = |(key, _): &(&Key, &u64)| key.0 == project && !self.records.contains_key(*key);
            let bytes = self.on_disk.iter().filter(is_stray).map(|(_, bytes)| bytes).sum();
            self.pair.tell(Told::Other { project, bytes });
        }
        let free = SIZE.saturating_sub(self.foreign + self.ours());
        let volume = Volume::measured(self.now, Bytes(SIZE), Bytes(free), Bytes(self.ours())).unwrap();
        let owner =
            OwnerDisk { used_max: None, fraction: Fraction::clamped(0.9), free_min: Bytes(self.free_min) };
        self.pair.tell(Told::Limit { bytes: TotalLimit::new(&owner, &volume).bytes.0 });
        let used = self.pair.model.used();
        assert_eq!(used, self.ours(), "what counts is what is there");
    }

    fn forget(&mut self, key: Key) {
        self.records.remove(&key);
        self.pair.tell(Told::Gone { project: key.0, name: key.1 });
    }

    /// Deletes a file by a plan: from the disk, then from the records.
    fn delete(&mut self, deletion: &Deletion) -> Result<(), Crashed> {
        let key = (deletion.project.0, deletion.name.parse().unwrap());
        assert!(!self.is_needed(key), "{deletion}: a job needs it");
        self.step()?;
        self.on_disk.remove(&key);
        self.step()?;
        self.forget(key);
        Ok(())
    }

    /// What the limit asks for is done (R4.8).
    fn keep_limit(&mut self) -> Result<(), Crashed> {
        check_sums(&self.pair).unwrap();
        check_shrink(&self.pair).unwrap();
        let Some(plan) = self.pair.disk.shrink() else { return Ok(()) };
        for step in &plan.steps {
            match step {
                ShrinkStep::Delete(deletion) => self.delete(deletion)?,
                ShrinkStep::GiveBack(returned) => {
                    self.step()?;
                    let (_, stage, _) = self.jobs.remove(&returned.job.0).unwrap();
                    assert_eq!(stage, JobStage::Queued);
                    self.pair.tell(Told::JobOver { job: returned.job.0 });
                }
            }
        }
        assert_eq!(self.pair.disk.over() > Bytes(0), plan.suspension.is_some());
        assert!(self.pair.disk.shrink().is_none_or(|again| again.steps.is_empty()), "all was tried");
        Ok(())
    }

    /// A file comes, if there is room (R4.4).
    fn arrives(&mut self) -> Result<(), Crashed> {
        let (key, size) = (self.key(), 1 + self.draw(60));
        if self.on_disk.contains_key(&key) {
            return Ok(());
        }
        let (project, bytes) = (ProjectId(key.0), Bytes(size));
        check_admission(&self.pair, project, bytes).unwrap();
        let admission = self.pair.disk.admit(project, bytes);
        if !admission.is_accepted() {
            return Ok(());
        }
        for deletion in admission.deletions() {
            self.delete(deletion)?;
        }
        assert!(self.ours() + size <= self.pair.model.limit, "{admission}");
        self.step()?;
        self.on_disk.insert(key, size);
        self.changed.insert(key, self.now);
        self.step()?;
        let (day, priority) = (self.day(), self.draw(7) as i64);
        let days = [day, day + self.draw(20) as i64, day];
        let kept = Kept { size, priority, days };
        self.records.insert(key, kept);
        self.tell_file(key, kept);
        // Jobs that wait for it refer to it.
        self.tell_jobs();
        Ok(())
    }

    fn tell_jobs(&mut self) {
        for (job, (project, stage, names)) in self.jobs.clone() {
            let names = names.into_iter().collect();
            self.pair.tell(Told::Job { job, project, stage, deadline: job as i64 % 7, names });
        }
    }

    fn job_comes(&mut self) {
        let project = 1 + self.draw(PROJECTS) as u32;
        let here: Vec<u8> = self.records.keys().filter(|key| key.0 == project).map(|key| key.1).collect();
        let names: BTreeSet<u8> =
            here.into_iter().filter(|_| self.rng.next_u64().is_multiple_of(3)).collect();
        let job = self.jobs_ever;
        self.jobs_ever += 1;
        self.jobs.insert(job, (project, JobStage::Queued, names.clone()));
        let (stage, names) = (JobStage::Queued, names.into_iter().collect());
        self.pair.tell(Told::Job { job, project, stage, deadline: job as i64 % 7, names });
    }

    /// A job runs, has run, or is acknowledged.
    fn job_goes_on(&mut self) {
        let ids: Vec<u64> = self.jobs.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let job = ids[self.draw(ids.len() as u64) as usize];
        let (project, stage, names) = self.jobs.get_mut(&job).unwrap();
        *stage = match stage {
            JobStage::Queued => JobStage::Running,
            JobStage::Running => JobStage::Unacknowledged,
            JobStage::Unacknowledged => {
                self.jobs.remove(&job);
                return self.pair.tell(Told::JobOver { job });
            }
        };
        let (project, stage, names) = (*project, *stage, names.iter().copied().collect());
        self.pair.tell(Told::Job { job, project, stage, deadline: job as i64 % 7, names });
    }

    /// Somebody deletes a file or makes it another length, behind the agent's back.
    fn is_spoilt(&mut self) {
        let key = self.key();
        let room = SIZE - self.foreign - self.ours();
        if self.on_disk.contains_key(&key) {
            match self.draw(2) {
                0 => drop(self.on_disk.remove(&key)),
                _ => {
                    let more = self.draw(20).min(room);
                    *self.on_disk.get_mut(&key).unwrap() += more;
                }
            }
        }
    }

    /// Somebody puts a file among a project's.
    fn stray_comes(&mut self) {
        let ((project, _), number) = (self.key(), 100 + self.draw(4) as u8);
        let room = SIZE - self.foreign - self.ours();
        let size = self.draw(40).min(room);
        if self.on_disk.insert((project, number), size).is_none() || size > 0 {
            // The old one's bytes are free again.
            self.changed.insert((project, number), self.now);
        }
    }

    /// Nothing can be stored: some files go, each of the project that had most of its own then.
    fn is_full(&mut self) -> Result<(), Crashed> {
        let (most, enough) = (self.draw(4) as usize, Bytes(self.draw(60)));
        let may_go = |key: &&Key| self.records[*key].size > 0 && !self.is_needed(**key);
        let unneeded = self.records.keys().filter(may_go).count();
        let next = self.pair.disk.first_to_go(enough, most);
        let come_to = |files: &[Deletion]| files.iter().map(|file| file.bytes.0).sum::<u64>();
        // No more than it takes.
        assert!(
            next.len() <= most.min(unneeded)
                && next.split_last().is_none_or(|(_, rest)| come_to(rest) < enough.0)
        );
        assert!(next.len() == most.min(unneeded) || come_to(&next) >= enough.0);
        for deletion in &next {
            let excess = |id: &ProjectId| {
                let model = &self.pair.model;
                (model.usage(*id) as i64 - model.project_limit(*id) as i64, std::cmp::Reverse(*id))
            };
            let can = |id: &ProjectId| self.pair.disk.deletable(*id) > Bytes(0);
            let greatest = (1..=PROJECTS as u32).map(ProjectId).filter(can).max_by_key(excess);
            assert_eq!(Some(deletion.project), greatest);
            self.delete(deletion)?;
        }
        Ok(())
    }

    fn happens(&mut self) -> Result<(), Crashed> {
        match self.draw(14) {
            0..=3 => self.arrives()?,
            4 | 5 => self.job_comes(),
            6 | 7 => self.job_goes_on(),
            8 => {
                let room = SIZE - self.ours();
                self.foreign = self.draw(room + 1);
            }
            9 => self.is_spoilt(),
            10 => self.stray_comes(),
            11 => {
                let minutes = self.draw(3 * 24 * 60) as i64;
                self.now = self.now + Duration::from_mins(minutes);
                self.pair.tell(Told::Day { day: self.day() });
            }
            12 => self.is_full()?,
            _ => self.crashes_after = Some(self.rng.next_u64() % 5),
        }
        self.look();
        self.keep_limit()
    }

    /// Left alone, with the volume for itself: nothing of what jobs needed or anybody recorded is in the way.
    fn ends(&mut self) {
        self.foreign = 0;
        for job in std::mem::take(&mut self.jobs).into_keys() {
            self.pair.tell(Told::JobOver { job });
        }
        self.now = self.now + ORPHAN_GRACE;
        self.crashes_after = None;
        self.look();
        assert!(self.keep_limit().is_ok() && self.pair.disk.over() == Bytes(0));
        assert!(self.on_disk.keys().all(|key| self.records.contains_key(key)), "{:?}", self.on_disk);
    }
}

fn live(seed: u64) {
    let mut life = Life::new(seed);
    for _ in 0..EVENTS {
        if life.happens().is_err() {
            life.start();
            // It may go down again at once.
            if life.keep_limit().is_err() {
                life.start();
            }
        }
    }
    life.ends();
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn r4_12_in_random_lives_with_crashes_plans_are_those_of_the_model_and_nothing_that_a_job_needs_goes() {
    let (first, count) = (number("FALLOW_DISK_SEED", 1), number("FALLOW_DISK_LIVES", LIVES));
    for seed in first..first + count {
        if let Err(why) = std::panic::catch_unwind(|| live(seed)) {
            println!(
                "replay: FALLOW_DISK_SEED={seed} FALLOW_DISK_LIVES=1 cargo test -p fallow-policy r4_12_in_random_lives"
            );
            std::panic::resume_unwind(why);
        }
    }
}
