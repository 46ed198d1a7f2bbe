//! One operator, and whether he may do something now. Pure: time comes in.

use std::fmt;
use std::sync::Arc;

use fallow_domain::{Instant, Invalid};
use serde::{Deserialize, Serialize};

use super::rights::{self, Role, in_words};

/// Bytes of a name: it stands in tables and in every entry of the audit log.
const NAME_MAX: usize = 32;
/// What the audit log calls those who are no operators with a name of their own.
const RESERVED: [&str; 3] = ["coordinator", "operator", "stranger"];

/// What an operator is called, in the audit log too. It holds no `@`, so that it is told at sight from what
/// the tool of the directory's owner says of its user ("ann@lab").
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OperatorName(String);

impl OperatorName {
    /// Takes a name.
    ///
    /// # Errors
    /// [`Invalid`] for one that is no name.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = (1..=NAME_MAX).contains(&name.len())
            && name.bytes().all(|byte| is_plain(byte) || b"._-".contains(&byte))
            && name.bytes().next().is_some_and(is_plain)
            && name.bytes().last().is_some_and(is_plain);
        match is_name && !RESERVED.contains(&name) {
            true => Ok(Self(name.to_owned())),
            false => Err(Invalid::new(
                "operator's name",
                name,
                "1 to 32 lower-case letters and digits, with dots, dashes and underscores between them, and not \
                 \"coordinator\", \"operator\" or \"stranger\"",
            )),
        }
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for OperatorName {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::new(&name)
    }
}

impl From<OperatorName> for String {
    fn from(name: OperatorName) -> Self {
        name.0
    }
}

/// Somebody with a token of his own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// What he is called.
    pub name: OperatorName,
    /// What he may do.
    pub role: Role,
    /// A submitter's projects; of others none are named.
    pub projects: Vec<String>,
    /// When his token was made.
    pub made_at: Instant,
    /// Who made it, as the audit log has him.
    pub made_by: String,
    /// From then on it is good for nothing.
    pub expires_at: Instant,
    /// When somebody ended it.
    pub revoked_at: Option<Instant>,
}

fn needed_and_whom_to_ask(roles: &[Role]) -> String {
    match roles {
        [] => "the coordinator's own token: it is in operator.token in the coordinator's directory, for the user whom the \
               coordinator runs as; run this there, as that user"
            .to_owned(),
        roles => format!(
            "the role {}: ask an administrator of this coordinator, who can do it, or give you that role (`fallow operators \
             create`)",
            in_words(roles)
        ),
    }
}

/// Why an operator may not do something. The text is for him, and for the audit log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// His role does not have the right.
    #[error(
        "{name} has the role {role}, and {} needs {}",
        rights::command(.method),
        needed_and_whom_to_ask(.needs)
    )]
    Role {
        /// Who.
        name: OperatorName,
        /// What he is.
        role: Role,
        /// What he wanted.
        method: String,
        /// Who may.
        needs: &'static [Role],
    },
    /// It is not for one of his projects. Whether there is such a project is not said.
    #[error(
        "{name} has the role submitter for {}, and project {project:?} is not among them: ask an administrator of this \
         coordinator for a token that names it (`fallow operators create --project`)",
        .projects.join(", ")
    )]
    Project {
        /// Who.
        name: OperatorName,
        /// What he wanted.
        project: String,
        /// What is his.
        projects: Vec<String>,
    },
    /// His time is over.
    #[error(
        "the operator's token of {name} has expired: ask an administrator of this coordinator for a new one (`fallow \
         operators create {name}`)"
    )]
    Expired {
        /// Who.
        name: OperatorName,
    },
    /// Somebody ended his token.
    #[error(
        "the operator's token of {name} was revoked: ask an administrator of this coordinator why, or for a new one \
         (`fallow operators create {name}`)"
    )]
    Revoked {
        /// Who.
        name: OperatorName,
    },
    /// There is no such method.
    #[error(
        "this coordinator knows no {method}: the name may be misspelt (`fallow openapi` and GET /v1/openapi.json list what there \
         is), or the coordinator older than your tool: bring it to the tool's release then"
    )]
    Unknown {
        /// What he wanted.
        method: String,
    },
}

impl Operator {
    /// Whether his token is good for anything now.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn is_current(&self, now: Instant) -> Result<(), Refusal> {
        let name = self.name.clone();
        match () {
            () if self.revoked_at.is_some() => Err(Refusal::Revoked { name }),
            () if now >= self.expires_at => Err(Refusal::Expired { name }),
            () => Ok(()),
        }
    }

    /// Whether he may call a method now; a submitter, as far as it is for one of his projects.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn may_call(&self, method: &str, now: Instant) -> Result<(), Refusal> {
        self.is_current(now)?;
        let right = rights::needed(method).ok_or_else(|| Refusal::Unknown { method: method.to_owned() })?;
        match self.role.has(right) {
            true => Ok(()),
            false => Err(Refusal::Role {
                name: self.name.clone(),
                role: self.role,
                method: method.to_owned(),
                needs: right.roles(),
            }),
        }
    }
}

/// Who calls.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Whoever can read the coordinator's own token: an administrator by the permissions of its file.
    Owner,
    /// An operator, by his token.
    Named(Arc<Operator>),
}

impl Caller {
    /// Whether he may call a method now, as [`Operator::may_call`].
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn may_call(&self, method: &str, now: Instant) -> Result<(), Refusal> {
        match self {
            Self::Owner if rights::needed(method).is_some() => Ok(()),
            Self::Owner => Err(Refusal::Unknown { method: method.to_owned() }),
            Self::Named(operator) => operator.may_call(method, now),
        }
    }

    /// Whether he is told of a project where projects are listed.
    #[must_use]
    pub fn is_told_of(&self, project: &str) -> bool {
        match self {
            Self::Named(operator) if operator.role.is_confined() => {
                operator.projects.iter().any(|his| his == project)
            }
            Self::Owner | Self::Named(_) => true,
        }
    }

    /// Whether he may do something with a project that a method allows him.
    ///
    /// # Errors
    /// [`Refusal::Project`].
    pub fn may_use(&self, project: &str) -> Result<(), Refusal> {
        match self {
            Self::Named(operator) if !self.is_told_of(project) => Err(Refusal::Project {
                name: operator.name.clone(),
                project: project.to_owned(),
                projects: operator.projects.clone(),
            }),
            Self::Owner | Self::Named(_) => Ok(()),
        }
    }

    /// Whether he is told the account keys of projects.
    #[must_use]
    pub fn sees_account_keys(&self) -> bool {
        match self {
            Self::Owner => true,
            Self::Named(operator) => operator.role.sees_account_keys(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::rights::METHODS;
    use fallow_domain::Duration;

    fn operator(role: Role) -> Operator {
        Operator {
            name: OperatorName::new("ann").unwrap(),
            role,
            projects: if role.is_confined() { vec!["sieve".into()] } else { Vec::new() },
            made_at: Instant::EPOCH,
            made_by: "root@lab".into(),
            expires_at: Instant::EPOCH + Duration::from_hours(1),
            revoked_at: None,
        }
    }

    #[test]
    fn r6_10_names_are_short_and_plain_and_nobody_is_called_as_others_are_in_the_audit_log() {
        for good in ["a", "ann", "ann.lee", "0-x_y", &"a".repeat(32)] {
            assert_eq!(OperatorName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "Ann", "ann@lab", ".ann", "ann-", "a b", "a\n", "ä", "../x", "operator", "stranger"]
            .into_iter()
            .chain([&*"a".repeat(33)])
        {
            assert!(OperatorName::new(bad).is_err(), "{bad:?}");
        }
        assert!(serde_json::from_str::<OperatorName>("\"ann@lab\"").is_err());
    }

    #[test]
    fn r6_10_a_token_that_expired_or_was_revoked_is_good_for_no_method_of_any_role() {
        for (role, (method, _)) in
            Role::ALL.into_iter().flat_map(|role| METHODS.iter().map(move |m| (role, m)))
        {
            let mut operator = operator(role);
            let late = operator.may_call(method, operator.expires_at);
            assert_eq!(late, Err(Refusal::Expired { name: operator.name.clone() }), "{role} {method}");
            operator.revoked_at = Some(Instant::EPOCH);
            let revoked = operator.may_call(method, Instant::EPOCH);
            assert_eq!(revoked, Err(Refusal::Revoked { name: operator.name.clone() }), "{role} {method}");
        }
    }

    #[test]
    fn r6_10_who_is_refused_hears_which_role_he_has_which_he_needs_and_whom_to_ask() {
        let said = operator(Role::Viewer).may_call("SetShares", Instant::EPOCH).unwrap_err().to_string();
        for part in [
            "ann has the role viewer",
            "`fallow shares set` needs the role operator or administrator",
            "ask an administrator",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let said = operator(Role::Administrator).may_call("Backup", Instant::EPOCH).unwrap_err().to_string();
        assert!(said.contains("`fallow backup` needs the coordinator's own token"), "{said}");
        let caller = Caller::Named(Arc::new(operator(Role::Submitter)));
        let said = caller.may_use("other").unwrap_err().to_string();
        for part in ["submitter for sieve", "\"other\" is not among them", "ask an administrator"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn r6_10_the_owner_may_call_whatever_there_is_and_nobody_may_call_what_has_no_right() {
        for (method, _) in METHODS {
            assert_eq!(Caller::Owner.may_call(method, Instant::EPOCH), Ok(()));
        }
        for caller in [Caller::Owner, Caller::Named(Arc::new(operator(Role::Administrator)))] {
            let refused = caller.may_call("Dance", Instant::EPOCH);
            assert!(matches!(refused, Err(Refusal::Unknown { .. })), "{refused:?}");
        }
        assert!(Caller::Owner.sees_account_keys() && Caller::Owner.is_told_of("other"));
    }
}
