//! Applications, their versions, and references from them to files.

use fallow_domain::Speed;

use super::{check_name, check_open_name};
use crate::FormatError;
use crate::xml::{Reader, Tag, Writer};

/// An application of a project (BOINC: `app`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct App {
    /// Its short name.
    pub name: String,
    /// Its name for people.
    pub user_friendly_name: String,
    /// True if its jobs use next to no CPU and always run.
    pub non_cpu_intensive: bool,
    /// True if the fraction done that its jobs report is proportional to time.
    pub fraction_done_exact: bool,
    /// True if its jobs compute only now and then.
    pub sporadic: bool,
}

impl App {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut app = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut app.name)?,
                "user_friendly_name" => reader.set(&tag, &mut app.user_friendly_name)?,
                "non_cpu_intensive" => reader.set(&tag, &mut app.non_cpu_intensive)?,
                "fraction_done_exact" => reader.set(&tag, &mut app.fraction_done_exact)?,
                "sporadic" => reader.set(&tag, &mut app.sporadic)?,
                _ => reader.skip(&tag)?,
            }
        }
        check_name(reader, parent, "name", &app.name)?;
        Ok(app)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("app", |w| {
            w.text("name", &self.name);
            w.text("user_friendly_name", &self.user_friendly_name);
            w.value("non_cpu_intensive", &self.non_cpu_intensive);
            w.value("fraction_done_exact", &self.fraction_done_exact);
            w.flag("sporadic", self.sporadic);
        });
    }
}

/// A version of an application for one platform (BOINC: `app_version`). Application, platform, version number
/// and plan class together identify it.
#[derive(Clone, Debug, PartialEq)]
pub struct AppVersion {
    /// The application's name.
    pub app_name: String,
    /// Its number: 100 times the major plus the minor one.
    pub version_num: u32,
    /// The platform that it runs on; empty for the client's primary one.
    pub platform: String,
    /// The kind of resources that it needs, empty for a plain CPU application.
    pub plan_class: String,
    /// The version of the application library in it. Without one, clients use no memory-mapped channel.
    pub api_version: Option<String>,
    /// Its files, one of them the main program.
    pub files: Vec<FileRef>,
    /// CPUs that a job of it uses, possibly a fraction. One unless the project says otherwise.
    pub avg_ncpus: f64,
    /// What a job of it achieves, in floating-point operations per second.
    pub flops: Option<Speed>,
    /// Added to the command line of its jobs.
    pub cmdline: String,
    /// The coprocessors that a job of it uses.
    pub coproc: Option<Coprocessor>,
    /// Put before the names under which its files are opened.
    pub file_prefix: String,
    /// True if limits on CPU time per second do not apply to it.
    pub dont_throttle: bool,
    /// True if its main program only runs another one.
    pub is_wrapper: bool,
    /// True if its jobs need a network while they run.
    pub needs_network: bool,
}

impl Default for AppVersion {
    fn default() -> Self {
        Self {
            app_name: String::new(),
            version_num: 0,
            platform: String::new(),
            plan_class: String::new(),
            api_version: None,
            files: Vec::new(),
            avg_ncpus: 1.0,
            flops: None,
            cmdline: String::new(),
            coproc: None,
            file_prefix: String::new(),
            dont_throttle: false,
            is_wrapper: false,
            needs_network: false,
        }
    }
}

impl AppVersion {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut version = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "app_name" => reader.set(&tag, &mut version.app_name)?,
                "version_num" => reader.set(&tag, &mut version.version_num)?,
                "platform" => reader.set(&tag, &mut version.platform)?,
                "plan_class" => reader.set(&tag, &mut version.plan_class)?,
                "api_version" => reader.set(&tag, &mut version.api_version)?,
                "file_ref" => version.files.push(FileRef::read(reader, &tag)?),
                "avg_ncpus" => reader.set(&tag, &mut version.avg_ncpus)?,
                "flops" => reader.set(&tag, &mut version.flops)?,
                "cmdline" => reader.set(&tag, &mut version.cmdline)?,
                "coproc" => version.coproc = Some(Coprocessor::read(reader, &tag)?),
                "file_prefix" => reader.set(&tag, &mut version.file_prefix)?,
                "dont_throttle" => reader.set(&tag, &mut version.dont_throttle)?,
                "is_wrapper" => reader.set(&tag, &mut version.is_wrapper)?,
                "needs_network" => reader.set(&tag, &mut version.needs_network)?,
                _ => reader.skip(&tag)?,
            }
        }
        check_name(reader, parent, "app_name", &version.app_name)?;
        Ok(version)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.open("app_version");
        writer.text("app_name", &self.app_name);
        writer.value("version_num", &self.version_num);
        writer.value("api_version", &self.api_version);
        for file in &self.files {
            file.write(writer);
        }
        writer.text_if_any("platform", &self.platform);
        writer.text_if_any("plan_class", &self.plan_class);
        writer.value("avg_ncpus", &self.avg_ncpus);
        writer.value("flops", &self.flops);
        writer.text_if_any("cmdline", &self.cmdline);
        if let Some(coproc) = &self.coproc {
            coproc.write(writer);
        }
        writer.text_if_any("file_prefix", &self.file_prefix);
        writer.flag("dont_throttle", self.dont_throttle);
        writer.flag("is_wrapper", self.is_wrapper);
        writer.flag("needs_network", self.needs_network);
        writer.close("app_version");
    }
}

/// Coprocessors that a job uses (BOINC: `coproc`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coprocessor {
    /// Their kind, such as `NVIDIA` (BOINC: `type`).
    pub kind: String,
    /// How many, possibly a fraction.
    pub count: f64,
}

impl Coprocessor {
    pub(crate) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut coproc = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "type" => reader.set(&tag, &mut coproc.kind)?,
                "count" => reader.set(&tag, &mut coproc.count)?,
                _ => reader.skip(&tag)?,
            }
        }
        Ok(coproc)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("coproc", |w| {
            w.text("type", &self.kind);
            w.value("count", &self.count);
        });
    }
}

/// A file of an application version or a job (BOINC: `file_ref`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileRef {
    /// The file's name in the project's directory.
    pub file_name: String,
    /// The name under which the application opens it in its slot; the file's own name if there is none.
    pub open_name: Option<String>,
    /// True for the program to start.
    pub main_program: bool,
    /// True if the application needs the file itself in its slot, not a link.
    pub copy_file: bool,
    /// True for an output file that need not be there.
    pub optional: bool,
}

impl FileRef {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut file = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "file_name" => reader.set(&tag, &mut file.file_name)?,
                "open_name" => reader.set(&tag, &mut file.open_name)?,
                "main_program" => reader.set(&tag, &mut file.main_program)?,
                "copy_file" => reader.set(&tag, &mut file.copy_file)?,
                "optional" => reader.set(&tag, &mut file.optional)?,
                _ => reader.skip(&tag)?,
            }
        }
        file.open_name = file.open_name.filter(|name| !name.is_empty());
        check_name(reader, parent, "file_name", &file.file_name)?;
        file.open_name.as_deref().map_or(Ok(()), |name| check_open_name(reader, parent, name))?;
        Ok(file)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("file_ref", |w| {
            w.text("file_name", &self.file_name);
            w.value("open_name", &self.open_name);
            w.flag("main_program", self.main_program);
            w.flag("copy_file", self.copy_file);
            w.flag("optional", self.optional);
        });
    }
}
