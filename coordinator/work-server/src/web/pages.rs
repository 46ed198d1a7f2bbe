//! Master page, configuration and accounts.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::{Html, Response};
use fallow_boinc::account::{AccountOut, ConfigPlatform, ProjectConfig, error_num};
use fallow_boinc::master;
use fallow_domain::{AccountKey, Instant};

use super::{Failure, Web, blocking, xml};
use crate::error::ProjectError;
use crate::project::{Project, put_account};
use crate::random::random_key;
use crate::records::{Account, Counters};
use crate::server::Via;

/// What clients ask of passwords. They never reach us: we see a hash only.
const PASSWORD_MIN: u32 = 6;
/// How long the answer to a wrong password takes.
const WRONG_PASSWORD: std::time::Duration = std::time::Duration::from_secs(1);
/// As long as clients' own buffers.
const TEXT_MAX: usize = 254;

type Parameters = Query<BTreeMap<String, String>>;

pub(super) async fn master(
    State(web): State<Web>,
    Path(project): Path<String>,
    via: Option<Extension<Via>>,
) -> Result<Html<String>, Failure> {
    let project = web.project(&project)?;
    let url = web.url(&project, via);
    let about = "A project of this lab's own. Attach a BOINC client to this address, or a Fallow agent.";
    let scheduler = format!("{url}cgi");
    Ok(Html(master::write(&project.long_name(), about, &[scheduler])))
}

pub(super) async fn config(
    State(web): State<Web>,
    Path(project): Path<String>,
    via: Option<Extension<Via>>,
) -> Result<Response, Failure> {
    let project = web.project(&project)?;
    let url = web.url(&project, via);
    let platform = |name: &str| ConfigPlatform {
        platform_name: name.to_owned(),
        user_friendly_name: name.to_owned(),
        plan_class: String::new(),
    };
    let config = ProjectConfig {
        name: project.long_name(),
        master_url: url.to_string(),
        web_rpc_url_base: Some(url.to_string()),
        min_passwd_length: PASSWORD_MIN,
        account_creation_disabled: !project.settings().account_creation,
        client_account_creation_disabled: !project.settings().account_creation,
        platforms: project.catalog().platforms().map(platform).collect(),
        ..ProjectConfig::default()
    };
    Ok(xml(config.write()))
}

pub(super) async fn lookup_account(
    State(web): State<Web>,
    Path(project): Path<String>,
    Query(parameters): Parameters,
) -> Result<Response, Failure> {
    let project = web.project(&project)?;
    let answer = blocking(move || lookup(&project, &parameters)).await??;
    if matches!(answer, AccountOut::Error { num: error_num::BAD_PASSWD, .. }) {
        // People choose passwords that can be guessed.
        tokio::time::sleep(WRONG_PASSWORD).await;
    }
    Ok(xml(answer.write()))
}

pub(super) async fn create_account(
    State(web): State<Web>,
    Path(project): Path<String>,
    Query(parameters): Parameters,
) -> Result<Response, Failure> {
    let project = web.project(&project)?;
    let now = web.shared().now();
    let answer = blocking(move || create(&project, &parameters, now)).await??;
    Ok(xml(answer.write()))
}

fn lookup(project: &Project, parameters: &BTreeMap<String, String>) -> Result<AccountOut, ProjectError> {
    let email = parameter(parameters, "email_addr").to_lowercase();
    let Some(account) = by_email(project, &email)? else {
        return Ok(error(error_num::NOT_FOUND, "No account found with that email address"));
    };
    Ok(match parameter(parameters, "passwd_hash") {
        "" => AccountOut::Exists,
        hash if is_hash(hash) && same(hash, &account.passwd_hash) => AccountOut::Authenticator(account.key),
        _ => error(error_num::BAD_PASSWD, "Invalid password"),
    })
}

fn create(
    project: &Arc<Project>,
    parameters: &BTreeMap<String, String>,
    now: Instant,
) -> Result<AccountOut, ProjectError> {
    if !project.settings().account_creation {
        return Ok(error(error_num::CREATION_DISABLED, "Account creation is disabled"));
    }
    let email = parameter(parameters, "email_addr").to_lowercase();
    let (hash, name) = (parameter(parameters, "passwd_hash"), parameter(parameters, "user_name").trim());
    if !is_email(&email) {
        return Ok(error(error_num::BAD_EMAIL_ADDR, "Invalid email address"));
    }
    if !is_user_name(name) {
        return Ok(error(error_num::BAD_USER_NAME, "Invalid user name"));
    }
    if !is_hash(hash) {
        return Ok(error(error_num::BAD_PASSWD, "Invalid password"));
    }
    let fresh = Account {
        id: 0,
        key: AccountKey::new(random_key()?),
        email: email.clone(),
        passwd_hash: hash.to_owned(),
        name: name.to_owned(),
        created_at: now,
        cross_project_id: random_key()?,
        agent: None,
        host: 0,
        voter: 0,
    };
    project.transact_durably(|txn| {
        let keys = &project.keys;
        let known: Option<AccountKey> = txn.get("account key", &keys.account_email(&email))?;
        if let Some(key) = known {
            // A repeated request of the same person gets the same answer.
            let account: Option<Account> = txn.get("account", &keys.account(key.reveal()))?;
            let same_person = account.is_some_and(|account| same(&account.passwd_hash, hash));
            return Ok(match same_person {
                true => AccountOut::Authenticator(key),
                false => error(error_num::NOT_UNIQUE, "There's already an account with that email address"),
            });
        }
        let mut counters: Counters = txn.get("counters", &keys.counters())?.unwrap_or_default();
        counters.last_account += 1;
        let account = Account { id: counters.last_account, ..fresh };
        txn.put("counters", keys.counters(), &counters)?;
        put_account(txn, keys, &account)?;
        Ok(AccountOut::Authenticator(account.key))
    })
}

fn by_email(project: &Project, email: &str) -> Result<Option<Account>, ProjectError> {
    let txn = project.read();
    match txn.get::<AccountKey>("account key", &project.keys.account_email(email))? {
        Some(key) => txn.get("account", &project.keys.account(key.reveal())),
        None => Ok(None),
    }
}

fn parameter<'a>(parameters: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    parameters.get(name).map_or("", String::as_str)
}

fn error(num: i32, message: &str) -> AccountOut {
    AccountOut::Error { num, message: message.to_owned() }
}

fn is_email(email: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '<' | '>' | '&' | '"');
    email.len() <= TEXT_MAX
        && email.chars().all(plain)
        && email.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
}

/// Clients copy names into files of theirs without escapes: markup would break them.
fn is_user_name(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && !matches!(c, '<' | '>' | '&' | '"');
    (1..=TEXT_MAX).contains(&name.len()) && name.chars().all(plain)
}

fn is_hash(hash: &str) -> bool {
    hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Compares secrets in a time that does not depend on where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
