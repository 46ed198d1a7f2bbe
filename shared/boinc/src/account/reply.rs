//! Replies about accounts.

use fallow_domain::AccountKey;

use crate::FormatError;
use crate::xml::{Reader, Tag, Writer};

/// Numbers of errors that projects answer with.
pub mod error_num {
    /// No such account.
    pub const NOT_FOUND: i32 = -136;
    /// The email address has an account already.
    pub const NOT_UNIQUE: i32 = -137;
    /// The project is down.
    pub const PROJECT_DOWN: i32 = -183;
    /// The user name is not acceptable.
    pub const BAD_USER_NAME: i32 = -188;
    /// The email address is not acceptable.
    pub const BAD_EMAIL_ADDR: i32 = -205;
    /// The password is wrong.
    pub const BAD_PASSWD: i32 = -206;
    /// The email address has an account already, with another password.
    pub const NONUNIQUE_EMAIL: i32 = -207;
    /// No accounts can be created here.
    pub const CREATION_DISABLED: i32 = -208;
    /// The user has to agree to the terms of use first.
    pub const NO_CONSENT: i32 = -242;
}

/// What a project answers to a query for an account (BOINC: `account_out`, `error`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountOut {
    /// The account's key.
    Authenticator(AccountKey),
    /// The account exists; the query held no password.
    Exists,
    /// There is no key, and why.
    Error {
        /// BOINC's number for it: see [`error_num`].
        num: i32,
        /// The project's words.
        message: String,
    },
}

impl AccountOut {
    /// Reads an answer.
    ///
    /// # Errors
    /// [`FormatError`] when `body` holds neither an account nor an error.
    pub fn parse(body: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new("account reply", body);
        if let Some(root) = reader.find_root("account_out") {
            return Self::parse_account(&mut reader, &root);
        }
        if let Some(root) = reader.find_root("error") {
            return Self::parse_error(&mut reader, &root);
        }
        // Some errors come bare.
        let (mut num, mut message) = (0, String::new());
        let tag = reader.root("error_num").map_err(|_| neither(body))?;
        reader.set(&tag, &mut num)?;
        if num == 0 {
            return Err(neither(body));
        }
        if let Some(tag) = reader.find_root("error_msg") {
            reader.set(&tag, &mut message)?;
        }
        Ok(Self::Error { num, message })
    }

    fn parse_account<'a>(reader: &mut Reader<'a>, root: &Tag<'a>) -> Result<Self, FormatError> {
        let (mut key, mut exists, mut num, mut message) = (String::new(), false, 0, String::new());
        while let Some(tag) = reader.next_child(root)? {
            match tag.name {
                "authenticator" => reader.set(&tag, &mut key)?,
                "success" => reader.set(&tag, &mut exists)?,
                "error_num" => reader.set(&tag, &mut num)?,
                "error_msg" => reader.set(&tag, &mut message)?,
                _ => reader.skip(&tag)?,
            }
        }
        match () {
            () if num != 0 => Ok(Self::Error { num, message }),
            () if !key.is_empty() => Ok(Self::Authenticator(AccountKey::new(key))),
            () if exists => Ok(Self::Exists),
            () => Err(reader.error_at(root, "<authenticator>, <success/> or <error_num> in it")),
        }
    }

    fn parse_error<'a>(reader: &mut Reader<'a>, root: &Tag<'a>) -> Result<Self, FormatError> {
        let (mut num, mut message) = (0, String::new());
        while let Some(tag) = reader.next_child(root)? {
            match tag.name {
                "error_num" => reader.set(&tag, &mut num)?,
                "error_msg" => reader.set(&tag, &mut message)?,
                _ => reader.skip(&tag)?,
            }
        }
        if num == 0 {
            Err(reader.error_at(root, "<error_num> in it"))
        } else {
            Ok(Self::Error { num, message })
        }
    }

    /// Writes an answer.
    pub fn write(&self) -> String {
        let mut writer = Writer::new();
        match self {
            Self::Authenticator(key) => {
                writer.nested("account_out", |w| w.text("authenticator", key.reveal()));
            }
            Self::Exists => writer.nested("account_out", |w| w.flag("success", true)),
            Self::Error { num, message } => writer.nested("error", |w| {
                w.value("error_num", num);
                w.text("error_msg", message);
            }),
        }
        writer.finish()
    }
}

fn neither(body: &[u8]) -> FormatError {
    FormatError::new("account reply", body, body.len(), "", "<account_out> or <error>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_error_without_a_number_is_no_answer() {
        for none in ["<error_num>0</error_num>", "<error_num>x</error_num><error_msg>wrong</error_msg>"] {
            assert!(AccountOut::parse(none.as_bytes()).is_err(), "{none}");
        }
        assert!(AccountOut::parse(b"<error_num>-206</error_num>").is_ok());
    }

    #[test]
    fn answers_read_back_as_they_were_written() {
        for answer in [
            AccountOut::Authenticator(AccountKey::new("dd53bc9df626e2c801c9de98d0629b14")),
            AccountOut::Exists,
            AccountOut::Error { num: error_num::BAD_PASSWD, message: "wrong <password>".into() },
        ] {
            assert_eq!(AccountOut::parse(answer.write().as_bytes()).unwrap(), answer);
        }
    }

    #[test]
    fn errors_are_found_wherever_projects_put_them() {
        for body in [
            "<error><error_num>-136</error_num><error_msg>no account</error_msg></error>",
            "<br /><b>Warning</b> in x.php\n<?xml version=\"1.0\"?>\n<error>\n<error_num>-136</error_num>\n<error_msg>no account</error_msg>\n</error>",
            "<account_out><error_num>-136</error_num><error_msg>no account</error_msg></account_out>",
            "<error_num>-136</error_num>\n<error_msg>no account</error_msg>",
        ] {
            let expected = AccountOut::Error { num: -136, message: "no account".into() };
            assert_eq!(AccountOut::parse(body.as_bytes()).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn a_page_that_is_no_answer_is_refused_with_what_was_expected() {
        for body in
            ["", "<html>404</html>", "<account_out></account_out>", "<error></error>", "<account_out>"]
        {
            let error = AccountOut::parse(body.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("cannot read the account reply: expected"), "{error}");
        }
    }
}
