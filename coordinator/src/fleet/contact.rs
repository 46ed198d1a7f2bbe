//! Telling agents to contact a project now, because it has new jobs (R1.4, R6.3).
//!
//! An agent that asked in vain backs off for up to a day; without this, jobs that are submitted after a pause would wait
//! for the project's `poll`. At most as many agents as there are new jobs are told, of those that are connected and have
//! the project; those with idle CPUs first, else by chance, so that a stream of single jobs goes to all in turn.
//!
//! All of a large fleet told at once would ask at once: the calls are spread over a time that grows with their number.
//! Nothing is stored: an agent that is away asks by itself when it comes back.

use std::sync::Arc;
use std::time::Duration;

use fallow_proto::fleet::v1::entry::Value;
use rand::rngs::{StdRng, SysRng};
use rand::{RngExt as _, SeedableRng as _, TryRng as _};

use super::{Agent, Fleet, lock};

/// Agents told in a second, at most. Each makes a scheduler RPC then.
const PER_SECOND: f64 = 200.0;
/// Projects that an agent can be told to contact before it took in the first.
const KEPT_MAX: usize = 64;

impl Fleet {
    /// Tells so many agents at most to contact a project. Returns how many will be; the last of them in
    /// their number over `PER_SECOND` seconds.
    pub fn contact(self: &Arc<Self>, url: &str, at_most: u64) -> usize {
        let mut rng = generator();
        let mut chosen: Vec<((bool, u32), Arc<Agent>)> = self
            .connected_agents()
            .into_iter()
            .filter_map(|agent| Some(((!agent.idles_with(url)?, rng.random::<u32>()), agent)))
            .collect();
        chosen.sort_by_key(|(rank, _)| *rank);
        chosen.truncate(usize::try_from(at_most).unwrap_or(usize::MAX));
        let count = chosen.len();
        if count == 0 {
            return 0;
        }
        tracing::info!(url, agents = count, "agents are told to contact the project, which has new jobs");
        let pause = Duration::from_secs_f64(1.0 / PER_SECOND);
        let url = url.to_owned();
        tokio::spawn(async move {
            for (told, (_, agent)) in chosen.into_iter().enumerate() {
                if told > 0 {
                    // Half to one and a half of the mean: no two coordinators' agents march in step.
                    tokio::time::sleep(pause.mul_f64(rng.random_range(0.5..1.5))).await;
                }
                agent.want_contact(&url);
            }
        });
        count
    }
}

/// Which agents are told is no secret: without the system's random numbers they are the same ones each time.
fn generator() -> StdRng {
    let mut seed = [0; 32];
    let _ = SysRng.try_fill_bytes(&mut seed);
    StdRng::from_seed(seed)
}

impl Agent {
    /// Whether it has idle CPUs; `None` if it does not have the project.
    fn idles_with(&self, url: &str) -> Option<bool> {
        let state = lock(&self.state);
        let has = state.values().any(|value| matches!(value, Value::Project(project) if project.url == url));
        has.then(|| state.host().is_some_and(|host| host.idle_cpus > 0))
    }

    fn want_contact(&self, url: &str) {
        let mut wanted = lock(&self.contacts);
        if wanted.len() < KEPT_MAX && wanted.insert(url.to_owned()) {
            self.contact_wanted.notify_one();
        }
    }
}
