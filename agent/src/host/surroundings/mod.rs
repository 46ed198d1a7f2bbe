//! What goes on at this machine beside people (R6.2, R6.4): how it stands with its battery, whether it is on
//! WiFi, which programs run, how much its CPUs work, how much goes over its network. What follows from it is
//! the client's to say.
//!
//! Model: a task of the runtime looks as often as the client asks for, at what it asks for and at nothing
//! else: every ten seconds while jobs depend on the answer, once a minute while there is none and one may be
//! asked for, and else not at all. Where there is no battery, no exclusive program, no limit on the load of
//! others and no task that waits in memory, it looks every ten minutes whether a battery has come. When it is
//! asked for something else it looks at once. What it saw is told when it is something else than before, or
//! the answer to another question; of the CPUs each time. The kernel says by itself that programs wait for
//! memory (`pressure`), so that for it alone a look in a minute is enough. Another task looks at the network
//! (`network`). A look that fails is made again. One for programs that does not end holds up the others for
//! some seconds at first, and then for one (`programs`); before there was one for the programs that are asked
//! for, no question is answered. Any other that never ends keeps this task from looking. For either the
//! client waits for a minute only ([`fallow_policy::looks::PATIENCE`]).
//!
//! Left out: the kernel's own word that power was lost, which would come at once.

mod cpus;
mod memory;
mod network;
mod own_sockets;
mod power;
mod pressure;
mod programs;
mod wifi;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use fallow_client::{Event, LooksFor, Surroundings};
use fallow_policy::looks::LookPace;
use tokio::sync::watch as channel;
use tokio::task::JoinHandle;

use super::owner::{SensorStatus, Tell};
use super::work::Work;
use network::Counters;
pub use network::OwnTraffic;
use pressure::Pressure;
use programs::{Scan, Scans};

/// Without anything that changes from one moment to the next, a look so often: a battery is seldom put into a
/// machine that had none.
const SELDOM: StdDuration = StdDuration::from_mins(10);
/// While nothing has to be known soon, a look so many times more seldom.
const UNHURRIED: u32 = 6;

/// Where to look, and how often.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where the kernel says what the machine is fed by: `/sys/class/power_supply`.
    pub power: PathBuf,
    /// Where it says how much memory there is: `/proc/meminfo`.
    pub memory: PathBuf,
    /// Where it says that programs wait for memory: `/proc/pressure/memory`.
    pub pressure: PathBuf,
    /// Where it says what went over each interface: `/proc/net/dev`.
    pub traffic: PathBuf,
    /// Where it says what each interface is: `/sys/class/net`.
    pub interfaces: PathBuf,
    /// Where it lists routes: `/proc/net`.
    pub routes: PathBuf,
    /// How long between two looks that jobs depend on.
    pub every: StdDuration,
    /// How the marks of all tasks of this agent begin.
    pub mark: String,
}

/// Who looks, as long as it lives.
pub struct Watcher {
    wanted: channel::Sender<LooksFor>,
    pressure: SensorStatus,
    task: JoinHandle<()>,
    counters: Counters,
    network_wanted: channel::Sender<bool>,
    network_task: JoinHandle<()>,
}

impl Watcher {
    /// Starts to look once the client has said what for.
    #[must_use]
    pub fn start(places: Places, own: OwnTraffic, tell: Tell) -> Self {
        let (wanted, wants) = channel::channel(LooksFor::default());
        let pressure = pressure::status(&places.pressure);
        let SensorStatus { sensor, on, what } = &pressure;
        tracing::info!(sensor, on, what, "senses whether memory is short");
        let open = |path: &Path| Pressure::open(path).ok();
        let counters = Counters { traffic: places.traffic.clone(), interfaces: places.interfaces.clone() };
        let (network_wanted, network_wants) = channel::channel(false);
        let network = network::watch(counters.clone(), places.every, own, Arc::clone(&tell), network_wants);
        let network_task = tokio::spawn(network);
        let task = tokio::spawn(watch(places, tell, wants, (open, look, programs::running)));
        Self { wanted, pressure, task, counters, network_wanted, network_task }
    }

    /// Whether the kernel tells of memory pressure.
    #[must_use]
    pub const fn pressure(&self) -> &SensorStatus {
        &self.pressure
    }

    /// Whether the kernel tells what goes over the network, and of which interfaces.
    #[must_use]
    pub fn network(&self) -> SensorStatus {
        self.counters.status()
    }

    /// What the client wants to know from now on.
    pub fn attend(&self, wanted: LooksFor) {
        put(&self.network_wanted, wanted.network);
        put(&self.wanted, LooksFor { network: false, ..wanted });
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
        self.network_task.abort();
    }
}

/// Tells what is new.
fn put<T: PartialEq>(channel: &channel::Sender<T>, value: T) {
    channel.send_if_modified(|was| {
        let is_new = *was != value;
        *was = value;
        is_new
    });
}

/// A look at all but programs, and whether there is a battery. The last says that programs wait for memory.
type Look = fn(&Places, &LooksFor, bool) -> (Surroundings, bool);

/// `open` asks the kernel to tell of memory pressure.
async fn watch(
    places: Places,
    tell: Tell,
    mut wants: channel::Receiver<LooksFor>,
    (open, look, scan): (impl Fn(&Path) -> Option<Pressure> + Send, Look, Scan),
) {
    let (mut told, mut why) = (Surroundings::default(), None);
    let (mut trigger, mut is_pressed, mut is_told_no_more) = (None, false, false);
    let mut has_failed = false;
    let mut scans = Scans::new(scan);
    loop {
        let wanted = wants.borrow_and_update().clone();
        // One event, one task that leaves; if that is not enough, another event comes. What was felt while
        // there were no such tasks is over.
        let pressed = std::mem::take(&mut is_pressed) && wanted.memory;
        // A trigger that has ended is not asked for again as long as it is wanted: that could end at once.
        is_told_no_more &= wanted.memory;
        trigger = match wanted.memory && !is_told_no_more {
            true => trigger.or_else(|| open(&places.pressure)),
            false => None,
        };
        if why.replace(wanted.why) != Some(wanted.why) {
            tracing::debug!("{}", wanted.why);
        }
        if wanted.is_nothing() && told.is_nothing() {
            if wants.changed().await.is_err() {
                return;
            }
            continue;
        }
        let begun = Work::begin({
            let (places, wanted) = (places.clone(), wanted.clone());
            move || look(&places, &wanted, pressed)
        });
        let [exclusive, gpu_exclusive] = scans.look(&wanted, &places.mark).await;
        let looked = match begun {
            Ok(mut look) => look.end().await,
            Err(error) => Err(error),
        };
        let nap = match looked {
            Ok((seen, has_battery)) => {
                // A question is not answered as long as nobody knows of the programs.
                let is_answered = scans.are_answered();
                let number = if is_answered { seen.number } else { told.number };
                let seen = Surroundings { number, exclusive, gpu_exclusive, ..seen };
                has_failed = false;
                // That memory is short is said again as long as it is.
                let (is_news, memory_short) = (seen != told || seen.memory_short, seen.memory_short);
                let is_told = !is_news || tell(Event::SurroundingsSeen(seen.clone()));
                if is_news && is_told {
                    told = seen;
                }
                let is_told_of_memory = trigger.is_some() && !memory_short;
                match is_told && is_answered {
                    true => nap(&wanted, places.every, has_battery, is_told_of_memory),
                    // Jobs may wait for it.
                    false => places.every,
                }
            }
            // Jobs may wait for this, too: the next look may do.
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let again = places.every;
                    tracing::warn!(%error, ?again, "a look at the battery and other programs has failed: another one is made");
                }
                places.every
            }
        };
        tokio::select! {
            () = tokio::time::sleep(nap) => {}
            is_felt = felt(trigger.as_ref()) => (is_pressed, is_told_no_more) = (is_felt, !is_felt),
            changed = wants.changed() => if changed.is_err() { return },
        }
    }
}

/// How long until the next look, if nothing comes between. `is_told_of_memory`: it is not short by the last
/// look, and the kernel says when programs wait for it.
fn nap(wanted: &LooksFor, every: StdDuration, has_battery: bool, is_told_of_memory: bool) -> StdDuration {
    let unhurried = every.saturating_mul(UNHURRIED);
    let of_battery = wanted.battery || wanted.charge || wanted.heat;
    let changes = (of_battery && has_battery)
        || wanted.wifi
        || !(wanted.programs.is_empty() && wanted.gpu_programs.is_empty())
        || wanted.load;
    let of_changes = match wanted.pace {
        LookPace::Often if changes => every,
        LookPace::Seldom if changes => unhurried,
        LookPace::Never | LookPace::Seldom | LookPace::Often => SELDOM,
    };
    let of_memory = match wanted.memory {
        true if is_told_of_memory => unhurried,
        true => every,
        false => SELDOM,
    };
    of_changes.min(of_memory)
}

/// Comes back when memory pressure is felt, if that is told. False when it is told no more.
async fn felt(trigger: Option<&Pressure>) -> bool {
    match trigger {
        Some(trigger) => trigger.felt().await,
        None => std::future::pending().await,
    }
}

fn look(places: &Places, wanted: &LooksFor, is_pressed: bool) -> (Surroundings, bool) {
    let seen = Surroundings {
        number: wanted.number,
        on_battery: wanted.battery && power::is_on_battery(&places.power),
        battery_charge: wanted.charge.then(|| power::charge(&places.power)).flatten(),
        battery_temperature: wanted.heat.then(|| power::temperature(&places.power)).flatten(),
        network: wanted
            .wifi
            .then(|| wifi::Routes { lists: &places.routes, interfaces: &places.interfaces }.over()),
        // Looked for by themselves.
        exclusive: None,
        gpu_exclusive: None,
        memory_short: wanted.memory && memory::is_short(&places.memory, is_pressed),
        cpu_worked: if wanted.load { cpus::worked() } else { None },
    };
    (seen, power::has_battery(&places.power))
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
