//! What a shell does: stores changes, carries effects out, and answers with events a moment later.

use fallow_boinc::runtime::exit::Ended;
use fallow_boinc::scheduler::SchedulerRequest;
use fallow_client::{Action, Effect, Event, Step, TaskEnd, TransferError, TransferErrorKind};
use fallow_domain::{Bytes, Duration, InProgress};
use fallow_policy::send::Load;

use super::World;

const LATENCY: Duration = Duration::from_millis(300);
/// How long an aborted process takes to leave.
const LEAVING: Duration = Duration::from_secs(10);

impl World {
    pub(super) fn carry_out(&mut self, step: Step) {
        for change in step.changes {
            match change.value {
                Some(value) => self.store.insert(change.key, value),
                None => self.store.remove(&change.key),
            };
        }
        if let Some(at) = step.wake_at {
            assert!(at > self.now, "a wake-up in the past");
            self.wake_at = at;
        }
        for Action { effect, reason } in step.actions {
            self.log.push(format!("{} {} {reason}", self.now.as_secs_f64(), brief(&effect)));
            if let Effect::DeleteFile { file, .. } = &effect {
                self.assert_may_go(file, &reason.why);
            }
            self.effect(effect);
        }
    }

    /// R5.6: what the client says that its list of jobs in progress comes to is what it comes to.
    fn check_workload_sums(&self) {
        let mut request = SchedulerRequest::default();
        self.client.list_workload(&mut request);
        let listed: Vec<InProgress> =
            request.in_progress_results.iter().flatten().map(InProgress::from).collect();
        let sums = self.client.workload_sums();
        if sums.is_reliable() {
            assert_eq!(sums, Load::of(&listed));
        }
    }

    pub(super) fn later(&mut self, event: Event) {
        self.queue.push((self.now + LATENCY, event));
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::FetchMasterPage { project, url } => {
                self.urls.insert(project, url.as_str().to_owned());
                let schedulers = (0..self.schedulers).map(|n| format!("{url}cgi{n}")).collect();
                self.later(Event::MasterPageRead { project, outcome: Ok(schedulers) });
            }
            Effect::CallScheduler { project, mut request, .. } => {
                if self.silent {
                    return;
                }
                self.client.list_jobs(project, &mut request);
                self.check_workload_sums();
                for trickle in &mut request.trickles {
                    trickle.text = "<variety>x</variety>".to_owned();
                }
                let outcome = self.serve(project, &request);
                let at = self.now + LATENCY + self.answers_in(project);
                self.queue.push((at, Event::SchedulerAnswered { project, outcome }));
            }
            Effect::GiveUpRpc { project } => {
                let is_answer = |event: &Event| matches!(event, Event::SchedulerAnswered { project: other, .. } if *other == project);
                self.queue.retain(|(_, event)| !is_answer(event));
            }
            Effect::Download(download) => {
                self.transfers.push((self.now, download.file.name.clone(), download.from.clone()));
                self.downloads.push((*download).clone());
                let name = &download.file.name;
                let drips = self.drip_prefix.is_some_and(|prefix| name.starts_with(prefix));
                if drips || self.stuck.is_some_and(|part| download.from.contains(part)) {
                    return;
                }
                let fails = name.ends_with(self.fail_suffix) && name.starts_with(self.fail_prefix);
                let outcome = match &self.fail_download {
                    Some(error) if fails => Err(error.clone()),
                    _ if self.dead_mirror.is_some_and(|part| download.from.contains(part)) => {
                        Err(TransferError::new(TransferErrorKind::Transient, "no connection"))
                    }
                    _ => Ok(download.nbytes.unwrap_or(Bytes(10))),
                };
                if let Ok(nbytes) = &outcome {
                    if let Some(volume) = &mut self.volume {
                        volume.lengths.insert(download.file.clone(), nbytes.0);
                        volume.changed.remove(&download.file);
                    }
                    self.files.insert(download.file.clone());
                }
                let at = self.now + LATENCY + self.download_takes;
                self.queue.push((at, Event::DownloadEnded { file: download.file, outcome }));
            }
            Effect::Upload(upload) => {
                assert!(self.files.contains(&upload.file));
                self.transfers.push((self.now, upload.file.name.clone(), upload.to.clone()));
                self.uploads.push((*upload).clone());
                let outcome = self.fail_upload.clone().map_or(Ok(()), Err);
                self.later(Event::UploadEnded { file: upload.file, outcome });
            }
            Effect::StartTask(setup) => self.start_task(*setup),
            Effect::FreezeTasks => self.tasks.values_mut().for_each(|task| task.executing = false),
            Effect::SuspendTask { job } => self.tasks.get_mut(&job).unwrap().executing = false,
            Effect::ResumeTask { job } => self.tasks.get_mut(&job).unwrap().executing = true,
            Effect::QuitTask { .. } if self.leaves_late => {}
            Effect::QuitTask { job } => self.end_task(job, false),
            Effect::KillTask { job } => {
                self.killed += 1;
                self.effect(Effect::AbortTask { job });
            }
            Effect::AbortTask { job } => {
                let Some(task) = self.tasks.remove(&job) else { return };
                self.dying.insert(job, task.setup.slot);
                self.disk.insert(task.setup.slot, (task.base + task.cpu, task.checkpoint, false));
                let ended = Event::TaskEnded {
                    job,
                    end: Box::new(TaskEnd {
                        exit: Ended::Code(194),
                        finish: None,
                        temporary_exit: None,
                        cpu_time: task.cpu,
                        is_charged: false,
                        stderr: String::new(),
                        outputs: Vec::new(),
                        peak_working_set: Bytes(0),
                        disk_usage: Bytes(0),
                        made_room: None,
                        memory_exceeded: None,
                        killed: None,
                    }),
                };
                self.queue.push((self.now + LEAVING, ended));
            }
            Effect::CleanSlot { slot } => {
                self.assert_nobody_in(slot);
                self.disk.remove(&slot);
            }
            Effect::DeleteFile { file, .. } => {
                self.files.remove(&file);
            }
            Effect::DeleteProject { project, .. } => self.files.retain(|key| key.project != project),
            Effect::CancelTransfer { file } => {
                self.queue.retain(
                    |(_, event)| !matches!(event, Event::DownloadEnded { file: f, .. } if *f == file),
                );
            }
            Effect::DeliverTrickle { job, name, text, .. } => {
                self.log.push(format!("trickle for {job}: {name} {text}"));
            }
            Effect::TellUpload { job, open_name, status, .. } => {
                self.log.push(format!("upload of {open_name} of {job}: {status}"));
            }
            Effect::Notice { text, .. } => self.notices.push(text),
            Effect::MeasureDisk => {
                if let Some(found) = self.look_at_disk() {
                    self.later(Event::DiskMeasured(Ok(Box::new(found))));
                }
            }
            Effect::MeasureSpeed
            | Effect::GiveUpMeasuring
            | Effect::WatchDevices(_)
            | Effect::LinkAnew
            | Effect::TellVerdict { .. } => {}
        }
    }
}

fn brief(effect: &Effect) -> String {
    match effect {
        Effect::CallScheduler { project, request, .. } => {
            format!("call {project} for {} reporting {}", request.cpu_req_secs, request.results.len())
        }
        Effect::StartTask(setup) => {
            let how = if setup.fresh { "fresh" } else { "resumed" };
            format!("start {} in {}, {how}", setup.name, setup.slot)
        }
        Effect::Download(download) => format!("download {}", download.file.name),
        Effect::Upload(upload) => format!("upload {}", upload.file.name),
        other => format!("{other:?}"),
    }
}
