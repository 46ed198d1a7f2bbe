//! One line that tells somebody at the machine what runs and why, or why nothing does (R6.4): the first line
//! of `fallow-agent status`, and all of `fallow-agent status --line`.
//!
//! What keeps everything from computing is said before what runs, with what somebody can do about it.

use std::collections::BTreeSet;

use fallow_domain::{Duration, Instant, printable};
use jiff::tz::TimeZone;

use super::status::{HostStatus, ProjectStatus, Status, TaskStatus};
use super::status_text::no_projects;

/// Longest reason in the line, in bytes.
const WHY_MAX: usize = 250;

/// Clock times of this machine: how an instant is shown at another.
pub struct WallClock(TimeZone);

impl WallClock {
    /// That of the machine.
    #[must_use]
    pub fn system() -> Self {
        Self(TimeZone::system())
    }

    /// `14:05` today, `Mon 14:05` within six days, else `Mar 3 14:05`.
    fn show(&self, at: f64, now: Instant) -> String {
        let zoned = |at: Instant| {
            let at = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default();
            at.to_zoned(self.0.clone())
        };
        let (at, now) = (zoned(Instant::from_secs_f64(at)), zoned(now));
        let hours = at.duration_since(&now).as_hours().abs();
        let form = match (at.date() == now.date(), hours < 6 * 24) {
            (true, _) => "%H:%M",
            (false, true) => "%a %H:%M",
            (false, false) => "%b %-d %H:%M",
        };
        at.strftime(form).to_string()
    }
}

/// The line.
#[must_use]
pub fn line(status: &Status, now: Instant, clock: &WallClock) -> String {
    let line = suspended(status, now, clock).or_else(|| computing(status, now, clock));
    let line = line.unwrap_or_else(|| idle(status, now, clock));
    printable::line(&line, 3 * WHY_MAX)
}

/// Why nothing may compute, if nothing may.
fn suspended(status: &Status, now: Instant, clock: &WallClock) -> Option<String> {
    let host = &status.host;
    let why = || cut(host.stopped_for.as_deref().unwrap_or("for now"));
    Some(match host.suspended_by.as_deref()? {
        "owner" => match by_file(status) {
            Some(file) => format!("suspended by {file}"),
            None => "suspended by the owner; goes on with: fallow-agent resume".to_owned(),
        },
        "coordinator" => format!("suspended by the coordinator (document version {})", host.document_version),
        "hours" => match &host.hours_change {
            Some(at) => format!("resting: outside of its hours ({}); goes on {at}", cut(&host.hours)),
            None => format!("resting: it may compute at no hour ({})", no_hours(status)),
        },
        "snooze" => {
            let until = host.snoozed_until.map(|at| format!(" until {}", clock.show(at, now)));
            let by = host.snoozed_by.as_ref().map(|name| format!(" by {}", cut(name)));
            let (until, by) = (until.unwrap_or_default(), by.unwrap_or_default());
            format!("snoozed{until}{by}; goes on before that with: fallow-agent snooze off")
        }
        "in use" => match host.in_use_until {
            Some(until) => {
                let after = whole(Duration::from_secs_f64(host.idle_after));
                let at = clock.show(until, now);
                format!("resting: somebody uses the machine; goes on {after} after the last input, so not before {at}")
            }
            None => {
                "resting: somebody has a session here, of whose input nothing can be seen; goes on when it ends"
                    .to_owned()
            }
        },
        "battery" | "other programs" | "start delay" => format!("resting: {}; goes on when that is over", why()),
        // It says itself when it goes on, if it ever does.
        "no input" => format!("resting: {}", why()),
        "preference file" => {
            // Its first line says where; `status` shows the rest below.
            let first = status.preference_troubles.first().and_then(|trouble| trouble.lines().next());
            let file = first.map_or_else(why, cut);
            format!("suspended until a preference file is mended and taken (fallow-agent preferences reload): {file}")
        }
        "confinement" => {
            let lacks = cut(host.lacks_layers.as_deref().unwrap_or("a layer"));
            format!("suspended: required of jobs' confinement and off: {lacks}; who requires it says: fallow-agent preferences --why")
        }
        "disk" => "resting: there is too little space on the disk; more says: fallow-agent disk --why".to_owned(),
        who => format!("suspended by the {}", cut(who)),
    })
}

/// Why there is no hour at which it may compute: whose hours have none in common, where that is why.
fn no_hours(status: &Status) -> String {
    let hours = status.preferences.iter().find(|one| one.key == "hours");
    let apart = hours.map(|hours| hours.overruled.iter().filter(|said| said.is_apart()).collect::<Vec<_>>());
    match apart.as_deref() {
        Some([one, other, ..]) => format!(
            "{} by {} and {} by {} have none in common",
            cut(&one.value),
            cut(&one.place()),
            cut(&other.value),
            cut(&other.place())
        ),
        _ => cut(&status.host.hours),
    }
}

/// The file that suspends computing, if one does.
fn by_file(status: &Status) -> Option<String> {
    let said = status.preferences.iter().find(|one| one.key == "suspended" && one.value == "true")?;
    let is_file = said.source.ends_with(".toml") || said.source.ends_with(".xml");
    let line = said.line.map(|line| format!(", line {line}")).unwrap_or_default();
    is_file.then(|| format!("{}{line}", cut(&said.source)))
}

/// What computes, if anything does.
fn computing(status: &Status, now: Instant, clock: &WallClock) -> Option<String> {
    let running: Vec<&TaskStatus> = status.tasks.iter().filter(|task| task.phase == "running").collect();
    if running.is_empty() {
        return None;
    }
    let projects: BTreeSet<&str> = running.iter().map(|task| task.project_url.as_str()).collect();
    let of = match projects.len() {
        1 => project(status, projects.first().copied().unwrap_or_default()),
        some => format!("{some} projects"),
    };
    let host = &status.host;
    let busy = host.usable_cpus.saturating_sub(host.idle_cpus);
    let devices: BTreeSet<&String> = running.iter().flat_map(|task| &task.devices).collect();
    let devices = match devices.len() {
        0 => String::new(),
        some => format!(" and {}", count(some, "device")),
    };
    let mut line = format!(
        "computing: {} of {of}, on {busy} of {}{devices}",
        count(running.len(), "job"),
        count(host.cpus as usize, "CPU"),
    );
    if let Some(about) = people(status, now, clock) {
        line.push_str("; ");
        line.push_str(&about);
    }
    Some(line)
}

/// What is known of people at the machine.
fn people(status: &Status, now: Instant, clock: &WallClock) -> Option<String> {
    let HostStatus { in_use, rests_in_use, devices, .. } = &status.host;
    // Where nothing is seen of people any more, nobody knows.
    let sees = status.sensors.is_empty() || status.sensors.iter().any(|sensor| sensor.on);
    let last = status.last_input.as_ref().filter(|_| sees);
    let since = last.map(|last| clock.show(last.at, now));
    match (in_use, since) {
        (true, _) if rests_in_use == "coprocessors" && !devices.is_empty() => {
            Some("its devices rest, for somebody uses the machine".to_owned())
        }
        (true, _) => Some("somebody uses the machine, for whom it may go on".to_owned()),
        (false, Some(since)) => Some(format!("nobody uses the machine since {since}")),
        (false, None) => None,
    }
}

/// Why nothing computes that might.
fn idle(status: &Status, now: Instant, clock: &WallClock) -> String {
    let counted =
        |phases: &[&str]| status.tasks.iter().filter(|task| phases.contains(&task.phase.as_str())).count();
    let (coming, ready) =
        (counted(&["downloading"]), counted(&["ready", "preempted"]) + status.tasks_left_out);
    let done = counted(&["uploading", "ready to report", "failed"]);
    let network =
        status.host.network_rests.as_ref().map(|why| format!("; no project is contacted: {}", cut(why)));
    let network = network.unwrap_or_default();
    let files = status.host.files_wait.as_ref().map(|why| format!("; files wait: {}", cut(why)));
    let files = files.filter(|_| network.is_empty()).unwrap_or_default();
    if status.host.cpus == 0 {
        return "starting: it is measured what this machine is like".to_owned();
    }
    if let Some(trouble) = &status.store_trouble {
        return format!("resting: nothing new is begun: {}", cut(trouble));
    }
    if status.projects.is_empty() {
        return format!("idle: {}", no_projects(status));
    }
    if ready > 0 && status.host.awaits_look {
        return "about to compute: it is looked at the battery and other programs first".to_owned();
    }
    if ready > 0 {
        return format!("idle: of {} here none can run now", count(ready, "job"));
    }
    if coming > 0 {
        return format!("idle: files of {} are awaited{network}{files}", count(coming, "job"));
    }
    let sent = match done {
        0 => String::new(),
        some => format!(", and {} to be sent or reported", count(some, "job")),
    };
    if !network.is_empty() {
        return format!("idle: no work{sent}{network}");
    }
    if !files.is_empty() && counted(&["uploading"]) > 0 {
        return format!("idle: no work{sent}{files}");
    }
    format!("idle: no work{sent}; {}", next_work(status, now, clock))
}

/// When work is asked for again, or why it is not.
fn next_work(status: &Status, now: Instant, clock: &WallClock) -> String {
    let ask = status.projects.iter().filter(|one| one.enough.is_none());
    let waits = ask.map(|one| (waits_until(one, now), one));
    let first = waits.min_by(|(one, _), (other, _)| {
        let at = |wait: &Option<(f64, &str)>| wait.map_or(0.0, |(at, _)| at);
        at(one).total_cmp(&at(other))
    });
    match (first, why_none(status)) {
        (Some((Some((at, why)), one)), _) => {
            format!("{} may be asked for some at {} ({})", named(one), clock.show(at, now), cut(why))
        }
        (Some((None, one)), _) => match &one.no_work {
            Some((_, said)) => format!("{} had none and said: {}", named(one), cut(said)),
            None => format!("{} is asked for some", named(one)),
        },
        (None, Some(why)) => format!("none is asked for ({why})"),
        (None, None) => "none is asked for".to_owned(),
    }
}

/// Until when a project is asked for nothing, and why, if it is not asked now: it is not to be called, or is
/// not asked for jobs of the CPUs, which are those that nearly every job needs.
fn waits_until(project: &ProjectStatus, now: Instant) -> Option<(f64, &str)> {
    let call = project.min_rpc.as_ref().map(|(at, why)| (*at, why.as_str()));
    let held = project.held_types.iter().filter(|held| held.resource == "CPU");
    let held = held.map(|held| (held.until, "it had no jobs for the CPUs"));
    let waits = call.into_iter().chain(held).filter(|(at, _)| Instant::from_secs_f64(*at) > now);
    waits.max_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// Why no project is asked for work: what holds for all, or for each of them.
fn why_none(status: &Status) -> Option<String> {
    let mut whys = status.projects.iter().filter_map(|one| Some((one, one.enough.as_ref()?)));
    let (_, first) = whys.clone().next()?;
    if whys.clone().all(|(_, why)| why == first) {
        return Some(cut(first));
    }
    let (one, why) = whys.next()?;
    let others = count(whys.count(), "other project");
    Some(format!("{}: {}; and {others} for other reasons", named(one), cut(why)))
}

fn named(project: &ProjectStatus) -> String {
    cut(if project.name.is_empty() { &project.url } else { &project.name })
}

fn project(status: &Status, url: &str) -> String {
    status.projects.iter().find(|one| one.url == url).map_or_else(|| cut(url), named)
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// A time without a fraction where it has none: `3 min`, not `3.0 min`, and `2 h`, not `120 min`.
#[must_use]
pub fn whole(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds / 60.0 {
        minutes if minutes >= 60.0 && (minutes / 60.0).fract() == 0.0 => format!("{} h", minutes / 60.0),
        minutes if minutes >= 1.0 && minutes.fract() == 0.0 => format!("{minutes} min"),
        _ if seconds.fract() == 0.0 && seconds < 120.0 => format!("{seconds} s"),
        _ => time.to_string(),
    }
}

fn cut(text: &str) -> String {
    printable::shortened(text, WHY_MAX)
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
