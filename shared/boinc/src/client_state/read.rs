//! Reading a client's state, element by element.

use std::collections::BTreeMap;

use fallow_domain::Instant;

use super::{ClientState, StateFile, StateProject, StateResult, StateTask, StateVersion, StateWorkunit};
use crate::FormatError;
use crate::scheduler::{Coprocessor, HostCoprocessors};
use crate::xml::{Reader, Tag};

type Result<T> = std::result::Result<T, FormatError>;

/// A task, and the job that it is of: its project's URL and its name.
struct Started {
    project: String,
    result: String,
    task: StateTask,
}

pub(super) fn client_state(reader: &mut Reader<'_>) -> Result<ClientState> {
    let root = reader.root("client_state")?;
    let mut state = ClientState::default();
    let mut started = Vec::new();
    while let Some(tag) = reader.next_child(&root)? {
        let project = state.projects.last_mut();
        match (tag.name, project) {
            ("host_info", _) => host(reader, &tag, &mut state)?,
            ("time_stats", _) => time_stats(reader, &tag, &mut state)?,
            ("net_stats", _) => state.net_stats.fill(reader, &tag)?,
            ("project", _) => state.projects.push(project_itself(reader, &tag)?),
            ("app_version", Some(project)) => project.versions.push(version(reader, &tag)?),
            ("file" | "file_info", Some(project)) => project.files.push(file(reader, &tag)?),
            ("workunit", Some(project)) => project.workunits.push(workunit(reader, &tag)?),
            ("result", Some(project)) => project.results.push(result(reader, &tag)?),
            ("active_task_set", _) => tasks(reader, &tag, &mut started)?,
            _ => reader.skip(&tag)?,
        }
    }
    attach(&mut state.projects, started);
    Ok(state)
}

/// Gives each task to its job; tasks of jobs that are not there are dropped.
fn attach(projects: &mut [StateProject], started: Vec<Started>) {
    let mut tasks: BTreeMap<(String, String), StateTask> =
        started.into_iter().map(|started| ((started.project, started.result), started.task)).collect();
    if tasks.is_empty() {
        return;
    }
    for project in projects {
        for result in &mut project.results {
            result.task = tasks.remove(&(project.master_url.clone(), result.name.clone()));
        }
    }
}

fn host<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>, state: &mut ClientState) -> Result<()> {
    while let Some(tag) = reader.next_child(parent)? {
        if tag.name == "coprocs" {
            state.coprocessors = HostCoprocessors::read_all(reader, &tag)?;
        } else if !state.host.take(reader, &tag)? {
            reader.skip(&tag)?;
        }
    }
    Ok(())
}

fn time_stats<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>, state: &mut ClientState) -> Result<()> {
    while let Some(tag) = reader.next_child(parent)? {
        if tag.name == "last_update" {
            reader.set(&tag, &mut state.last_update)?;
        } else if !state.time_stats.take(reader, &tag)? {
            reader.skip(&tag)?;
        }
    }
    Ok(())
}

/// Fills fields of a value from the elements of the same meaning; others are skipped.
macro_rules! children {
    ($reader:ident, $parent:ident, $value:ident, { $($name:pat => $field:ident,)* }
     $($special:pat => $take:expr,)*) => {
        while let Some(tag) = $reader.next_child($parent)? {
            match tag.name {
                $($name => $reader.set(&tag, &mut $value.$field)?,)*
                $($special => {
                    let take: fn(&mut Reader<'a>, &Tag<'a>, &mut _) -> Result<()> = $take;
                    take($reader, &tag, &mut $value)?;
                })*
                _ => $reader.skip(&tag)?,
            }
        }
    };
}

fn project_itself<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<StateProject> {
    let mut project = StateProject::default();
    children!(reader, parent, project, {
        "master_url" => master_url,
        "project_name" => project_name,
        "resource_share" => resource_share,
        "duration_correction_factor" => duration_correction_factor,
        "dont_use_dcf" => dont_use_dcf,
        "dont_request_more_work" => dont_request_more_work,
        "suspended_via_gui" => suspended_via_gui,
        "nrpc_failures" => nrpc_failures,
        "last_rpc_time" => last_rpc_time,
        "min_rpc_time" => min_rpc_time,
        "disk_usage" => disk_usage,
    });
    Ok(project)
}

fn version<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<StateVersion> {
    let mut version = StateVersion::default();
    children!(reader, parent, version, {
        "app_name" => app_name,
        "version_num" => version_num,
        "platform" => platform,
        "plan_class" => plan_class,
        "avg_ncpus" => avg_ncpus,
        "flops" => flops,
    }
        "coproc" => |reader, tag, version: &mut StateVersion| {
            version.coproc = Some(Coprocessor::read(reader, tag)?);
            Ok(())
        },
    );
    Ok(version)
}

fn file<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<StateFile> {
    let mut file = StateFile::default();
    children!(reader, parent, file, { "name" => name, "nbytes" => nbytes, });
    Ok(file)
}

fn workunit<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<StateWorkunit> {
    let mut workunit = StateWorkunit::default();
    children!(reader, parent, workunit, {
        "name" => name,
        "app_name" => app_name,
        "rsc_fpops_est" => rsc_fpops_est,
        "rsc_memory_bound" => rsc_memory_bound,
    }
        "file_ref" => |reader, tag, workunit: &mut StateWorkunit| {
            workunit.files.extend(file_name(reader, tag)?);
            Ok(())
        },
    );
    Ok(workunit)
}

fn result<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<StateResult> {
    let mut result = StateResult::default();
    children!(reader, parent, result, {
        "name" => name,
        "wu_name" => wu_name,
        "state" => state,
        "version_num" => version_num,
        "platform" => platform,
        "plan_class" => plan_class,
        "received_time" => received_time,
        "report_deadline" => report_deadline,
        "final_elapsed_time" => final_elapsed_time,
        "suspended_via_gui" => suspended_via_gui,
    }
        "file_ref" => |reader, tag, result: &mut StateResult| {
            result.files.extend(file_name(reader, tag)?);
            Ok(())
        },
    );
    Ok(result)
}

/// The name in a `<file_ref>`.
fn file_name<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Option<String>> {
    let mut name = None;
    while let Some(tag) = reader.next_child(parent)? {
        match tag.name {
            "file_name" => reader.set(&tag, &mut name)?,
            _ => reader.skip(&tag)?,
        }
    }
    Ok(name)
}

fn tasks<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>, all: &mut Vec<Started>) -> Result<()> {
    while let Some(tag) = reader.next_child(parent)? {
        if tag.name == "active_task" {
            all.push(task(reader, &tag)?);
        } else {
            reader.skip(&tag)?;
        }
    }
    Ok(())
}

fn task<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Started> {
    let mut started = Started { project: String::new(), result: String::new(), task: StateTask::default() };
    let task = &mut started.task;
    while let Some(tag) = reader.next_child(parent)? {
        match tag.name {
            "project_master_url" => reader.set(&tag, &mut started.project)?,
            "result_name" => reader.set(&tag, &mut started.result)?,
            "active_task_state" => reader.set(&tag, &mut task.active_task_state)?,
            "checkpoint_elapsed_time" | "elapsed_time" => reader.set(&tag, &mut task.elapsed_time)?,
            "checkpoint_fraction_done" | "fraction_done" => reader.set(&tag, &mut task.fraction_done)?,
            _ => reader.skip(&tag)?,
        }
    }
    Ok(started)
}

impl ClientState {
    /// About when the state was written: the latest time in it that has passed for sure.
    pub fn written_at(&self) -> Instant {
        let projects = self.projects.iter();
        let received =
            projects.clone().flat_map(|project| &project.results).map(|result| result.received_time);
        let asked = projects.map(|project| project.last_rpc_time);
        received
            .chain(asked)
            .chain([self.last_update, self.time_stats.client_start_time])
            .max()
            .unwrap_or(Instant::EPOCH)
    }
}
