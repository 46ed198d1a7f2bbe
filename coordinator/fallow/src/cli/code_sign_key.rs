//! Code-signing keys of projects that are kept where the coordinator cannot read them (R6.10).

use std::path::{Path, PathBuf};

use clap::Args;
use fallow_boinc::signature::{PrivateKey, PublicKey};
use fallow_proto::operator::v1::{GetOrganisationRequest, GetProjectRequest, ListProjectsRequest};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::json;
use tonic::Status;

use super::connect::Client;
use super::key_file::{read, warn_if_open_key, write_new};
use super::{Failure, print, print_json, warn};
use crate::printable;

/// Projects' names that are told.
const NAMES: usize = 8;
/// Characters of a project's name there.
const NAME: usize = 60;

pub(crate) const NEW_KEY: &str = "\
Example:
  fallow project new-key sieve.key
  fallow project create sieve --code-sign-key sieve.key
  fallow app add sieve sieve ./sieve --version 1.0 --code-sign-key sieve.key

Only the public part goes to the coordinator. Keep the file where its machine
cannot read it, and a copy in a safe: without it the project gets no new
version. The public part alone is written beside it (sieve.key.public), for a
project that is made on another machine. Its fingerprint is printed.";

#[derive(Args, Debug)]
pub(crate) struct NewKey {
    /// Where the private key is to be. Nothing may be there yet.
    file: PathBuf,
    /// One JSON object with the public key and its fingerprint.
    #[arg(long)]
    json: bool,
}

/// Makes a key and shows its fingerprint.
pub(crate) fn make(NewKey { file, json }: &NewKey) -> Result<(), Failure> {
    let made = with_random(|fill| PrivateKey::generate(fill))?;
    let key = made.map_err(|error| Failure::internal("no key can be made", error))?;
    let text = key.to_pem().map_err(|error| Failure::internal("the key cannot be written", error))?;
    let public = key.public_key();
    let mut beside = file.clone().into_os_string();
    beside.push(".public");
    write_new(file, text.as_bytes(), 0o600)?;
    let written = write_new(Path::new(&beside), format!("{}\n", public.to_text()).as_bytes(), 0o644);
    // Whoever tries it again would find a key that nobody knows.
    written.inspect_err(|_| drop(std::fs::remove_file(file)))?;
    match json {
        true => print_json(&json!({
            "file": file.display().to_string(),
            "public_file": Path::new(&beside).display().to_string(),
            "public_key": public.to_text(),
            "fingerprint": public.fingerprint().to_string(),
        })),
        false => print(&format!("{}\n", public.fingerprint())),
    }
}

/// Says of which projects whoever breaks into the coordinator can sign programs, if documents are signed:
/// who has them signed may think that this is enough. One project may be meant alone. What cannot be asked
/// is not worth a failure: what the command was for is done.
pub(super) async fn tell_kept(client: &mut Client, of: Option<&str>) {
    let kept = kept(client, of).await.unwrap_or_default();
    if !kept.is_empty() {
        warn(&format!(
            "programs of {} are signed by a key in the coordinator's directory: who breaks into the coordinator can sign programs \
             there; a key that is not there has a project that is made with --code-sign-key (`fallow project new-key --help`)",
            some(&kept)
        ));
    }
}

/// Names of projects; of very many the first ones, and how many more there are.
fn some(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(NAMES).map(|name| printable::line(name, NAME)).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The projects whose code-signing key the coordinator has. One that cannot be asked (it may be gone by now)
/// says nothing of the others.
async fn kept(client: &mut Client, of: Option<&str>) -> Result<Vec<String>, Status> {
    let asked = GetOrganisationRequest { briefly: true };
    if client.get_organisation(asked).await?.into_inner().keys.is_empty() {
        return Ok(Vec::new());
    }
    let names = match of {
        Some(name) => vec![name.to_owned()],
        None => {
            let listed = client.list_projects(ListProjectsRequest {}).await?.into_inner().projects;
            listed.into_iter().map(|project| project.name).collect()
        }
    };
    let mut kept = Vec::new();
    for name in names {
        let settings = client.get_project(GetProjectRequest { name: name.clone() }).await;
        if settings.is_ok_and(|settings| !settings.into_inner().code_sign_key_is_elsewhere) {
            kept.push(name);
        }
    }
    Ok(kept)
}

/// The public part of a key, from a file that holds it or the private one.
pub(crate) fn public(file: &Path) -> Result<PublicKey, Failure> {
    let text = read(file)?;
    match PrivateKey::from_pem(&text) {
        Ok(key) => {
            warn_if_open_key(file);
            Ok(key.public_key())
        }
        Err(_) => PublicKey::parse(&text).map_err(|_| no_key(file, "a code-signing key")),
    }
}

/// The private key in a file.
pub(crate) fn private(file: &Path) -> Result<PrivateKey, Failure> {
    let key = PrivateKey::from_pem(&read(file)?);
    let key = key.map_err(|_| no_key(file, "the private part of a code-signing key"))?;
    warn_if_open_key(file);
    Ok(key)
}

/// Signs a file of an application with this MD5.
pub(crate) fn sign(key: &PrivateKey, md5: &str) -> Result<String, Failure> {
    let signed = with_random(|fill| key.sign_file(md5, fill))?;
    signed.map_err(|error| Failure::internal("the application cannot be signed", error))
}

fn no_key(file: &Path, what: &str) -> Failure {
    let text =
        format!("{} does not hold {what}: name the file that `fallow project new-key` wrote", file.display());
    Failure::bad_input(text)
}

/// Runs what asks for random bytes. Where there are none, what came of it is not used.
fn with_random<T>(run: impl FnOnce(&mut dyn FnMut(&mut [u8])) -> T) -> Result<T, Failure> {
    let (source, mut failed) = (SystemRandom::new(), false);
    let result = run(&mut |bytes| failed |= source.fill(bytes).is_err());
    match failed {
        false => Ok(result),
        true => Err(Failure::bad_input("the system gives no random numbers: nothing can be signed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_projects_it_is_said_how_many_more_there_are() {
        let names = |count: usize| (0..count).map(|number| format!("p{number}")).collect::<Vec<_>>();
        assert_eq!(some(&names(2)), "p0, p1");
        assert_eq!(some(&names(8)), "p0, p1, p2, p3, p4, p5, p6, p7");
        assert_eq!(some(&names(11)), "p0, p1, p2, p3, p4, p5, p6, p7 and 3 more");
    }
}
