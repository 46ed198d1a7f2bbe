//! Workunits and the jobs made of them.

use fallow_domain::{Bytes, Flops, Instant};

use super::{FileRef, check_name};
use crate::FormatError;
use crate::xml::{Reader, Tag, Writer};

/// What jobs of it compute (BOINC: `workunit`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workunit {
    /// Its name.
    pub name: String,
    /// The application that computes it.
    pub app_name: String,
    /// How much there is to compute; BOINC takes 6.048e14 if the project does not say.
    pub rsc_fpops_est: Option<Flops>,
    /// The amount after which a job is stopped; BOINC takes 2.4192e15.
    pub rsc_fpops_bound: Option<Flops>,
    /// Memory that a job is expected to need; BOINC takes 1e8 bytes.
    pub rsc_memory_bound: Option<Bytes>,
    /// Disk space after which a job is stopped; BOINC takes 1e9 bytes.
    pub rsc_disk_bound: Option<Bytes>,
    /// Arguments for the application.
    pub command_line: String,
    /// Its input files.
    pub files: Vec<FileRef>,
}

impl Workunit {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut workunit = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut workunit.name)?,
                "app_name" => reader.set(&tag, &mut workunit.app_name)?,
                "rsc_fpops_est" => reader.set(&tag, &mut workunit.rsc_fpops_est)?,
                "rsc_fpops_bound" => reader.set(&tag, &mut workunit.rsc_fpops_bound)?,
                "rsc_memory_bound" => reader.set(&tag, &mut workunit.rsc_memory_bound)?,
                "rsc_disk_bound" => reader.set(&tag, &mut workunit.rsc_disk_bound)?,
                // Real servers send it twice, empty first.
                "command_line" => reader.set(&tag, &mut workunit.command_line)?,
                "file_ref" => workunit.files.push(FileRef::read(reader, &tag)?),
                _ => reader.skip(&tag)?,
            }
        }
        check_name(reader, parent, "name", &workunit.name)?;
        check_name(reader, parent, "app_name", &workunit.app_name)?;
        Ok(workunit)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.open("workunit");
        writer.value("rsc_fpops_est", &self.rsc_fpops_est);
        writer.value("rsc_fpops_bound", &self.rsc_fpops_bound);
        if let Some(bytes) = self.rsc_memory_bound {
            writer.double("rsc_memory_bound", bytes.as_f64());
        }
        if let Some(bytes) = self.rsc_disk_bound {
            writer.double("rsc_disk_bound", bytes.as_f64());
        }
        writer.text("name", &self.name);
        writer.text("app_name", &self.app_name);
        for file in &self.files {
            file.write(writer);
        }
        writer.text_if_any("command_line", &self.command_line);
        writer.close("workunit");
    }
}

/// A job given to the host (BOINC: `result` in a reply).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultJob {
    /// Its name.
    pub name: String,
    /// The workunit that it computes.
    pub wu_name: String,
    /// By when the server wants its report.
    pub report_deadline: Instant,
    /// Its output files.
    pub files: Vec<FileRef>,
    /// The platform of the application version to use; empty for the primary platform and the newest version.
    pub platform: String,
    /// That version's number.
    pub version_num: u32,
    /// That version's plan class.
    pub plan_class: String,
    /// True if it is to be reported as soon as it is done.
    pub report_immediately: bool,
}

impl ResultJob {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut job = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut job.name)?,
                "wu_name" => reader.set(&tag, &mut job.wu_name)?,
                "report_deadline" => reader.set(&tag, &mut job.report_deadline)?,
                "file_ref" => job.files.push(FileRef::read(reader, &tag)?),
                "platform" => reader.set(&tag, &mut job.platform)?,
                "version_num" => reader.set(&tag, &mut job.version_num)?,
                "plan_class" => reader.set(&tag, &mut job.plan_class)?,
                "report_immediately" => reader.set(&tag, &mut job.report_immediately)?,
                _ => reader.skip(&tag)?,
            }
        }
        check_name(reader, parent, "name", &job.name)?;
        check_name(reader, parent, "wu_name", &job.wu_name)?;
        Ok(job)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.open("result");
        writer.value("report_deadline", &self.report_deadline);
        writer.text("wu_name", &self.wu_name);
        writer.text("name", &self.name);
        for file in &self.files {
            file.write(writer);
        }
        writer.text("platform", &self.platform);
        writer.value("version_num", &self.version_num);
        writer.text("plan_class", &self.plan_class);
        writer.flag("report_immediately", self.report_immediately);
        writer.close("result");
    }
}
