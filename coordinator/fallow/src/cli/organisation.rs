//! `fallow organisation`: keys that sign documents, kept where the coordinator cannot read them (R6.10).

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use fallow_domain::{DocumentVersion, OrganisationKey};
use fallow_fleet::{KeyPair, Statement, utc};
use fallow_proto::operator::v1::{GetOrganisationRequest, Organisation, SetOrganisationRequest};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use serde_json::json;

use super::code_sign_key;
use super::connect::Target;
use super::key_file::{self, write_new};
use super::{Failure, going_out, organisation_sign, print, print_json, print_told, warn, why};

pub(crate) const EXAMPLE: &str = "\
Example:
  fallow organisation new-key org.key      # on your own machine
  fallow organisation set ed25519:9d61...  # what that printed
  fallow shares set sieve=75               # as ever: the change waits
  fallow organisation sign --key org.key   # shows, signs, and it goes out

Agents that are enrolled from then on follow only what the key has signed: who
breaks into the coordinator cannot make them attach to projects of his own.
docs/signing.md says what that does and what it does not, and how to keep the
key on a machine without a network.";

const NEW_KEY: &str = "\
Example:
  fallow organisation new-key /media/stick/org.key

The file holds the private key (PKCS#8, as `openssl genpkey -algorithm ed25519`
makes it, too). Keep it where the coordinator's machine cannot read it, and a
copy in a safe: without it hosts follow no change any more. The public key is
printed: it is no secret.";

const SHOW: &str = "\
Examples:
  fallow organisation show
  fallow organisation show --json

Which hosts ask for signatures, `fallow hosts show HOST` says.";

const SET: &str = "\
Example:
  fallow organisation set ed25519:9d61...
  fallow organisation set --none

Hosts that are in the fleet already go on as before; `fallow-agent run
--organisation-key KEY` has them ask for signatures, too. With --none what waits
goes out at once, and hosts that ask for signatures refuse it.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Makes a key and prints its public part.
    #[command(after_help = NEW_KEY)]
    NewKey(NewKey),
    /// Shows by which keys documents are signed, and whether a change waits for it.
    #[command(after_help = SHOW)]
    Show(Show),
    /// Says by which keys documents are signed: from then on a change waits for its signature.
    #[command(after_help = SET)]
    Set(Set),
    /// Signs the newest documents, after showing what they change.
    #[command(after_help = organisation_sign::EXAMPLE)]
    Sign(organisation_sign::Sign),
}

#[derive(Args, Debug)]
pub(crate) struct NewKey {
    /// Where the private key is to be. Nothing may be there yet.
    file: PathBuf,
    /// One JSON object with the public key.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    target: Target,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    /// Public keys, as `fallow organisation new-key` prints them.
    #[arg(required_unless_present = "none")]
    keys: Vec<OrganisationKey>,
    /// Documents are not signed any more. What was signed is forgotten: with keys again, the first signature
    /// shows all values as new.
    #[arg(long, conflicts_with = "keys")]
    none: bool,
    /// Why, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    target: Target,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::NewKey(new) => new_key(&new),
        Command::Show(Show { target, json }) => {
            let mut client = target.connect().await?;
            let organisation = client.get_organisation(GetOrganisationRequest::default()).await?.into_inner();
            if json { print_json(&to_json(&organisation)) } else { print_told(&to_text(&organisation)) }
        }
        Command::Set(Set { keys, none: _, message, target, json }) => {
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            let request = SetOrganisationRequest { keys, message };
            let mut client = target.connect().await?;
            let waited = going_out::waiting(&mut client).await;
            let organisation = client.set_organisation(request).await?.into_inner();
            if json { print_json(&to_json(&organisation)) } else { print_told(&to_text(&organisation)) }?;
            if !organisation.keys.is_empty() {
                code_sign_key::tell_kept(&mut client, None).await;
            } else if let Some(version) = waited {
                warn(&format!("version {version} does not wait for a signature any more"));
                going_out::tell_newest(&mut client, version).await;
            }
            Ok(())
        }
        Command::Sign(sign) => organisation_sign::run(sign).await,
    }
}

fn new_key(NewKey { file, json }: &NewKey) -> Result<(), Failure> {
    let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
    let der =
        der.map_err(|_| Failure::bad_input("no key can be made: the system gives no random numbers"))?;
    let key =
        KeyPair::from_der(der.as_ref()).map_err(|error| Failure::internal("no key can be made", error))?;
    let public = key.public();
    let text = pem::encode(&pem::Pem::new("PRIVATE KEY", der.as_ref()));
    write_new(file, text.as_bytes(), 0o600)?;
    match json {
        true => print_json(&json!({ "file": file.display().to_string(), "public_key": public.to_string() })),
        false => print(&format!("{public}\n")),
    }
}

/// The private key in a file.
pub(super) fn read_key(file: &Path) -> Result<KeyPair, Failure> {
    let text = key_file::read(file)?;
    let bad =
        |why: String| Failure::bad_input(format!("the key in {} cannot be read: {why}", file.display()));
    if text.trim().parse::<OrganisationKey>().is_ok() {
        return Err(bad(
            "it is the public part; name the file that `fallow organisation new-key` wrote".to_owned()
        ));
    }
    let parsed = pem::parse(text).map_err(|_| {
        bad("it holds no private key; name the file that `fallow organisation new-key` wrote".to_owned())
    })?;
    let key = KeyPair::from_der(parsed.contents()).map_err(|error| bad(error.to_string()))?;
    key_file::warn_if_open_key(file);
    Ok(key)
}

fn to_text(organisation: &Organisation) -> String {
    let Organisation { keys, document_version, waits, before, .. } = organisation;
    if keys.is_empty() {
        return "Documents are not signed: hosts follow whatever their coordinator says, but for those that \
                ask for signatures: they follow no change (`fallow hosts show HOST` says which).\n"
            .to_owned();
    }
    let version = DocumentVersion(*document_version);
    let mut text = format!("Documents are signed by {}.\n", keys.join(" or "));
    if let Some(statement) = before.as_ref().and_then(|before| Statement::parse(&before.statement).ok()) {
        text += &format!(
            "What hosts have was signed at {}; one that comes new can begin with it until {}.\n",
            utc(statement.signed_at),
            utc(statement.good_until)
        );
    }
    text += &match (*waits, document_version) {
        (true, _) => format!(
            "Version {version} waits for its signature: `fallow organisation sign --key FILE` shows it and signs it.\n"
        ),
        (false, 0) => "There are no documents yet.\n".to_owned(),
        (false, _) => format!("Version {version} is signed.\n"),
    };
    text
}

fn to_json(organisation: &Organisation) -> serde_json::Value {
    let Organisation { keys, authority, document_version, waits, before, .. } = organisation;
    let statement = before.as_ref().and_then(|before| Statement::parse(&before.statement).ok());
    json!({
        "keys": keys,
        "authority": authority,
        "document_version": document_version,
        "waits": waits,
        "signed_at": statement.as_ref().map(|statement| utc(statement.signed_at)),
        "good_until": statement.as_ref().map(|statement| utc(statement.good_until)),
    })
}
