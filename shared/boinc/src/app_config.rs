//! `app_config.xml`: what the owner of a host says of one project's applications (BOINC: the file of that
//! name in the project's directory).
//!
//! People write it by hand, and it limits: so it is read more strictly than what servers send. All that is
//! wrong is told at once, each with its line. A *fault* makes the whole file say nothing, for it may be what
//! was to limit; a *note* is about what says nothing by itself, such as an element that nobody knows, and the
//! rest holds.
//!
//! It is small and flat. A declaration (`<!DOCTYPE`, `<!ENTITY`) is a fault, and there are no entities but
//! those of XML: nothing in a file can grow while it is read.

use std::num::NonZeroU32;

use crate::FormatError;
use crate::xml::{Reader, Tag, find};

/// The file's name in a project's directory.
pub const APP_CONFIG: &str = "app_config.xml";
/// The longest file that is read.
pub const APP_CONFIG_MAX: usize = 64 * 1024;

/// Most applications and most versions that a file may have.
const ENTRIES_MAX: usize = 200;
/// Most remarks that are told of one file.
const REMARKS_MAX: usize = 20;
/// The longest name and command line, as BOINC's client holds them.
const TEXT_MAX: usize = 255;
/// Nothing has more CPUs or GPUs for one job.
const INSTANCES_MAX: f64 = 10_000.0;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppConfig {
    /// By application; the last one of a name counts.
    pub apps: Vec<AppSettings>,
    /// By version; the last one of an application and plan class counts, element by element.
    pub versions: Vec<VersionSettings>,
    /// How many jobs of the project may run at once.
    pub project_max_concurrent: Option<NonZeroU32>,
    /// Finished jobs are reported at once.
    pub report_results_immediately: bool,
}

/// What is said of an application (BOINC: `app`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppSettings {
    /// Its short name.
    pub name: String,
    /// How many of its jobs may run at once.
    pub max_concurrent: Option<NonZeroU32>,
    /// What its jobs on GPUs use (BOINC: `gpu_versions`).
    pub gpu_versions: Option<GpuUse>,
    /// The fraction done that its jobs report is proportional to time.
    pub fraction_done_exact: bool,
    /// Its finished jobs are reported at once.
    pub report_results_immediately: bool,
    /// The line where it begins.
    pub line: usize,
}

/// What a job on a GPU uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuUse {
    /// Of GPUs.
    pub gpu: f64,
    /// Of CPUs.
    pub cpu: f64,
}

/// What is said of a version of an application (BOINC: `app_version`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionSettings {
    /// The application's short name.
    pub app_name: String,
    /// The plan class; empty for the version without one.
    pub plan_class: String,
    /// CPUs that a job of it is counted with.
    pub avg_ncpus: Option<f64>,
    /// GPUs, where it uses some.
    pub ngpus: Option<f64>,
    /// What its jobs are started with, in the place of what the project adds to their command line.
    pub cmdline: Option<String>,
    /// The line where it begins.
    pub line: usize,
}

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl AppConfig {
    /// Reads a file: what it says, and the notes on it.
    ///
    /// # Errors
    /// All its faults, when it has any.
    pub fn parse(input: &[u8]) -> Result<(Self, Vec<Remark>), Vec<Remark>> {
        check_text(input).map_err(|fault| vec![fault])?;
        let mut parser =
            Parser { reader: Reader::new(APP_CONFIG, input), faults: Vec::new(), notes: Vec::new() };
        let read = parser.file();
        let Parser { mut faults, notes, .. } = parser;
        match read {
            Ok(file) if faults.is_empty() => Ok((file, notes)),
            Ok(_) => Err(faults),
            Err(error) => {
                faults.push(Remark { line: error.place.line, what: format!("expected {}", error.expected) });
                Err(faults)
            }
        }
    }

    /// What holds for an application, if something is said of it.
    pub fn app(&self, name: &str) -> Option<&AppSettings> {
        self.apps.iter().rev().find(|app| app.name == name)
    }

    /// What is said of a version: of several, the last one that says it.
    pub fn version<'a, 'b>(
        &'a self,
        app: &'b str,
        plan_class: &'b str,
    ) -> impl Iterator<Item = &'a VersionSettings> + use<'a, 'b> {
        self.versions.iter().rev().filter(move |one| one.app_name == app && one.plan_class == plan_class)
    }
}

/// Whether it is a text of XML at all.
fn check_text(input: &[u8]) -> Result<(), Remark> {
    let line = |at: usize| 1 + input.iter().take(at).filter(|&&byte| byte == b'\n').count();
    let fault = |at: usize, what: &str| Err(Remark { line: line(at), what: what.to_owned() });
    if input.len() > APP_CONFIG_MAX {
        let what = format!("the file is longer than {} KiB", APP_CONFIG_MAX / 1024);
        return Err(Remark { line: line(APP_CONFIG_MAX), what });
    }
    if let Err(error) = std::str::from_utf8(input) {
        return fault(error.valid_up_to(), "it is no text in UTF-8");
    }
    if let Some(at) = find(input, b"\0", 0) {
        return fault(at, "there is a NUL character in it");
    }
    for declaration in [b"<!DOCTYPE".as_slice(), b"<!ENTITY"] {
        if let Some(at) = find(input, declaration, 0) {
            return fault(at, "a declaration (<!DOCTYPE or <!ENTITY), which is not read; take it out");
        }
    }
    Ok(())
}

struct Parser<'a> {
    reader: Reader<'a>,
    faults: Vec<Remark>,
    notes: Vec<Remark>,
}

impl<'a> Parser<'a> {
    fn line(&self, tag: &Tag<'_>) -> usize {
        self.reader.error_at(tag, "").place.line
    }

    /// Tells only so many, for lines are counted from the beginning.
    fn remark(&mut self, tag: &Tag<'_>, what: String, is_fault: bool) {
        let told = if is_fault { self.faults.len() } else { self.notes.len() };
        if told >= REMARKS_MAX {
            return;
        }
        let remark = Remark { line: self.line(tag), what };
        let remarks = if is_fault { &mut self.faults } else { &mut self.notes };
        remarks.push(remark);
    }

    fn fault(&mut self, tag: &Tag<'_>, what: impl Into<String>) {
        self.remark(tag, what.into(), true);
    }

    /// The whole file is one element. What stands in a comment beside it, such as an older version, says
    /// nothing; another element beside it may be what was to limit.
    fn file(&mut self) -> Result<AppConfig, FormatError> {
        let root = match self.reader.next_element()? {
            Some(tag) if tag.name == "app_config" => tag,
            Some(tag) => {
                let expected = format!("<app_config>, not <{}>", shown(tag.name));
                return Err(self.reader.error_at(&tag, expected));
            }
            // Nothing is left where it could be: that is the error.
            None => self.reader.root("app_config")?,
        };
        let file = self.root(&root)?;
        if let Some(tag) = self.reader.next_element()? {
            let name = shown(tag.name);
            self.fault(
                &tag,
                format!("<{name}> follows </app_config>; all of the file belongs into one <app_config>"),
            );
        }
        Ok(file)
    }

    fn root(&mut self, root: &Tag<'a>) -> Result<AppConfig, FormatError> {
        let mut file = AppConfig::default();
        while let Some(tag) = self.reader.next_child(root)? {
            match tag.name {
                "app" if file.apps.len() < ENTRIES_MAX => {
                    let app = self.app(&tag)?;
                    if file.app(&app.name).is_some() {
                        let what = format!("<app> {} stands there twice: this one counts", shown(&app.name));
                        self.remark(&tag, what, false);
                    }
                    file.apps.push(app);
                }
                "app_version" if file.versions.len() < ENTRIES_MAX => {
                    let version = self.version(&tag)?;
                    file.versions.push(version);
                }
                "app" | "app_version" => {
                    self.fault(&tag, format!("there are more than {ENTRIES_MAX} of <{}>", tag.name));
                    self.reader.skip(&tag)?;
                }
                "project_max_concurrent" => file.project_max_concurrent = self.most(&tag)?,
                "report_results_immediately" => file.report_results_immediately = self.flag(&tag)?,
                _ => self
                    .unknown(&tag, "app, app_version, project_max_concurrent, report_results_immediately")?,
            }
        }
        Ok(file)
    }

    fn app(&mut self, parent: &Tag<'a>) -> Result<AppSettings, FormatError> {
        let mut app = AppSettings { line: self.line(parent), ..AppSettings::default() };
        while let Some(tag) = self.reader.next_child(parent)? {
            match tag.name {
                "name" => app.name = self.text(&tag)?,
                "max_concurrent" => app.max_concurrent = self.most(&tag)?,
                "gpu_versions" => app.gpu_versions = self.gpu_versions(&tag)?,
                "fraction_done_exact" => app.fraction_done_exact = self.flag(&tag)?,
                "report_results_immediately" => app.report_results_immediately = self.flag(&tag)?,
                _ => {
                    let known =
                        "name, max_concurrent, gpu_versions, fraction_done_exact, report_results_immediately";
                    self.unknown(&tag, known)?;
                }
            }
        }
        if app.name.is_empty() {
            self.fault(parent, "<app> has no <name>");
        }
        Ok(app)
    }

    fn gpu_versions(&mut self, parent: &Tag<'a>) -> Result<Option<GpuUse>, FormatError> {
        let (mut gpu, mut cpu) = (None, None);
        while let Some(tag) = self.reader.next_child(parent)? {
            match tag.name {
                "gpu_usage" => gpu = self.instances(&tag)?,
                "cpu_usage" => cpu = self.instances(&tag)?,
                _ => self.unknown(&tag, "gpu_usage, cpu_usage")?,
            }
        }
        let both = gpu.zip(cpu).map(|(gpu, cpu)| GpuUse { gpu, cpu });
        if both.is_none() {
            let what = "<gpu_versions> says nothing: it takes both <gpu_usage> and <cpu_usage> above 0";
            self.remark(parent, what.to_owned(), false);
        }
        Ok(both)
    }

    fn version(&mut self, parent: &Tag<'a>) -> Result<VersionSettings, FormatError> {
        let mut version = VersionSettings { line: self.line(parent), ..VersionSettings::default() };
        while let Some(tag) = self.reader.next_child(parent)? {
            match tag.name {
                "app_name" => version.app_name = self.text(&tag)?,
                "plan_class" => version.plan_class = self.text(&tag)?,
                "avg_ncpus" => version.avg_ncpus = self.instances(&tag)?,
                "ngpus" => version.ngpus = self.instances(&tag)?,
                "cmdline" => version.cmdline = Some(self.text(&tag)?).filter(|line| !line.is_empty()),
                _ => self.unknown(&tag, "app_name, plan_class, avg_ncpus, ngpus, cmdline")?,
            }
        }
        if version.app_name.is_empty() {
            self.fault(parent, "<app_version> has no <app_name>");
        }
        Ok(version)
    }

    /// An element that says nothing here.
    fn unknown(&mut self, tag: &Tag<'a>, known: &str) -> Result<(), FormatError> {
        let what = format!("<{}> is not known here and says nothing; known are {known}", shown(tag.name));
        self.remark(tag, what, false);
        self.reader.skip(tag)
    }

    /// The text of an element; empty, and a fault, where it has none.
    fn text(&mut self, tag: &Tag<'a>) -> Result<String, FormatError> {
        let text = self.reader.text(tag)?.map(|text| text.into_owned());
        Ok(match text {
            Some(text) if text.len() > TEXT_MAX => {
                self.fault(tag, format!("<{}> is longer than {TEXT_MAX} bytes", tag.name));
                String::new()
            }
            Some(text) if text.chars().any(char::is_control) => {
                self.fault(tag, format!("<{}> holds a control character", tag.name));
                String::new()
            }
            Some(text) => text,
            None => {
                self.fault(tag, format!("<{}> holds elements where a text belongs", tag.name));
                String::new()
            }
        })
    }

    fn value<T>(
        &mut self,
        tag: &Tag<'a>,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FormatError> {
        let text = self.reader.text(tag)?;
        let value = text.as_deref().and_then(read);
        if value.is_none() {
            let is = text.map_or_else(|| "elements".to_owned(), |text| format!("{:?}", shown(&text)));
            self.fault(tag, format!("<{}> is {is}; expected {expected}", tag.name));
        }
        Ok(value)
    }

    /// How many at once; none for 0, which is no limit.
    fn most(&mut self, tag: &Tag<'a>) -> Result<Option<NonZeroU32>, FormatError> {
        let most = self.value(tag, "a whole number, or 0 for no limit", |text| text.parse::<u32>().ok())?;
        Ok(most.and_then(NonZeroU32::new))
    }

    /// CPUs or GPUs, possibly a fraction; none for 0, which is as the project says.
    fn instances(&mut self, tag: &Tag<'a>) -> Result<Option<f64>, FormatError> {
        let number =
            |text: &str| text.parse::<f64>().ok().filter(|number| (0.0..=INSTANCES_MAX).contains(number));
        let count = self.value(tag, "a number that is not negative", number)?;
        Ok(count.filter(|count| *count > 0.0))
    }

    fn flag(&mut self, tag: &Tag<'a>) -> Result<bool, FormatError> {
        if tag.empty {
            return Ok(true);
        }
        let flag = |text: &str| match text {
            // `<x></x>` is the same as `<x/>`.
            "1" | "" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        Ok(self.value(tag, "0, 1 or nothing, as in <x/>", flag)?.unwrap_or_default())
    }
}

/// What a file has, for a remark on it.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
#[path = "app_config_tests.rs"]
mod tests;
