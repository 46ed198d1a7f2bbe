//! What runs the virtual machine that this host is, if it is one.
//!
//! Model: an x86 CPU of a virtual machine has a flag that says so, and a leaf in which the hypervisor gives
//! its name. Several give that of KVM or of Hyper-V, so that guests use what these have; what the firmware
//! says (DMI) then knows better. CPUs of other kinds have no flag: there the firmware and the device tree are
//! all that tells. Xen says it of itself, and so does Linux that runs as a program (UML).

use std::path::Path;

use super::{name, text};

/// What a hypervisor calls itself in the CPU's leaf, and its name.
const IN_CPU: [(&str, &str); 12] = [
    ("KVMKVMKVM", "kvm"),
    ("Linux KVM Hv", "kvm"),
    ("Microsoft Hv", "microsoft"),
    ("VMwareVMware", "vmware"),
    ("XenVMMXenVMM", "xen"),
    ("VBoxVBoxVBox", "oracle"),
    ("TCGTCGTCGTCG", "qemu"),
    ("bhyve bhyve", "bhyve"),
    ("prl hyperv", "parallels"),
    ("lrpepyh vr", "parallels"),
    ("QNXQVMBSQG", "qnx"),
    ("ACRNACRNACRN", "acrn"),
];

/// What a vendor's or a product's name in the firmware begins with, and the name.
const IN_FIRMWARE: [(&str, &str); 17] = [
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("Google Compute Engine", "google"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Microsoft Corporation Virtual", "microsoft"),
    ("Apple Virtualization", "apple"),
];

/// What it is called when nothing says more than that it is there.
const SOME: &str = "vm-other";

/// The hypervisor below a system whose files are below `root`; `in_cpu` is what it calls itself to the CPU's
/// users ([`from_cpu`]). None on a machine of its own, or where it hides.
pub(super) fn of(root: &Path, in_cpu: Option<&str>) -> Option<String> {
    let cpuinfo = text(root, "proc/cpuinfo");
    if text(root, "sys/hypervisor/type").trim() == "xen" {
        // The one that runs the others has the machine itself.
        let runs_others = text(root, "proc/xen/capabilities").contains("control_d");
        return (!runs_others).then(|| "xen".to_owned());
    }
    let value = |key: &str| crate::host::cpu::value_of(&cpuinfo, key);
    if value("vendor_id").is_some_and(|vendor| vendor == "User Mode Linux") {
        return Some("uml".to_owned());
    }
    match value("flags") {
        Some(flags) if flags.split(' ').any(|flag| flag == "hypervisor") => {
            let in_cpu = in_cpu.and_then(|said| known(&IN_CPU, said));
            // These names are given by others too.
            let is_sure = in_cpu.is_some_and(|name| !matches!(name, "kvm" | "microsoft"));
            let in_firmware = in_firmware(root).filter(|name| in_cpu.is_none() || *name != "qemu");
            let name = if is_sure { in_cpu } else { in_firmware.or(in_cpu) };
            Some(name.unwrap_or(SOME).to_owned())
        }
        // A CPU that has flags and not this one is no virtual one.
        Some(_) => None,
        None => in_device_tree(root).or_else(|| in_firmware(root).map(str::to_owned)),
    }
}

/// What the hypervisor calls itself to users of the CPU, where CPUs can tell that.
#[cfg(target_arch = "x86_64")]
pub(super) fn from_cpu() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    // The first bit from the top of ECX: there is such a leaf.
    let is_virtual = __cpuid(1).ecx >> 31 == 1;
    is_virtual.then(|| {
        let leaf = __cpuid(0x4000_0000);
        let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) const fn from_cpu() -> Option<String> {
    None
}

fn known(names: &[(&str, &'static str)], said: &str) -> Option<&'static str> {
    let said = said.trim_matches(|c: char| c == '\0' || c == ' ').split_whitespace().collect::<Vec<_>>();
    let said = said.join(" ");
    names.iter().find(|(begins, _)| said.starts_with(begins)).map(|(_, name)| *name)
}

fn in_firmware(root: &Path) -> Option<&'static str> {
    let said = |file: &str| text(root, &format!("sys/class/dmi/id/{file}")).trim().to_owned();
    let (vendor, product) = (said("sys_vendor"), said("product_name"));
    let both = format!("{vendor} {product}");
    let all = [product, vendor, both, said("board_vendor"), said("bios_vendor"), said("product_version")];
    all.iter().find_map(|said| known(&IN_FIRMWARE, said))
}

/// As in `linux,kvm`.
fn in_device_tree(root: &Path) -> Option<String> {
    let compatible = text(root, "proc/device-tree/hypervisor/compatible");
    let first = compatible.split('\0').next().filter(|first| !first.is_empty())?;
    let word = first.split_once(',').map_or(first, |(_, word)| word);
    if word.starts_with("xen") {
        return Some("xen".to_owned());
    }
    Some(name(word).unwrap_or_else(|| SOME.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::system;
    use super::*;

    const VIRTUAL: (&str, &str) =
        ("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor lm\n");
    const REAL: (&str, &str) = ("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu vmx lm\n");
    const ARM: (&str, &str) = ("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");

    #[track_caller]
    fn check(files: &[(&str, &str)], in_cpu: Option<&str>, expected: Option<&str>) {
        assert_eq!(of(system(files).path(), in_cpu).as_deref(), expected);
    }

    #[test]
    fn r6_2_a_virtual_machine_is_called_by_what_runs_it() {
        check(&[VIRTUAL], Some("KVMKVMKVM\0\0\0"), Some("kvm"));
        check(&[VIRTUAL], Some("VMwareVMware"), Some("vmware"));
        check(&[VIRTUAL], Some(" lrpepyh  vr"), Some("parallels"));
        check(&[VIRTUAL], Some("ThatNobodyKnow"), Some(SOME));
        check(&[VIRTUAL], None, Some(SOME));
        check(&[], None, None);
    }

    #[test]
    fn r6_2_firmware_names_those_that_pass_for_kvm_or_hyper_v() {
        let product = |product| ("sys/class/dmi/id/product_name", product);
        let vendor = |vendor| ("sys/class/dmi/id/sys_vendor", vendor);
        let kvm = Some("KVMKVMKVM\0\0\0");
        check(&[VIRTUAL, vendor("innotek GmbH\n"), product("VirtualBox\n")], kvm, Some("oracle"));
        check(&[VIRTUAL, vendor("Amazon EC2\n")], kvm, Some("amazon"));
        // What QEMU shows of itself is the same with KVM and without.
        check(&[VIRTUAL, vendor("QEMU\n")], kvm, Some("kvm"));
        check(&[VIRTUAL, vendor("QEMU\n")], None, Some("qemu"));
        check(&[VIRTUAL, vendor("Xen\n")], Some("VMwareVMware"), Some("vmware"));
        let hyper_v = [VIRTUAL, vendor("Microsoft Corporation\n"), product("Virtual Machine\n")];
        check(&hyper_v, Some("Microsoft Hv"), Some("microsoft"));
        check(&hyper_v, None, Some("microsoft"));
    }

    #[test]
    fn r6_2_a_machine_of_its_own_is_none_whatever_its_firmware_says() {
        // A whole machine of a cloud has that in its firmware too.
        check(&[REAL, ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")], None, None);
        check(&[REAL], Some("KVMKVMKVM"), None);
        // So has the one that runs others under Xen.
        let runs_others = ("proc/xen/capabilities", "control_d\n");
        check(&[REAL, ("sys/hypervisor/type", "xen\n"), runs_others], None, None);
        check(&[REAL, ("sys/hypervisor/type", "xen\n")], None, Some("xen"));
    }

    #[test]
    fn r6_2_where_cpus_have_no_such_flag_firmware_and_device_tree_tell() {
        check(&[ARM], None, None);
        check(&[ARM, ("sys/class/dmi/id/sys_vendor", "QEMU\n")], None, Some("qemu"));
        check(&[ARM, ("proc/device-tree/hypervisor/compatible", "linux,kvm\0")], None, Some("kvm"));
        let xen = ("proc/device-tree/hypervisor/compatible", "xen,xen-4.17\0xen,xen\0");
        check(&[ARM, xen], None, Some("xen"));
        check(&[ARM, ("proc/device-tree/hypervisor/compatible", "a,\u{1b}[2J\0")], None, Some(SOME));
        check(&[("proc/cpuinfo", "vendor_id\t: User Mode Linux\n")], None, Some("uml"));
    }
}
