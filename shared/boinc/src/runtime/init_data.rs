//! `init_data.xml`: what a client tells an application when it starts it.
//!
//! Model: the client writes the file into the slot at each start, and again when preferences change (followed
//! by [`super::message::ProcessControl::RereadAppInfo`]). An application that finds none, or one that cannot
//! be read, runs standalone. Elements are read in any order, unknown ones are skipped, missing ones have the
//! values of [`AppInitData::default`].
//!
//! Not kept: the list of coprocessors in `host_info`.

use fallow_domain::{AccountKey, Duration, Instant};

use crate::FormatError;
use crate::scheduler::{GlobalPreferences, HostInfo};
use crate::xml::{Reader, Tag, Value, Writer, elements};

/// The `shm_key` that says: the channel is in [`super::files::CHANNEL`].
pub const MAPPED_CHANNEL: i32 = -1;

/// XML that is passed on as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub String);

/// Files of the application, for those that have to know (BOINC: `app_file`, repeated).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppFiles(pub Vec<String>);

elements! {
/// What `init_data.xml` says, in BOINC's order, each field under its element's name.
#[derive(Clone, Debug, PartialEq)]
pub struct AppInitData {
    /// The client's version.
    pub major_version: u32,
    /// The client's version, second part.
    pub minor_version: u32,
    /// The client's version, third part.
    pub release: u32,
    /// The application's version number, such as 100 for 1.00.
    pub app_version: u32,
    /// The account's number at the project.
    pub userid: u32,
    /// The team's number, 0 for none.
    pub teamid: u32,
    /// This host's number at the project.
    pub hostid: u32,
    /// The application's name.
    pub app_name: String,
    /// The version's plan class, if it has one.
    pub plan_class: Option<String>,
    /// Where debugging symbols are.
    pub symstore: Option<String>,
    /// The account manager, if there is one.
    pub acct_mgr_url: Option<String>,
    /// The project's own preferences, without the tags (BOINC: `project_specific`).
    pub project_preferences: Option<Raw>,
    /// The team's name.
    pub team_name: Option<String>,
    /// The account's name.
    pub user_name: Option<String>,
    /// Absolute path of the project's directory.
    pub project_dir: String,
    /// Absolute path of the client's data directory.
    pub boinc_dir: String,
    /// The account key; an application may need it to talk to its project.
    pub authenticator: AccountKey,
    /// The workunit's name.
    pub wu_name: String,
    /// The job's name.
    pub result_name: String,
    /// Where the channel is: [`MAPPED_CHANNEL`], or a key of SysV shared memory.
    pub shm_key: i32,
    /// The slot's number.
    pub slot: u32,
    /// The client's process. 0 if it is not known: then heartbeats tell whether it lives.
    pub client_pid: u32,
    /// CPU time of the job up to its last checkpoint.
    pub wu_cpu_time: Duration,
    /// Elapsed time of the job up to its last checkpoint.
    pub starting_elapsed_time: Duration,
    /// The client runs applications as another user.
    pub using_sandbox: bool,
    /// Virtual machines have no hardware support here.
    pub vm_extensions_disabled: bool,
    /// The account's credit.
    pub user_total_credit: f64,
    /// The account's recent average credit.
    pub user_expavg_credit: f64,
    /// This host's credit.
    pub host_total_credit: f64,
    /// This host's recent average credit.
    pub host_expavg_credit: f64,
    /// The project's share of this host, from 0 to 1.
    pub resource_share_fraction: f64,
    /// Checkpoint at most this often.
    pub checkpoint_period: Duration,
    /// What to report as fraction done at the application's own 0 ...
    pub fraction_done_start: f64,
    /// ... and at its own 1.
    pub fraction_done_end: f64,
    /// The coprocessor's type; empty for none.
    pub gpu_type: String,
    /// The coprocessor's number, -1 for none.
    pub gpu_device_num: i32,
    /// The same in OpenCL's order, -1 for none.
    pub gpu_opencl_dev_index: i32,
    /// How many of them the job uses.
    pub gpu_usage: f64,
    /// How many CPUs the job uses.
    pub ncpus: f64,
    /// The job's size in floating-point operations.
    pub rsc_fpops_est: f64,
    /// The size at which it is aborted.
    pub rsc_fpops_bound: f64,
    /// Memory it is expected to need, bytes.
    pub rsc_memory_bound: f64,
    /// Disk space at which it is aborted, bytes.
    pub rsc_disk_bound: f64,
    /// When the job has to be done, with time left to report it.
    pub computation_deadline: Instant,
    /// Show virtual machines in a window.
    pub vbox_window: bool,
    /// The client does not lower priorities.
    pub no_priority_change: bool,
    /// Priority of applications, -1 for the default.
    pub process_priority: i32,
    /// Priority of those that feed a coprocessor, -1 for the default.
    pub process_priority_special: i32,
    /// This host.
    pub host_info: HostInfo,
    /// The proxy, if one is set.
    pub proxy_info: Option<Raw>,
    /// The preferences in force.
    pub global_preferences: GlobalPreferences,
    /// Files of the application.
    pub app_file: AppFiles,
}
}

impl Default for AppInitData {
    fn default() -> Self {
        Self {
            major_version: 0,
            minor_version: 0,
            release: 0,
            app_version: 0,
            userid: 0,
            teamid: 0,
            hostid: 0,
            app_name: String::new(),
            plan_class: None,
            symstore: None,
            acct_mgr_url: None,
            project_preferences: None,
            team_name: None,
            user_name: None,
            project_dir: String::new(),
            boinc_dir: String::new(),
            authenticator: AccountKey::new(""),
            wu_name: String::new(),
            result_name: String::new(),
            shm_key: MAPPED_CHANNEL,
            slot: 0,
            client_pid: 0,
            wu_cpu_time: Duration::ZERO,
            starting_elapsed_time: Duration::ZERO,
            using_sandbox: false,
            vm_extensions_disabled: false,
            user_total_credit: 0.0,
            user_expavg_credit: 0.0,
            host_total_credit: 0.0,
            host_expavg_credit: 0.0,
            resource_share_fraction: 1.0,
            // BOINC's library checkpoints every 300 s when nobody tells it otherwise.
            checkpoint_period: Duration::from_secs(300),
            fraction_done_start: 0.0,
            fraction_done_end: 1.0,
            gpu_type: String::new(),
            gpu_device_num: -1,
            gpu_opencl_dev_index: -1,
            gpu_usage: 0.0,
            ncpus: 1.0,
            rsc_fpops_est: 0.0,
            rsc_fpops_bound: 0.0,
            rsc_memory_bound: 0.0,
            rsc_disk_bound: 0.0,
            computation_deadline: Instant::EPOCH,
            vbox_window: false,
            no_priority_change: false,
            process_priority: -1,
            process_priority_special: -1,
            host_info: HostInfo::default(),
            proxy_info: None,
            global_preferences: GlobalPreferences::default(),
            app_file: AppFiles::default(),
        }
    }
}

impl AppInitData {
    /// The file's text.
    pub fn write(&self) -> String {
        let mut writer = Writer::new();
        writer.open("app_init_data");
        self.put(&mut writer);
        writer.close("app_init_data");
        writer.finish()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`FormatError`] when there is no `app_init_data`, or it has no end.
    pub fn read(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new("init_data.xml", bytes);
        let root = reader.root("app_init_data")?;
        let mut data = Self::default();
        while let Some(tag) = reader.next_child(&root)? {
            // The one element that repeats.
            if tag.name == "app_file" {
                reader.push(&tag, &mut data.app_file.0)?;
            } else if !data.take(&mut reader, &tag)? {
                reader.skip(&tag)?;
            }
        }
        Ok(data)
    }
}

impl Value for Raw {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        Ok(Some(Self(reader.raw_text(tag)?)))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        writer.raw(name, &self.0);
    }
}

impl Value for AppFiles {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        Ok(String::read(reader, tag)?.map(|file| Self(vec![file])))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        self.0.iter().for_each(|file| writer.text(name, file));
    }
}

impl Value for AccountKey {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        Ok(String::read(reader, tag)?.map(Self::new))
    }
    fn write(&self, name: &str, writer: &mut Writer) {
        writer.text(name, self.reveal());
    }
}

/// Structures that stand inside as elements of their own.
macro_rules! nested {
    ($($kind:ty),*) => {$(
        impl Value for $kind {
            fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
                let mut value = Self::default();
                value.fill(reader, tag)?;
                Ok(Some(value))
            }
            fn write(&self, name: &str, writer: &mut Writer) {
                writer.nested(name, |writer| self.put(writer));
            }
        }
    )*};
}
nested!(HostInfo, GlobalPreferences);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Written by the stock client 7.20.5 in Debian for a project on loopback; keys and host are throwaway.
    const STOCK: &[u8] = include_bytes!("../../fixtures/init_data.xml");

    #[test]
    fn the_file_of_the_stock_client_is_read_whole() {
        let data = AppInitData::read(STOCK).unwrap();
        assert_eq!((data.major_version, data.minor_version, data.release), (7, 20, 5));
        assert_eq!((data.app_version, data.userid, data.hostid, data.slot), (100, 1, 1, 0));
        assert_eq!(data.app_name, "example_app");
        assert_eq!(data.user_name.as_deref(), Some("Alice"));
        assert_eq!(data.authenticator.reveal(), "dd53bc9df626e2c801c9de98d0629b14");
        assert_eq!(data.result_name, "example_app_q2_1795227565881306497_1_1");
        assert_eq!((data.shm_key, data.client_pid), (MAPPED_CHANNEL, 26_237));
        assert_eq!(data.checkpoint_period, Duration::from_secs(60));
        assert_eq!((data.fraction_done_start, data.fraction_done_end), (0.0, 1.0));
        assert_eq!(data.rsc_fpops_bound, 2e14);
        assert_eq!(data.computation_deadline, Instant::from_secs_f64(1_795_313_798.0));
        assert_eq!(data.host_info.p_ncpus, 2);
        assert_eq!(data.global_preferences.disk_interval, 60.0);
        assert_eq!(data.app_file.0, ["example_app_1.00_x86_64-pc-linux-gnu"]);
        assert_eq!(AppInitData::read(data.write().as_bytes()).unwrap(), data);
    }

    #[test]
    fn ours_has_the_elements_of_the_stock_file_in_the_same_order() {
        let text = AppInitData::read(STOCK).unwrap().write();
        let names = |text: &str| -> Vec<String> {
            let starts = text.lines().filter_map(|line| line.trim_start().strip_prefix('<'));
            starts.filter_map(|line| Some(line.split_once('>')?.0.to_owned())).collect()
        };
        // What only the old client writes, and the list of coprocessors.
        let mut stock = names(std::str::from_utf8(STOCK).unwrap());
        stock.retain(|name| !matches!(name.as_str(), "wsl_available" | "coprocs" | "/coprocs"));
        assert_eq!(names(&text), stock);
    }

    #[test]
    fn a_file_cut_short_anywhere_is_an_error_or_complete() {
        let end = b"</app_init_data>".len() + 1;
        for len in (0..STOCK.len() - end).step_by(37) {
            assert!(AppInitData::read(&STOCK[..len]).is_err(), "{len}");
        }
        assert!(AppInitData::read(b"").is_err());
    }

    #[test]
    fn preferences_of_a_project_cannot_pass_for_the_clients_words() {
        let text = b"<app_init_data>\n<client_pid>7</client_pid>\n<project_preferences>\n<client_pid>1</client_pid>\n\
            </project_preferences>\n<unknown><client_pid>2</client_pid></unknown>\n</app_init_data>\n";
        let data = AppInitData::read(text).unwrap();
        assert_eq!(data.client_pid, 7);
        assert!(data.project_preferences.unwrap().0.contains("<client_pid>1</client_pid>"));
    }

    #[test]
    fn the_account_key_does_not_show_in_debug_output() {
        assert!(!format!("{:?}", AppInitData::read(STOCK).unwrap()).contains("dd53bc9df626"));
    }

    proptest! {
        #[test]
        fn names_and_times_survive_the_file(
            user in "\\PC{0,20}", app in "[a-z_]{1,20}", pid: u32, cpu in 0_i64..1 << 40,
        ) {
            let data = AppInitData {
                user_name: Some(user.trim().to_owned()),
                app_name: app,
                client_pid: pid,
                wu_cpu_time: Duration::from_micros(cpu),
                ..AppInitData::default()
            };
            let read = AppInitData::read(data.write().as_bytes()).unwrap();
            prop_assert_eq!(read, data);
        }

        #[test]
        fn no_bytes_harm_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = AppInitData::read(&bytes);
            let _ = AppInitData::read(&[b"<app_init_data>", &bytes[..], b"</app_init_data>"].concat());
        }
    }
}
