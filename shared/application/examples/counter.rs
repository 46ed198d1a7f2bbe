//! The smallest application: repeats a multiplication as often as the file `in` says, and writes the last
//! number to `out`.
//!
//! Try it alone: `echo 100 > in && cargo run --example counter && cat out`.

use std::error::Error;
use std::path::Path;

use fallow_application::checkpoint::{seal, unseal};
use fallow_application::{Application, resolve, write_output};

const CHECKPOINT: &str = "checkpoint";
const KIND: &str = "counter checkpoint 1";

fn main() {
    let app = match Application::start() {
        Ok(app) => app,
        Err(error) => {
            eprintln!("counter: {error}");
            std::process::exit(1);
        }
    };
    match count(&app) {
        Ok(()) => app.finish(0),
        Err(error) => {
            eprintln!("counter: {error}");
            app.finish_with_message(1, error.to_string())
        }
    }
}

fn count(app: &Application) -> Result<(), Box<dyn Error>> {
    let rounds: u64 = std::fs::read_to_string(resolve("in")?)?.trim().parse()?;
    let (mut round, mut number) = resumed().unwrap_or((0, 1));
    while round < rounds {
        number = multiply(number);
        round += 1;
        app.fraction_done(round as f64 / rounds as f64);
        if app.time_to_checkpoint() {
            app.save_checkpoint(Path::new(CHECKPOINT), &seal(KIND, &format!("{round} {number}")))?;
        }
    }
    write_output("out", format!("{number}\n").as_bytes())?;
    Ok(())
}

/// Some milliseconds of work.
fn multiply(number: u64) -> u64 {
    (0..100_000).fold(number, |number, _| {
        std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1))
    })
}

fn resumed() -> Option<(u64, u64)> {
    let checkpoint = std::fs::read_to_string(CHECKPOINT).ok()?;
    let (round, number) = unseal(KIND, &checkpoint).ok()?.split_once(' ')?;
    let resumed = (round.parse().ok()?, number.parse().ok()?);
    eprintln!("counter: resumed from checkpoint at round {round}");
    Some(resumed)
}
