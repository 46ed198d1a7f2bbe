//! The one door through which projects are changed: what follows is found by difference (`project_table`) and
//! seen to here.

use fallow_domain::{Duration, ProjectId};
use fallow_policy::completion::DurationCorrection;
use fallow_policy::rpc_timing::RpcState;

use crate::machine::Client;
use crate::project_table::Difference;
use crate::record::Record;
use crate::state::Project;
use crate::timers::Timer;
use crate::{Entity, Totals};

impl Client {
    /// Changes a project, and sees to what follows. Nothing, if there is none of that id.
    pub(crate) fn edit_project<T>(
        &mut self,
        id: ProjectId,
        change: impl FnOnce(&mut Project) -> T,
    ) -> Option<T> {
        let (told, after, found) = self.state.projects.edited(id, change)?;
        if found.earns {
            self.settle_long_term();
            self.mark(Record::Ledger);
        }
        self.state.projects.insert(after);
        self.note_project_difference(id, found);
        Some(told)
    }

    /// The same of when it may be asked, alone.
    pub(crate) fn edit_rpc<T>(
        &mut self,
        id: ProjectId,
        change: impl FnOnce(&mut RpcState) -> T,
    ) -> Option<T> {
        let edited = self.state.projects.edited_rpc(id, change)?;
        Some(self.take_in_rpc(id, edited))
    }

    /// It may be asked at another time.
    pub(crate) fn take_in_rpc<T>(
        &mut self,
        id: ProjectId,
        (told, after, found): (T, RpcState, Difference),
    ) -> T {
        if found.earns {
            self.settle_long_term();
            self.mark(Record::Ledger);
        }
        self.state.projects.set_rpc(id, after);
        self.note_project_difference(id, found);
        told
    }

    /// The same of how its estimates are corrected, alone.
    pub(crate) fn edit_correction(
        &mut self,
        id: ProjectId,
        change: impl FnOnce(DurationCorrection) -> DurationCorrection,
    ) {
        if let Some(found) = self.state.projects.edit_correction(id, change) {
            self.note_project_difference(id, found);
        }
    }

    /// The same of how long its jobs are.
    pub(crate) fn edit_job_time(&mut self, id: ProjectId, time: Duration) {
        if let Some(found) = self.state.projects.set_job_time(id, time) {
            self.note_project_difference(id, found);
        }
    }

    /// An RPC to it gets its number.
    pub(crate) fn number_rpc(&mut self, id: ProjectId) {
        if let Some(found) = self.state.projects.number_rpc(id) {
            self.note_project_difference(id, found);
        }
    }

    /// Takes in a new project.
    pub(crate) fn insert_project(&mut self, project: Project) {
        let id = project.id;
        self.state.projects.insert(project);
        self.disk.project_changed(id);
        self.timers.all_stale(Timer::OF_PROJECTS);
        self.ledger.open_account(id);
        self.mark_durable(Record::Project(id));
        self.mark(Record::Ledger);
        self.shares_changed();
        self.estimates_changed(id);
    }

    /// Takes out a project of which nothing is held any more, and closes its accounts. The others are owed
    /// for the time until now what they earned beside it.
    pub(crate) fn remove_project(&mut self, id: ProjectId) -> Option<Project> {
        self.settle_long_term();
        let project = self.state.projects.remove(id)?;
        self.disk.project_changed(id);
        self.ledger.forget_project(id);
        self.timers.all_stale(Timer::OF_PROJECTS);
        // What it was backed off for is waited for no longer, and the need for work may be checked only
        // later.
        self.timers.stale(Timer::Fetch);
        self.mark(Record::Ledger);
        self.mark(Record::Experience(id));
        self.mark_durable(Record::Project(id));
        self.shares_changed();
        if !project.identity.global_preferences.is_empty() {
            self.site_preferences_changed();
        }
        Some(project)
    }

    pub(crate) fn note_project_difference(&mut self, id: ProjectId, found: Difference) {
        if found.store || found.shares {
            self.disk.project_changed(id);
        }
        if found.durable {
            self.mark_durable(Record::Project(id));
        } else if found.store {
            self.mark(Record::Project(id));
        }
        if found.shares {
            self.shares_changed();
        }
        if found.waits {
            self.timers.all_stale(Timer::OF_PROJECTS);
        }
        if found.asks {
            self.want_fetch();
        }
        if found.estimates {
            self.estimates_changed(id);
        }
    }

    /// Who gets what of the host, and who says so.
    pub(crate) fn shares_changed(&mut self) {
        self.want_schedule();
        self.want_fetch();
        self.touch(Entity::Host);
    }

    /// Counts something of a project in its totals, which add up to the host's.
    pub(crate) fn count(&mut self, id: ProjectId, change: impl FnOnce(&mut Totals)) {
        if self.ledger.count(id, change) {
            self.mark(Record::Ledger);
            self.touch(Entity::Project(id));
            self.touch(Entity::Host);
        }
    }
}
