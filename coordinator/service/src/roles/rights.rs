//! What operators may do, role by role. This file is the specification (R6.10); nothing else decides.
//!
//! | what | viewer | submitter | operator | administrator |
//! | --- | --- | --- | --- | --- |
//! | [`Right::See`]: hosts, groups, documents, settings, enrolment tokens' ids | yes | no | yes | yes |
//! | [`Right::SeeProject`]: projects, jobs, results | yes | of his projects | yes | yes |
//! | [`Right::Submit`]: work and versions of applications | no | to his projects | yes | yes |
//! | [`Right::Operate`]: shares, preferences, labels, groups, projects, enrolment tokens | no | no | yes | yes |
//! | [`Right::Administer`]: operators, the audit log, taking hosts out, the end of the coordinator | no | no | no | yes |
//! | [`Right::Own`]: backups | no | no | no | no |
//! | account keys of projects ([`Role::sees_account_keys`]) | no | no | no | yes |
//! | [`Right::Ask`]: whether the coordinator serves, and what can be asked of it | yes | yes | yes | yes |
//!
//! Why it is so:
//! - A viewer changes nothing and learns no secret, so that his token can be in a dashboard.
//! - A submitter's program runs on every host that serves his projects: that is all that he is trusted with,
//!   so he neither learns of other people's projects nor of the hosts beyond what his jobs say of them.
//! - What an operator does can be undone: a share is set back, a host that joined is taken out.
//! - What only an administrator may do cannot be undone (a host that is taken out has to enrol anew), decides
//!   who may do what, or tells of people: the audit log says who worked when and from which address.
//! - A backup holds the keys by which the coordinator is known, and one that is put back can undo what any
//!   administrator did: both are for who can read the coordinator's directory anyway, with its own token.
//! - With an account key anybody is that account, for as long as the project lives, and no end can be put to
//!   it as to a token: who needs one asks an administrator.
//!
//! What else the port serves to operators stands in [`BESIDE`]: gRPC's health and reflection services, and
//! the description of the JSON API. They tell nothing of the fleet, so everybody who has a token may ask; who
//! has none is refused there as everywhere. In JSON a method needs what it needs over gRPC.
//!
//! A method that stands neither in [`METHODS`] nor in [`BESIDE`] may be called by nobody.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What somebody may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// Sees all but secrets.
    Viewer,
    /// Submits work to named projects.
    Submitter,
    /// Does the fleet's daily work.
    Operator,
    /// May do everything.
    Administrator,
}

impl Role {
    /// Every role, in the order in which people are told of them.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Submitter, Self::Operator, Self::Administrator];

    /// As people write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }

    /// Whether his right ends with the projects that he is named for.
    #[must_use]
    pub const fn is_confined(self) -> bool {
        matches!(self, Self::Submitter)
    }

    /// Whether he is told the account keys of projects.
    #[must_use]
    pub const fn sees_account_keys(self) -> bool {
        matches!(self, Self::Administrator)
    }

    /// Whether this role has a right: a submitter, as far as it is for one of his projects.
    #[must_use]
    pub fn has(self, right: Right) -> bool {
        right.roles().contains(&self)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To ask whether the coordinator serves, and what can be asked of it.
    Ask,
    /// To see what is the whole fleet's.
    See,
    /// To see what is a project's.
    SeeProject,
    /// To give a project work.
    Submit,
    /// To change what can be changed back.
    Operate,
    /// Everything else that an operator may do.
    Administer,
    /// What only who has the coordinator's own token may do.
    Own,
}

impl Right {
    /// Who has it.
    #[must_use]
    pub const fn roles(self) -> &'static [Role] {
        use Role::{Administrator, Operator, Submitter, Viewer};
        match self {
            Self::Ask => &Role::ALL,
            Self::See => &[Viewer, Operator, Administrator],
            Self::SeeProject => &[Viewer, Submitter, Operator, Administrator],
            Self::Submit => &[Submitter, Operator, Administrator],
            Self::Operate => &[Operator, Administrator],
            Self::Administer => &[Administrator],
            Self::Own => &[],
        }
    }
}

/// Every method of the operators' service with what it needs.
pub const METHODS: &[(&str, Right)] = &[
    ("ListTokens", Right::See),
    ("ListHosts", Right::See),
    ("ExplainHost", Right::See),
    ("GetDocument", Right::See),
    ("ListDocuments", Right::See),
    ("GetDocumentVersion", Right::See),
    ("GetDocumentDifference", Right::See),
    ("ListGroups", Right::See),
    ("ListRollouts", Right::See),
    ("GetProject", Right::See),
    ("ListProjects", Right::SeeProject),
    ("ListJobs", Right::SeeProject),
    ("GetJob", Right::SeeProject),
    ("ListResults", Right::SeeProject),
    ("Submit", Right::Submit),
    ("AddAppVersion", Right::Submit),
    ("SetShares", Right::Operate),
    ("SetPreferences", Right::Operate),
    // Refused as the change would be.
    ("PreviewShares", Right::Operate),
    ("PreviewPreferences", Right::Operate),
    ("ChangeGroups", Right::Operate),
    ("OrderRollout", Right::Operate),
    ("GetOrganisation", Right::See),
    // The signature says whose word it is.
    ("SignDocuments", Right::Operate),
    ("SetOrganisation", Right::Administer),
    ("LabelHost", Right::Operate),
    ("CreateProject", Right::Operate),
    ("SetProject", Right::Operate),
    ("CreateTokens", Right::Operate),
    ("RevokeToken", Right::Operate),
    ("RevokeHost", Right::Administer),
    ("ForgetHost", Right::Administer),
    ("SetRolloutPlan", Right::Administer),
    ("ListAudit", Right::Administer),
    ("Shutdown", Right::Administer),
    ("BeginTerm", Right::Administer),
    ("Backup", Right::Own),
    ("Restore", Right::Own),
    ("CreateOperator", Right::Administer),
    ("ListOperators", Right::Administer),
    ("RevokeOperator", Right::Administer),
];

/// What operators say on the command line for what a method does, for texts to them.
const COMMANDS: &[(&str, &str)] = &[
    ("ListTokens", "`fallow tokens list`"),
    ("ListHosts", "`fallow hosts`"),
    ("ExplainHost", "`fallow hosts show`"),
    ("GetDocument", "`fallow shares` or `fallow preferences`"),
    ("ListDocuments", "`fallow documents`"),
    ("GetDocumentVersion", "`fallow documents show`"),
    ("GetDocumentDifference", "`fallow documents diff`"),
    ("ListGroups", "`fallow groups`"),
    ("ListRollouts", "`fallow rollout`"),
    ("GetProject", "`fallow project show`"),
    ("ListProjects", "`fallow projects`"),
    ("ListJobs", "`fallow jobs`"),
    ("GetJob", "`fallow jobs --job`"),
    ("ListResults", "`fallow results`"),
    ("Submit", "`fallow submit`"),
    ("AddAppVersion", "`fallow app add`"),
    ("SetShares", "`fallow shares set`"),
    ("SetPreferences", "`fallow preferences set`"),
    ("PreviewShares", "`fallow shares set --dry-run`"),
    ("PreviewPreferences", "`fallow preferences set --dry-run`"),
    ("ChangeGroups", "`fallow apply`, `fallow diff` or `fallow groups remove`"),
    ("OrderRollout", "`fallow rollout approve`, `promote`, `pause`, `resume` or `abort`"),
    ("GetOrganisation", "`fallow organisation show`"),
    ("SignDocuments", "`fallow organisation sign`"),
    ("SetOrganisation", "`fallow organisation set`"),
    ("LabelHost", "`fallow hosts label`"),
    ("CreateProject", "`fallow project create`"),
    ("SetProject", "`fallow project set`"),
    ("CreateTokens", "`fallow tokens create`"),
    ("RevokeToken", "`fallow tokens revoke`"),
    ("RevokeHost", "`fallow hosts revoke`"),
    ("ForgetHost", "`fallow hosts forget`"),
    ("SetRolloutPlan", "`fallow rollout plan`"),
    ("ListAudit", "`fallow audit`"),
    ("Shutdown", "the end of the coordinator"),
    ("BeginTerm", "`fallow restore --new-term`"),
    ("Backup", "`fallow backup`"),
    ("Restore", "`fallow restore`"),
    ("CreateOperator", "`fallow operators create`"),
    ("ListOperators", "`fallow operators list`"),
    ("RevokeOperator", "`fallow operators revoke`"),
];

/// What a method is on the command line, in words; its name where it is none of there.
#[must_use]
pub fn command(method: &str) -> &str {
    COMMANDS.iter().find(|(name, _)| *name == method).map_or(method, |(_, command)| *command)
}

/// Everything else that operators are served, by its path.
pub const BESIDE: &[(&str, Right)] = &[
    ("/grpc.health.v1.Health/Check", Right::Ask),
    ("/grpc.health.v1.Health/Watch", Right::Ask),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Right::Ask),
    ("/v1/openapi.json", Right::Ask),
];

/// What a method of the operators' service needs, by its name, or what else is served, by its path; none for
/// what may be called by nobody.
#[must_use]
pub fn needed(method: &str) -> Option<Right> {
    METHODS.iter().chain(BESIDE).find(|(name, _)| *name == method).map(|(_, right)| *right)
}

/// Roles as a sentence has them: "operator or administrator".
#[must_use]
pub fn in_words(roles: &[Role]) -> String {
    match roles {
        [] => String::new(),
        [one] => one.word().to_owned(),
        [others @ .., last] => {
            let others: Vec<_> = others.iter().map(|role| role.word()).collect();
            format!("{} or {last}", others.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The methods as the contract has them.
    fn methods() -> Vec<&'static str> {
        let contract = include_str!("../../../../proto/fallow/operator/v1/operator.proto");
        let service = contract.split("service Operator {").nth(1).and_then(|rest| rest.split("\n}").next());
        let lines = service.unwrap().lines();
        lines.filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next()).collect()
    }

    #[test]
    fn r6_10_every_method_of_the_service_stands_in_the_table_once_and_no_other_does() {
        let (methods, listed) = (methods(), METHODS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        assert!(methods.len() > 20, "{methods:?}");
        let has_no_right: Vec<_> = methods.iter().filter(|method| needed(method).is_none()).collect();
        assert!(has_no_right.is_empty(), "say in METHODS who may call {has_no_right:?}");
        assert_eq!(listed.len(), listed.iter().collect::<BTreeSet<_>>().len(), "a method stands there twice");
        let unknown: Vec<_> = listed.iter().filter(|method| !methods.contains(method)).collect();
        assert!(unknown.is_empty(), "the service has no {unknown:?}");
        assert_eq!(needed("Dance"), None);
    }

    #[test]
    fn r6_10_every_method_has_words_of_the_command_line() {
        let in_order = |list: Vec<&'static str>| list.into_iter().collect::<BTreeSet<_>>();
        let named = in_order(COMMANDS.iter().map(|(name, _)| *name).collect());
        assert_eq!(named, in_order(METHODS.iter().map(|(name, _)| *name).collect()));
        assert_eq!((command("SetShares"), command("Dance")), ("`fallow shares set`", "Dance"));
    }

    #[test]
    fn r6_10_what_is_served_beside_the_operators_service_is_for_every_role_and_has_no_methods_name() {
        for (path, right) in BESIDE {
            assert!(path.starts_with('/'), "{path} could be a method's name");
            assert_eq!(right.roles(), Role::ALL, "{path}");
        }
        assert_eq!(needed("/grpc.health.v1.Health/Check"), Some(Right::Ask));
        assert_eq!(needed("Check"), None);
    }

    /// Which methods a role may call, by another way than the table: by what they are called.
    #[test]
    fn r6_10_a_viewer_changes_nothing_and_a_submitter_gives_work_to_his_projects_alone() {
        let may = |role: Role| {
            methods().into_iter().filter(move |method| needed(method).is_some_and(|right| role.has(right)))
        };
        for method in may(Role::Viewer) {
            let reads = ["List", "Get", "Explain"].iter().any(|begin| method.starts_with(begin));
            assert!(reads, "a viewer may {method}");
        }
        let submitter: BTreeSet<_> = may(Role::Submitter).collect();
        let his = ["AddAppVersion", "GetJob", "ListJobs", "ListProjects", "ListResults", "Submit"];
        assert_eq!(submitter, BTreeSet::from(his));
        let beyond = methods().into_iter().filter(|method| needed(method) == Some(Right::Own));
        assert_eq!(may(Role::Administrator).count() + 2, methods().len());
        assert_eq!(beyond.collect::<Vec<_>>(), ["Backup", "Restore"]);
    }

    #[test]
    fn r6_10_each_of_the_unconfined_roles_has_all_rights_of_the_one_before() {
        let unconfined = Role::ALL.into_iter().filter(|role| !role.is_confined()).collect::<Vec<_>>();
        for (_, right) in METHODS {
            for pair in unconfined.windows(2) {
                assert!(!pair[0].has(*right) || pair[1].has(*right), "{right:?}: {pair:?}");
            }
        }
        let keys = Role::ALL.map(Role::sees_account_keys);
        assert_eq!(keys, [false, false, false, true]);
    }

    #[test]
    fn roles_are_named_as_a_sentence_has_them() {
        assert_eq!(in_words(Right::Administer.roles()), "administrator");
        assert_eq!(in_words(Right::Operate.roles()), "operator or administrator");
        assert_eq!(in_words(Right::Submit.roles()), "submitter, operator or administrator");
    }
}
