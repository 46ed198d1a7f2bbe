//! OpenCL's library, loaded when it is asked for: those of its functions that tell of devices (R3.15).
//!
//! Model: whatever it says is untrusted, and goes into buffers of a fixed length; that it does not write over
//! memory cannot be seen to. So only a process calls this that nothing else depends on
//! ([`crate::host::gpu`]).

use std::ffi::c_void;
use std::path::Path;
use std::ptr;

use libloading::Library;

/// Platforms that are looked at (BOINC: `MAX_OPENCL_PLATFORMS`).
const PLATFORMS_MAX: u32 = 16;
/// Devices of a platform that are looked at.
const DEVICES_MAX: u32 = 64;
/// Longest text that is taken, in bytes.
const TEXT_MAX: usize = 1 << 16;
/// GPUs, and neither CPUs nor accelerators (OpenCL: `CL_DEVICE_TYPE_GPU`).
const GPU: u64 = 1 << 2;
/// What a platform without a GPU answers (OpenCL: `CL_DEVICE_NOT_FOUND`).
const NONE_FOUND: i32 = -1;
/// What the loader answers where no platform is installed (OpenCL: `CL_PLATFORM_NOT_FOUND_KHR`).
const NO_PLATFORM: i32 = -1001;

type Ids = unsafe extern "C" fn(u32, *mut *mut c_void, *mut u32) -> i32;
type DeviceIds = unsafe extern "C" fn(*mut c_void, u64, u32, *mut *mut c_void, *mut u32) -> i32;
type Info = unsafe extern "C" fn(*mut c_void, u32, usize, *mut c_void, *mut usize) -> i32;

/// The library.
#[derive(Clone, Copy, Debug)]
pub struct OpenCl {
    platform_ids: Ids,
    platform_info: Info,
    device_ids: DeviceIds,
    device_info: Info,
}

/// A platform: what one maker's driver brings.
#[derive(Clone, Copy, Debug)]
pub struct Platform(*mut c_void);

/// A device of a platform.
#[derive(Clone, Copy, Debug)]
pub struct Device(*mut c_void);

impl OpenCl {
    /// Loads it, from where the system's loader finds it or from `path`. None where the system has none.
    ///
    /// # Errors
    /// In words, what is wrong with it.
    pub fn load(path: Option<&Path>) -> Result<Option<Self>, String> {
        const NAME: &str = "libOpenCL.so.1";
        // SAFETY: what the library does when it is loaded cannot be known. It is the system's own, or one
        // that the owner of the host named and that nobody else may write to; and the process is there for
        // nothing else.
        let loaded = unsafe { Library::new(path.unwrap_or_else(|| Path::new(NAME))) };
        let library = match loaded {
            Ok(library) => library,
            Err(error) => {
                // As the loader of the C library says it, for want of a number.
                let is_absent = format!("{NAME}: cannot open shared object file: No such file");
                let why = error.to_string();
                return if path.is_none() && why.contains(&is_absent) { Ok(None) } else { Err(why) };
            }
        };
        // SAFETY: the types are those of OpenCL's header, whatever its version: the calls of version 1.0.
        let found = unsafe {
            Self {
                platform_ids: symbol(&library, "clGetPlatformIDs")?,
                platform_info: symbol(&library, "clGetPlatformInfo")?,
                device_ids: symbol(&library, "clGetDeviceIDs")?,
                device_info: symbol(&library, "clGetDeviceInfo")?,
            }
        };
        // It stays for as long as the process does: drivers do not survive it being taken away.
        std::mem::forget(library);
        Ok(Some(found))
    }

    /// The platforms, in the library's order.
    ///
    /// # Errors
    /// OpenCL's number of what is wrong.
    pub fn platforms(&self) -> Result<Vec<Platform>, i32> {
        let mut ids = [ptr::null_mut(); PLATFORMS_MAX as usize];
        let mut count = 0;
        // SAFETY: there is room for as many as are asked for, and for their number.
        let result = unsafe { (self.platform_ids)(PLATFORMS_MAX, ids.as_mut_ptr(), &raw mut count) };
        match result {
            0 => Ok(ids.into_iter().take(count as usize).filter(|id| !id.is_null()).map(Platform).collect()),
            NO_PLATFORM => Ok(Vec::new()),
            error => Err(error),
        }
    }

    /// The GPUs of a platform, in its order.
    ///
    /// # Errors
    /// OpenCL's number of what is wrong.
    pub fn gpus(&self, platform: Platform) -> Result<Vec<Device>, i32> {
        let mut ids = [ptr::null_mut(); DEVICES_MAX as usize];
        let mut count = 0;
        // SAFETY: as above; the platform is one that the library named.
        let result =
            unsafe { (self.device_ids)(platform.0, GPU, DEVICES_MAX, ids.as_mut_ptr(), &raw mut count) };
        match result {
            // One that is null keeps its place: the others are known by theirs.
            0 => Ok(ids.into_iter().take(count as usize).map(Device).collect()),
            NONE_FOUND => Ok(Vec::new()),
            error => Err(error),
        }
    }

    /// A text that a platform says, without its end. None if it does not.
    pub fn platform_text(&self, Platform(id): Platform, what: u32) -> Option<String> {
        text(self.platform_info, id, what)
    }

    /// The same of a device.
    pub fn device_text(&self, Device(id): Device, what: u32) -> Option<String> {
        text(self.device_info, id, what)
    }

    /// A value of `N` bytes that a device says. None if it does not, or it has another length.
    pub fn device_bytes<const N: usize>(&self, Device(id): Device, what: u32) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let length = ask(self.device_info, id, what, &mut bytes)?;
        (length == N).then_some(bytes)
    }
}

/// # Safety
/// `T` has to be the type that the function has.
unsafe fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller's word.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|error| error.to_string())
}

fn text(info: Info, id: *mut c_void, what: u32) -> Option<String> {
    let mut bytes = vec![0; TEXT_MAX];
    let length = ask(info, id, what, &mut bytes)?;
    let text = bytes.get(..length)?;
    Some(String::from_utf8_lossy(text.split(|byte| *byte == 0).next()?).into_owned())
}

/// Has a value written, and says how long it is.
fn ask(info: Info, id: *mut c_void, what: u32, into: &mut [u8]) -> Option<usize> {
    if id.is_null() {
        return None;
    }
    let mut length = 0;
    // SAFETY: there is room for as many bytes as are said; what they are is not trusted.
    let result = unsafe { info(id, what, into.len(), into.as_mut_ptr().cast(), &raw mut length) };
    (result == 0 && length <= into.len()).then_some(length)
}
