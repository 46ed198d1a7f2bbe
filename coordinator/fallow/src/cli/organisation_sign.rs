//! `fallow organisation sign`: shows what documents change, and signs them; also on a machine without a
//! network.
//!
//! What a coordinator says here is not believed: who signs sees all that is new, and names the keys himself.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use fallow_daemon::clock;
use fallow_domain::{DocumentVersion, OrganisationKey, SignedDocuments};
use fallow_fleet::{
    DocumentSet, KeyPair, SIGNED_BYTES_MAX, Statement, Trust, content_of, signable, utc, values_of,
};
use fallow_proto::operator::v1::{
    GetOrganisationRequest, Organisation, SignDocumentsRequest, SignedStatement,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::connect::Target;
use super::going_out::{self, GoingOut};
use super::key_file::write_new;
use super::organisation::read_key;
use super::table::{self, Column::Text};
use super::{Failure, bounded, print, print_json, print_told, tokens, told, why};
use crate::printable;

pub(crate) const EXAMPLE: &str = "\
Examples:
  fallow organisation sign --key org.key
  fallow organisation sign --key org.key --yes --message \"as agreed on Monday\"

Where the key is on a machine without a network, the second of these there:
  fallow organisation sign --save request
  fallow organisation sign --key org.key --request request --save signed
  fallow organisation sign --signed signed

All values that differ from what was signed before are shown, with those of all
groups. A new key takes the place of the old one with --good-key: sign once with
the old one and --good-key OLD --good-key NEW; when all hosts have that, sign
with the new one, --known-key OLD and --good-key NEW.";

#[derive(Args, Debug)]
pub(crate) struct Sign {
    /// File with the private key.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["save", "signed"])]
    key: Option<PathBuf>,
    /// What is to be signed, as --save wrote it; else it is asked of the coordinator.
    #[arg(long, value_name = "FILE", requires = "key", requires = "save")]
    request: Option<PathBuf>,
    /// Only write a file: without a key what is to be signed, with one what was signed.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// What was signed, as --save wrote it, to be brought to the coordinator.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "save", "request"])]
    signed: Option<PathBuf>,
    /// How long hosts may begin with it; 366 days at most.
    #[arg(long, default_value = "366d", value_name = "TIME", value_parser = tokens::expires)]
    good_for: Duration,
    /// The keys that hosts believe from then on; else the same as before.
    #[arg(long = "good-key", value_name = "KEY")]
    good_keys: Vec<OrganisationKey>,
    /// Another key that is believed about what was signed before, where that was not signed with this one.
    #[arg(long = "known-key", value_name = "KEY")]
    known_keys: Vec<OrganisationKey>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Why, for the audit log.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT", value_parser = why::message)]
    message: String,
    #[command(flatten)]
    going_out: GoingOut,
    #[command(flatten)]
    target: Target,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// What there is to sign, in a file.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    authority: String,
    document_version: u64,
    documents: String,
    before: Option<SignedDocuments>,
}

/// What was signed, in a file.
#[derive(Debug, Serialize, Deserialize)]
struct Signed {
    document_version: u64,
    signed: SignedDocuments,
}

/// More than the longest of these files has: texts within JSON within JSON.
const FILE_MAX: u64 = 8 * SIGNED_BYTES_MAX as u64;

pub(crate) async fn run(arguments: Sign) -> Result<(), Failure> {
    let signed = match (&arguments.signed, &arguments.key) {
        (Some(file), _) => read::<Signed>("signed file", file)?,
        (None, None) => {
            let (request, _) = asked(&arguments).await?;
            let file = arguments.save.as_deref().unwrap_or(Path::new(""));
            write(file, &request)?;
            return print_told(&format!(
                "{} holds version {} as it is to be signed: `fallow organisation sign --key FILE --request {} --save FILE`\n",
                file.display(),
                DocumentVersion(request.document_version),
                file.display()
            ));
        }
        (None, Some(key)) => {
            let (file, key) = (key, read_key(key)?);
            let (request, signing) = match &arguments.request {
                // What signs is not asked there.
                Some(file) => (read::<Request>("request", file)?, Vec::new()),
                None => asked(&arguments).await?,
            };
            let may_sign = || may_sign(file, &key.public().to_string(), &signing);
            let signed = sign(&arguments, &key, request, may_sign)?;
            if let Some(file) = &arguments.save {
                write(file, &signed)?;
                return print_told(&format!(
                    "{} holds what was signed: `fallow organisation sign --signed {}`\n",
                    file.display(),
                    file.display()
                ));
            }
            signed
        }
    };
    bring(&arguments, signed).await
}

/// Refuses a key that is none of those that sign here: hosts would refuse it.
fn may_sign(file: &Path, public: &str, signing: &[String]) -> Result<(), Failure> {
    if signing.is_empty() || signing.iter().any(|key| key == public) {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{} is not the key that signs here: it is {public}, and documents are signed by {} (`fallow organisation \
         show`): nothing was signed",
        file.display(),
        signing.join(" or ")
    )))
}

/// What the coordinator has to be signed, and by which keys.
async fn asked(arguments: &Sign) -> Result<(Request, Vec<String>), Failure> {
    let mut client = arguments.target.connect().await?;
    let organisation = client.get_organisation(GetOrganisationRequest::default()).await?.into_inner();
    let Organisation { authority, document_version, documents, before, keys, .. } = organisation;
    if document_version == 0 {
        return Err(Failure::bad_input("there are no documents yet: there is nothing to sign"));
    }
    let before = before.map(|SignedStatement { statement, signature, documents }| SignedDocuments {
        statement,
        signature,
        documents,
    });
    Ok((Request { authority, document_version, documents, before }, keys))
}

async fn bring(arguments: &Sign, signed: Signed) -> Result<(), Failure> {
    let Signed { document_version, signed: SignedDocuments { statement, signature, documents } } = signed;
    let request = SignDocumentsRequest {
        document_version,
        signed: Some(SignedStatement { statement, signature, documents }),
        message: arguments.message.clone(),
        emergency: arguments.going_out.emergency,
    };
    let mut client = arguments.target.connect().await?;
    let reply = client.sign_documents(request).await?.into_inner();
    let version = DocumentVersion(reply.document_version);
    if arguments.json {
        return print_json(&json!({ "document_version": version.0, "rollout": reply.rollout }));
    }
    print(&format!("Version {version} is signed and goes out.\n"))?;
    going_out::tell(&mut client, reply.rollout).await;
    let (rollout, hosts) = (reply.rollout, reply.changed_hosts);
    going_out::tell_at_once(&mut client, rollout, hosts, &arguments.going_out).await;
    Ok(())
}

fn sign(
    arguments: &Sign,
    key: &KeyPair,
    request: Request,
    may_sign: impl Fn() -> Result<(), Failure>,
) -> Result<Signed, Failure> {
    let Request { authority, document_version, documents, before } = request;
    let unreadable = |what: &str, error: &dyn std::fmt::Display| {
        Failure::bad_input(format!("{what} cannot be read ({error}): nothing was signed"))
    };
    let now = clock::now();
    let set = signable(&documents).map_err(|error| {
        Failure::bad_input(format!("the documents are not to be signed, for {error}: nothing was signed"))
    })?;
    // What hosts may be taken back to, and the keys that were good, count only if this key said so.
    let mut old = None;
    if let Some(before) = &before {
        let statement = Statement::parse(&before.statement)
            .map_err(|error| unreadable("what was signed before", &error))?;
        let mut believed = vec![key.public()];
        believed.extend(&arguments.known_keys);
        // It may have expired since.
        let trust =
            Trust { newest: Some(before.statement.clone()), ..Trust::new(authority.clone(), believed) };
        let is_known = trust.keys.iter().any(|key| statement.keys.contains(key));
        let accepted = trust.accept(Some(before), now).map_err(|error| {
            Failure::bad_input(match is_known {
                true => format!("what hosts have now cannot be taken for signed ({error}): nothing was signed"),
                false => format!(
                    "this key is {}, and hosts follow what is signed by {}: give the file of that key, or name the key with \
                     --known-key if you know it for yours: nothing was signed",
                    key.public(),
                    statement.keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
                ),
            })
        })?;
        if statement.signed_at >= now {
            return Err(Failure::bad_input(format!(
                "what hosts have was signed at {}, and it is {} here: set the clock",
                utc(statement.signed_at),
                utc(now)
            )));
        }
        old = Some((statement, accepted.set));
    }
    may_sign()?;
    let keys = match (&arguments.good_keys[..], &old) {
        ([], Some((statement, _))) => statement.keys.clone(),
        ([], None) => vec![key.public()],
        (keys, _) => keys.to_vec(),
    };
    if !keys.contains(&key.public()) {
        return Err(Failure::bad_input(format!(
            "hosts would not believe this key any more, {}, but {} alone; if nobody has that key, they would follow no change ever \
             again. Name both with --good-key; the other key takes this one out: nothing was signed",
            key.public(),
            keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        )));
    }
    let statement = Statement {
        authority,
        content: content_of(&documents),
        before: before.as_ref().map(|before| content_of(&before.documents)),
        keys,
        signed_at: now,
        good_until: now + fallow_domain::Duration::from_secs_f64(arguments.good_for.as_secs_f64()),
    };
    let read = Statement::parse(&statement.text());
    if let Err(error) = read {
        return Err(unreadable("what would be signed", &error));
    }
    show(old.as_ref(), &set, &statement)?;
    confirm(arguments)?;
    Ok(Signed { document_version, signed: key.sign(&statement, &documents) })
}

/// Shows what somebody is about to sign, on standard error: standard output is for what comes of it.
fn show(
    before: Option<&(Statement, DocumentSet)>,
    after: &DocumentSet,
    statement: &Statement,
) -> Result<(), Failure> {
    let (old, new) = (before.map(|(_, set)| values_of(set)).unwrap_or_default(), values_of(after));
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let shown = |values: &BTreeMap<String, String>, name: &String| {
        values.get(name).map_or_else(|| "-".to_owned(), |value| printable::line(value, usize::MAX))
    };
    let rows: Vec<_> = names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .map(|name| vec![name.clone(), shown(&old, name), shown(&new, name)])
        .collect();
    let mut text = match rows.len() {
        0 => told(
            "Nothing differs from what was signed before: signing it again changes only until when a host may \
             begin with it, and which keys hosts believe.\n",
            std::io::stderr().is_terminal(),
        ),
        _ => table::render(&["value", "before", "after"].map(Text), rows),
    };
    // A coordinator chooses what it gives as that: an older one would hide what has changed since.
    let mut below = match before {
        Some((before, _)) => {
            format!(
                "Before is what was signed at {}; hosts may be taken back to it.\n",
                utc(before.signed_at)
            )
        }
        None => "Nothing was signed before, as the coordinator says.\n".to_owned(),
    };
    let keys: Vec<_> = statement.keys.iter().map(ToString::to_string).collect();
    below += &format!(
        "For the fleet with the authority {}; hosts may begin with it until {}.\n",
        printable::line(&statement.authority, usize::MAX),
        utc(statement.good_until)
    );
    below += &format!("Hosts believe from then on: {}\n", keys.join(" "));
    text += &told(&below, std::io::stderr().is_terminal());
    let mut err = std::io::stderr().lock();
    err.write_all(text.as_bytes())
        .map_err(|error| Failure::unwritable("cannot write to standard error", &error))
}

fn confirm(arguments: &Sign) -> Result<(), Failure> {
    if arguments.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::bad_input("nobody can be asked here: look at it, and give --yes to sign it"));
    }
    let _ = write!(std::io::stderr(), "Sign this? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(Failure::bad_input("nothing was signed")),
    }
}

fn read<T: DeserializeOwned>(what: &str, file: &Path) -> Result<T, Failure> {
    let text = bounded::read_text(what, file, FILE_MAX)?;
    serde_json::from_str(&text)
        .map_err(|error| {
            let file = file.display();
            Failure::bad_input(format!(
                "{file} is no {what} as `fallow organisation sign --save FILE` writes it ({error}): name that file"
            ))
        })
}

fn write(file: &Path, content: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(content)
        .map_err(|error| Failure::internal("it cannot be written", error))?;
    write_new(file, &text, 0o644)
}
