//! The devices of the host, one by one: which there are, and which somebody else uses (R3.14, R3.15).
//!
//! Model: a device is known by its address. It has a number from when it is first seen, and keeps it for as
//! long as the client lives: what preferences exclude by number stays what it was, although drivers count
//! anew when a device comes or goes. What an application is told is its driver's number of the moment.
//!
//! A device that a program of the owner's uses counts as in use at once, and for [`HELD`] after it was last
//! seen so: a program that begins again and again must not push a task out each time. Who uses what is looked
//! at only while it matters, that is while there are jobs for devices and computing is allowed; until the
//! first look after that began, nothing is begun on any of them.
//!
//! A device that is hotter than the preferences allow is left alone until it has cooled by [`COOLED`], so
//! that a task does not come and go with each degree. One whose temperature nobody tells is not hot; one that
//! was hot stays so until it is told to be cool, for what cannot be told may be anything.
//!
//! Not stored: after a restart, devices have the numbers of their driver again.

use std::fmt;

use fallow_domain::{Bytes, Coprocessor, CoprocessorDevice, Duration, Instant, PerType, ResourceType};
use fallow_policy::job_queue::Devices;

/// So long after a program of the owner's was last seen on a device, the device is left alone.
const HELD: Duration = Duration::from_secs(60);
/// A program that only draws (a desktop, a browser) counts once it holds this part of the device's memory.
/// One that computes counts always.
const DRAWN_PART: f64 = 1.0 / 8.0;
/// How often it is to be looked at who uses devices, while that matters.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_secs(2);
/// So many degrees below the most a hot device is cool again.
const COOLED: u32 = 5;
/// Devices of one kind that are kept, also of those that are gone.
const KNOWN_MAX: usize = 64;

/// A process on a device that is none of our tasks'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUser {
    /// The kind of device.
    pub kind: ResourceType,
    /// Which one (`CoprocessorDevice::address`).
    pub address: String,
    /// The process; 0 where it cannot be seen which it is.
    pub process: u32,
    /// Its program's name, made fit to be shown.
    pub name: String,
    /// It only draws; else it computes.
    pub draws: bool,
    /// What it holds of the device's memory, if that is known.
    pub memory: Option<Bytes>,
}

/// How hot a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTemperature {
    /// The kind of device.
    pub kind: ResourceType,
    /// Which one (`CoprocessorDevice::address`).
    pub address: String,
    /// Its temperature in degrees Celsius.
    pub degrees: u32,
}

/// How a device stands with those who use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may be used.
    Free,
    /// This program uses it.
    InUse(String),
    /// It was in use until a moment ago, by this program.
    Held(String),
    /// It is too hot, or was and has yet to cool: its temperature, if that is told, and the most that it may
    /// have, in degrees Celsius.
    Hot(Option<u32>, u32),
    /// It is not there any more, or its driver does not answer.
    Gone,
    /// No job can use it, for this reason.
    Unfit(String),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::InUse(by) => write!(f, "in use by {by}"),
            Self::Held(by) => write!(f, "in use until a moment ago by {by}"),
            Self::Hot(now, most) => {
                let cool = most.saturating_sub(COOLED);
                match now {
                    Some(now) => {
                        write!(f, "too hot ({now} °C, at most {most} °C; used again from {cool} °C on down)")
                    }
                    None => write!(f, "too hot when its temperature was told last (at most {most} °C)"),
                }
            }
            Self::Gone => f.write_str("gone"),
            Self::Unfit(why) => write!(f, "not usable: {why}"),
        }
    }
}

#[derive(Clone, Debug)]
struct Known {
    device: CoprocessorDevice,
    is_there: bool,
    /// It was looked who uses it, since that matters and since it is there.
    is_heard: bool,
    /// By whom it was seen in use last, until that is forgotten.
    used_by: Option<String>,
    /// When that is forgotten; none while it is in use.
    held_until: Option<Instant>,
    /// Its temperature in degrees Celsius, as it was told last; none where it is not told.
    degrees: Option<u32>,
    /// The most that it may have, where it was hotter and has not cooled since.
    too_hot_for: Option<u32>,
}

impl Known {
    /// Judges its temperature by the most that it may have.
    fn judge_heat(&mut self, most: Option<u32>) {
        let Some(most) = most else {
            self.too_hot_for = None;
            return;
        };
        let is_hot = match self.degrees {
            Some(degrees) if degrees > most => true,
            Some(degrees) if degrees.saturating_add(COOLED) <= most => false,
            _ => self.too_hot_for.is_some(),
        };
        self.too_hot_for = is_hot.then_some(most);
    }
}

/// The devices of each kind, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownDevices {
    kinds: PerType<Vec<Known>>,
    /// It is looked again and again who uses them.
    is_looking: bool,
}

impl KnownDevices {
    /// Takes in what there is now. Says what has come and gone, in words.
    pub(crate) fn take_in(&mut self, found: &[Coprocessor]) -> Vec<String> {
        let mut news = Vec::new();
        for (kind, known) in self.kinds.iter_mut() {
            let devices: Vec<&CoprocessorDevice> =
                found.iter().filter(|one| one.kind == kind).flat_map(|one| &one.devices).collect();
            for (number, old) in known.iter_mut().enumerate() {
                let now = devices.iter().find(|device| device.address == old.device.address);
                let (name, at) = (kind.name(), &old.device.address);
                match (now, old.is_there) {
                    (None, true) => news.push(format!("{name}:{number} at {at} is gone")),
                    (Some(_), false) => news.push(format!("{name}:{number} at {at} is there again")),
                    _ => {}
                }
                match now.filter(|_| old.is_there).map(|now| (&old.device.unfit, &now.unfit)) {
                    Some((None, Some(why))) => {
                        news.push(format!("{name}:{number} is not usable any more: {why}"));
                    }
                    Some((Some(_), None)) => news.push(format!("{name}:{number} is usable now")),
                    _ => {}
                }
                old.is_heard &= old.is_there;
                old.is_there = now.is_some();
                if let Some(&now) = now {
                    // What a task of ours holds now is not what a new one would find.
                    let free = if now.free > old.device.free { now.free } else { old.device.free };
                    old.device = CoprocessorDevice { free, ..now.clone() };
                }
            }
            for device in devices {
                let is_new = known.iter().all(|old| old.device.address != device.address);
                if is_new && known.len() < KNOWN_MAX {
                    let (name, number) = (kind.name(), known.len());
                    let CoprocessorDevice { model, address, memory, unfit, .. } = device;
                    news.push(match unfit {
                        None => format!("found {name}:{number}, {model} with {memory} at {address}"),
                        Some(why) => format!("{name}:{number}, {model} at {address}, is not usable: {why}"),
                    });
                    let device = device.clone();
                    let (used_by, held_until) = (None, None);
                    let (degrees, too_hot_for) = (None, None);
                    let (is_there, is_heard) = (true, false);
                    known.push(Known {
                        device,
                        is_there,
                        is_heard,
                        used_by,
                        held_until,
                        degrees,
                        too_hot_for,
                    });
                }
            }
        }
        news
    }

    /// Takes in who uses them. Says what has changed, in words; none if nothing has.
    pub(crate) fn seen(&mut self, users: &[DeviceUser], now: Instant) -> Vec<String> {
        let mut news = Vec::new();
        for (kind, known) in self.kinds.iter_mut() {
            for (number, one) in known.iter_mut().enumerate() {
                one.is_heard = self.is_looking;
                let counts = |user: &&DeviceUser| {
                    user.kind == kind && user.address == one.device.address && counts(user, &one.device)
                };
                let all: Vec<&DeviceUser> = users.iter().filter(counts).collect();
                match all.first() {
                    Some(first) => {
                        let more = match all.len() {
                            1 => String::new(),
                            others => format!(" and {} more", others - 1),
                        };
                        let by = match first.process {
                            0 => format!("{}{more}", first.name),
                            process => format!("{} (process {process}){more}", first.name),
                        };
                        if one.used_by.is_none() {
                            let name = kind.name();
                            news.push(format!("{name}:{number} is in use by {by} and is left alone"));
                        }
                        (one.used_by, one.held_until) = (Some(by), None);
                    }
                    None if one.used_by.is_some() && one.held_until.is_none() => {
                        one.held_until = Some(now + HELD);
                    }
                    None => {}
                }
            }
        }
        news
    }

    /// Takes in how hot they are. What is not told of is not known any more.
    pub(crate) fn felt(&mut self, temperatures: &[DeviceTemperature]) {
        for (kind, known) in self.kinds.iter_mut() {
            for one in known.iter_mut() {
                let of =
                    temperatures.iter().find(|told| told.kind == kind && told.address == one.device.address);
                one.degrees = of.map(|told| told.degrees);
            }
        }
    }

    /// Judges all temperatures by the most that a device may have, in degrees Celsius. Says what has changed,
    /// in words; none if nothing has.
    pub(crate) fn judge_heat(&mut self, most: Option<u32>) -> Vec<String> {
        let mut news = Vec::new();
        for (kind, known) in self.kinds.iter_mut() {
            for (number, one) in known.iter_mut().enumerate() {
                let was_hot = one.too_hot_for.is_some();
                one.judge_heat(most);
                let name = kind.name();
                match (was_hot, one.too_hot_for) {
                    (false, Some(most)) => {
                        let hot = Standing::Hot(one.degrees, most);
                        news.push(format!("{name}:{number} is left alone: {hot}"));
                    }
                    (true, None) => news.push(format!("{name}:{number} is not too hot any more")),
                    _ => {}
                }
            }
        }
        news
    }

    /// How hot one is in degrees Celsius, as it was told last; none where that is not told, or it is gone.
    pub(crate) fn degrees(&self, kind: ResourceType, number: u32) -> Option<u32> {
        self.get(kind, number).filter(|one| one.is_there)?.degrees
    }

    /// Forgets who used devices that nobody uses any more. Says which, in words.
    pub(crate) fn release(&mut self, now: Instant) -> Vec<String> {
        let mut news = Vec::new();
        for (kind, known) in self.kinds.iter_mut() {
            for (number, one) in known.iter_mut().enumerate() {
                // A clock that was set back must not hold it for longer (R1.12).
                if one.held_until.is_some_and(|at| at <= now || at > now + HELD) {
                    (one.used_by, one.held_until) = (None, None);
                    news.push(format!("{}:{number} is not in use any more", kind.name()));
                }
            }
        }
        news
    }

    /// When the next one is released.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        self.kinds.iter().flat_map(|(_, known)| known).filter_map(|one| one.held_until).min()
    }

    /// Those of a kind that are there, that nobody else uses and that are not too hot; none if its
    /// devices are not told one by one.
    pub(crate) fn free(&self, kind: ResourceType) -> Option<Devices> {
        let known = &self.kinds[kind];
        let is_free = |one: &Known| {
            one.is_there && one.device.is_fit() && one.used_by.is_none() && one.too_hot_for.is_none()
        };
        let numbers = (0..).zip(known).filter(|(_, one)| is_free(one));
        (!known.is_empty()).then(|| numbers.map(|(number, _)| number).collect())
    }

    /// How one stands; none if it is not known.
    pub(crate) fn standing(&self, kind: ResourceType, number: u32) -> Option<Standing> {
        let one = self.get(kind, number)?;
        Some(match (&one.used_by, one.held_until) {
            _ if !one.is_there => Standing::Gone,
            _ if !one.device.is_fit() => Standing::Unfit(one.device.unfit.clone().unwrap_or_default()),
            (None, _) => match one.too_hot_for {
                Some(most) => Standing::Hot(one.degrees, most),
                None => Standing::Free,
            },
            (Some(by), None) => Standing::InUse(by.clone()),
            (Some(by), Some(_)) => Standing::Held(by.clone()),
        })
    }

    /// All devices of a kind by number, also those that are gone.
    pub(crate) fn all(&self, kind: ResourceType) -> impl Iterator<Item = (u32, &CoprocessorDevice)> {
        (0..).zip(self.kinds[kind].iter().map(|one| &one.device))
    }

    /// A device by its number.
    pub(crate) fn device(&self, kind: ResourceType, number: u32) -> Option<&CoprocessorDevice> {
        self.get(kind, number).map(|one| &one.device)
    }

    /// Our number of the device at an address.
    pub(crate) fn number_of(&self, kind: ResourceType, address: &str) -> Option<u32> {
        self.all(kind).find(|(_, device)| device.address == address).map(|(number, _)| number)
    }

    /// What its driver counts a device by now: the same number where devices are not told one by one.
    pub(crate) fn driver_number(&self, kind: ResourceType, number: u32) -> u32 {
        self.device(kind, number).map_or(number, |device| device.number)
    }

    fn get(&self, kind: ResourceType, number: u32) -> Option<&Known> {
        self.kinds[kind].get(usize::try_from(number).ok()?)
    }

    /// Whether any of a kind that is there is left alone for what passes: somebody else uses it, or it is too
    /// hot.
    pub(crate) fn is_left_alone(&self, kind: ResourceType) -> bool {
        self.kinds[kind].iter().any(|one| {
            one.is_there && one.device.is_fit() && (one.used_by.is_some() || one.too_hot_for.is_some())
        })
    }

    /// Whether devices of a kind are told one by one.
    pub(crate) fn tells_of(&self, kind: ResourceType) -> bool {
        !self.kinds[kind].is_empty()
    }

    /// It matters now who uses them, or does not any more. True if that is another word than before.
    pub(crate) fn look(&mut self, matters: bool) -> bool {
        let changed = matters != self.is_looking;
        if changed {
            self.is_looking = matters;
            self.kinds.iter_mut().flat_map(|(_, known)| known).for_each(|one| one.is_heard = false);
        }
        changed
    }

    /// Whether a task may be begun on a device: it is known who uses it, or nobody tells.
    pub(crate) fn may_begin(&self, kind: ResourceType, number: u32) -> bool {
        self.get(kind, number).is_none_or(|one| one.is_heard)
    }

    /// Whether there is a device of which it is yet to be heard who uses it.
    pub(crate) fn awaits_look(&self) -> bool {
        self.is_looking && self.kinds.iter().flat_map(|(_, known)| known).any(|one| !one.is_heard)
    }
}

/// Whether somebody uses a device in a way that leaves nothing for others.
fn counts(user: &DeviceUser, device: &CoprocessorDevice) -> bool {
    match user.memory {
        _ if !user.draws => true,
        // Of a device whose memory nobody tells, a desktop that draws would be somebody for ever.
        Some(held) => device.memory > Bytes(0) && held.as_f64() >= device.memory.as_f64() * DRAWN_PART,
        None => false,
    }
}
