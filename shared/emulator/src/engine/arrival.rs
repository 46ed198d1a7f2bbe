//! A request as it reaches a server.
//!
//! A server plans with what the request says, and knows nothing else of the client (R5.6). The list of jobs
//! in progress is put into the request by `Client::list_workload`, which says how that differs from what an
//! agent tells a real server.
//!
//! That list costs more than all else that is simulated if there are ten thousand jobs, and mostly a server
//! needs only to know what they add up to. So where a request is answered at the moment at which it is sent,
//! the list is made only when the server reads it. Where an answer takes time, the list is made before the
//! request sets out.

use fallow_boinc::scheduler::SchedulerRequest;
use fallow_domain::InProgress;
use fallow_policy::send::Load;

/// A request that has arrived.
pub(crate) struct Arrival<'a> {
    /// Which host sent it.
    pub(crate) host: usize,
    /// What it says.
    pub(crate) request: SchedulerRequest,
    /// The list of jobs in progress, if it is still to be put in.
    pub(crate) deferred: Option<DeferredList<'a>>,
}

/// A list that is made when it is read.
pub(crate) struct DeferredList<'a> {
    /// What the jobs in it come to.
    pub(crate) sums: Load,
    /// Puts it into a request.
    pub(crate) list: &'a dyn Fn(&mut SchedulerRequest),
}

impl Arrival<'_> {
    /// What the jobs in progress come to; none where the request does not list them.
    pub(crate) fn sums(&self) -> Option<Load> {
        match &self.deferred {
            Some(deferred) => Some(deferred.sums),
            None => self.request.in_progress_results.is_some().then(|| Load::of(&self.listed())),
        }
    }

    /// The jobs in progress that it lists.
    pub(crate) fn listed(&self) -> Vec<InProgress> {
        let Some(deferred) = &self.deferred else { return jobs_in(&self.request) };
        let mut request = SchedulerRequest::default();
        (deferred.list)(&mut request);
        jobs_in(&request)
    }
}

fn jobs_in(request: &SchedulerRequest) -> Vec<InProgress> {
    request.in_progress_results.iter().flatten().map(InProgress::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fallow_boinc::scheduler::InProgressResult;
    use fallow_domain::{Duration, Instant};

    fn list(request: &mut SchedulerRequest) {
        let job = |secs| InProgressResult {
            report_deadline: Instant::from_secs_f64(1e6),
            time_remaining: Duration::from_secs(secs),
            avg_ncpus: 1.0,
            ..InProgressResult::default()
        };
        request.in_progress_results = Some(vec![job(5), job(7)]);
    }

    #[test]
    fn r5_6_a_list_says_the_same_whether_it_is_put_in_before_or_when_it_is_read() {
        let mut request = SchedulerRequest::default();
        list(&mut request);
        let before = Arrival { host: 0, request, deferred: None };
        let sums = before.sums().unwrap();
        assert_eq!((before.listed().len(), sums), (2, Load::of(&before.listed())));
        let deferred = Some(DeferredList { sums, list: &list });
        let when = Arrival { host: 0, request: SchedulerRequest::default(), deferred };
        assert_eq!((when.listed(), when.sums()), (before.listed(), Some(sums)));
    }

    #[test]
    fn r5_6_of_a_client_that_lists_no_jobs_nothing_is_planned() {
        let arrival = Arrival { host: 0, request: SchedulerRequest::default(), deferred: None };
        assert_eq!(arrival.sums(), None);
    }
}
