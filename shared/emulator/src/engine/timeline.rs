//! Records what ran when.
//!
//! A client says which jobs run, not on which CPU; here a job takes the lowest instances that have room for
//! it.

use std::collections::BTreeMap;

use fallow_domain::{Duration, Instant, JobId, PerType, ResourceType, Usage};

use super::outcome::{EndedJob, Span, Timeline};

/// Writes a timeline as things happen.
#[derive(Debug)]
pub(crate) struct Recorder {
    beginning: Instant,
    timeline: Timeline,
    /// How much of each instance is taken.
    taken: PerType<Vec<f64>>,
    open: BTreeMap<JobId, Open>,
    off_since: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    kind: ResourceType,
    /// The instances, with how much of each.
    on: Vec<(usize, f64)>,
    project: usize,
    job: u64,
    from: Instant,
}

/// Room is compared with a hair of tolerance, so that ten tenths fit.
const HAIR: f64 = 1e-6;

impl Recorder {
    pub(crate) fn new(beginning: Instant, instances: &PerType<u32>) -> Self {
        Self {
            beginning,
            timeline: Timeline::default(),
            taken: instances.map(|_, count| vec![0.0; *count as usize]),
            open: BTreeMap::new(),
            off_since: None,
        }
    }

    fn since_beginning(&self, at: Instant) -> Duration {
        at - self.beginning
    }

    pub(crate) fn runs(&mut self, id: JobId, usage: Usage, project: usize, job: u64, now: Instant) {
        let kind = usage.main_type();
        let mut left = usage.of(kind);
        let mut on = Vec::new();
        for (instance, taken) in self.taken[kind].iter_mut().enumerate() {
            // Part of an instance is had on one instance; several are had whole.
            let need = left.min(1.0);
            if left > HAIR && *taken + need <= 1.0 + HAIR {
                *taken += need;
                left -= need;
                on.push((instance, need));
            }
        }
        self.open.insert(id, Open { kind, on, project, job, from: now });
    }

    pub(crate) fn stops(&mut self, id: JobId, now: Instant) {
        let Some(open) = self.open.remove(&id) else { return };
        let (from, to) = (self.since_beginning(open.from), self.since_beginning(now));
        for (instance, share) in open.on {
            if let Some(taken) = self.taken[open.kind].get_mut(instance) {
                *taken = (*taken - share).max(0.0);
            }
            if to > from {
                let (kind, instance) = (open.kind, instance as u32);
                let span = Span { kind, instance, project: open.project, job: open.job, from, to };
                self.timeline.spans.push(span);
            }
        }
    }

    pub(crate) fn host(&mut self, on: bool, now: Instant) {
        match (on, self.off_since.take()) {
            (true, Some(since)) => {
                let stretch = (self.since_beginning(since), self.since_beginning(now));
                self.timeline.off.push(stretch);
            }
            (true, None) => {}
            (false, since) => self.off_since = since.or(Some(now)),
        }
    }

    pub(crate) fn ended_job(&mut self, ended_job: EndedJob) {
        self.timeline.outcomes.push(ended_job);
    }

    pub(crate) fn close(mut self, now: Instant) -> Timeline {
        let open: Vec<JobId> = self.open.keys().copied().collect();
        for id in open {
            self.stops(id, now);
        }
        self.host(true, now);
        self.timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_take_the_lowest_instances_with_room_and_give_them_back() {
        let t = |secs| Instant::EPOCH + Duration::from_secs(secs);
        let mut instances = PerType::cpu(3);
        instances[ResourceType::Nvidia] = 1;
        let mut recorder = Recorder::new(t(0), &instances);
        let half_gpu = Usage::from_cpus(0.1).with_coprocessor(ResourceType::Nvidia, 0.5);
        recorder.runs(JobId(1), Usage::ONE_CPU, 0, 10, t(0));
        recorder.runs(JobId(2), Usage::from_cpus(2.0), 0, 11, t(0));
        recorder.runs(JobId(3), half_gpu, 1, 5, t(0));
        recorder.runs(JobId(4), half_gpu, 1, 6, t(0));
        recorder.stops(JobId(1), t(5));
        recorder.runs(JobId(5), Usage::ONE_CPU, 0, 12, t(5));
        recorder.host(false, t(6));
        recorder.host(true, t(8));
        let timeline = recorder.close(t(9));
        let spans: Vec<_> = timeline
            .spans
            .iter()
            .map(|s| (s.job, s.kind.name(), s.instance, s.to.as_micros() / 1_000_000))
            .collect();
        assert_eq!(
            spans,
            [
                (10, "cpu", 0, 5),
                (11, "cpu", 1, 9),
                (11, "cpu", 2, 9),
                (5, "nvidia", 0, 9),
                (6, "nvidia", 0, 9),
                (12, "cpu", 0, 9)
            ]
        );
        assert_eq!(timeline.off, [(Duration::from_secs(6), Duration::from_secs(8))]);
    }
}
