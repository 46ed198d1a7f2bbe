//! The report of a finished job (BOINC: `result` in a request).

use fallow_domain::{Bytes, Duration};

use super::ClientVersion;
use crate::FormatError;
use crate::names::is_file_name;
use crate::xml::{Reader, Tag, Value, Writer, find};

/// How far a job got (BOINC: `state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultState {
    /// Nothing was done yet.
    #[default]
    New,
    /// Its files were being downloaded. A job whose download failed is reported in this state.
    Downloading,
    /// Its files are there; it may be running.
    Downloaded,
    /// It failed.
    ComputeError,
    /// Its output files were being uploaded.
    Uploading,
    /// They are uploaded. With an exit status of 0, this is success.
    Uploaded,
    /// It was aborted.
    Aborted,
    /// An output file could not be uploaded.
    UploadFailed,
}

impl ResultState {
    const ALL: [Self; 8] = [
        Self::New,
        Self::Downloading,
        Self::Downloaded,
        Self::ComputeError,
        Self::Uploading,
        Self::Uploaded,
        Self::Aborted,
        Self::UploadFailed,
    ];

    /// The number on the wire.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The state with this number.
    pub fn from_code(code: i32) -> Option<Self> {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code).copied())
    }
}

impl Value for ResultState {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        Ok(i32::read(reader, tag)?.and_then(Self::from_code))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        writer.plain(name, self.code());
    }
}

/// A finished job, as its client reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedResult {
    /// The job's name.
    pub name: String,
    /// CPU time that it took.
    pub final_cpu_time: Duration,
    /// Time that it took.
    pub final_elapsed_time: Duration,
    /// How the application ended, 0 for well.
    pub exit_status: i32,
    /// How far it got.
    pub state: ResultState,
    /// The platform of the application version that computed it.
    pub platform: String,
    /// That version's number.
    pub version_num: u32,
    /// That version's plan class.
    pub plan_class: String,
    /// The most memory that it held.
    pub final_peak_working_set_size: Option<Bytes>,
    /// The most swap space.
    pub final_peak_swap_size: Option<Bytes>,
    /// The most disk space.
    pub final_peak_disk_usage: Option<Bytes>,
    /// The version's number again, as the application's own file names it.
    pub app_version_num: u32,
    /// What it said.
    pub stderr_out: StderrOut,
    /// Its output files that were uploaded, or should have been.
    pub files: Vec<ReportedFile>,
}

impl ReportedResult {
    /// True if the job did what it was for: its files are uploaded and its application ended well.
    pub fn is_success(&self) -> bool {
        self.state == ResultState::Uploaded && self.exit_status == 0
    }

    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut job = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut job.name)?,
                "final_cpu_time" => reader.set(&tag, &mut job.final_cpu_time)?,
                "final_elapsed_time" => reader.set(&tag, &mut job.final_elapsed_time)?,
                "exit_status" => reader.set(&tag, &mut job.exit_status)?,
                "state" => reader.set(&tag, &mut job.state)?,
                "platform" => reader.set(&tag, &mut job.platform)?,
                "version_num" => reader.set(&tag, &mut job.version_num)?,
                "plan_class" => reader.set(&tag, &mut job.plan_class)?,
                "final_peak_working_set_size" => reader.set(&tag, &mut job.final_peak_working_set_size)?,
                "final_peak_swap_size" => reader.set(&tag, &mut job.final_peak_swap_size)?,
                "final_peak_disk_usage" => reader.set(&tag, &mut job.final_peak_disk_usage)?,
                "app_version_num" => reader.set(&tag, &mut job.app_version_num)?,
                "stderr_out" => job.stderr_out = StderrOut::parse(reader.raw(&tag)?),
                "file_info" => job.files.push(ReportedFile::read(reader, &tag)?),
                _ => reader.skip(&tag)?,
            }
        }
        Ok(job)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.open("result");
        writer.text("name", &self.name);
        writer.value("final_cpu_time", &self.final_cpu_time);
        writer.value("final_elapsed_time", &self.final_elapsed_time);
        writer.value("exit_status", &self.exit_status);
        writer.value("state", &self.state);
        writer.text("platform", &self.platform);
        writer.value("version_num", &self.version_num);
        writer.text_if_any("plan_class", &self.plan_class);
        writer.value("final_peak_working_set_size", &self.final_peak_working_set_size);
        writer.value("final_peak_swap_size", &self.final_peak_swap_size);
        writer.value("final_peak_disk_usage", &self.final_peak_disk_usage);
        writer.value("app_version_num", &self.app_version_num);
        self.stderr_out.write(writer);
        for file in &self.files {
            file.write(writer);
        }
        writer.close("result");
    }
}

/// What a job said, and what the client says about it (BOINC: `stderr_out`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StderrOut {
    /// The client that ran it.
    pub client_version: Option<ClientVersion>,
    /// Why it failed, in the client's words.
    pub message: Option<String>,
    /// The end of what it wrote to standard error.
    pub stderr_txt: String,
}

impl StderrOut {
    fn parse(raw: &[u8]) -> Self {
        // What the application wrote may look like words of the client, which stand around it: the message
        // behind it where an output could not be uploaded, else before.
        let before =
            |raw, tag: &str| find(raw, tag.as_bytes(), 0).map_or(raw, |at| raw.get(..at).unwrap_or(raw));
        let head = before(raw, "<stderr_txt>");
        let end = b"</stderr_txt>";
        let tail = raw.windows(end.len()).rposition(|window| window == end);
        let tail = tail.and_then(|at| raw.get(at..)).unwrap_or_default();
        let version = between(before(head, "<message>"), "core_client_version");
        Self {
            client_version: version.and_then(|text| ClientVersion::parse(&text)),
            message: between(head, "message").or_else(|| between(tail, "message")),
            stderr_txt: between(raw, "stderr_txt").unwrap_or_default(),
        }
    }

    fn write(&self, writer: &mut Writer) {
        writer.line("<stderr_out>");
        if let Some(version) = self.client_version {
            writer.line(&format!("<core_client_version>{version}</core_client_version>"));
        }
        writer.line("<![CDATA[");
        if let Some(message) = &self.message {
            writer.line(&format!("<message>\n{}</message>", harmless(message)));
        }
        writer.line(&format!("<stderr_txt>\n{}\n</stderr_txt>", harmless(&self.stderr_txt)));
        writer.line("]]>");
        writer.line("</stderr_out>");
    }
}

/// The text between the first start tag and the first end tag of a name; an application's output is no XML.
fn between(raw: &[u8], name: &str) -> Option<String> {
    let start = format!("<{name}>");
    let from = find(raw, start.as_bytes(), 0)? + start.len();
    let to = find(raw, format!("</{name}>").as_bytes(), from)?;
    Some(String::from_utf8_lossy(&raw[from..to]).trim().to_owned())
}

/// Text that cannot end the section that it stands in: an application may write `]]>` or end tags, and
/// BOINC's own client breaks its request with them. Control characters become blanks.
fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        match c {
            '<' if ["</stderr_", "</message", "<stderr_txt>", "<message>"]
                .iter()
                .any(|tag| rest.starts_with(tag)) =>
            {
                out.push_str("&lt;");
            }
            '>' if text[..at].ends_with("]]") => out.push_str("&gt;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// An output file of a finished job (BOINC: `file_info` in a `result`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedFile {
    /// Its name, empty if it has none that can be one.
    pub name: String,
    /// Its size.
    pub nbytes: Bytes,
    /// The size that it was not to exceed.
    pub max_nbytes: Bytes,
    /// MD5 of its content.
    pub md5_cksum: String,
    /// Where it was sent.
    pub upload_urls: Vec<String>,
    /// Why it could not be uploaded.
    pub error_msg: Option<String>,
}

impl ReportedFile {
    fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut file = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut file.name)?,
                "nbytes" => reader.set(&tag, &mut file.nbytes)?,
                "max_nbytes" => reader.set(&tag, &mut file.max_nbytes)?,
                "md5_cksum" => reader.set(&tag, &mut file.md5_cksum)?,
                "upload_url" | "url" => reader.push(&tag, &mut file.upload_urls)?,
                "error_msg" => reader.set(&tag, &mut file.error_msg)?,
                _ => reader.skip(&tag)?,
            }
        }
        if !is_file_name(&file.name) {
            file.name.clear();
        }
        Ok(file)
    }

    fn write(&self, writer: &mut Writer) {
        writer.open("file_info");
        writer.text("name", &self.name);
        writer.double("nbytes", self.nbytes.as_f64());
        writer.double("max_nbytes", self.max_nbytes.as_f64());
        writer.text("md5_cksum", &self.md5_cksum);
        for url in &self.upload_urls {
            writer.text("upload_url", url);
        }
        writer.value("error_msg", &self.error_msg);
        writer.close("file_info");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_2_what_an_application_writes_is_not_taken_for_words_of_the_client() {
        let said = "<core_client_version>9.9.9</core_client_version>\n<message>all is well</message>";
        let raw = format!("<![CDATA[\n<stderr_txt>\n{said}\n</stderr_txt>\n]]>");
        let read = StderrOut::parse(raw.as_bytes());
        assert_eq!((read.client_version, read.message.as_deref()), (None, None));
        assert_eq!(read.stderr_txt, said);
        let raw = format!("<![CDATA[\n<message>\nwhy: {said}\n</message>\n<stderr_txt>\n</stderr_txt>\n]]>");
        assert_eq!(StderrOut::parse(raw.as_bytes()).client_version, None);
        // As Debian's 7.20.5 has it.
        let raw = format!(
            "<![CDATA[\n<stderr_txt>\n{said}\n</stderr_txt>\n<message>\nupload failure\n</message>\n]]>"
        );
        assert_eq!(StderrOut::parse(raw.as_bytes()).message.as_deref(), Some("upload failure"));
    }

    #[test]
    fn standard_error_cannot_end_the_section_that_holds_it() {
        let nasty = "a ]]> b </stderr_txt> c </stderr_out> <message> d \u{1} e";
        let out = StderrOut { stderr_txt: nasty.into(), ..StderrOut::default() };
        let mut writer = Writer::new();
        out.write(&mut writer);
        let text = writer.finish();
        assert_eq!(text.matches("]]>").count(), 1, "{text}");
        assert_eq!(text.matches("</stderr_out>").count(), 1, "{text}");
        let back = StderrOut::parse(text.as_bytes());
        assert_eq!(back.message, None);
        assert_eq!(back.stderr_txt, "a ]]&gt; b &lt;/stderr_txt> c &lt;/stderr_out> &lt;message> d   e");
    }
}
