//! What the agent says of itself, for people: lines and tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{Table, presets};
use fallow_domain::printable::{self, shell_word};
use fallow_domain::{DocumentVersion, Duration, Instant};

use super::notices::newest;
use super::status::{AppConfigStatus, HostStatus, ProjectStatus, Status, TaskStatus};
use crate::confine::{self, Layer};
use crate::host::owner::SensorStatus;
use crate::supervise::groups;

/// Longest name in a table, in bytes.
const NAME_MAX: usize = 255;
/// Longest text of others, in bytes.
const TEXT_MAX: usize = 2_000;
/// Most rows of the table of jobs. Who wants all of them asks for JSON.
const ROWS_MAX: usize = 200;
/// Notices that are looked through for warnings.
const NOTICES_SHOWN: usize = 5;

impl HostStatus {
    /// Which layers of confinement are off that preferences require, for people; nothing where none is.
    pub fn lacking(&self) -> Option<String> {
        let lacks = self.lacks_layers.as_deref()?;
        let lacks = printable::line(lacks, TEXT_MAX);
        Some(format!("nothing is computed: preferences require layers of confinement that are off: {lacks}"))
    }
}

impl ProjectStatus {
    /// When it may be contacted, for what, and why not before. `rests`: no project is, which is said above.
    fn next_contact(&self, now: Instant, rests: bool) -> String {
        let ahead = |at: f64| Some(Instant::from_secs_f64(at)).filter(|at| *at > now).map(|at| at.since(now));
        let all = self.min_rpc.as_ref().and_then(|(at, why)| Some((*at, ahead(*at)?, why)));
        let mut parts: Vec<String> = all.iter().map(|(_, wait, why)| format!("in {wait} ({why})")).collect();
        for held in &self.held_types {
            // A wait that the other one covers says nothing.
            let covered = all.is_some_and(|(at, ..)| at >= held.until);
            if let Some(wait) = ahead(held.until).filter(|_| !covered) {
                let (resource, times) = (&held.resource, if held.failures == 1 { "" } else { "s in a row" });
                let failures = held.failures;
                parts.push(format!("{resource} work in {wait} ({failures} request{times} brought none)"));
            }
        }
        if let Some(why) = &self.enough {
            parts.push(format!("no more work ({why})"));
        }
        match (parts.is_empty(), rests) {
            (true, true) => "none now (see above)".to_owned(),
            (true, false) => "any time".to_owned(),
            (false, _) => parts.join("; "),
        }
    }
}

impl Status {
    /// For people. `now` is what deadlines are told against.
    pub fn text(&self, now: Instant) -> String {
        let mut out = String::new();
        let host = &self.host;
        if !self.line.is_empty() {
            let _ = writeln!(out, "{}", self.line);
        }
        // Where it lies, people are not told who do not administer the machine.
        let place = if self.dir.is_empty() { String::new() } else { format!(" in {}", self.dir) };
        let _ = writeln!(out, "agent {} (process {}){place}", self.version, self.pid);
        match &self.fleet {
            None => out.push_str("no coordinator\n"),
            Some(link) if link.connected => {
                let through = link.proxy.as_ref().map(|proxy| format!(" through the proxy at {proxy}"));
                let _ = writeln!(
                    out,
                    "linked to the coordinator at {} as {}{}",
                    link.coordinator,
                    link.agent_id,
                    through.unwrap_or_default()
                );
            }
            Some(link) => {
                let why = link.last_error.as_deref().unwrap_or("connecting");
                let _ = writeln!(out, "no link to the coordinator at {}: {why}", link.coordinator);
            }
        }
        if let Some((version, why)) = &host.document_refused {
            let _ = writeln!(out, "document {version} was refused: {why}");
        }
        if let Some((version, why)) = &host.document_rolled_back {
            let _ = writeln!(out, "went back from document {version}: {why}");
        }
        let _ = writeln!(
            out,
            "{} of {} CPUs usable, {} idle; document version {}{}; {} of CPU time; {} over",
            host.usable_cpus,
            host.cpus,
            host.idle_cpus,
            host.document_version,
            if host.document_on_trial { " (on trial)" } else { "" },
            Duration::from_secs_f64(host.cpu_time),
            count(host.jobs_finished, "job")
        );
        if let Some(machine) = host.machine.text() {
            let _ = writeln!(out, "{machine}");
        }
        if host.suspended_by.is_none() && host.hours_change.is_some() {
            let until = host.hours_change.as_ref().map(|at| format!(", until {at}")).unwrap_or_default();
            let _ = writeln!(out, "this host may compute now (its hours: {}){until}", host.hours);
        }
        if let Some(last) =
            self.last_input.as_ref().filter(|_| host.suspended_by.as_deref() == Some("in use"))
        {
            let ago = now.since(Instant::from_secs_f64(last.at)).max(Duration::ZERO);
            let _ = writeln!(out, "used last: {}, {ago} ago", printable::line(&last.of, NAME_MAX));
        }
        if !self.sensors.is_empty() {
            let _ = writeln!(out, "who uses the machine is sensed by: {}", all_sensed(&self.sensors));
        }
        for sensor in [&self.memory_pressure, &self.network_traffic].into_iter().flatten() {
            let _ = writeln!(out, "{}", sensed(sensor));
        }
        if let Some(why) = &host.network_rests {
            let _ = writeln!(out, "no project is contacted: {why}");
        }
        if let Some(why) = &host.files_wait {
            let _ = writeln!(out, "files wait: {why}");
        }
        if !host.excluded_devices.is_empty() {
            let _ = writeln!(out, "devices that are not used: {}", host.excluded_devices.join(", "));
        }
        if let Some(trouble) = &self.store_trouble {
            let _ = writeln!(out, "nothing new is begun: {trouble}");
        }
        for trouble in &self.preference_troubles {
            let _ = writeln!(out, "a preference file is wrong: {trouble}");
        }
        if let Some(text) = host.lacking() {
            let _ = writeln!(out, "{text}");
        }
        self.say_confinement(&mut out);
        for url in &host.declined {
            let _ = writeln!(
                out,
                "{url} is the coordinator's and detached by the owner; take it up again with: fallow-agent attach {}",
                shell_word(url)
            );
        }
        self.device_table(&mut out);
        self.project_table(&mut out, now);
        self.task_table(&mut out, now);
        for notice in newest(&self.notices, NOTICES_SHOWN).into_iter().filter(|notice| notice.level != "info")
        {
            let ago = now.since(Instant::from_secs_f64(notice.time));
            let about = notice.project_url.as_deref().map(|url| format!(", {}", self.project_name(url)));
            let _ = writeln!(
                out,
                "{} ({ago} ago{}): {}",
                notice.level,
                about.unwrap_or_default(),
                printable::line(&notice.text, TEXT_MAX)
            );
        }
        out
    }

    /// What keeps jobs in their slots, in a line, and in one more for each reason why something does not.
    fn say_confinement(&self, out: &mut String) {
        let named =
            |layers: &[&Layer]| layers.iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>().join(", ");
        let (on, off): (Vec<&Layer>, Vec<&Layer>) = self.confinement.iter().partition(|layer| layer.on);
        if !on.is_empty() {
            let _ = writeln!(out, "jobs are confined: {}", named(&on));
        }
        let mut reasons: BTreeMap<&str, Vec<&Layer>> = BTreeMap::new();
        for layer in off {
            let without = match layer.name.as_str() {
                groups::LAYER => Some("jobs are in no control groups"),
                confine::USER => Some("jobs have no users of their own"),
                confine::TMP => Some("jobs have no /tmp of their own"),
                _ => None,
            };
            if let Some(without) = without {
                let _ = writeln!(out, "{without}: {}", printable::line(&layer.why, TEXT_MAX));
                continue;
            }
            reasons.entry(layer.why.as_str()).or_default().push(layer);
        }
        for (why, layers) in reasons {
            let _ = writeln!(
                out,
                "jobs are not confined: {} ({})",
                named(&layers),
                printable::line(why, TEXT_MAX)
            );
        }
    }

    /// What people call a project.
    fn project_name(&self, url: &str) -> String {
        let named = self.projects.iter().find(|project| project.url == url && !project.name.is_empty());
        named.map_or_else(|| url.to_owned(), |project| shown(&project.name))
    }

    fn device_table(&self, out: &mut String) {
        let mut table = table(&["DEVICE", "MODEL", "MEMORY", "DRIVER", "HEAT", "STATE", "JOBS"]);
        for device in &self.host.devices {
            let jobs: Vec<String> = device.jobs.iter().map(|name| shown(name)).collect();
            table.add_row([
                device.device.clone(),
                shown(&device.model),
                format!("{} MiB", device.memory >> 20),
                shown(&device.driver),
                device.temperature.map_or_else(|| "-".to_owned(), |degrees| format!("{degrees} °C")),
                printable::line(&device.state, TEXT_MAX),
                jobs.join(", "),
            ]);
        }
        // Before the first look at the machine nobody knows.
        if self.host.cpus > 0 {
            finish(out, &table, self.host.devices.is_empty(), "GPUs: none");
        }
    }

    fn project_table(&self, out: &mut String, now: Instant) {
        let mut table = table(&["PROJECT", "SHARE", "DEBT", "CPU TIME", "JOBS OK/ERR/LATE", "NEXT CONTACT"]);
        for project in &self.projects {
            let [ok, error, late] = project.jobs;
            table.add_row([
                self.project_name(&project.url),
                format!("{:.0}", project.share),
                format!("{:+.1} s", project.debt),
                Duration::from_secs_f64(project.cpu_time).to_string(),
                format!("{ok}/{error}/{late}"),
                project.next_contact(now, self.host.network_rests.is_some()),
            ]);
        }
        finish(out, &table, self.projects.is_empty(), no_projects(self));
        for project in &self.projects {
            if let Some(file) = &project.app_config {
                Self::say_app_config(out, &self.project_name(&project.url), file);
            }
            if let Some((at, said)) = &project.no_work {
                let (name, ago) = (self.project_name(&project.url), now.since(Instant::from_secs_f64(*at)));
                let _ = writeln!(
                    out,
                    "{name} sent no work {ago} ago and said: {}",
                    printable::line(said, TEXT_MAX)
                );
            }
        }
    }

    /// Where a job stands, and for what one waits that might run.
    fn state_of(&self, task: &TaskStatus) -> String {
        let waits = matches!(task.phase.as_str(), "ready" | "preempted");
        let why = match () {
            () if !waits => "",
            () if self.host.suspended_by.is_some() => " (computing rests)",
            () if self.store_trouble.is_some() => " (nothing new is begun)",
            () => "",
        };
        format!("{}{why}", task.phase)
    }

    /// What the owner says of a project's applications, and what is wrong with how he says it.
    fn say_app_config(out: &mut String, name: &str, file: &AppConfigStatus) {
        if !file.says.is_empty() {
            let says = printable::line(&file.says.join("; "), TEXT_MAX);
            let _ = writeln!(out, "{name}, by app_config.xml: {says}");
        }
        for remark in &file.remarks {
            let remark = printable::line(remark, TEXT_MAX);
            let _ = match file.is_wrong {
                true => {
                    writeln!(out, "{name}: nothing is begun until its app_config.xml is mended: {remark}")
                }
                false => writeln!(out, "{name}, app_config.xml, {remark}"),
            };
        }
    }

    fn task_table(&self, out: &mut String, now: Instant) {
        let mut table = table(&["JOB", "PROJECT", "STATE", "DONE", "CPU TIME", "CHECKPOINT", "DUE IN"]);
        for task in self.tasks.iter().take(ROWS_MAX) {
            table.add_row([
                shown(&task.name),
                self.project_name(&task.project_url),
                self.state_of(task),
                format!("{:.1} %", task.fraction_done * 100.0),
                Duration::from_secs_f64(task.cpu_time).to_string(),
                Duration::from_secs_f64(task.checkpoint_cpu_time).to_string(),
                (Instant::from_secs_f64(task.deadline) - now).to_string(),
            ]);
        }
        finish(out, &table, self.tasks.is_empty(), "no jobs");
        let more = self.tasks.len().saturating_sub(ROWS_MAX) + self.tasks_left_out;
        if more > 0 {
            let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
            for task in self.tasks.iter().skip(ROWS_MAX) {
                *phases.entry(task.phase.as_str()).or_default() += 1;
            }
            let phases: Vec<String> =
                phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
            let _ =
                writeln!(out, "... and {more} jobs more ({}); status --json lists them", phases.join(", "));
        }
    }
}

/// Where a machine without projects gets one from.
pub(super) fn no_projects(status: &Status) -> &'static str {
    match &status.fleet {
        None => "no projects; attach one with: fallow-agent attach URL",
        Some(_) if status.host.document_refused.is_some() => {
            "no projects: a document of the coordinator's was refused"
        }
        Some(_) if !status.host.declined.is_empty() => {
            "no projects: the coordinator's are detached by the owner"
        }
        Some(link) if !link.connected && status.host.document_version == DocumentVersion::default() => {
            "no projects: the coordinator was not reached yet"
        }
        Some(_) => "no projects: the coordinator names none so far",
    }
}

/// Longest reason of a sensor in the text, in bytes; JSON has all of it.
const REASON_MAX: usize = 70;

/// A sensor for people: what it has, or in short why it is off.
fn sensed(SensorStatus { sensor, on, what }: &SensorStatus) -> String {
    // The system's number of an error says nothing that its words do not.
    let what = what.split(" (os error ").next().unwrap_or_default();
    match on {
        true => format!("{sensor} on ({})", printable::line(what, NAME_MAX)),
        false => format!("{sensor} off ({})", printable::shortened(what, REASON_MAX)),
    }
}

/// Those that are on, then the others; those that are off for the same reason together.
fn all_sensed(sensors: &[SensorStatus]) -> String {
    let (on, off): (Vec<&SensorStatus>, Vec<_>) = sensors.iter().partition(|sensor| sensor.on);
    let mut said: Vec<String> = on.into_iter().map(sensed).collect();
    let mut whys: Vec<&str> = Vec::new();
    for SensorStatus { what, .. } in &off {
        if !whys.contains(&what.as_str()) {
            whys.push(what);
        }
    }
    for why in whys {
        let names = off.iter().filter(|sensor| sensor.what == why).map(|sensor| sensor.sensor.as_str());
        let sensor = names.collect::<Vec<_>>().join(", ");
        said.push(sensed(&SensorStatus { sensor, on: false, what: why.to_owned() }));
    }
    said.join("; ")
}

fn count(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// A name, as it is shown in a table.
fn shown(name: &str) -> String {
    printable::line(name, NAME_MAX)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

fn finish(out: &mut String, table: &Table, empty: bool, instead: &str) {
    if empty {
        let _ = writeln!(out, "{instead}");
    } else {
        for line in table.lines() {
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::status::HeldType;

    #[test]
    fn the_next_contact_tells_of_types_for_which_no_work_is_asked_for() {
        let now = Instant::from_secs_f64(1e9);
        let held = |wait: f64, failures| HeldType { resource: "CPU".into(), until: 1e9 + wait, failures };
        let project = |min_rpc: Option<f64>, held_types| ProjectStatus {
            url: "http://127.0.0.1:9/p/".into(),
            name: "primes".into(),
            share: 100.0,
            debt: 0.0,
            cpu_time: 0.0,
            jobs: [0; 3],
            min_rpc: min_rpc.map(|wait| (1e9 + wait, "a delay".into())),
            enough: None,
            from_document: true,
            held_types,
            no_work: None,
            app_config: None,
        };
        let text = |min_rpc, held_types| project(min_rpc, held_types).next_contact(now, false);
        assert_eq!(text(None, vec![]), "any time");
        assert_eq!(project(None, vec![]).next_contact(now, true), "none now (see above)");
        assert_eq!(text(None, vec![held(-1.0, 1)]), "any time");
        let wait = Duration::from_secs(600);
        let one = format!("CPU work in {wait} (1 request brought none)");
        assert_eq!(text(None, vec![held(600.0, 1)]), one);
        assert_eq!(text(Some(600.0), vec![held(300.0, 1)]), format!("in {wait} (a delay)"));
        let both = text(Some(60.0), vec![held(600.0, 3)]);
        assert!(both.starts_with("in ") && both.contains("(a delay); CPU work in "), "{both}");
        assert!(both.ends_with("(3 requests in a row brought none)"), "{both}");
        let stalls = ProjectStatus { enough: Some("its downloads stall".into()), ..project(None, vec![]) };
        assert_eq!(stalls.next_contact(now, false), "no more work (its downloads stall)");
    }

    #[test]
    fn r6_4_why_a_sensor_is_off_is_said_in_short_and_without_numbers_of_errors() {
        let of = |on, what: &str| {
            sensed(&SensorStatus { sensor: "sessions".to_owned(), on, what: what.to_owned() })
        };
        let long = format!("no logind on the system bus: {}: No such file (os error 2)", "x".repeat(200));
        let said = of(false, &long);
        assert!(said.starts_with("sessions off (no logind") && said.len() < 100, "{said}");
        assert_eq!(of(false, "/dev/input: Not there (os error 2)"), "sessions off (/dev/input: Not there)");
        assert_eq!(of(true, "as logind has them"), "sessions on (as logind has them)");
        let one =
            |sensor: &str, on, what: &str| SensorStatus { sensor: sensor.into(), on, what: what.into() };
        let nobody = "nobody sits here";
        let all = [one("keys", false, nobody), one("ttys", false, "none"), one("X", false, nobody)];
        assert_eq!(all_sensed(&all), "keys, X off (nobody sits here); ttys off (none)");
        assert_eq!(
            all_sensed(&[all[1].clone(), one("X", true, "all of it")]),
            "X on (all of it); ttys off (none)"
        );
        assert_eq!((count(1, "job"), count(2, "job")), ("1 job".to_owned(), "2 jobs".to_owned()));
    }
}
