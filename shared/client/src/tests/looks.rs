//! For which jobs it is looked what goes on around them (R6.4).

use fallow_domain::{Duration, HostFacts, Usage};
use fallow_policy::looks::LookPace;

use super::{NOW, client, host, id_of, put_job};
use crate::Event;
use crate::machine::Client;

/// How often it is looked, after a look at the clock.
fn pace(client: &mut Client) -> LookPace {
    client.handle(NOW, Event::WakeUp);
    client.looks_for().pace
}

#[test]
fn r6_4_jobs_that_can_never_run_here_are_nothing_to_look_often_for() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    assert_eq!(pace(&mut client), LookPace::Seldom, "work may be asked for");
    put_job(&mut client, 1, a, Usage::from_cpus(8.0));
    assert_eq!(pace(&mut client), LookPace::Seldom, "the host has two CPUs");
    client.edit_host(HostFacts { ncpus: 8, ..host(0) });
    assert_eq!(pace(&mut client), LookPace::Often, "now it can");
}

#[test]
fn r6_4_a_job_that_waits_to_be_started_again_is_looked_for_often() {
    let mut client = client(0, &["a"]);
    let a = id_of(&client, "a");
    let waits = put_job(&mut client, 1, a, Usage::ONE_CPU);
    client.edit_job(waits, |job| job.run.not_before = NOW + Duration::from_secs(60));
    assert!(client.workload.queue().is_empty());
    assert_eq!(pace(&mut client), LookPace::Often);
}
