//! From the elements of a server's reply. Each is taken apart whole, so that whoever adds something to a
//! reply says here whether it is kept.

use fallow_boinc::scheduler::{App, AppVersion, Coprocessor, FileInfo, FileRef, ResultJob, Workunit as Sent};
use fallow_domain::Duration;

use super::{
    Application, ApplicationVersion, CoprocessorUse, FileDescription, FileReference, JobDescription, Workunit,
};

fn references(files: Vec<FileRef>) -> Vec<FileReference> {
    files.into_iter().map(FileReference::from).collect()
}

impl From<App> for Application {
    fn from(sent: App) -> Self {
        let App { name, user_friendly_name, non_cpu_intensive, fraction_done_exact, sporadic } = sent;
        Self { name, user_friendly_name, non_cpu_intensive, fraction_done_exact, sporadic }
    }
}

impl From<AppVersion> for ApplicationVersion {
    fn from(sent: AppVersion) -> Self {
        let AppVersion {
            app_name,
            version_num,
            platform,
            plan_class,
            api_version,
            files,
            avg_ncpus,
            flops,
            cmdline,
            coproc,
            file_prefix,
            dont_throttle,
            is_wrapper,
            needs_network,
        } = sent;
        Self {
            app: app_name,
            number: version_num,
            platform,
            plan_class,
            api_version,
            files: references(files),
            cpus: avg_ncpus,
            speed: flops,
            command_line: cmdline,
            coprocessor: coproc.map(CoprocessorUse::from),
            file_prefix,
            dont_throttle,
            is_wrapper,
            needs_network,
        }
    }
}

impl From<Coprocessor> for CoprocessorUse {
    fn from(Coprocessor { kind, count }: Coprocessor) -> Self {
        Self { kind, count }
    }
}

impl From<FileInfo> for FileDescription {
    fn from(sent: FileInfo) -> Self {
        let FileInfo {
            name,
            download_urls,
            upload_urls,
            gzipped_urls,
            gzipped_nbytes,
            md5_cksum,
            nbytes,
            max_nbytes,
            executable,
            signature_required,
            file_signature,
            xml_signature,
            sticky,
            sticky_lifetime,
            priority,
            exp_days,
            gzip_when_done,
            generated_locally,
            upload_when_present,
        } = sent;
        Self {
            name,
            download_urls,
            upload_urls,
            gzipped_urls,
            gzipped_nbytes,
            md5: md5_cksum,
            nbytes,
            max_nbytes,
            executable,
            signature_required,
            signature: file_signature,
            xml_signature,
            sticky,
            sticky_lifetime,
            priority,
            expires_after: exp_days.map(Duration::from_days_f64),
            gzip_when_done,
            generated_locally,
            upload_when_present,
        }
    }
}

impl From<FileRef> for FileReference {
    fn from(FileRef { file_name, open_name, main_program, copy_file, optional }: FileRef) -> Self {
        Self { file_name, open_name, main_program, copy_file, optional }
    }
}

impl From<Sent> for Workunit {
    fn from(sent: Sent) -> Self {
        let Sent {
            name,
            app_name,
            rsc_fpops_est,
            rsc_fpops_bound,
            rsc_memory_bound,
            rsc_disk_bound,
            command_line,
            files,
        } = sent;
        Self {
            name,
            app: app_name,
            flops_estimate: rsc_fpops_est,
            flops_bound: rsc_fpops_bound,
            memory_bound: rsc_memory_bound,
            disk_bound: rsc_disk_bound,
            command_line,
            files: references(files),
        }
    }
}

impl From<ResultJob> for JobDescription {
    fn from(sent: ResultJob) -> Self {
        let ResultJob {
            name,
            wu_name,
            report_deadline,
            files,
            platform,
            version_num,
            plan_class,
            report_immediately,
        } = sent;
        Self {
            name,
            workunit: wu_name,
            report_deadline,
            files: references(files),
            platform,
            version_number: version_num,
            plan_class,
            report_immediately,
        }
    }
}
