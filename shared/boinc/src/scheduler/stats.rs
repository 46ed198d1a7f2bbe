//! Figures about a host's availability, network and disk that a client sends along.

use fallow_domain::{Bytes, Duration, Fraction, Instant, OnTimeTable};

use crate::FormatError;
use crate::xml::{Reader, Tag, Writer, elements};

elements! {
/// How much of the time the host is available (BOINC: `time_stats`). Fractions are from 0 to 1; -1 means
/// unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeStats {
    /// Part of the time that the client runs.
    pub on_frac: f64,
    /// Part of that time with a network.
    pub connected_frac: f64,
    /// Part of that time in which CPUs and network may be used.
    pub cpu_and_network_available_frac: f64,
    /// Part of that time in which CPUs may be used.
    pub active_frac: f64,
    /// Part of that time in which GPUs may be used.
    pub gpu_active_frac: f64,
    /// When this run of the client began.
    pub client_start_time: Instant,
    /// When its first run began.
    pub total_start_time: Instant,
    /// How long it has run in all.
    pub total_duration: Duration,
    /// How long of that CPUs could be used.
    pub total_active_duration: Duration,
    /// How long of that GPUs could be used.
    pub total_gpu_active_duration: Duration,
    /// The client's clock as it writes this.
    pub now: Instant,
    /// How long its previous run lasted.
    pub previous_uptime: Duration,
    /// How long CPUs could be used in this run.
    pub session_active_duration: Duration,
    /// How long GPUs could be used in this run.
    pub session_gpu_active_duration: Duration,
    /// How long it computes within times to come (`on_time`). No other client tells it.
    pub fallow_on_time: Option<OnTimeTable>,
}
}

impl TimeStats {
    /// Part of the time that the host computes, as far as it is known.
    pub fn availability(&self) -> Fraction {
        Fraction::clamped(self.on_frac.clamp(0.0, 1.0) * self.active_frac.clamp(0.0, 1.0))
    }
}

impl Default for TimeStats {
    /// A host that is always available, about which nothing was measured yet.
    fn default() -> Self {
        Self {
            on_frac: 1.0,
            connected_frac: -1.0,
            cpu_and_network_available_frac: 1.0,
            active_frac: 1.0,
            gpu_active_frac: 1.0,
            client_start_time: Instant::EPOCH,
            total_start_time: Instant::EPOCH,
            total_duration: Duration::ZERO,
            total_active_duration: Duration::ZERO,
            total_gpu_active_duration: Duration::ZERO,
            now: Instant::EPOCH,
            previous_uptime: Duration::ZERO,
            session_active_duration: Duration::ZERO,
            session_gpu_active_duration: Duration::ZERO,
            fallow_on_time: None,
        }
    }
}

elements! {
/// Measured transfer speeds (BOINC: `net_stats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetStats {
    /// Upload speed in bytes per second.
    pub bwup: f64,
    /// Bytes uploaded, decaying over time.
    pub avg_up: f64,
    /// When `avg_up` was last brought up to date.
    pub avg_time_up: Instant,
    /// Download speed in bytes per second.
    pub bwdown: f64,
    /// Bytes downloaded, decaying over time.
    pub avg_down: f64,
    /// When `avg_down` was last brought up to date.
    pub avg_time_down: Instant,
}
}

/// Disk space in use and allowed (BOINC: `disk_usage`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskUsage {
    /// Used by the client and all its projects.
    pub d_boinc_used_total: Bytes,
    /// Used by this project.
    pub d_boinc_used_project: Bytes,
    /// What this project may use. BOINC's client sends fractions of a byte here; they are rounded.
    pub d_project_share: Bytes,
    /// What is free for this project's files, if the client tells (R4.9).
    pub free: Option<FreeSpace>,
}

/// The three amounts of free space (R4.9). BOINC's clients and servers of today know none of them: servers
/// pass them over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSpace {
    /// Free now (`project_disk_free`).
    pub now: Bytes,
    /// Free if other projects that exceed their limits gave way (`potentially_free_offender`).
    pub with_offenders: Bytes,
    /// Free if this project's own files that no job needs went too (`potentially_free_self`).
    pub with_self: Bytes,
}

impl DiskUsage {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Self, FormatError> {
        let mut usage = Self::default();
        let (mut now, mut with_offenders, mut with_self) = (None, None, None);
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "d_boinc_used_total" => reader.set(&tag, &mut usage.d_boinc_used_total)?,
                "d_boinc_used_project" => reader.set(&tag, &mut usage.d_boinc_used_project)?,
                "d_project_share" => reader.set(&tag, &mut usage.d_project_share)?,
                "project_disk_free" => reader.set(&tag, &mut now)?,
                "potentially_free_offender" => reader.set(&tag, &mut with_offenders)?,
                "potentially_free_self" => reader.set(&tag, &mut with_self)?,
                _ => reader.skip(&tag)?,
            }
        }
        // An amount that is left out is no more than the one before it.
        usage.free = now.map(|now: Bytes| {
            let with_offenders = with_offenders.unwrap_or(now);
            FreeSpace { now, with_offenders, with_self: with_self.unwrap_or(with_offenders) }
        });
        Ok(usage)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.nested("disk_usage", |w| {
            w.double("d_boinc_used_total", self.d_boinc_used_total.as_f64());
            w.double("d_boinc_used_project", self.d_boinc_used_project.as_f64());
            w.double("d_project_share", self.d_project_share.as_f64());
            if let Some(free) = &self.free {
                w.double("project_disk_free", free.now.as_f64());
                w.double("potentially_free_offender", free.with_offenders.as_f64());
                w.double("potentially_free_self", free.with_self.as_f64());
            }
        });
    }
}
