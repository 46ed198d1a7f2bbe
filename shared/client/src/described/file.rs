//! Files: what projects say of them, and how versions and jobs refer to them.

use fallow_domain::{Bytes, Duration};
use serde::{Deserialize, Serialize};

/// What a project says of a file to download, or of one that a job will write (BOINC: `file_info`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileDescription {
    /// Its name in the project's directory.
    pub name: String,
    /// Where it can be had, in the order to try.
    pub download_urls: Vec<String>,
    /// Where it must be sent, in the order to try.
    pub upload_urls: Vec<String>,
    /// Where it can be had compressed, in the order to try.
    pub gzipped_urls: Vec<String>,
    /// Its size when compressed.
    pub gzipped_nbytes: Option<Bytes>,
    /// MD5 of its content, 32 hexadecimal digits.
    #[serde(rename = "md5_cksum")]
    pub md5: Option<String>,
    /// Its size.
    pub nbytes: Option<Bytes>,
    /// The size that it must not exceed.
    pub max_nbytes: Option<Bytes>,
    /// It is to be executable.
    pub executable: bool,
    /// It may be used with a valid signature only. Every file of an application version needs one anyway.
    pub signature_required: bool,
    /// The project's signature of its MD5, in text form.
    #[serde(rename = "file_signature")]
    pub signature: Option<String>,
    /// The project's permission to upload it, in text form.
    pub xml_signature: Option<String>,
    /// It stays when no job needs it.
    pub sticky: bool,
    /// How long it stays then.
    pub sticky_lifetime: Option<Duration>,
    /// How dearly the project wants it kept, from 1, the default, to 5 (R4.7). As the project wrote it: who
    /// uses it takes the nearest level.
    #[serde(default)]
    pub priority: Option<i64>,
    /// After how long the project no longer cares for it (R4.7). Stored in days.
    #[serde(rename = "exp_days", default, with = "days")]
    pub expires_after: Option<Duration>,
    /// It is to be compressed before it is uploaded.
    pub gzip_when_done: bool,
    /// Said of a file that a job writes. Older clients need this; here the upload URL says it.
    pub generated_locally: bool,
    /// Said of a file that is uploaded when it is there. As above.
    pub upload_when_present: bool,
}

/// How an application version or a job refers to a file (BOINC: `file_ref`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileReference {
    /// The file's name in the project's directory.
    pub file_name: String,
    /// The name under which the application opens it in its slot; the file's own name if there is none.
    pub open_name: Option<String>,
    /// It is the program to start.
    pub main_program: bool,
    /// The application needs the file itself in its slot, not a link.
    pub copy_file: bool,
    /// It is an output that need not be there.
    pub optional: bool,
}

/// Durations stored as a number of days.
mod days {
    use fallow_domain::Duration;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, target: S) -> Result<S::Ok, S::Error> {
        time.map(Duration::as_days_f64).serialize(target)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<f64>::deserialize(source)?.map(Duration::from_days_f64))
    }
}
