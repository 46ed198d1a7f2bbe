//! A scenario as a file that reads back equal. What has its base value is left out, but for the keys that
//! every reader looks for.

use std::fmt::Write;

use fallow_config::{write_bytes, write_duration};
use fallow_domain::{Flops, Fraction};

use super::super::{
    ApplicationModel, Availability, ClientModel, Estimate, HostModel, OffKind, OfficeHours, OutageModel,
    ProjectModel, QueuedJob, QueuedState, Scenario, Uses,
};
use super::hours::{write_days, write_hours};
use super::units::write_bandwidth;

impl Scenario {
    /// This scenario as a scenario file. A trace is named, not written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = Out(String::new());
        out.key("name", &quoted(&self.name));
        out.key("duration", &quoted(&write_duration(self.duration)));
        out.key_if(self.hosts.get() > 1, "hosts", &self.hosts.to_string());
        out.host(&self.host);
        out.client(&self.client);
        for project in &self.projects {
            out.project(project);
        }
        for outage in &self.outages {
            out.outage(outage);
        }
        out.0
    }
}

/// Text in quotes, with what needs it escaped.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A number that reads back equal, and as a floating-point number.
fn number(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        format!("{value:e}")
    } else {
        format!("{value:?}")
    }
}

/// A number, without a fraction if it has none.
fn short(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value}") } else { number(value) }
}

fn available(available: &Availability) -> String {
    match available {
        Availability::Always => quoted("always"),
        Availability::OnOff { fraction, mean } => {
            let mean = quoted(&write_duration(*mean));
            format!("{{ fraction = {}, mean = {mean} }}", number(fraction.get()))
        }
        Availability::Hours(hours) => {
            let OfficeHours { days, from, to, jitter, absent } = *hours;
            let mut text = format!("{{ days = {}, hours = ", quoted(&write_days(days)));
            text += &quoted(&write_hours(from, to));
            if jitter.is_positive() {
                text += &format!(", jitter = {}", quoted(&write_duration(jitter)));
            }
            if absent != Fraction::ZERO {
                text += &format!(", absent = {}", number(absent.get()));
            }
            text + " }"
        }
        Availability::Trace(trace) => format!("{{ trace = {} }}", quoted(&trace.file)),
    }
}

struct Out(String);

impl Out {
    fn key(&mut self, key: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }
    fn key_if(&mut self, wanted: bool, key: &str, value: &str) {
        if wanted {
            self.key(key, value);
        }
    }
    fn title(&mut self, title: &str) {
        let _ = writeln!(self.0, "\n{title}");
    }

    fn host(&mut self, host: &HostModel) {
        self.title("[host]");
        self.key("cpus", &host.cpus.to_string());
        self.key("flops", &number(host.flops.get()));
        self.key("available", &available(&host.available));
        self.key_if(host.off == OffKind::Shutdown, "off", &quoted("shutdown"));
        self.key("connection_interval", &quoted(&write_duration(host.connection_interval)));
        if let Some(memory) = host.memory {
            self.key("memory", &quoted(&write_bytes(memory)));
        }
        if let Some(disk) = host.disk {
            self.key("disk", &quoted(&write_bytes(disk)));
        }
        let ways = [("down", host.download), ("up", host.upload)];
        let ways = ways.into_iter().filter_map(|(way, speed)| Some((way, speed?)));
        let ways: Vec<String> =
            ways.map(|(way, speed)| format!("{way} = {}", quoted(&write_bandwidth(speed)))).collect();
        self.key_if(!ways.is_empty(), "network", &format!("{{ {} }}", ways.join(", ")));
        for coprocessor in &host.coprocessors {
            self.title("[[host.coprocessor]]");
            self.key("type", &quoted(coprocessor.kind.name()));
            self.key("count", &coprocessor.count.to_string());
            self.key("flops", &number(coprocessor.flops.get()));
        }
    }

    fn client(&mut self, client: &ClientModel) {
        let base = ClientModel::default();
        self.title("[client]");
        let ClientModel {
            scheduling_period,
            buffer,
            leave_in_memory,
            checkpoint_period,
            cpu_fraction,
            cpu_time_fraction,
            memory_fraction,
            disk_fraction,
            disk_free_min,
        } = *client;
        self.key("scheduling_period", &quoted(&write_duration(scheduling_period)));
        let (min, additional) =
            (quoted(&write_duration(buffer.min)), quoted(&write_duration(buffer.additional)));
        self.key("buffer", &format!("{{ min = {min}, additional = {additional} }}"));
        let differs = leave_in_memory != base.leave_in_memory;
        self.key_if(differs, "leave_in_memory", &leave_in_memory.to_string());
        let differs = checkpoint_period != base.checkpoint_period;
        self.key_if(differs, "checkpoint_period", &quoted(&write_duration(checkpoint_period)));
        for (key, own, base) in [
            ("cpu_fraction", cpu_fraction, base.cpu_fraction),
            ("cpu_time_fraction", cpu_time_fraction, base.cpu_time_fraction),
            ("memory_fraction", memory_fraction, base.memory_fraction),
            ("disk_fraction", disk_fraction, base.disk_fraction),
        ] {
            self.key_if(own != base, key, &number(own.get()));
        }
        let differs = disk_free_min != base.disk_free_min;
        self.key_if(differs, "disk_free_min", &quoted(&write_bytes(disk_free_min)));
    }

    fn project(&mut self, project: &ProjectModel) {
        self.title("[[project]]");
        self.key("name", &quoted(&project.name));
        self.key("share", &short(project.share.get()));
        self.key_if(project.available != Availability::Always, "available", &available(&project.available));
        let delay = project.request_delay;
        self.key_if(delay.is_positive(), "request_delay", &quoted(&write_duration(delay)));
        self.key_if(project.spread, "spread", "true");
        self.key_if(project.correction != 1.0, "correction", &number(project.correction));
        match project.applications.as_slice() {
            [only] if only.name == project.name && only.weight == 1.0 => self.application(only),
            several => {
                for application in several {
                    self.title("[[project.application]]");
                    self.key("name", &quoted(&application.name));
                    self.key("weight", &short(application.weight));
                    self.application(application);
                }
            }
        }
        for job in &project.queue {
            self.queued(job);
        }
    }

    fn outage(&mut self, outage: &OutageModel) {
        self.title("[[outage]]");
        self.key("name", &quoted(&outage.name));
        let names: Vec<String> = outage.projects.iter().map(|name| quoted(name)).collect();
        self.key_if(!names.is_empty(), "projects", &format!("[{}]", names.join(", ")));
        self.key("available", &available(&outage.available));
    }

    fn application(&mut self, application: &ApplicationModel) {
        let base = ApplicationModel::base("", 1);
        let own = application;
        self.key("latency_bound", &quoted(&write_duration(own.latency_bound)));
        self.key("estimated_flops", &number(own.estimated_flops.get()));
        let flops = |flops: Flops| number(flops.get());
        let (mean, deviation) = (flops(own.true_flops.mean), flops(own.true_flops.deviation));
        let spread = match own.true_flops.log_deviation {
            0.0 => format!("deviation = {deviation}"),
            log_deviation => format!("log_deviation = {}", short(log_deviation)),
        };
        self.key("true_flops", &format!("{{ mean = {mean}, {spread} }}"));
        let estimate = match own.estimate {
            Estimate::Fixed => "fixed",
            Estimate::True => "true",
        };
        self.key("estimate", &quoted(estimate));
        self.key_if(own.uses != Uses::ONE_CPU, "uses", &uses(own.uses));
        if let Some(checkpoint) = own.checkpoint {
            self.key("checkpoint", &quoted(&write_duration(checkpoint)));
        }
        for (key, own, base) in [
            ("input", own.input, base.input),
            ("output", own.output, base.output),
            ("memory", own.memory, base.memory),
        ] {
            self.key_if(own != base, key, &quoted(&write_bytes(own)));
        }
        if let Some(jobs) = own.jobs {
            self.key("jobs", &jobs.to_string());
        }
        self.key_if(own.failure != Fraction::ZERO, "failure", &number(own.failure.get()));
    }

    fn queued(&mut self, job: &QueuedJob) {
        self.title("[[project.queue]]");
        self.key("name", &quoted(&job.name));
        self.key("application", &quoted(&job.application));
        self.key("received", &quoted(&write_duration(job.received)));
        self.key("deadline", &quoted(&write_duration(job.deadline)));
        self.key_if(job.fraction_done != Fraction::ZERO, "fraction_done", &number(job.fraction_done.get()));
        self.key_if(job.elapsed.is_positive(), "elapsed", &quoted(&write_duration(job.elapsed)));
        if let Some(remaining) = job.remaining {
            self.key("remaining", &quoted(&write_duration(remaining)));
        }
        self.key_if(job.state != QueuedState::Waiting, "state", &quoted(job.state.name()));
    }
}

fn uses(uses: Uses) -> String {
    match uses.coprocessor {
        Some(used) => {
            format!("{{ cpus = {}, {} = {} }}", number(uses.cpus), used.kind, number(used.instances))
        }
        None => format!("{{ cpus = {} }}", number(uses.cpus)),
    }
}
