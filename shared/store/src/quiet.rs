//! Turns a panic of the engine into a value.
//!
//! sled asserts on some damaged files instead of returning an error. Those panics are about untrusted input
//! (what is on disk), so they must be errors here. The default hook would print them as crashes of the
//! daemon: a hook installed once passes everything on but what happens inside [`catching`].

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic in it becomes its message. What `work` was changing must not be used afterwards.
pub(crate) fn catching<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let outer = take_hook();
        set_hook(Box::new(move |info| {
            if !CATCHING.get() {
                outer(info);
            }
        }));
    });
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(before);
    result.map_err(|panic| message(panic.as_ref()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the engine gave no reason".to_owned());
    // One line of bounded length: the engine prints whole pages into some assertions.
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_first_line() {
        assert_eq!(catching(|| panic!("page {}\nmore", 3)), Err::<(), _>("page 3".to_owned()));
        assert_eq!(catching(|| 5), Ok(5));
    }
}
