//! What of a status people see who do not administer the machine (R6.4): what runs and why, or why nothing
//! does.
//!
//! What is the owner's own stays with him: which programs he names, what his files say, where things lie, and
//! what is said to him. Whatever is in its place has the same form, for programs that read it.

use fallow_client::NAMING_PROGRAMS;
use fallow_daemon::clock;

use super::preferences::PreferenceStatus;
use super::status::{AppConfigStatus, HostStatus, ProjectStatus, Status};
use super::summary;
use crate::confine::Layer;
use crate::fleet::link::LinkStatus;

/// Why nothing can be stored, without where.
pub const NO_SPACE: &str = "no space left on the disk";

/// In place of reasons in which there may be what is the owner's own.
const UNTOLD: &str = "only the owner of the agent is told why";

impl Status {
    /// As people see it.
    #[must_use]
    pub fn for_people(self) -> Self {
        // Each field is named: of a new one it has to be said whether people see it.
        let Self {
            line: _,
            version,
            pid,
            dir: _,
            fleet,
            host,
            projects,
            tasks,
            tasks_left_out,
            notices: _,
            store_trouble,
            confinement,
            sensors,
            memory_pressure,
            network_traffic,
            last_input,
            mut preferences,
            mut preference_troubles,
        } = self;
        let naming = |one: &&mut PreferenceStatus| NAMING_PROGRAMS.contains(&one.key.as_str());
        preferences.iter_mut().filter(naming).for_each(PreferenceStatus::hide);
        preference_troubles.iter_mut().for_each(untold);
        let mut shown = Self {
            line: String::new(),
            version,
            pid,
            dir: String::new(),
            fleet: fleet.map(LinkStatus::for_people),
            host: host.for_people(),
            projects: projects.into_iter().map(ProjectStatus::for_people).collect(),
            tasks,
            tasks_left_out,
            notices: Vec::new(),
            store_trouble: store_trouble.map(|_| NO_SPACE.to_owned()),
            confinement: confinement.into_iter().map(Layer::for_people).collect(),
            sensors,
            memory_pressure,
            network_traffic,
            last_input,
            preferences,
            preference_troubles,
        };
        shown.line = summary::line(&shown, clock::now(), &summary::WallClock::system());
        shown
    }
}

impl HostStatus {
    fn for_people(mut self) -> Self {
        if std::mem::take(&mut self.is_program_named) {
            self.stopped_for = Some("a program runs that wants the machine for itself".to_owned());
        }
        if let Some(lacks) = &mut self.lacks_layers {
            untold(lacks);
            // The same is said there.
            self.stopped_for = None;
        }
        for device in self.devices.iter_mut().filter(|device| device.is_program_named) {
            device.is_program_named = false;
            "another program uses it or wants GPUs for itself".clone_into(&mut device.state);
        }
        for (_, why) in [&mut self.document_refused, &mut self.document_rolled_back].into_iter().flatten() {
            untold(why);
        }
        self
    }
}

impl ProjectStatus {
    fn for_people(mut self) -> Self {
        if let Some(AppConfigStatus { is_wrong, says, remarks }) = &mut self.app_config {
            says.clear();
            remarks.clear();
            if *is_wrong {
                remarks.push(UNTOLD.to_owned());
            }
        }
        self
    }
}

impl LinkStatus {
    fn for_people(mut self) -> Self {
        self.last_error.iter_mut().for_each(untold);
        self
    }
}

impl Layer {
    fn for_people(mut self) -> Self {
        if !self.on {
            untold(&mut self.why);
        }
        self
    }
}

fn untold(why: &mut String) {
    UNTOLD.clone_into(why);
}

#[cfg(test)]
mod tests {
    use fallow_domain::Instant;
    use serde_json::json;

    use super::*;

    /// A status in which the owner's own has `secret` in it, changed by `host`.
    fn status(host: &serde_json::Value) -> Status {
        let metrics = json!({
            "idleness": null, "waste": null, "share_violation": null, "share_deviation": null, "monotony": null,
        });
        let mut all = json!({
            "line": "resting: secret", "version": "1.2", "pid": 77, "dir": "/secret",
            "fleet": { "coordinator": "c", "agent_id": "a", "connected": false, "last_error": "/secret" },
            "tasks": [{
                "project_url": "http://a/", "name": "job", "phase": "preempted", "fraction_done": 0.5, "cpu_time": 1.0,
                "checkpoint_cpu_time": 1.0, "deadline": 1e9, "pid": null,
            }],
            "notices": [{ "time": 1e9, "level": "error", "project_url": null, "text": "secret runs" }],
            "store_trouble": "no space left in /secret",
            "confinement": [
                { "name": "files", "on": true, "why": "Landlock 6" },
                { "name": "user", "on": false, "why": "/secret: not there" },
                { "name": "calls", "on": false, "why": "/secret" },
            ],
            "preferences": [{
                "key": "exclusive_programs", "value": "secret", "source": "preferences.toml", "line": 2,
                "overruled": [{ "value": "secret2", "source": "cc_config.xml", "why": "" }],
            }],
            "preference_troubles": ["/secret/preferences.toml:1: x = secret", "/secret/global_prefs_override.xml"],
            "projects": [{
                "url": "http://a/", "name": "primes", "share": 100.0, "debt": 0.0, "cpu_time": 0.0, "jobs": [0, 0, 0],
                "min_rpc": null, "from_document": false,
                "app_config": { "is_wrong": true, "says": ["app is started with --secret"], "remarks": ["<secret>"] },
            }],
            "host": {
                "cpus": 4, "usable_cpus": 4, "idle_cpus": 4, "suspended_by": null, "document_version": 7,
                "document_refused": [8, "secret"], "document_rolled_back": [6, "secret"], "cpu_time": 0.0,
                "scheduler_rpcs": 0, "jobs_finished": 0, "metrics": [metrics.clone(), metrics.clone(), metrics],
                "devices": [{
                    "device": "nvidia:0", "model": "m", "address": "", "memory": 0, "driver": "1", "usable": false,
                    "state": "secret runs, which wants GPUs for itself", "jobs": [],
                }],
            },
        });
        all["host"].as_object_mut().unwrap().extend(host.as_object().unwrap().clone());
        let mut status: Status = serde_json::from_value(all).unwrap();
        status.host.devices[0].is_program_named = true;
        status.host.is_program_named = status.host.suspended_by.as_deref() == Some("other programs");
        status
    }

    #[test]
    fn r6_4_people_see_what_runs_and_why_nothing_does_and_nothing_that_is_the_owners_own() {
        for (host, line) in [
            (
                json!({ "suspended_by": "other programs", "stopped_for": "secret runs" }),
                "resting: a program runs that wants the machine for itself; goes on when that is over",
            ),
            (
                json!({ "suspended_by": "battery", "stopped_for": "the machine runs on its battery" }),
                "resting: the machine runs on its battery; goes on when that is over",
            ),
            (
                json!({ "suspended_by": "preference file", "stopped_for": "a preference file cannot be read" }),
                "suspended until a preference file is mended and taken (fallow-agent preferences reload): only the owner \
                 of the agent is told why",
            ),
            (
                json!({ "suspended_by": "confinement", "stopped_for": "off: secret", "lacks_layers": "user (/secret)" }),
                "suspended: required of jobs' confinement and off: only the owner of the agent is told why; who requires \
                 it says: fallow-agent preferences --why",
            ),
            (json!({}), "resting: nothing new is begun: no space left on the disk"),
        ] {
            let shown = status(&host).for_people();
            let (value, text) =
                (serde_json::to_value(&shown).unwrap(), shown.text(Instant::from_secs_f64(1e9)));
            assert_eq!(shown.line, line);
            assert!(!value.to_string().contains("secret") && !text.contains("secret"), "{value}\n{text}");
            for part in [
                "agent 1.2 (process 77)\n",
                "no link to the coordinator at c: only the owner of the agent is told why\n",
                "document 8 was refused: only the owner",
                "jobs have no users of their own: only the owner",
                "jobs are not confined: calls (only the owner of the agent is told why)\n",
                "another program uses it or wants GPUs for itself",
                "a preference file is wrong: only the owner",
                "primes: nothing is begun until its app_config.xml is mended: only the owner",
            ] {
                assert!(text.contains(part), "{part} in {text}");
            }
            // Programs find all the keys that they know.
            let keys =
                |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            let own = serde_json::to_value(status(&host)).unwrap();
            assert_eq!(keys(&value), keys(&own));
            assert_eq!(keys(&value["host"]), keys(&own["host"]));
            assert_eq!(keys(&value["projects"][0]), keys(&own["projects"][0]));
            let counted = |key: &str| value[key].as_array().unwrap().len();
            assert_eq!((counted("preference_troubles"), counted("notices"), counted("tasks")), (2, 0, 1));
        }
    }
}
