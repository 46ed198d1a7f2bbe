//! Random bytes that nobody can guess: for keys and identities.

use std::io;
use std::path::Path;

use fallow_domain::hex;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

use super::error::ProjectError;

/// A generator seeded by the system. Cryptographic, and without failures of its own once it is seeded.
pub(crate) fn generator() -> Result<StdRng, ProjectError> {
    let mut seed = <StdRng as SeedableRng>::Seed::default();
    let failed =
        |error| ProjectError::file("read", Path::new("the system's random numbers"))(io::Error::other(error));
    SysRng.try_fill_bytes(&mut seed).map_err(failed)?;
    Ok(StdRng::from_seed(seed))
}

/// 128 random bits in hexadecimal: an account key, or an identity.
pub(crate) fn random_key() -> Result<String, ProjectError> {
    let mut bytes = [0; 16];
    generator()?.fill_bytes(&mut bytes);
    Ok(hex(&bytes))
}
