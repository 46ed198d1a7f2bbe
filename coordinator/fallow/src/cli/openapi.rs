//! `fallow openapi`: the operators' API in JSON, for those who write programs that call it (R6.11).

use fallow_coordinator::json::{Contract, openapi};

use super::{Failure, print_json};

/// Writes it to standard output. No coordinator is asked: it is that of this program's version.
pub(crate) fn run() -> Result<(), Failure> {
    let broken =
        "the description of the API that is built into this program cannot be read: get another build";
    let contract = Contract::read().map_err(|error| Failure::internal(broken, error))?;
    print_json(&openapi(&contract))
}
