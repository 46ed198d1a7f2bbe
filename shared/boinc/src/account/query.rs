//! Queries for accounts.

use fallow_domain::hex;
use md5::{Digest, Md5};

/// What a client sends instead of a password: MD5 of the password followed by the email address in lower
/// case.
pub fn passwd_hash(password: &str, email: &str) -> String {
    let mut md5 = Md5::new();
    md5.update(password);
    md5.update(email.to_lowercase());
    hex(&md5.finalize())
}

/// Path and query that look up an account; with the master URL in front of it, the whole URL.
pub fn lookup_query(email: &str, passwd_hash: &str) -> String {
    let email = percent_escape(&email.to_lowercase());
    format!("lookup_account.php?email_addr={email}&passwd_hash={}", percent_escape(passwd_hash))
}

/// Path and query that create an account.
pub fn create_query(email: &str, passwd_hash: &str, user_name: &str, team_name: Option<&str>) -> String {
    let email = percent_escape(&email.to_lowercase());
    let mut query = format!(
        "create_account.php?email_addr={email}&passwd_hash={}&user_name={}",
        percent_escape(passwd_hash),
        percent_escape(user_name)
    );
    if let Some(team) = team_name {
        query.push_str("&team_name=");
        query.push_str(&percent_escape(team));
    }
    query
}

/// Escapes every byte that is no ASCII letter or digit, as BOINC does.
pub fn percent_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_spelled_as_a_stock_client_spells_them() {
        let hash = "564082f4c128f999f6df6f16ad8c4996";
        assert_eq!(
            create_query("Alice@example.org", hash, "Alice", None),
            format!("create_account.php?email_addr=alice%40example%2Eorg&passwd_hash={hash}&user_name=Alice")
        );
        assert_eq!(
            lookup_query("alice@example.org", hash),
            format!("lookup_account.php?email_addr=alice%40example%2Eorg&passwd_hash={hash}")
        );
        assert!(create_query("a@b.c", hash, "é &", Some("x=y")).ends_with("=%C3%A9%20%26&team_name=x%3Dy"));
    }

    #[test]
    fn a_password_hash_is_md5_of_password_and_lower_case_email() {
        // MD5 of "abc".
        assert_eq!(passwd_hash("a", "BC"), "900150983cd24fb0d6963f7d28e17f72");
    }
}
