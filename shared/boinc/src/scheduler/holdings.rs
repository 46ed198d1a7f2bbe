//! What a client holds: application versions, jobs, files, and messages from jobs.

use fallow_domain::{Bytes, Duration, InProgress, Instant, ResourceType, Speed, Usage};

use super::Coprocessor;
use crate::FormatError;
use crate::names::is_file_name;
use crate::xml::{Reader, Tag, Writer};

/// An application version that the client has (BOINC: `app_version` in `app_versions`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppVersionRef {
    /// The application's name.
    pub app_name: String,
    /// The version's number.
    pub version_num: u32,
    /// Its platform.
    pub platform: String,
    /// CPUs that a job of it uses.
    pub avg_ncpus: f64,
    /// What a job of it achieves.
    pub flops: Option<Speed>,
    /// Its plan class, empty for none.
    pub plan_class: String,
    /// The version of the application library in it.
    pub api_version: Option<String>,
    /// Added to its jobs' command lines.
    pub cmdline: String,
    /// Put before the names under which its files are opened.
    pub file_prefix: String,
    /// The coprocessors that a job of it uses.
    pub coproc: Option<Coprocessor>,
    /// True if limits on CPU time per second do not apply to it.
    pub dont_throttle: bool,
    /// True if its main program only runs another one.
    pub is_wrapper: bool,
    /// True if its jobs need a network.
    pub needs_network: bool,
}

impl AppVersionRef {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut version = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "app_name" => reader.set(&tag, &mut version.app_name)?,
                "version_num" => reader.set(&tag, &mut version.version_num)?,
                "platform" => reader.set(&tag, &mut version.platform)?,
                "avg_ncpus" => reader.set(&tag, &mut version.avg_ncpus)?,
                "flops" => reader.set(&tag, &mut version.flops)?,
                "plan_class" => reader.set(&tag, &mut version.plan_class)?,
                "api_version" => reader.set(&tag, &mut version.api_version)?,
                "cmdline" => reader.set(&tag, &mut version.cmdline)?,
                "file_prefix" => reader.set(&tag, &mut version.file_prefix)?,
                "coproc" => version.coproc = Some(Coprocessor::read(reader, &tag)?),
                "dont_throttle" => reader.set(&tag, &mut version.dont_throttle)?,
                "is_wrapper" => reader.set(&tag, &mut version.is_wrapper)?,
                "needs_network" => reader.set(&tag, &mut version.needs_network)?,
                _ => reader.skip(&tag)?,
            }
        }
        Ok(version)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.open("app_version");
        writer.text("app_name", &self.app_name);
        writer.value("version_num", &self.version_num);
        writer.text("platform", &self.platform);
        writer.value("avg_ncpus", &self.avg_ncpus);
        writer.value("flops", &self.flops);
        writer.text_if_any("plan_class", &self.plan_class);
        writer.value("api_version", &self.api_version);
        writer.text_if_any("cmdline", &self.cmdline);
        writer.text_if_any("file_prefix", &self.file_prefix);
        if let Some(coproc) = &self.coproc {
            coproc.write(writer);
        }
        writer.flag("dont_throttle", self.dont_throttle);
        writer.flag("is_wrapper", self.is_wrapper);
        writer.flag("needs_network", self.needs_network);
        writer.close("app_version");
    }
}

/// A job that the client holds and does not report (BOINC: `other_result`). A server takes jobs that it sent
/// and that are missing here for lost, and answers unknown ones with an abort: a client lists every job that
/// it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherResult {
    /// The job's name.
    pub name: String,
    /// Its application version, as an index into the request's list from 0.
    pub app_version: Option<u32>,
    /// Its plan class, empty for none.
    pub plan_class: String,
}

impl OtherResult {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut job = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut job.name)?,
                "app_version" => reader.set(&tag, &mut job.app_version)?,
                "plan_class" => reader.set(&tag, &mut job.plan_class)?,
                _ => reader.skip(&tag)?,
            }
        }
        Ok(job)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("other_result", |w| {
            w.text("name", &self.name);
            w.value("app_version", &self.app_version);
            w.text_if_any("plan_class", &self.plan_class);
        });
    }
}

/// A job in progress with its estimate (BOINC: `ip_result`); sent only to projects that ask for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InProgressResult {
    /// The job's name, empty if it has none that can be one: it runs all the same.
    pub name: String,
    /// Its deadline.
    pub report_deadline: Instant,
    /// How much longer it is expected to run.
    pub time_remaining: Duration,
    /// CPUs that it uses.
    pub avg_ncpus: f64,
    /// The coprocessors that it uses (BOINC: `ncudas`, `natis`, `nintel_gpus`; BOINC names no others here).
    pub coprocessor: Option<(ResourceType, f64)>,
}

const COPROCESSORS: [(&str, ResourceType); 3] =
    [("ncudas", ResourceType::Nvidia), ("natis", ResourceType::Amd), ("nintel_gpus", ResourceType::Intel)];

impl From<&InProgressResult> for InProgress {
    /// What a server plans with (R5.6).
    fn from(job: &InProgressResult) -> Self {
        let usage = Usage::from_cpus(job.avg_ncpus);
        Self {
            deadline: job.report_deadline,
            remaining: job.time_remaining,
            usage: job.coprocessor.map_or(usage, |(kind, count)| usage.with_coprocessor(kind, count)),
        }
    }
}

impl InProgressResult {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut job = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut job.name)?,
                "report_deadline" => reader.set(&tag, &mut job.report_deadline)?,
                // Clients write the first, servers look for the second.
                "time_remaining" | "cpu_time_remaining" => reader.set(&tag, &mut job.time_remaining)?,
                "avg_ncpus" => reader.set(&tag, &mut job.avg_ncpus)?,
                name => match COPROCESSORS.iter().find(|(element, _)| *element == name) {
                    Some((_, kind)) => {
                        let mut count = 0.0;
                        reader.set(&tag, &mut count)?;
                        job.coprocessor = (count > 0.0).then_some((*kind, count)).or(job.coprocessor);
                    }
                    None => reader.skip(&tag)?,
                },
            }
        }
        if !is_file_name(&job.name) {
            job.name.clear();
        }
        Ok(job)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("ip_result", |w| {
            w.text("name", &self.name);
            w.value("report_deadline", &self.report_deadline);
            w.value("time_remaining", &self.time_remaining);
            w.value("cpu_time_remaining", &self.time_remaining);
            w.value("avg_ncpus", &self.avg_ncpus);
            if let Some((kind, count)) = &self.coprocessor
                && let Some((element, _)) = COPROCESSORS.iter().find(|(_, known)| known == kind)
            {
                w.value(element, count);
            }
        });
    }
}

/// A file that the client keeps without a job that needs it (BOINC: `file_info` in a request).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StickyFile {
    /// Its name.
    pub name: String,
    /// Its size.
    pub nbytes: Bytes,
    /// 1 if it is there, 0 if not yet, negative for an error.
    pub status: i32,
}

impl StickyFile {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut file = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut file.name)?,
                "nbytes" => reader.set(&tag, &mut file.nbytes)?,
                "status" => reader.set(&tag, &mut file.status)?,
                _ => reader.skip(&tag)?,
            }
        }
        Ok(file)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("file_info", |w| {
            w.text("name", &self.name);
            w.double("nbytes", self.nbytes.as_f64());
            w.value("status", &self.status);
        });
    }
}

/// A message from a running job to its project (BOINC: `msg_from_host`, a trickle-up).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrickleUp {
    /// The job.
    pub result_name: String,
    /// When it was made.
    pub time: Instant,
    /// What the application wrote, byte for byte: `<variety>` and a body.
    pub text: String,
}

impl TrickleUp {
    pub(super) fn read(reader: &mut Reader<'_>, tag: &Tag<'_>) -> Result<Self, FormatError> {
        let (result_name, time, text) = trickle(reader.raw(tag)?)?;
        Ok(Self { result_name, time, text })
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("msg_from_host", |w| {
            w.text("result_name", &self.result_name);
            w.value("time", &self.time);
            w.verbatim("msg_from_host", &self.text);
        });
    }
}

/// Takes a trickle apart: two elements on lines of their own, then a body that is nobody's business here.
pub(super) fn trickle(raw: &[u8]) -> Result<(String, Instant, String), FormatError> {
    let (mut name, mut time, mut body) = (String::new(), Instant::EPOCH, String::new());
    for line in raw.split_inclusive(|&byte| byte == b'\n') {
        let mut reader = Reader::new("trickle", line);
        let trimmed = line.trim_ascii();
        if name.is_empty() && trimmed.starts_with(b"<result_name>") {
            let tag = reader.root("result_name")?;
            reader.set(&tag, &mut name)?;
        } else if time == Instant::EPOCH && trimmed.starts_with(b"<time>") {
            let tag = reader.root("time")?;
            reader.set(&tag, &mut time)?;
        } else if !(trimmed.is_empty() && body.is_empty()) {
            body.push_str(&String::from_utf8_lossy(line));
        }
    }
    body.truncate(body.trim_end().len());
    Ok((name, time, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r5_6_a_server_plans_with_the_time_left_and_with_all_that_a_job_uses() {
        let (report_deadline, time_remaining) = (Instant::from_secs_f64(9.0), Duration::from_secs(5));
        let job = InProgressResult {
            report_deadline,
            time_remaining,
            avg_ncpus: 0.5,
            coprocessor: Some((ResourceType::Amd, 2.0)),
            ..InProgressResult::default()
        };
        let usage = Usage::from_cpus(0.5).with_coprocessor(ResourceType::Amd, 2.0);
        let planned = InProgress { deadline: report_deadline, remaining: time_remaining, usage };
        assert_eq!(InProgress::from(&job), planned);
        let nonsense = InProgressResult { avg_ncpus: f64::NAN, coprocessor: None, ..job };
        assert_eq!(InProgress::from(&nonsense).usage, Usage::ONE_CPU);
    }
}
