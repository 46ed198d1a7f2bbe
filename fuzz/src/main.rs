//! The fuzzer: LLVM's libFuzzer, turned on the target that `FALLOW_FUZZ_TARGET` names. `.ci/fuzz` builds and
//! starts it. With `FALLOW_FUZZ_SEEDS`, it writes each target's inputs into a folder of that folder instead.
#![no_main]

use std::sync::OnceLock;

use fallow_fuzz::{Target, find};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("FALLOW_FUZZ_SEEDS") {
            if let Err(error) = fallow_fuzz::write_inputs(folder.as_ref()) {
                eprintln!("cannot write the inputs to {}: {error}", folder.display());
                std::process::exit(1);
            }
            std::process::exit(0);
        }
        let name = std::env::var("FALLOW_FUZZ_TARGET").unwrap_or_default();
        let Some(target) = find(&name) else {
            eprintln!("FALLOW_FUZZ_TARGET={name:?}: there is no such target");
            std::process::exit(2);
        };
        let _ = TARGET.set(target);
    },
    |bytes: &[u8]| {
        if let Some(target) = TARGET.get() {
            target.check(bytes);
        }
    }
);
