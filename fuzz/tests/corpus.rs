//! What lies in `corpus` and among the captures, given to each target.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: failures are panics")]

use fallow_fuzz::{STACK, targets};

#[test]
fn r6_2_every_input_that_was_kept_is_taken_as_it_should_be() {
    for target in targets() {
        let inputs = target.inputs().unwrap_or_else(|error| panic!("{}: {error}", target.name));
        assert!(!inputs.is_empty(), "{} has no input", target.name);
        for (path, bytes) in inputs {
            println!("{}: {}", target.name, path.display());
            let run = move || target.check(&bytes);
            std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap().join().unwrap();
        }
    }
}
