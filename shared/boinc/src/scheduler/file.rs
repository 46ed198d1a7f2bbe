//! A file that a project names (BOINC: `file_info`).

use fallow_domain::{Bytes, Duration};

use super::{block, check_name};
use crate::FormatError;
use crate::xml::{Reader, Tag, Writer};

/// What makes a `<url>` an upload URL.
const UPLOAD_HANDLER: &str = "file_upload_handler";

/// A file to download, or one that a job will produce.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileInfo {
    /// Its name in the project's directory.
    pub name: String,
    /// Where it can be had, in the order to try.
    pub download_urls: Vec<String>,
    /// Where it must be sent. On the wire, a `<url>` with `file_upload_handler` in it, or an `<upload_url>`.
    pub upload_urls: Vec<String>,
    /// Where it can be had compressed.
    pub gzipped_urls: Vec<String>,
    /// Its size when compressed.
    pub gzipped_nbytes: Option<Bytes>,
    /// MD5 of its content, 32 hexadecimal digits.
    pub md5_cksum: Option<String>,
    /// Its size.
    pub nbytes: Option<Bytes>,
    /// The size that an output file must not exceed.
    pub max_nbytes: Option<Bytes>,
    /// True if it is to be executable.
    pub executable: bool,
    /// True if it may be used with a valid signature only. Every file of an application version needs one
    /// anyway.
    pub signature_required: bool,
    /// The project's signature of its MD5, in text form.
    pub file_signature: Option<String>,
    /// The project's permission to upload it, in text form.
    pub xml_signature: Option<String>,
    /// True if it stays when no job needs it.
    pub sticky: bool,
    /// How long it stays then.
    pub sticky_lifetime: Option<Duration>,
    /// How dearly the project wants it kept, from 1, the default, to 5 (R4.7; BOINC: `priority`). As it was
    /// written: who uses it takes the nearest level.
    pub priority: Option<i64>,
    /// After how many days the project no longer cares for it (R4.7; BOINC: `exp_days`).
    pub exp_days: Option<f64>,
    /// True if it is to be compressed before it is uploaded.
    pub gzip_when_done: bool,
    /// True for an output file. Clients of today tell it by the upload URL; older ones need this.
    pub generated_locally: bool,
    /// True for an output file that is uploaded when it is there. As above.
    pub upload_when_present: bool,
}

impl FileInfo {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut file = Self::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "name" => reader.set(&tag, &mut file.name)?,
                "url" => file.take_url(reader, &tag)?,
                "download_url" => reader.push(&tag, &mut file.download_urls)?,
                "upload_url" => reader.push(&tag, &mut file.upload_urls)?,
                "gzipped_url" => reader.push(&tag, &mut file.gzipped_urls)?,
                "gzipped_nbytes" => reader.set(&tag, &mut file.gzipped_nbytes)?,
                "md5_cksum" => reader.set(&tag, &mut file.md5_cksum)?,
                "nbytes" => reader.set(&tag, &mut file.nbytes)?,
                "max_nbytes" => reader.set(&tag, &mut file.max_nbytes)?,
                "executable" => reader.set(&tag, &mut file.executable)?,
                "signature_required" => reader.set(&tag, &mut file.signature_required)?,
                "file_signature" => file.file_signature = block(reader, &tag)?,
                "xml_signature" => file.xml_signature = block(reader, &tag)?,
                "sticky" => reader.set(&tag, &mut file.sticky)?,
                "sticky_lifetime" => reader.set(&tag, &mut file.sticky_lifetime)?,
                "priority" => reader.set(&tag, &mut file.priority)?,
                "exp_days" => reader.set(&tag, &mut file.exp_days)?,
                "gzip_when_done" => reader.set(&tag, &mut file.gzip_when_done)?,
                "generated_locally" => reader.set(&tag, &mut file.generated_locally)?,
                "upload_when_present" => reader.set(&tag, &mut file.upload_when_present)?,
                _ => reader.skip(&tag)?,
            }
        }
        check_name(reader, parent, "name", &file.name)?;
        Ok(file)
    }

    fn take_url<'a>(&mut self, reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<(), FormatError> {
        if let Some(url) = reader.text(tag)? {
            let urls =
                if url.contains(UPLOAD_HANDLER) { &mut self.upload_urls } else { &mut self.download_urls };
            urls.push(url.into_owned());
        }
        Ok(())
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.open("file_info");
        writer.text("name", &self.name);
        for url in &self.download_urls {
            writer.text(if url.contains(UPLOAD_HANDLER) { "download_url" } else { "url" }, url);
        }
        for url in &self.upload_urls {
            writer.text(if url.contains(UPLOAD_HANDLER) { "url" } else { "upload_url" }, url);
        }
        for url in &self.gzipped_urls {
            writer.text("gzipped_url", url);
        }
        writer.value("gzipped_nbytes", &self.gzipped_nbytes);
        writer.value("md5_cksum", &self.md5_cksum);
        writer.value("nbytes", &self.nbytes);
        writer.value("max_nbytes", &self.max_nbytes);
        writer.flag("executable", self.executable);
        writer.flag("signature_required", self.signature_required);
        writer.raw_if_any("file_signature", self.file_signature.as_deref());
        writer.raw_if_any("xml_signature", self.xml_signature.as_deref());
        writer.flag("sticky", self.sticky);
        writer.value("sticky_lifetime", &self.sticky_lifetime);
        writer.value("priority", &self.priority);
        writer.value("exp_days", &self.exp_days);
        writer.flag("gzip_when_done", self.gzip_when_done);
        writer.flag("generated_locally", self.generated_locally);
        writer.flag("upload_when_present", self.upload_when_present);
        writer.close("file_info");
    }
}
