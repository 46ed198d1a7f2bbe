//! What `fallow-agent disk` shows: who uses what of the disk, what may be used and why, what went, what would
//! go next.

use std::fmt::Write as _;

use fallow_client::Client;
use fallow_domain::{Bytes, Instant};
use serde::{Deserialize, Serialize};

/// The disk of a host. Amounts are in bytes, times in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// When it was measured; none: not yet, and all amounts are 0.
    pub measured_at: Option<f64>,
    /// How long that took, in seconds, but for the time in which other programs had the CPUs.
    pub took: f64,
    /// The size of the volume.
    pub size: u64,
    /// What is free on it now.
    pub volume_free: u64,
    /// What agent and projects may use together.
    pub limit: u64,
    /// Which preference says so.
    pub limit_why: String,
    /// What they use, with what is kept for files on their way.
    pub used: u64,
    /// What the agent itself uses of that.
    pub own: u64,
    /// What waits to be removed: it is nobody's any more.
    #[serde(default)]
    pub trash: u64,
    /// What projects may still use.
    pub free: u64,
    /// By how much the limit is exceeded.
    pub over: u64,
    /// Why computing is suspended for want of space, if it is.
    pub suspended: Option<String>,
    /// The projects.
    pub projects: Vec<ProjectDisk>,
    /// What was done of late, and why.
    pub deeds: Vec<Deed>,
}

/// What one project has of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProjectDisk {
    /// Its URL.
    pub url: String,
    /// Its name.
    pub name: String,
    /// What it uses.
    pub used: u64,
    /// Of that, slots and files that nobody owns.
    pub other: u64,
    /// What it may use while all use theirs.
    pub limit: u64,
    /// What deletions could free.
    pub deletable: u64,
    /// The files that would go first, if any had to.
    pub next: Vec<NextFile>,
}

/// A file that would go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NextFile {
    /// Its name.
    pub name: String,
    /// What deleting it frees.
    pub bytes: u64,
    /// Why it is the next.
    pub why: String,
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deed {
    /// When.
    pub time: f64,
    /// Whose file or job it was.
    pub project: Option<String>,
    /// What, and why.
    pub text: String,
}

impl DiskStatus {
    /// As the client knows it.
    pub fn of(client: &mut Client) -> Self {
        let Some(view) = client.disk_view() else { return Self::default() };
        let url = |id| client.project_view(id).map(|view| view.url.to_string());
        let project = |disk: fallow_client::DiskProjectView| {
            let view = client.project_view(disk.id)?;
            let next = disk.next.into_iter().map(|(name, bytes, why)| NextFile {
                name: crate::files::shown(&name),
                bytes: bytes.0,
                why: why.to_string(),
            });
            Some(ProjectDisk {
                url: view.url.to_string(),
                name: view.name,
                used: disk.used.0,
                other: disk.other.0,
                limit: disk.limit.0,
                deletable: disk.deletable.0,
                next: next.collect(),
            })
        };
        let deed = |deed: fallow_client::DiskDeed| Deed {
            time: deed.at.as_secs_f64(),
            project: deed.project.and_then(url),
            text: fallow_domain::printable::joined(&deed.text, 2_000),
        };
        Self {
            measured_at: view.measured_at.map(Instant::as_secs_f64),
            took: view.took.as_secs_f64(),
            size: view.size.0,
            volume_free: view.volume_free.0,
            limit: view.limit.0,
            limit_why: view.limit_why,
            used: view.used.0,
            own: view.own.0,
            trash: view.trash.0,
            free: view.free.0,
            over: view.over.0,
            suspended: view.suspended,
            projects: view.projects.into_iter().filter_map(project).collect(),
            deeds: view.deeds.into_iter().map(deed).collect(),
        }
    }

    /// For people; with `why`, what was done and what would be done next as well.
    pub fn text(&self, now: Instant, why: bool) -> String {
        let mut out = String::new();
        let Some(measured_at) = self.measured_at.map(Instant::from_secs_f64) else {
            return "the disk has not been measured yet: ask again in a moment\n".to_owned();
        };
        let _ = writeln!(
            out,
            "volume: {}, {} free now; the files were counted {} ago",
            Bytes(self.size),
            Bytes(self.volume_free),
            now.since(measured_at)
        );
        let _ = writeln!(out, "limit:  {} ({})", Bytes(self.limit), self.limit_why);
        let _ = write!(out, "used:   {}, {} of it by the agent itself; ", Bytes(self.used), Bytes(self.own));
        let _ = match self.over {
            // What others have taken since it was measured is free for nobody.
            0 => writeln!(out, "{} free for projects", Bytes(self.free.min(self.volume_free))),
            over => writeln!(out, "{} too much", Bytes(over)),
        };
        if self.trash > 0 {
            let _ = writeln!(out, "beside: {} that wait to be removed", Bytes(self.trash));
        }
        if let Some(suspended) = &self.suspended {
            let _ = writeln!(out, "{suspended}");
        }
        if !self.projects.is_empty() {
            let _ = writeln!(
                out,
                "\n{:>10} {:>10} {:>10} {:>10}  PROJECT",
                "USED", "SLOTS", "ITS PART", "CAN GO"
            );
        }
        for one in &self.projects {
            let columns =
                [one.used, one.other, one.limit, one.deletable].map(|bytes| Bytes(bytes).to_string());
            let [used, other, limit, deletable] = columns;
            let who = if one.name.is_empty() { &one.url } else { &one.name };
            let _ = writeln!(out, "{used:>10} {other:>10} {limit:>10} {deletable:>10}  {who}");
        }
        if why {
            self.say_why(&mut out, now);
        }
        out
    }

    fn say_why(&self, out: &mut String, now: Instant) {
        let _ = writeln!(out, "\nWould go next, if space were needed:");
        let next =
            self.projects.iter().flat_map(|project| project.next.iter().map(move |file| (project, file)));
        let mut any = false;
        for (project, file) in next {
            any = true;
            let _ = writeln!(out, "  {} ({}) of {}: {}", file.name, Bytes(file.bytes), project.url, file.why);
        }
        if !any {
            let _ = writeln!(out, "  nothing: jobs need all files that are here");
        }
        let _ = writeln!(out, "\nDone since the agent was started:");
        for deed in &self.deeds {
            let ago = now.since(Instant::from_secs_f64(deed.time));
            let of = deed.project.as_ref().map(|url| format!(" ({url})")).unwrap_or_default();
            let _ = writeln!(out, "  {ago} ago: {}{of}", deed.text);
        }
        if self.deeds.is_empty() {
            let _ = writeln!(out, "  nothing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r4_1_no_more_is_said_to_be_free_for_projects_than_is_free() {
        let mut disk = DiskStatus { measured_at: Some(1.0), free: 3_000_000, ..DiskStatus::default() };
        for (volume_free, said) in
            [(9_000_000, "; 3 MB free for"), (1_000_000, "; 1 MB free for"), (0, "; 0 B free for")]
        {
            disk.volume_free = volume_free;
            let text = disk.text(Instant::from_secs_f64(2.0), false);
            assert!(text.contains(said), "{text}");
        }
    }
}
