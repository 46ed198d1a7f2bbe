//! Accounts at projects: what a key looks like, whether a URL is a project's, and the key of an account by
//! its address.

use fallow_boinc::account::{AccountOut, ProjectConfig, error_num, lookup_query, passwd_hash};
use fallow_client::TransferErrorKind;
use fallow_domain::{AccountKey, MasterUrl};
use fallow_tls::Proxies;

use crate::error::AgentError;
use crate::transfer::Web;

/// Takes an account key of one of the two forms that BOINC's projects give: 32 hexadecimal digits, or those
/// after the user's number and `_` (a weak key, which opens less).
///
/// # Errors
/// [`AgentError::BadInput`], without the key.
pub fn checked(key: &str) -> Result<AccountKey, AgentError> {
    let key = key.trim();
    let (user, digits) = key.rsplit_once('_').unwrap_or(("0", key));
    let is_user = (1..=20).contains(&user.len()) && user.bytes().all(|byte| byte.is_ascii_digit());
    if is_user && digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(AccountKey::new(key));
    }
    Err(AgentError::bad_input(
        "the account key is not 32 hexadecimal digits (0-9, a-f): copy it from your account page at the project",
    ))
}

/// HTTP through the proxies that the environment of this process names.
fn web() -> Result<Web, AgentError> {
    let proxies = Proxies::from_environment().map_err(|error| AgentError::bad_input(error.to_string()))?;
    Web::new(proxies).map_err(AgentError::unreachable)
}

/// Asks whether a project answers under a URL.
///
/// # Errors
/// [`AgentError::Unreachable`] when nobody answers, [`AgentError::BadInput`] when it is somebody else.
pub async fn find_project(url: &MasterUrl) -> Result<ProjectConfig, AgentError> {
    let web = web()?;
    let page = web.page(&format!("{url}get_project_config.php")).await.map_err(|error| match error.kind {
        TransferErrorKind::Permanent => {
            AgentError::bad_input(format!("{url} is no project's URL ({error}): nothing is attached"))
        }
        _ => AgentError::unreachable(format!(
            "{url} does not answer ({error}): nothing is attached; check the URL and the network, or attach it unseen \
             with --no-wait"
        )),
    })?;
    ProjectConfig::parse(&page).map_err(|error| {
        AgentError::bad_input(format!(
            "{url} answers, but not as a project does ({error}): nothing is attached"
        ))
    })
}

/// Asks a project for an account's key.
///
/// # Errors
/// [`AgentError::Refused`] when it knows no such account; as [`find_project`] besides.
pub async fn look_up(url: &MasterUrl, email: &str, password: &str) -> Result<AccountKey, AgentError> {
    let web = web()?;
    let query = format!("{url}{}", lookup_query(email, &passwd_hash(password, email)));
    let page = web.page(&query).await.map_err(|error| match error.kind {
        // The query holds the password's hash, which is as good as the password: it is not shown.
        TransferErrorKind::Permanent => {
            AgentError::bad_input(format!("{url} does not look up accounts: is it a project's URL?"))
        }
        _ => AgentError::unreachable(format!("{url} does not answer: check the URL and the network")),
    })?;
    match AccountOut::parse(&page) {
        Ok(AccountOut::Authenticator(key)) => Ok(key),
        Ok(AccountOut::Exists) => {
            Err(AgentError::refused(format!("{url} knows the account, but gave no key")))
        }
        Ok(AccountOut::Error { num, message }) => Err(AgentError::refused(match num {
            error_num::NOT_FOUND => {
                format!("{url} knows no account of {email}: check the address, or create the account there")
            }
            error_num::BAD_PASSWD => format!("{url} does not accept the password of {email}"),
            _ => format!("{url} does not look up the account of {email}: {message} ({num})"),
        })),
        Err(error) => {
            Err(AgentError::bad_input(format!("{url} answers, but not as a project does: {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_keys_are_taken_in_both_forms_and_nothing_else_is() {
        let digits = "0123456789abcdef0123456789ABCDEF";
        for good in [digits.to_owned(), format!(" {digits}\n"), format!("1234_{digits}")] {
            assert_eq!(checked(&good).unwrap().reveal(), good.trim());
        }
        let long = format!("{digits}0");
        let bad = [
            "",
            "abc",
            &digits[1..],
            &long,
            "g123456789abcdef0123456789abcdef",
            "x_0123456789abcdef0123456789abcdef",
        ];
        for bad in bad {
            let error = checked(bad).unwrap_err();
            assert!(matches!(error, AgentError::BadInput { .. }), "{bad}");
            assert!(bad.len() < 5 || !error.to_string().contains(bad), "a key is not shown");
        }
    }
}
