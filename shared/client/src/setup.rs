//! All that a shell needs to start a task.

use fallow_boinc::runtime::init_data::{AppFiles, AppInitData, MAPPED_CHANNEL, Raw};
use fallow_boinc::scheduler::{HostInfo, type_name};
use fallow_domain::{AccountKey, Bytes, JobId, ProjectId, ResourceType, SlotId, printable};
use fallow_policy::job_queue::Devices;

use crate::described::FileReference;
use crate::devices::devices_of;
use crate::libraries::could_be_library;
use crate::machine::Client;
use crate::state::Project;
use crate::{ApplicationFile, FileKey, RequiredSignature, SlotFile, TaskSetup};

/// At most this many arguments reach an application, as with the original.
const ARGUMENTS_MAX: usize = 100;

/// Why a task can never start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CannotStart {
    /// There is no such job.
    #[error("the job is unknown")]
    JobUnknown,
    /// It is of no project that is attached.
    #[error("its project is unknown")]
    ProjectUnknown,
    /// Its program is not known.
    #[error("its application version is unknown")]
    VersionUnknown,
    /// What it computes is not known.
    #[error("its workunit is unknown")]
    WorkunitUnknown,
    /// Its project has named no program.
    #[error("its application version has no files")]
    NoProgram,
    /// Its project has not described a file of its program, which cannot be checked.
    #[error("its project has not described {0}, a file of its application")]
    FileUnknown(String),
    /// A file of the job would take the place of one of the program.
    #[error("a file of the job would take the place of {0}, a file of its application")]
    TakesPlace(String),
    /// The program would load a file that nobody signed.
    #[error(
        "{0} could be loaded as a library, and the fleet's documents say that only signed programs are run here"
    )]
    Library(String),
    /// Nothing was measured of the host yet.
    #[error("the host is not known yet")]
    HostUnknown,
}

/// Refuses files of a job that would be run in place of what its project signed: under the name of a file of
/// the application, which an output would even be written over, or, where a key is required, under that of a
/// library, which the loader looks for where the job's files are.
fn check_beside(of_version: &[SlotFile], of_job: &[SlotFile], needs_key: bool) -> Result<(), CannotStart> {
    for file in of_job {
        let name = || printable::line(&file.open_name, 255);
        let takes = |other: &SlotFile| other.open_name == file.open_name && other.name != file.name;
        if of_version.iter().any(takes) {
            return Err(CannotStart::TakesPlace(name()));
        }
        let is_signed = of_version.iter().any(|other| other.name == file.name);
        if is_signed && file.output {
            return Err(CannotStart::TakesPlace(printable::line(&file.name, 255)));
        }
        let names = [&file.name, &file.open_name];
        if needs_key && !is_signed && names.iter().any(|name| could_be_library(name)) {
            return Err(CannotStart::Library(name()));
        }
    }
    Ok(())
}

impl Client {
    /// Puts together what a task needs.
    ///
    /// # Errors
    /// [`CannotStart`]: why it never can.
    pub(crate) fn task_setup(&self, id: JobId, slot: SlotId, fresh: bool) -> Result<TaskSetup, CannotStart> {
        let job = self.state.jobs.get(&id).ok_or(CannotStart::JobUnknown)?;
        let project = self.state.projects.get(&job.project).ok_or(CannotStart::ProjectUnknown)?;
        let version = self.state.versions.get(&job.version).ok_or(CannotStart::VersionUnknown)?;
        let key = FileKey { project: job.project, name: job.result.workunit.clone() };
        let workunit = self.state.workunits.get(&key).ok_or(CannotStart::WorkunitUnknown)?;
        let program = version.files.iter().find(|file| file.main_program).or(version.files.first());
        let program = program.ok_or(CannotStart::NoProgram)?.file_name.clone();

        let slot_file = |file: &FileReference, prefix: &str, output| SlotFile {
            name: file.file_name.clone(),
            open_name: format!("{prefix}{}", file.open_name.as_deref().unwrap_or(&file.file_name)),
            copy: file.copy_file,
            output,
            gzip: output && self.gzips(job.project, &file.file_name),
            max_nbytes: self.max_nbytes(job.project, &file.file_name).filter(|_| output),
        };
        let mut files: Vec<SlotFile> =
            version.files.iter().map(|file| slot_file(file, &version.file_prefix, false)).collect();
        let of_job = workunit.files.iter().map(|file| slot_file(file, "", false));
        let of_job: Vec<_> =
            of_job.chain(job.result.files.iter().map(|file| slot_file(file, "", true))).collect();
        check_beside(&files, &of_job, project.required_key.is_some())?;
        files.extend(of_job);
        let application = version.files.iter().map(|file| {
            let known = self.application_file(project, &file.file_name);
            known.ok_or_else(|| CannotStart::FileUnknown(printable::line(&file.file_name, 255)))
        });
        let application = application.collect::<Result<_, _>>()?;

        let mut arguments = split_command_line(&workunit.command_line);
        let said = self.app_configs.command_line(&job.version);
        arguments.extend(split_command_line(said.unwrap_or(&version.command_line)));
        // What its driver counts them by now.
        let number_of = |(kind, devices): (_, Devices)| -> Vec<u32> {
            devices.iter().map(|device| self.known_devices.driver_number(kind, device)).collect()
        };
        let devices = devices_of(job).map(number_of).unwrap_or_default();
        if names_devices_in_arguments(version.api_version.as_deref()) {
            for device in &devices {
                arguments.extend(["--device".to_owned(), device.to_string()]);
            }
        }
        arguments.truncate(ARGUMENTS_MAX);

        let first_device = devices.first().and_then(|device| i32::try_from(*device).ok()).unwrap_or(-1);
        let opencl = devices_of(job).and_then(|(kind, devices)| {
            self.known_devices.device(kind, devices.iter().next()?)?.opencl.as_ref()
        });
        let (who, bytes) =
            (&project.identity, |given: Option<Bytes>, default| given.map_or(default, Bytes::as_f64));
        let host = self.state.host.facts().ok_or(CannotStart::HostUnknown)?;
        let number = |id: u64| u32::try_from(id).unwrap_or(0);
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let init_data = AppInitData {
            major_version: self.config.version.major,
            minor_version: self.config.version.minor,
            release: self.config.version.release,
            app_version: version.number,
            userid: number(who.user_id),
            teamid: number(who.team_id),
            hostid: number(project.hostid),
            app_name: version.app.clone(),
            plan_class: text(&version.plan_class),
            project_preferences: text(&project.web.specific).map(Raw),
            team_name: text(&who.team_name),
            user_name: text(&who.user_name),
            // BOINC's library needs none; a job of one submitter would have the account of all by it (R6.10).
            authenticator: AccountKey::new(""),
            wu_name: workunit.name.clone(),
            result_name: job.result.name.clone(),
            shm_key: MAPPED_CHANNEL,
            slot: slot.0,
            wu_cpu_time: job.run.checkpoint_cpu,
            starting_elapsed_time: job.run.checkpoint_elapsed,
            user_total_credit: who.user_total_credit,
            user_expavg_credit: who.user_expavg_credit,
            host_total_credit: who.host_total_credit,
            host_expavg_credit: who.host_expavg_credit,
            resource_share_fraction: self.share_fraction(project, |_| true),
            checkpoint_period: self.preferences().checkpoint_period,
            fraction_done_start: 0.0,
            fraction_done_end: 1.0,
            ncpus: job.usage.cpus,
            gpu_type: job.usage.coprocessor.map(|(kind, _)| type_name(kind).to_owned()).unwrap_or_default(),
            gpu_device_num: first_device,
            // Where OpenCL does not say, its order is taken to be that of the driver.
            gpu_opencl_dev_index: opencl
                .and_then(|opencl| i32::try_from(opencl.index).ok())
                .unwrap_or(first_device),
            gpu_usage: job.usage.coprocessor.map_or(0.0, |(_, count)| count),
            rsc_fpops_est: job.flops_estimate.get(),
            rsc_fpops_bound: job.elapsed_max.as_secs_f64() * job.speed.get(),
            rsc_memory_bound: bytes(workunit.memory_bound, 1e8),
            rsc_disk_bound: bytes(workunit.disk_bound, 1e9),
            computation_deadline: job.result.report_deadline - self.preferences().buffer_min,
            host_info: HostInfo::from_facts(host),
            global_preferences: self.told_preferences(),
            app_file: AppFiles(version.files.iter().map(|file| file.file_name.clone()).collect()),
            ..AppInitData::default()
        };
        Ok(TaskSetup {
            job: id,
            name: printable::line(&job.result.name, 255),
            slot,
            start: job.run.starts,
            fresh,
            url: project.url.clone(),
            program,
            arguments,
            environment: match job.usage.coprocessor {
                // CUDA counts the fastest device as the first one otherwise. CUDA_VISIBLE_DEVICES would count
                // anew from 0 what it leaves, and the numbers told here would mean others.
                Some((ResourceType::Nvidia, _)) => vec![("CUDA_DEVICE_ORDER", "PCI_BUS_ID")],
                _ => Vec::new(),
            },
            application,
            files,
            init_data: Box::new(init_data),
            mapped_channel: maps_its_channel(version.api_version.as_deref()),
            disk_max: self.disk_bound(job),
            special: job.usage.coprocessor.is_some(),
            network: self.has_network(job),
            required: self.required_of_tasks(),
        })
    }
}

/// Whether an application was built for the channel in a file: from API 6.0 on. One that does not say is
/// older (BOINC likewise).
fn maps_its_channel(api_version: Option<&str>) -> bool {
    let major = api_version.and_then(|version| version.trim().split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= 6)
}

/// Whether an application is told its devices by `--device`: one that was built before API 7.5, or does not
/// say, for newer ones read `init_data.xml` (BOINC likewise).
fn names_devices_in_arguments(api_version: Option<&str>) -> bool {
    let mut parts = api_version.unwrap_or_default().trim().split('.').map(|part| part.parse::<u32>().ok());
    let major = parts.next().flatten().unwrap_or(0);
    let minor = parts.next().flatten().unwrap_or(0);
    (major, minor) < (7, 5)
}

impl Client {
    fn application_file(&self, project: &Project, name: &str) -> Option<ApplicationFile> {
        let file = self.state.files.get(&FileKey { project: project.id, name: name.to_owned() })?;
        let now = file.info.signature.as_ref().zip(project.code_sign_key.as_ref());
        let now =
            now.map(|(signature, key)| RequiredSignature { signature: signature.clone(), key: key.clone() });
        Some(ApplicationFile {
            name: name.to_owned(),
            nbytes: file.info.nbytes,
            signatures: file
                .proof
                .iter()
                .cloned()
                .chain(now)
                .filter(|one| project.may_sign(&one.key))
                .collect(),
            executable: file.info.executable,
        })
    }

    fn max_nbytes(&self, project: ProjectId, name: &str) -> Option<Bytes> {
        self.state.files.get(&FileKey { project, name: name.to_owned() })?.info.max_nbytes
    }

    fn gzips(&self, project: ProjectId, name: &str) -> bool {
        let key = FileKey { project, name: name.to_owned() };
        self.state.files.get(&key).is_some_and(|file| file.info.gzip_when_done)
    }
}

/// Splits a command line at white space outside of quotes, as BOINC does: both kinds of quotes, no escapes.
fn split_command_line(line: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut current: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => current.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                current.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => arguments.extend(current.take()),
            (None, c) => current.get_or_insert_default().push(c),
        }
    }
    arguments.extend(current);
    arguments
}

#[cfg(test)]
mod tests {
    use super::{names_devices_in_arguments, split_command_line};

    #[test]
    fn r3_14_only_applications_of_before_api_7_5_are_told_their_device_by_an_argument() {
        for (version, expected) in [
            (None, true),
            (Some(""), true),
            (Some("6.2"), true),
            (Some("7.4.42"), true),
            (Some("7.5"), false),
            (Some("7.5.0"), false),
            (Some("8.0"), false),
            (Some("nonsense"), true),
        ] {
            assert_eq!(names_devices_in_arguments(version), expected, "{version:?}");
        }
    }

    #[test]
    fn a_command_line_is_split_at_white_space_outside_of_quotes() {
        assert_eq!(split_command_line("  in1 in2\tout \n"), ["in1", "in2", "out"]);
        assert_eq!(
            split_command_line(r#"--name "two words" 'a "b"' x"#),
            ["--name", "two words", r#"a "b""#, "x"]
        );
        assert_eq!(split_command_line(r#"--empty "" end"#), ["--empty", "", "end"]);
        assert!(split_command_line(" ").is_empty());
    }
}
