//! The coprocessors of a host and what a client wants for them (R3.2; BOINC: `coprocs` of a request).
//!
//! The kinds that BOINC knows have an element of their own, with properties in the words of their drivers;
//! any other kind is a `coproc` with a type. Of the properties those are kept that say what a device can do,
//! `coproc_opencl` among them; the rest are passed over.

use fallow_domain::{Bytes, Duration, ResourceType};

use super::OpenCl;
use crate::FormatError;
use crate::xml::{Reader, Tag, Writer};

/// Kinds of coprocessors that are kept of one host: BOINC's clients hold half as many.
const KINDS_MAX: usize = 16;

/// BOINC's word for a resource type, as in `<type>` and `<no_rsc_apps>`.
pub const fn type_name(kind: ResourceType) -> &'static str {
    match kind {
        ResourceType::Cpu => "CPU",
        ResourceType::Nvidia => "NVIDIA",
        ResourceType::Amd => "ATI",
        ResourceType::Intel => "intel_gpu",
        ResourceType::Apple => "apple_gpu",
    }
}

/// The resource type that BOINC calls so; older projects say `CUDA`.
pub fn type_of(name: &str) -> Option<ResourceType> {
    match name {
        "CUDA" => Some(ResourceType::Nvidia),
        _ => ResourceType::ALL.into_iter().find(|kind| type_name(*kind) == name),
    }
}

const fn element(kind: ResourceType) -> &'static str {
    match kind {
        ResourceType::Cpu => "coproc",
        ResourceType::Nvidia => "coproc_cuda",
        ResourceType::Amd => "coproc_ati",
        ResourceType::Intel => "coproc_intel_gpu",
        ResourceType::Apple => "coproc_apple_gpu",
    }
}

/// The coprocessors of one kind, and the work wanted for them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostCoprocessors {
    /// BOINC's word for the kind (`type_name`).
    pub kind: String,
    /// Instances.
    pub count: u32,
    /// The model.
    pub name: String,
    /// Work wanted in instance-seconds, 0 for none.
    pub req_secs: f64,
    /// Idle instances to fill.
    pub req_instances: f64,
    /// Time until an instance is free of jobs whose deadlines are in danger.
    pub estimated_delay: Duration,
    /// Peak floating-point operations per second of one instance.
    pub peak_flops: f64,
    /// Memory of one instance (BOINC: `totalGlobalMem` of NVIDIA, `localRAM` in MiB of AMD,
    /// `global_mem_size` of others, which stands in `coproc_opencl` where that is said).
    pub memory: Bytes,
    /// Free memory of one instance (BOINC: `available_ram`), 0 if that is not said.
    pub available: Bytes,
    /// Version of the driver, as a number for NVIDIA (BOINC: `drvVersion`), as text otherwise (`CALVersion`).
    pub driver: String,
    /// What there is of CUDA, for NVIDIA.
    pub cuda: Option<Cuda>,
    /// What there is of OpenCL (BOINC: `have_opencl`, `coproc_opencl`).
    pub opencl: Option<Box<OpenCl>>,
}

/// What servers ask of an NVIDIA device before they send it a program (BOINC: `plan_class_spec`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuda {
    /// CUDA's version, such as 12040 for 12.4 (BOINC: `cudaVersion`).
    pub version: u32,
    /// The compute capability (BOINC: `major`).
    pub major: u32,
    /// Its second number (BOINC: `minor`).
    pub minor: u32,
    /// Clock in kHz (BOINC: `clockRate`).
    pub clock_khz: u32,
    /// Multiprocessors (BOINC: `multiProcessorCount`).
    pub multiprocessors: u32,
}

impl Cuda {
    /// A driver's version as BOINC counts it: 53599 for `535.129.03`. None where it does not begin with a
    /// number.
    pub fn driver_number(version: &str) -> Option<u32> {
        let mut parts = version.split('.').map(|part| part.trim().parse::<u32>().ok());
        let major = parts.next()??;
        let minor = parts.next().flatten().unwrap_or(0).min(99);
        major.checked_mul(100)?.checked_add(minor)
    }
}

impl HostCoprocessors {
    /// Its resource type, if it is one that is known here.
    pub fn resource_type(&self) -> Option<ResourceType> {
        type_of(&self.kind).filter(|kind| kind.is_coprocessor())
    }

    /// Each kind once, the last of several, and no more kinds than any host has.
    pub(crate) fn read_all<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>) -> Result<Vec<Self>, FormatError> {
        let mut all: Vec<Self> = Vec::new();
        while let Some(tag) = reader.next_child(parent)? {
            let known = ResourceType::COPROCESSORS.into_iter().find(|kind| element(*kind) == tag.name);
            let mut read = match (known, tag.name) {
                (Some(kind), _) => Self::read(reader, &tag, type_name(kind))?,
                (None, "coproc") => Self::read(reader, &tag, "")?,
                _ => {
                    reader.skip(&tag)?;
                    continue;
                }
            };
            if let Some(kind) = read.resource_type() {
                type_name(kind).clone_into(&mut read.kind);
            }
            match all.iter().position(|other| other.kind == read.kind) {
                Some(place) => all[place] = read,
                None if all.len() < KINDS_MAX => all.push(read),
                None => {}
            }
        }
        Ok(all)
    }

    fn read<'a>(reader: &mut Reader<'a>, parent: &Tag<'a>, kind: &str) -> Result<Self, FormatError> {
        let mut read = Self { kind: kind.to_owned(), count: 1, ..Self::default() };
        let mut cuda = Cuda::default();
        while let Some(tag) = reader.next_child(parent)? {
            match tag.name {
                "type" if kind.is_empty() => reader.set(&tag, &mut read.kind)?,
                "count" => reader.set(&tag, &mut read.count)?,
                "name" => reader.set(&tag, &mut read.name)?,
                "req_secs" => reader.set(&tag, &mut read.req_secs)?,
                "req_instances" => reader.set(&tag, &mut read.req_instances)?,
                "estimated_delay" => reader.set(&tag, &mut read.estimated_delay)?,
                "peak_flops" => reader.set(&tag, &mut read.peak_flops)?,
                "totalGlobalMem" | "global_mem_size" => {
                    let mut bytes = 0.0;
                    reader.set(&tag, &mut bytes)?;
                    read.memory = Bytes::from_f64(bytes);
                }
                "localRAM" => {
                    let mut mebibytes = 0.0;
                    reader.set(&tag, &mut mebibytes)?;
                    read.memory = Bytes::from_f64(mebibytes * f64::from(1 << 20));
                }
                "drvVersion" | "CALVersion" => reader.set(&tag, &mut read.driver)?,
                "available_ram" => {
                    let mut bytes = 0.0;
                    reader.set(&tag, &mut bytes)?;
                    read.available = Bytes::from_f64(bytes);
                }
                "coproc_opencl" => {
                    let mut opencl = OpenCl::default();
                    opencl.fill(reader, &tag)?;
                    read.opencl = Some(Box::new(opencl));
                }
                "cudaVersion" => reader.set(&tag, &mut cuda.version)?,
                "major" => reader.set(&tag, &mut cuda.major)?,
                "minor" => reader.set(&tag, &mut cuda.minor)?,
                "clockRate" => reader.set(&tag, &mut cuda.clock_khz)?,
                "multiProcessorCount" => reader.set(&tag, &mut cuda.multiprocessors)?,
                _ => reader.skip(&tag)?,
            }
        }
        read.cuda = Some(cuda).filter(|cuda| *cuda != Cuda::default());
        if let Some(opencl) = read.opencl.as_ref().filter(|_| read.memory == Bytes(0)) {
            read.memory = opencl.global_mem_size;
        }
        Ok(read)
    }

    pub(super) fn write_all(all: &[Self], writer: &mut Writer) {
        if !all.is_empty() {
            writer.nested("coprocs", |w| all.iter().for_each(|one| one.write(w)));
        }
    }

    fn write(&self, writer: &mut Writer) {
        let known = self.resource_type();
        writer.nested(known.map_or("coproc", element), |w| {
            if known.is_none() {
                w.text("type", &self.kind);
            }
            w.value("count", &self.count);
            w.text_if_any("name", &self.name);
            if self.available > Bytes(0) {
                w.double("available_ram", self.available.as_f64());
            }
            if self.cuda.is_some() {
                w.plain("have_cuda", 1);
            }
            if self.opencl.is_some() {
                w.plain("have_opencl", 1);
            }
            w.value("req_secs", &self.req_secs);
            w.value("req_instances", &self.req_instances);
            w.value("estimated_delay", &self.estimated_delay);
            w.value("peak_flops", &self.peak_flops);
            match known {
                Some(ResourceType::Nvidia) => {
                    if let Some(cuda) = &self.cuda {
                        w.value("cudaVersion", &cuda.version);
                    }
                    w.text_if_any("drvVersion", &self.driver);
                    w.double("totalGlobalMem", self.memory.as_f64());
                    if let Some(cuda) = &self.cuda {
                        w.value("clockRate", &cuda.clock_khz);
                        w.value("major", &cuda.major);
                        w.value("minor", &cuda.minor);
                        w.value("multiProcessorCount", &cuda.multiprocessors);
                    }
                }
                Some(ResourceType::Amd) => {
                    w.text_if_any("CALVersion", &self.driver);
                    // Servers take whole numbers alone for it.
                    w.plain("localRAM", self.memory.0 >> 20);
                    if let Some(opencl) = &self.opencl {
                        w.value("engineClock", &opencl.max_clock_frequency);
                    }
                }
                _ if self.opencl.is_some() => {}
                _ => w.double("global_mem_size", self.memory.as_f64()),
            }
            if let Some(opencl) = &self.opencl {
                w.nested("coproc_opencl", |w| opencl.put(w));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::SchedulerRequest;

    fn opencl() -> OpenCl {
        OpenCl {
            name: "gfx1030".into(),
            vendor: "Advanced Micro Devices, Inc.".into(),
            vendor_id: 0x1002,
            available: true,
            half_fp_config: 191,
            single_fp_config: 191,
            double_fp_config: 63,
            endian_little: true,
            execution_capabilities: 1,
            extensions: "cl_khr_fp64 cl_khr_fp16".into(),
            global_mem_size: Bytes::from_mebibytes(4_096),
            local_mem_size: Bytes(65_536),
            max_clock_frequency: 2_575,
            max_compute_units: 30,
            opencl_platform_version: "OpenCL 2.1 AMD-APP (3590.0)".into(),
            opencl_device_version: "OpenCL 2.0".into(),
            opencl_driver_version: "3590.0 (HSA1.1,LC)".into(),
        }
    }

    /// Every element that BOINC's servers look for in `coproc_opencl`.
    #[test]
    fn r3_15_opencl_is_told_under_boincs_names_and_an_intel_gpu_has_its_memory_there() {
        let intel = HostCoprocessors {
            kind: "intel_gpu".into(),
            count: 1,
            memory: Bytes::from_mebibytes(4_096),
            opencl: Some(Box::new(opencl())),
            ..HostCoprocessors::default()
        };
        let request = SchedulerRequest { coprocs: vec![intel], ..SchedulerRequest::default() };
        let text = request.write();
        let of = |name: &str| {
            let after = text.split_once(&format!("<{name}>"))?.1;
            Some(after.split_once(&format!("</{name}>"))?.0.trim().to_owned())
        };
        assert_eq!(of("have_opencl").as_deref(), Some("1"));
        for (name, value) in [
            ("vendor_id", "4098"),
            ("available", "1"),
            ("half_fp_config", "191"),
            ("single_fp_config", "191"),
            ("double_fp_config", "63"),
            ("endian_little", "1"),
            ("execution_capabilities", "1"),
            ("extensions", "cl_khr_fp64 cl_khr_fp16"),
            ("global_mem_size", "4294967296"),
            ("local_mem_size", "65536"),
            ("max_clock_frequency", "2575"),
            ("max_compute_units", "30"),
            ("opencl_platform_version", "OpenCL 2.1 AMD-APP (3590.0)"),
            ("opencl_device_version", "OpenCL 2.0"),
            ("opencl_driver_version", "3590.0 (HSA1.1,LC)"),
        ] {
            assert_eq!(of(name).as_deref(), Some(value), "{name} in {text}");
        }
        assert_eq!(text.matches("<global_mem_size>").count(), 1, "{text}");
        let amd = HostCoprocessors { kind: "ATI".into(), ..request.coprocs[0].clone() };
        let text = SchedulerRequest { coprocs: vec![amd], ..SchedulerRequest::default() }.write();
        for part in ["<localRAM>4096</localRAM>", "<engineClock>2575</engineClock>"] {
            assert!(text.contains(part), "{text} lacks {part}: servers read whole numbers alone there");
        }
    }

    #[test]
    fn r3_2_what_is_wanted_for_each_kind_of_coprocessor_survives_the_way_to_a_server() {
        let of = |kind: &str| HostCoprocessors {
            kind: kind.to_owned(),
            count: 2,
            name: "a <device>".to_owned(),
            req_secs: 86_400.0,
            req_instances: 1.0,
            estimated_delay: Duration::from_secs(5),
            peak_flops: 2e12,
            memory: Bytes::from_mebibytes(4_096),
            available: Bytes::from_mebibytes(4_000),
            driver: String::new(),
            cuda: (kind == "NVIDIA").then_some(Cuda {
                version: 12_040,
                major: 8,
                minor: 6,
                clock_khz: 1_695_000,
                multiprocessors: 82,
            }),
            opencl: matches!(kind, "NVIDIA" | "ATI" | "intel_gpu").then(|| Box::new(opencl())),
        };
        let coprocs = ["NVIDIA", "ATI", "intel_gpu", "apple_gpu", "abacus"].map(of).to_vec();
        let request = SchedulerRequest { coprocs, ..SchedulerRequest::default() };
        let text = request.write();
        assert!(text.contains("<coproc_cuda>") && text.contains("<type>abacus</type>"), "{text}");
        assert_eq!(SchedulerRequest::parse(text.as_bytes()).unwrap().coprocs, request.coprocs);
    }

    #[test]
    fn r3_15_a_drivers_version_is_the_number_that_servers_compare() {
        for (version, number) in
            [("535.129.03", Some(53_599)), ("550.54.14", Some(55_054)), ("470", Some(47_000)), ("", None)]
        {
            assert_eq!(Cuda::driver_number(version), number, "{version}");
        }
        assert_eq!((Cuda::driver_number("beta.1"), Cuda::driver_number("99999999.1")), (None, None));
    }

    #[test]
    fn every_type_is_known_by_boincs_word_for_it() {
        assert!(ResourceType::ALL.into_iter().all(|kind| type_of(type_name(kind)) == Some(kind)));
        assert_eq!(type_of("CUDA"), Some(ResourceType::Nvidia));
        assert_eq!(type_of("abacus"), None);
    }
}
