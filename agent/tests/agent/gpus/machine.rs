//! A machine with GPUs of AMD and Intel that are not there: sysfs in a directory, and a stand-in for OpenCL's
//! library, compiled from `opencl.c`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::stand_in::compiled;

/// A machine of one test's own.
pub(super) struct Machine(tempfile::TempDir);

impl Machine {
    /// One without cards, whose OpenCL tells of this, in the words of `opencl.c`.
    pub(super) fn telling(devices: &str) -> Self {
        static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
        let bytes = COMPILED.get_or_init(|| compiled(include_bytes!("opencl.c")));
        let machine = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(machine.sysfs().join("class/drm")).unwrap();
        fs::write(machine.library(), bytes).unwrap();
        fs::set_permissions(machine.library(), fs::Permissions::from_mode(0o755)).unwrap();
        machine.tell(devices);
        machine
    }

    /// One with two cards of AMD's and an integrated one of Intel's.
    pub(super) fn usual() -> Self {
        let machine = Self::telling(USUAL);
        machine.card(0, "0000:00:02.0", "8086:A780", "i915");
        for (number, slot) in [(2, "0000:03:00.0"), (1, "0000:07:00.0")] {
            machine.card(number, slot, "1002:744C", "amdgpu");
            machine.set(slot, "mem_info_vram_total", "17179869184\n");
            machine.set(slot, "mem_info_vram_used", "20000000\n");
            machine.set(slot, "gpu_busy_percent", "0\n");
        }
        machine
    }

    /// Its OpenCL tells of something else from now on.
    pub(super) fn tell(&self, devices: &str) {
        put(&self.dir().join("devices"), devices);
    }

    /// It has a card there.
    pub(super) fn card(&self, number: u32, slot: &str, id: &str, driver: &str) {
        let told = format!("DRIVER={driver}\nPCI_CLASS=30000\nPCI_ID={id}\nPCI_SLOT_NAME={slot}\n");
        fs::create_dir_all(self.device(slot)).unwrap();
        self.set(slot, "uevent", &told);
        let place = self.sysfs().join(format!("class/drm/card{number}"));
        fs::create_dir_all(&place).unwrap();
        symlink(self.device(slot), place.join("device")).unwrap();
    }

    /// The kernel shows this of a card from now on.
    pub(super) fn set(&self, slot: &str, name: &str, text: &str) {
        put(&self.device(slot).join(name), text);
    }

    pub(super) fn sysfs(&self) -> PathBuf {
        self.dir().join("sysfs")
    }

    pub(super) fn library(&self) -> PathBuf {
        self.dir().join("libOpenCL.so.1")
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn device(&self, slot: &str) -> PathBuf {
        self.sysfs().join("devices").join(slot)
    }
}

/// What OpenCL tells of the usual machine: AMD's cards not in the order of the bus, and the first of them on
/// a second platform, too.
pub(super) const USUAL: &str = "platform OpenCL 2.1 AMD-APP (3590.0)\ngpu amd 7 96 2500 16368 Radeon RX 7900 XTX\n\
    gpu amd 3 60 2400 16368 Radeon RX 7800 XT\nplatform OpenCL 3.0 Intel(R) OpenCL Graphics\n\
    gpu intel 0 32 1650 12000 Intel(R) UHD Graphics 770\nplatform OpenCL 3.0 other\n\
    gpu amd 7 96 2500 16368 Radeon RX 7900 XTX again\ngpu other 9 1 1 1 Something else\n";

fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}
