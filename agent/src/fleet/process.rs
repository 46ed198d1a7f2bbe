//! What tells this process from another one with the same identity (R6.10): a number drawn at its start, and
//! something that stands for the machine.

use rand::TryRng as _;
use rand::rngs::SysRng;

use crate::error::AgentError;

/// Where the machine's id is. It is confidential (machine-id(5)), so it never leaves the host.
const MACHINE_ID: &str = "/etc/machine-id";
/// What makes another number of it than any other program does.
const KEY: &[u8] = b"fallow fleet machine 1";

/// This process, as it is told the coordinator.
#[derive(Clone)]
pub struct Process {
    /// Drawn at the start.
    pub boot: [u8; 16],
    /// HMAC-SHA256 of the machine's id; empty where it has none.
    pub machine: Vec<u8>,
    /// What the machine is called.
    pub hostname: String,
}

impl Process {
    /// This one. To be called once in its life.
    ///
    /// # Errors
    /// [`AgentError::System`] when the system gives no random numbers.
    pub fn draw(hostname: String) -> Result<Self, AgentError> {
        let mut boot = [0; 16];
        SysRng.try_fill_bytes(&mut boot).map_err(|error| {
            AgentError::system("the system gives no random numbers", std::io::Error::other(error))
        })?;
        let id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
        Ok(Self { boot, machine: stands_for(&id), hostname })
    }
}

/// What stands for a machine's id.
fn stands_for(id: &str) -> Vec<u8> {
    let id = id.trim();
    // What images have there until their first start.
    if id.is_empty() || id == "uninitialized" {
        return Vec::new();
    }
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY);
    ring::hmac::sign(&key, id.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_10_every_start_draws_another_number_and_a_machine_without_an_id_has_nothing() {
        let [one, other] = [(); 2].map(|()| Process::draw("h".into()).unwrap());
        assert_ne!(one.boot, other.boot);
        assert_eq!(one.machine, other.machine);
        assert_eq!((stands_for("\n").len(), stands_for("uninitialized\n").len()), (0, 0));
    }

    #[test]
    fn r6_10_what_stands_for_a_machine_does_not_hold_its_id() {
        let id = "0123456789abcdef0123456789abcdef";
        let told = stands_for(&format!("{id}\n"));
        assert_eq!((told.len(), &told), (32, &stands_for(id)));
        assert!(!fallow_domain::hex(&told).contains(&id[..8]));
        assert_ne!(told, stands_for("0123456789abcdef0123456789abcdee"));
    }
}
