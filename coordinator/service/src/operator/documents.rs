//! The whole fleet's document as operators change it, try a change of it, and look at what its versions say
//! (R6.5).

use std::sync::Arc;

use fallow_daemon::clock;
use fallow_domain::{DocumentVersion, Invalid};
use fallow_fleet::{SaidDifference, said_differences, values_of};
use fallow_proto::fleet::v1 as fleet_wire;
use fallow_proto::fleet::{document, preferences as preferences_wire};
use fallow_proto::operator::v1 as wire;
use tonic::Status;

use super::{groups, status, unblocked};
use crate::document::{Audited, Author, Documents, FleetChange, Reach as _, Release, set_of};
use crate::fleet::Fleet;
use crate::fleet::preview::Preview;

/// Shares by the names of their projects.
pub(super) fn shares(shares: Vec<wire::ShareOfProject>) -> Vec<(String, f64)> {
    shares.into_iter().map(|one| (one.project, one.share)).collect()
}

/// Preferences, made from a version; 0 for whichever there is.
pub(super) fn preferences(
    given: Option<fleet_wire::Preferences>,
    made_from: u64,
) -> Result<FleetChange, Status> {
    let given = given.ok_or_else(|| Status::invalid_argument("the request holds no preferences"))?;
    let knows_all = given.local.is_some();
    let given = preferences_wire::from_wire(&given).map_err(|error| status::of_invalid(&error))?;
    // It is read where hours of two have no minute in common, and can be meant by nobody.
    let network = &given.local.network_hours;
    for (what, hours, expected) in [
        ("hours", &given.hours, "hours such as mon-fri 18:00-08:00; use suspended for none"),
        ("network hours", network, "hours such as 22:00-06:00: without the network no job would be reported"),
    ] {
        if hours.is_never() {
            return Err(status::of_invalid(&Invalid::new(what, "never", expected)));
        }
    }
    let made_from = (made_from != 0).then_some(DocumentVersion(made_from));
    Ok(match knows_all {
        true => FleetChange::Preferences(given, made_from),
        false => FleetChange::OldPreferences(given, made_from),
    })
}

/// Makes a change.
pub(super) async fn change(
    fleet: &Arc<Fleet>,
    documents: &Documents,
    author: Author,
    change: FleetChange,
) -> Result<wire::DocumentReply, Status> {
    let warns = !matches!(change, FleetChange::Shares(_));
    let made = documents.change_fleet_wide(author, clock::now(), change).await;
    let (before, after) = made.map_err(|error| status::of_document(&error))?;
    let unchanged = before == after;
    let rollout = if unchanged { 0 } else { documents.rollout_of(after.fleet.version) };
    let document = Some(document::to_wire(&after.fleet));
    let went_out = rollout == 0 && !unchanged && !documents.release().is_held;
    let fleet = fleet.clone();
    let reach = move || {
        let changed_hosts = if went_out { fleet.changed_hosts(&before, &after) } else { 0 };
        (changed_hosts, if warns { groups::cautions(&fleet, &after) } else { Vec::new() })
    };
    let (changed_hosts, cautions) = unblocked(reach).await?;
    Ok(wire::DocumentReply { document, rollout, changed_hosts, unchanged, cautions })
}

/// To how many hosts what is released says something else than what was released before.
pub(super) async fn went_out(fleet: &Arc<Fleet>, before: &Release, after: &Release) -> Result<u64, Status> {
    let [before, after] = [before, after].map(|release| set_of(release.base().map(|base| &**base)));
    let fleet = fleet.clone();
    unblocked(move || fleet.changed_hosts(&before, &after)).await
}

/// Says what a change would make different.
pub(super) async fn preview(
    fleet: Arc<Fleet>,
    documents: Arc<Documents>,
    author: Author,
    change: FleetChange,
) -> Result<wire::PreviewReply, Status> {
    let warns = !matches!(change, FleetChange::Shares(_));
    let preview = move || {
        let tried = documents.preview(author, clock::now(), change);
        let (before, after) = tried.map_err(|error| status::of_document(&error))?;
        let Preview { hosts, changed_hosts, values } = fleet.preview(&before, &after);
        Ok(wire::PreviewReply {
            values: values.into_iter().map(|changed| groups::value_to_wire(changed, false)).collect(),
            hosts,
            changed_hosts,
            document_version: before.fleet.version.0,
            cautions: if warns { groups::cautions(&fleet, &after) } else { Vec::new() },
        })
    };
    unblocked(preview).await?
}

/// A version, value by value. Blocks.
pub(super) fn content(
    documents: &Documents,
    request: &wire::GetDocumentVersionRequest,
) -> Result<wire::DocumentContent, Status> {
    let audited = read(documents, request.version)?;
    let value = |(key, value)| wire::SaidValue { key, value };
    Ok(wire::DocumentContent {
        info: Some(groups::version(audited.head())),
        values: values_of(&audited.set).into_iter().map(value).collect(),
    })
}

/// The values that differ between two versions. Blocks.
pub(super) fn difference(
    documents: &Documents,
    request: &wire::GetDocumentDifferenceRequest,
) -> Result<wire::DocumentDifference, Status> {
    let (before, after) = (read(documents, request.before)?, read(documents, request.after)?);
    let value = |SaidDifference { key, before, after }| wire::DifferentValue { key, before, after };
    Ok(wire::DocumentDifference {
        values: said_differences(&before.set, &after.set).into_iter().map(value).collect(),
        before: Some(groups::version(before.head())),
        after: Some(groups::version(after.head())),
    })
}

fn read(documents: &Documents, version: u64) -> Result<Audited, Status> {
    documents.version(DocumentVersion(version)).map_err(|error| status::of_document(&error))
}
