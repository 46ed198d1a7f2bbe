//! What an agent says of its host.

use std::collections::BTreeMap;

use fallow_domain::agent_state::{HostState, Metrics, NetworkRest, RolledBack, SuspendedBy};
use fallow_domain::{
    Bytes, DocumentVersion, Fraction, Instant, MasterUrl, Metric, OwnerLimits, RPCS_PER_JOB, ResourceType,
    printable,
};

use super::limits::DECLINED;
use super::{check, disk, owner, v1 as wire};

/// Keys of an organisation that may be good at the same time.
const KEYS: usize = 8;

/// A host on the wire.
#[must_use]
pub fn to_wire(host: &HostState) -> wire::HostState {
    // By name, so that nothing is forgotten.
    let HostState {
        hostname,
        name,
        cpus,
        usable_cpus,
        idle_cpus,
        suspended_by,
        network_rests,
        document_version,
        document_content,
        document_applied_at,
        document_refused,
        rolled_back,
        metrics,
        cpu_time,
        scheduler_rpcs,
        jobs_finished,
        started_at,
        os,
        arch,
        memory,
        coprocessors,
        hypervisor,
        container,
        container_engine,
        agent_version,
        in_use,
        owner,
        owner_word,
        declined,
        organisation,
        disk,
    } = host;
    let (refused_version, refusal) =
        document_refused.as_ref().map_or((0, ""), |(version, why)| (version.0, why.as_str()));
    let rolled_back = rolled_back.clone().unwrap_or_else(|| RolledBack {
        version: DocumentVersion(0),
        at: Instant::EPOCH,
        why: String::new(),
    });
    let [day, week, month] = metrics.map(|metrics| Some(metrics_to_wire(metrics)));
    wire::HostState {
        hostname: hostname.clone(),
        cpus: *cpus,
        usable_cpus: *usable_cpus,
        // For who knows no other form of it.
        suspended_by: suspended_by.map_or("", SuspendedBy::as_str).to_owned(),
        document_version: document_version.0,
        document_refusal: refusal.to_owned(),
        document_refused_version: refused_version,
        document_applied_at_micros: document_applied_at.as_micros(),
        day,
        week,
        month,
        scheduler_rpcs: *scheduler_rpcs,
        jobs_finished: *jobs_finished,
        cpu_time_micros: cpu_time.as_micros(),
        started_at_micros: started_at.as_micros(),
        idle_cpus: *idle_cpus,
        name: name.clone(),
        suspended: suspended_to_wire(*suspended_by).into(),
        network_rests: network_to_wire(*network_rests).into(),
        os: os.clone(),
        arch: arch.clone(),
        memory_bytes: memory.0,
        coprocessors: coprocessors
            .iter()
            .map(|(kind, count)| wire::CoprocessorCount { kind: kind.name().to_owned(), count: *count })
            .collect(),
        agent_version: agent_version.clone(),
        owner: (*owner != OwnerLimits::default()).then(|| owner::to_wire(owner)),
        owner_word: owner_word.as_deref().map(owner::word_to_wire),
        document_content: document_content.clone(),
        declined_urls: declined.iter().map(ToString::to_string).collect(),
        document_rolled_back_version: rolled_back.version.0,
        document_rollback: rolled_back.why,
        document_rolled_back_at_micros: rolled_back.at.as_micros(),
        organisation_keys: organisation.iter().map(ToString::to_string).collect(),
        in_use: *in_use,
        hypervisor: hypervisor.clone(),
        container: container.clone(),
        container_engine: container_engine.clone(),
        disk: disk.as_deref().map(disk::space_to_wire),
    }
}

/// A host from the wire.
///
/// # Errors
/// In words, the first thing that cannot be.
pub fn from_wire(wire: wire::HostState) -> Result<HostState, String> {
    // By name, so that nothing is forgotten.
    let wire::HostState {
        hostname,
        cpus,
        usable_cpus,
        suspended_by,
        document_version,
        document_refusal,
        document_refused_version,
        document_applied_at_micros,
        day,
        week,
        month,
        scheduler_rpcs,
        jobs_finished,
        cpu_time_micros,
        started_at_micros,
        idle_cpus,
        name,
        suspended,
        os,
        arch,
        memory_bytes,
        coprocessors,
        agent_version,
        owner,
        declined_urls,
        document_content,
        document_rolled_back_version,
        document_rollback,
        document_rolled_back_at_micros,
        organisation_keys,
        in_use,
        owner_word,
        hypervisor,
        container,
        container_engine,
        disk,
        network_rests,
    } = wire;
    check::text("document_content", &document_content)?;
    check::text("os", &os)?;
    check::text("arch", &arch)?;
    check::text("agent_version", &agent_version)?;
    check::text("hypervisor", &hypervisor)?;
    check::text("container", &container)?;
    check::text("container_engine", &container_engine)?;
    if declined_urls.len() > DECLINED {
        return Err(format!("{} declined projects are more than {DECLINED}", declined_urls.len()));
    }
    if organisation_keys.len() > KEYS {
        return Err(format!("{} keys of an organisation are more than {KEYS}", organisation_keys.len()));
    }
    let organisation = organisation_keys.iter().map(|key| key.parse().map_err(|_| no_key(key)));
    let declined = declined_urls.iter().map(|url| MasterUrl::parse(url).map_err(|error| error.to_string()));
    check::text("hostname", &hostname)?;
    check::text("name", &name)?;
    check::text("suspended_by", &suspended_by)?;
    check::text("document_refusal", &document_refusal)?;
    check::text("document_rollback", &document_rollback)?;
    let rolled_back_at = check::micros("document_rolled_back_at", document_rolled_back_at_micros)?;
    let cpu_time = check::duration("cpu_time", cpu_time_micros)?;
    let document_applied_at = check::micros("document_applied_at", document_applied_at_micros)?;
    let started_at = check::micros("started_at", started_at_micros)?;
    if cpus > 1 << 20 || usable_cpus > cpus || idle_cpus > usable_cpus {
        return Err(format!("{cpus} CPUs of which {usable_cpus} usable and {idle_cpus} idle cannot be"));
    }
    let is_refused = document_refused_version != 0 || !document_refusal.is_empty();
    Ok(HostState {
        hostname,
        name,
        cpus,
        usable_cpus,
        idle_cpus,
        suspended_by: suspended_from_wire(suspended, &suspended_by),
        network_rests: network_from_wire(network_rests),
        document_version: DocumentVersion(document_version),
        document_content,
        document_applied_at: Instant::from_micros(document_applied_at),
        document_refused: is_refused.then_some((DocumentVersion(document_refused_version), document_refusal)),
        rolled_back: (document_rolled_back_version != 0).then(|| RolledBack {
            version: DocumentVersion(document_rolled_back_version),
            at: Instant::from_micros(rolled_back_at),
            why: document_rollback,
        }),
        metrics: [
            metrics_from_wire("day", day)?,
            metrics_from_wire("week", week)?,
            metrics_from_wire("month", month)?,
        ],
        cpu_time,
        scheduler_rpcs,
        jobs_finished,
        started_at: Instant::from_micros(started_at),
        os,
        arch,
        memory: Bytes(memory_bytes),
        coprocessors: coprocessors_from_wire(&coprocessors)?,
        hypervisor,
        container,
        container_engine,
        agent_version,
        in_use,
        owner: owner::from_wire(&owner.unwrap_or_default())?,
        // One that cannot be read costs nothing else of what the agent says: it is as if its owner had said
        // nothing, in what is shown and where rollouts ask how much owners say.
        owner_word: owner_word.and_then(|word| owner::word_from_wire(word).ok()).map(Box::new),
        declined: declined.collect::<Result<_, _>>()?,
        organisation: organisation.collect::<Result<_, _>>()?,
        disk: disk.map(disk::space_from_wire).transpose()?.map(Box::new),
    })
}

fn no_key(text: &str) -> String {
    format!("{:?} is no public key of an organisation", printable::line(text, 100))
}

fn coprocessors_from_wire(wire: &[wire::CoprocessorCount]) -> Result<BTreeMap<ResourceType, u32>, String> {
    let most = u32::from(u16::MAX);
    if let Some(absurd) = wire.iter().find(|one| one.count > most) {
        return Err(format!("{} devices of one kind are more than {most}", absurd.count));
    }
    let known = |one: &wire::CoprocessorCount| {
        let kind = ResourceType::from_name(&one.kind).filter(|kind| kind.is_coprocessor())?;
        Some((kind, one.count))
    };
    Ok(wire.iter().filter_map(known).collect())
}

fn suspended_to_wire(by: Option<SuspendedBy>) -> wire::SuspendedBy {
    match by {
        None => wire::SuspendedBy::Unspecified,
        Some(SuspendedBy::Owner) => wire::SuspendedBy::Owner,
        Some(SuspendedBy::Coordinator) => wire::SuspendedBy::Coordinator,
        Some(SuspendedBy::Hours) => wire::SuspendedBy::Hours,
        Some(SuspendedBy::InUse) => wire::SuspendedBy::InUse,
        Some(SuspendedBy::Snooze) => wire::SuspendedBy::Snooze,
        Some(SuspendedBy::Battery) => wire::SuspendedBy::Battery,
        Some(SuspendedBy::OtherPrograms) => wire::SuspendedBy::OtherPrograms,
        Some(SuspendedBy::NoInput) => wire::SuspendedBy::NoInput,
        Some(SuspendedBy::PreferenceFile) => wire::SuspendedBy::PreferenceFile,
        Some(SuspendedBy::Disk) => wire::SuspendedBy::Disk,
        Some(SuspendedBy::StartDelay) => wire::SuspendedBy::StartDelay,
        Some(SuspendedBy::Confinement) => wire::SuspendedBy::Confinement,
        Some(SuspendedBy::Other) => wire::SuspendedBy::Other,
    }
}

/// Who suspended computing on a host, if anybody did.
#[must_use]
pub fn suspended_by(wire: &wire::HostState) -> Option<SuspendedBy> {
    suspended_from_wire(wire.suspended, &wire.suspended_by)
}

/// Agents older than the number give a text alone; newer ones may give a number that is not known here.
fn suspended_from_wire(number: i32, text: &str) -> Option<SuspendedBy> {
    match wire::SuspendedBy::try_from(number) {
        Ok(wire::SuspendedBy::Unspecified) => match text {
            "" => None,
            "owner" => Some(SuspendedBy::Owner),
            "coordinator" => Some(SuspendedBy::Coordinator),
            "hours" => Some(SuspendedBy::Hours),
            "in use" => Some(SuspendedBy::InUse),
            "snooze" => Some(SuspendedBy::Snooze),
            "disk" => Some(SuspendedBy::Disk),
            _ => Some(SuspendedBy::Other),
        },
        Ok(wire::SuspendedBy::Owner) => Some(SuspendedBy::Owner),
        Ok(wire::SuspendedBy::Coordinator) => Some(SuspendedBy::Coordinator),
        Ok(wire::SuspendedBy::Hours) => Some(SuspendedBy::Hours),
        Ok(wire::SuspendedBy::InUse) => Some(SuspendedBy::InUse),
        Ok(wire::SuspendedBy::Snooze) => Some(SuspendedBy::Snooze),
        Ok(wire::SuspendedBy::Battery) => Some(SuspendedBy::Battery),
        Ok(wire::SuspendedBy::OtherPrograms) => Some(SuspendedBy::OtherPrograms),
        Ok(wire::SuspendedBy::NoInput) => Some(SuspendedBy::NoInput),
        Ok(wire::SuspendedBy::PreferenceFile) => Some(SuspendedBy::PreferenceFile),
        Ok(wire::SuspendedBy::Disk) => Some(SuspendedBy::Disk),
        Ok(wire::SuspendedBy::StartDelay) => Some(SuspendedBy::StartDelay),
        Ok(wire::SuspendedBy::Confinement) => Some(SuspendedBy::Confinement),
        Ok(wire::SuspendedBy::Other) | Err(_) => Some(SuspendedBy::Other),
    }
}

const fn network_to_wire(rests: Option<NetworkRest>) -> wire::NetworkRest {
    match rests {
        None => wire::NetworkRest::Unspecified,
        Some(NetworkRest::Hours) => wire::NetworkRest::Hours,
        Some(NetworkRest::Amount) => wire::NetworkRest::Amount,
        Some(NetworkRest::Wifi) => wire::NetworkRest::Wifi,
        Some(NetworkRest::Other) => wire::NetworkRest::Other,
    }
}

/// What keeps a host from contacting projects, if anything does. Newer agents may give a number that is not
/// known here.
#[must_use]
pub fn network_from_wire(number: i32) -> Option<NetworkRest> {
    match wire::NetworkRest::try_from(number) {
        Ok(wire::NetworkRest::Unspecified) => None,
        Ok(wire::NetworkRest::Hours) => Some(NetworkRest::Hours),
        Ok(wire::NetworkRest::Amount) => Some(NetworkRest::Amount),
        Ok(wire::NetworkRest::Wifi) => Some(NetworkRest::Wifi),
        Ok(wire::NetworkRest::Other) | Err(_) => Some(NetworkRest::Other),
    }
}

fn metrics_to_wire(metrics: Metrics) -> wire::Metrics {
    let Metrics { idleness, waste, share_violation, share_deviation, monotony, rpcs_per_job } = metrics;
    wire::Metrics {
        idleness: idleness.map(Fraction::get),
        waste: waste.map(Fraction::get),
        share_violation: share_violation.map(Fraction::get),
        share_deviation: share_deviation.map(Fraction::get),
        monotony: monotony.map(Fraction::get),
        rpcs_per_job,
    }
}

fn metrics_from_wire(window: &str, wire: Option<wire::Metrics>) -> Result<Metrics, String> {
    let wire::Metrics { idleness, waste, share_violation, share_deviation, monotony, rpcs_per_job } =
        wire.unwrap_or_default();
    let figure = |name: &str, value: Option<f64>, high: f64| -> Result<Option<f64>, String> {
        // Rounding may carry a figure a hair past its end.
        let within = |value| check::number(&format!("{name} of the {window}"), value, -1e-6, high + 1e-6);
        value.map(within).transpose()
    };
    let fraction = |metric: Metric, value: Option<f64>| {
        figure(metric.name(), value, 1.0).map(|value| value.map(Fraction::clamped))
    };
    Ok(Metrics {
        idleness: fraction(Metric::Idleness, idleness)?,
        waste: fraction(Metric::Waste, waste)?,
        share_violation: fraction(Metric::ShareViolation, share_violation)?,
        share_deviation: fraction(Metric::ShareDeviation, share_deviation)?,
        monotony: fraction(Metric::Monotony, monotony)?,
        rpcs_per_job: figure(RPCS_PER_JOB.name, rpcs_per_job, 1e12)?.map(|rpcs| rpcs.max(0.0)),
    })
}

#[cfg(test)]
mod tests {
    use fallow_domain::agent_state::{DiskSpace, OwnerWord};
    use fallow_domain::{Duration, Preferences};

    use super::*;

    /// No two values alike: one that took another's place would show.
    fn host() -> HostState {
        let metrics = |first: f64| Metrics {
            idleness: Some(Fraction::clamped(first)),
            waste: Some(Fraction::clamped(first + 0.01)),
            share_violation: None,
            share_deviation: Some(Fraction::clamped(first + 0.03)),
            monotony: Some(Fraction::clamped(first + 0.02)),
            rpcs_per_job: Some(first + 3.0),
        };
        HostState {
            hostname: "h".into(),
            name: "desk".into(),
            cpus: 8,
            usable_cpus: 7,
            idle_cpus: 6,
            suspended_by: Some(SuspendedBy::Owner),
            network_rests: Some(NetworkRest::Amount),
            document_version: DocumentVersion(5),
            document_content: "c0".into(),
            document_applied_at: Instant::from_micros(11),
            document_refused: Some((DocumentVersion(9), "no preferences".into())),
            rolled_back: Some(RolledBack {
                version: DocumentVersion(7),
                at: Instant::from_micros(17),
                why: "silence".into(),
            }),
            metrics: [metrics(0.1), metrics(0.2), metrics(0.3)],
            cpu_time: Duration::from_micros(12),
            scheduler_rpcs: 13,
            jobs_finished: 14,
            started_at: Instant::from_micros(15),
            os: "linux".into(),
            arch: "x86_64".into(),
            memory: Bytes(16),
            coprocessors: [(ResourceType::Amd, 2), (ResourceType::Nvidia, 1)].into(),
            hypervisor: "kvm".into(),
            container: "docker".into(),
            container_engine: "podman".into(),
            agent_version: "0.1".into(),
            in_use: true,
            owner: OwnerLimits { suspended: true, ..OwnerLimits::default() },
            owner_word: Some(Box::new(OwnerWord {
                said: 3,
                preferences: Preferences::default(),
                places: [("hours".to_owned(), "preferences.toml, line 7".to_owned())].into(),
            })),
            declined: vec![MasterUrl::parse("http://127.0.0.1:1/a/").unwrap()],
            organisation: vec![fallow_domain::OrganisationKey::new([7; 32])],
            disk: Some(Box::new(DiskSpace {
                limit: Bytes(21),
                limited_by: "disk_max".into(),
                used: Bytes(22),
                missing: Bytes(23),
                is_suspended: true,
                deleted_files: 24,
                deleted: Bytes(25),
                jobs_given_back: 26,
            })),
        }
    }

    #[test]
    fn a_host_survives_the_wire() {
        for one in [host(), HostState::default()] {
            assert_eq!(from_wire(to_wire(&one)), Ok(one));
        }
    }

    #[test]
    fn who_suspended_a_host_is_read_from_agents_of_every_age() {
        let read = |suspended, text: &str| {
            let wire = wire::HostState { suspended_by: text.into(), suspended, ..Default::default() };
            from_wire(wire).unwrap().suspended_by
        };
        for (number, text, expected) in [
            (0, "", None),
            // Before there was a number.
            (0, "owner", Some(SuspendedBy::Owner)),
            (0, "coordinator", Some(SuspendedBy::Coordinator)),
            (0, "schedule", Some(SuspendedBy::Other)),
            (1, "owner", Some(SuspendedBy::Owner)),
            (2, "", Some(SuspendedBy::Coordinator)),
            (4, "", Some(SuspendedBy::Hours)),
            (5, "", Some(SuspendedBy::InUse)),
            (6, "", Some(SuspendedBy::Snooze)),
            (7, "", Some(SuspendedBy::Battery)),
            (8, "", Some(SuspendedBy::OtherPrograms)),
            (9, "", Some(SuspendedBy::NoInput)),
            (10, "", Some(SuspendedBy::PreferenceFile)),
            (11, "", Some(SuspendedBy::Disk)),
            (12, "", Some(SuspendedBy::StartDelay)),
            (13, "", Some(SuspendedBy::Confinement)),
            // Later than this version.
            (77, "schedule", Some(SuspendedBy::Other)),
        ] {
            assert_eq!(read(number, text), expected, "{number} {text:?}");
        }
        // An older coordinator shows the text.
        assert_eq!(to_wire(&host()).suspended_by, "owner");
    }

    #[test]
    fn what_keeps_a_host_from_its_projects_survives_the_wire_and_is_read_from_newer_agents() {
        let known = [NetworkRest::Hours, NetworkRest::Amount, NetworkRest::Wifi, NetworkRest::Other];
        for rests in known.map(Some).into_iter().chain([None]) {
            assert_eq!(network_from_wire(network_to_wire(rests).into()), rests);
        }
        assert_eq!(network_from_wire(77), Some(NetworkRest::Other));
    }

    #[test]
    fn hosts_that_cannot_be_are_refused_with_what_is_wrong() {
        type Spoil = fn(&mut wire::HostState);
        let cases: [(Spoil, &str); 19] = [
            (|h| h.usable_cpus = 9, "8 CPUs of which 9 usable and 6 idle cannot be"),
            (|h| h.idle_cpus = 8, "cannot be"),
            (|h| h.cpus = 1 << 21, "cannot be"),
            (|h| h.cpu_time_micros = -1, "cpu_time is -1"),
            (|h| h.started_at_micros = i64::MAX, "started_at is"),
            (|h| h.hostname = "h".repeat(2_000), "hostname has more than 1024 bytes"),
            (|h| h.suspended_by = "\u{7}".into(), "suspended_by has"),
            (|h| h.week.as_mut().unwrap().waste = Some(1.1), "waste of the week is 1.1"),
            (|h| h.month.as_mut().unwrap().rpcs_per_job = Some(f64::NAN), "RPCs per job of the month"),
            (|h| h.os = "\u{7}".into(), "os has"),
            (|h| h.document_rollback = "\u{7}".into(), "document_rollback has"),
            (|h| h.document_rolled_back_at_micros = i64::MAX, "document_rolled_back_at is"),
            (|h| h.coprocessors[0].count = 1 << 16, "65536 devices of one kind"),
            (|h| h.declined_urls = vec![String::new(); 1_001], "1001 declined projects"),
            (|h| h.organisation_keys = vec![String::new(); 9], "9 keys of an organisation"),
            (|h| h.organisation_keys = vec!["ed25519:1".to_owned()], "is no public key"),
            (|h| h.owner.as_mut().unwrap().cpu_fraction = Some(2.0), "fraction"),
            (|h| h.disk.as_mut().unwrap().limited_by = "\u{1b}".into(), "limited_by has"),
            (
                |h| h.disk.as_mut().unwrap().limited_by = "l".repeat(2_000),
                "limited_by has more than 1024 bytes",
            ),
        ];
        for (spoil, expected) in cases {
            let mut bad = to_wire(&host());
            spoil(&mut bad);
            let why = from_wire(bad).unwrap_err();
            assert!(why.contains(expected), "{why} lacks {expected}");
        }
    }

    #[test]
    fn a_figure_that_rounding_carried_a_hair_past_its_end_is_the_end() {
        let day =
            Some(wire::Metrics { idleness: Some(1.000_000_1), waste: Some(-1e-7), ..Default::default() });
        let [day, ..] = from_wire(wire::HostState { day, ..Default::default() }).unwrap().metrics;
        assert_eq!((day.idleness, day.waste), (Some(Fraction::ONE), Some(Fraction::ZERO)));
    }
}
