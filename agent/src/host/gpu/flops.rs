//! Peak speed of devices, as BOINC reckons it (R3.15). NVIDIA's: clock times multiprocessors times cores of
//! one, and what a core does in a cycle. By OpenCL: clock times compute units, and what one does in a cycle.

use fallow_domain::Speed;

/// What is said of a device of which too little is known, in FLOPS, as BOINC has it.
const UNKNOWN: f64 = 1e11;
/// More than this is nonsense.
const MAX: f64 = 1e15;

/// Cores of one multiprocessor, by compute capability.
pub(super) const fn cores_of_one(major: u32, minor: u32) -> u32 {
    match (major, minor) {
        (0 | 1, _) => 8,
        (2, 0) => 32,
        (2, _) => 48,
        (3 | 4, _) => 192,
        (6, 0) | (7, _) | (8, 0) => 64,
        _ => 128,
    }
}

/// The multiprocessors that so many cores make.
pub(super) const fn multiprocessors(cores: u32, (major, minor): (u32, u32)) -> u32 {
    cores / cores_of_one(major, minor)
}

/// The peak speed of a device with this clock in kHz.
pub(super) fn peak(clock_khz: u32, multiprocessors: u32, (major, minor): (u32, u32)) -> Option<Speed> {
    let in_a_cycle = if major == 1 { 3.0 } else { 2.0 };
    let cores = f64::from(multiprocessors) * f64::from(cores_of_one(major, minor));
    let flops = f64::from(clock_khz) * 1e3 * cores * in_a_cycle;
    sensible(flops)
}

/// What a compute unit of Intel's does in a cycle.
pub(super) const INTEL_IN_A_CYCLE: f64 = 8.0;

/// What a compute unit of AMD's does in a cycle, by what OpenCL says of its SIMD units: their number, their
/// width, what they execute at once.
pub(super) fn amd_in_a_cycle(simd: Option<[u32; 3]>) -> f64 {
    match simd {
        Some(simd) if simd[0] > 0 => simd.into_iter().map(f64::from).product::<f64>() * 2.0,
        _ => 80.0,
    }
}

/// The peak speed of a device with this clock in MHz.
pub(super) fn of_opencl(clock_mhz: u32, compute_units: u32, in_a_cycle: f64) -> Option<Speed> {
    sensible(f64::from(clock_mhz) * 1e6 * f64::from(compute_units) * in_a_cycle)
}

/// What is said of a device of which nothing is known.
pub(super) fn unknown() -> Option<Speed> {
    sensible(0.0)
}

fn sensible(flops: f64) -> Option<Speed> {
    Speed::new(if flops > 0.0 && flops <= MAX { flops } else { UNKNOWN }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r3_15_peak_speeds_are_those_of_the_cards_data_sheets() {
        // Clock, cores, compute capability; FLOPS.
        for (model, clock, cores, compute, flops) in [
            ("GTX 1080", 1_733_000, 2_560, (6, 1), 8.87e12),
            ("V100", 1_530_000, 5_120, (7, 0), 15.7e12),
            ("A100", 1_410_000, 6_912, (8, 0), 19.5e12),
            ("RTX 3090", 1_695_000, 10_496, (8, 6), 35.6e12),
            ("H100", 1_980_000, 16_896, (9, 0), 66.9e12),
            ("GTX 285", 1_476_000, 240, (1, 3), 1.06e12),
        ] {
            let speed = peak(clock, multiprocessors(cores, compute), compute).unwrap().get();
            assert!((speed / flops - 1.0).abs() < 0.01, "{model}: {speed:e}");
        }
    }

    #[test]
    fn r3_15_speeds_by_opencl_follow_from_clock_and_compute_units_as_boinc_has_it() {
        for (model, clock, units, in_a_cycle, flops) in [
            // 64 compute units of 4 SIMD units of 16.
            ("Vega 64", 1_630, 64, amd_in_a_cycle(Some([4, 16, 1])), 13.35e12),
            ("without the extension", 1_000, 10, amd_in_a_cycle(None), 8e11),
            ("UHD 630", 1_150, 24, INTEL_IN_A_CYCLE, 2.2e11),
            ("nonsense", u32::MAX, u32::MAX, amd_in_a_cycle(Some([u32::MAX; 3])), UNKNOWN),
            ("nothing", 1_000, 10, amd_in_a_cycle(Some([4, 0, 1])), UNKNOWN),
        ] {
            let speed = of_opencl(clock, units, in_a_cycle).unwrap().get();
            assert!((speed / flops - 1.0).abs() < 0.01, "{model}: {speed:e}");
        }
        assert_eq!(amd_in_a_cycle(Some([0, 16, 1])), 80.0);
    }

    #[test]
    fn r3_15_what_cannot_be_is_a_tenth_of_a_teraflops() {
        for (clock, count) in [(0, 10), (1_000_000, 0), (u32::MAX, u32::MAX)] {
            assert_eq!(peak(clock, count, (8, 6)).unwrap().get(), 1e11);
        }
    }
}
