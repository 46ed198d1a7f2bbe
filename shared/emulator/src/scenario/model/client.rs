//! The client: its preferences, as far as a simulation knows them.

use fallow_domain::{Bytes, Duration, Fraction, Preferences};

/// How much work the client keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// At least this much.
    pub min: Duration,
    /// Up to this much more.
    pub additional: Duration,
}

/// The client's preferences. [`Scenario::preferences`](super::scenario::Scenario::preferences) gives them in
/// the product's own form.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientModel {
    /// Switch between projects about this often.
    pub scheduling_period: Duration,
    /// How much work to keep.
    pub buffer: Buffer,
    /// Keep preempted jobs in memory: they lose nothing. Otherwise they go back to their last checkpoint.
    pub leave_in_memory: bool,
    /// Ask jobs to checkpoint at most this often.
    pub checkpoint_period: Duration,
    /// Part of the CPUs that may be used.
    pub cpu_fraction: Fraction,
    /// Part of each second that a CPU job may run.
    pub cpu_time_fraction: Fraction,
    /// Part of the memory that jobs may use.
    pub memory_fraction: Fraction,
    /// Part of the disk that may be used.
    pub disk_fraction: Fraction,
    /// Free space to leave on the disk.
    pub disk_free_min: Bytes,
}

impl Default for ClientModel {
    /// The base values (R5.15); the product's own defaults elsewhere, except that preempted jobs stay in
    /// memory.
    fn default() -> Self {
        let product = Preferences::default();
        Self {
            scheduling_period: Duration::from_mins(60),
            buffer: Buffer { min: Duration::from_days_f64(0.1), additional: Duration::from_days_f64(0.25) },
            leave_in_memory: true,
            checkpoint_period: product.checkpoint_period,
            cpu_fraction: product.cpu_fraction,
            cpu_time_fraction: product.cpu_time_fraction,
            memory_fraction: product.memory_fraction,
            disk_fraction: product.disk_fraction,
            disk_free_min: product.disk_free_min,
        }
    }
}

impl From<&Preferences> for ClientModel {
    /// Preferences as they hold on a host, apart from the connection interval, which is the host's.
    fn from(preferences: &Preferences) -> Self {
        // By name, so that none is forgotten. Nothing is simulated of a host that is suspended or may not use
        // a device.
        let Preferences {
            cpu_fraction,
            cpu_time_fraction,
            buffer_min,
            buffer_additional,
            scheduling_period,
            checkpoint_period,
            leave_in_memory,
            suspended: _,
            memory_fraction,
            disk_fraction,
            disk_free_min,
            connection_interval: _,
            excluded_devices: _,
            hours: _,
            run_in_use: _,
            run_gpu_in_use: _,
            idle_after: _,
            required_layers: _,
            jobs_network: _,
            local: _,
        } = *preferences;
        Self {
            scheduling_period,
            buffer: Buffer { min: buffer_min, additional: buffer_additional },
            leave_in_memory,
            checkpoint_period,
            cpu_fraction,
            cpu_time_fraction,
            memory_fraction,
            disk_fraction,
            disk_free_min,
        }
    }
}
