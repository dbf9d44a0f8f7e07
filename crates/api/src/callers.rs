//! Clients of the API: which role they have, and which targets they are for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::problem::Problem;

/// The rights of a client. Each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything but the audit log.
    Read,
    /// End sessions, make disks longer, start and cancel jobs, ask what a change would do, and have volumes within a
    /// quota.
    Operate,
    /// Change everything, and read the audit log.
    Admin,
}

impl Role {
    /// All roles, by their names.
    const NAMES: [(&'static str, Self); 3] = [("read", Self::Read), ("operate", Self::Operate), ("admin", Self::Admin)];
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, role)| role).ok_or_else(|| format!("{text:?} is no role; write read, operate or admin"))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.into_iter().find(|(_, role)| role == self).map_or("", |(name, _)| name))
    }
}

/// The rights that a token or a certificate grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The name in the audit log.
    pub name: String,
    /// Whether the name is its own. The number of a line in the file of tokens may become that of another client.
    pub is_named: bool,
    /// The role.
    pub role: Role,
    /// The targets that it is for; `None` for all, and for what belongs to no target.
    pub targets: Option<Vec<String>>,
}

/// The client of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The client's name in the audit log: that of its token or certificate, or its user at a Unix socket.
    pub name: String,
    /// Whether the name is its own. The number of a line in the file of tokens may become that of another client.
    pub is_named: bool,
    /// The client's rights.
    pub role: Role,
    /// The targets that it may see and change; `None` for all, and for what belongs to no target.
    pub targets: Option<Vec<String>>,
    /// Where it comes from.
    pub from: String,
}

impl Caller {
    /// A client that may do everything.
    pub fn admin(name: impl Into<String>, from: impl Into<String>) -> Self {
        Self { name: name.into(), is_named: true, role: Role::Admin, targets: None, from: from.into() }
    }

    /// The client that has proven to have this grant.
    pub(crate) fn granted(grant: Grant, from: impl Into<String>) -> Self {
        let Grant { name, is_named, role, targets } = grant;
        Self { name, is_named, role, targets, from: from.into() }
    }

    /// Whether it may see a target; `None` for what belongs to no target.
    pub fn sees(&self, target: Option<&str>) -> bool {
        self.targets.as_ref().is_none_or(|targets| target.is_some_and(|name| targets.iter().any(|one| one == name)))
    }

    /// Refuses what this client may not do.
    ///
    /// # Errors
    ///
    /// Which role it takes.
    pub fn check_role(&self, needed: Role) -> Result<(), Problem> {
        if self.role >= needed {
            return Ok(());
        }
        Err(Problem::forbidden(self.lacks(needed)))
    }

    /// Says which role a request takes that this client has not.
    pub(crate) fn lacks(&self, needed: impl fmt::Display) -> String {
        let Self { name, role, .. } = self;
        format!("{name} has the role {role}, and this takes {needed}; use another token or certificate")
    }

    /// Refuses what this client may not see.
    ///
    /// # Errors
    ///
    /// Which targets it may see.
    pub fn check_target(&self, target: Option<&str>) -> Result<(), Problem> {
        if self.sees(target) {
            return Ok(());
        }
        let targets = self.targets.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(Problem::forbidden(format!(
            "{} is for {targets} alone; use a token or certificate for all targets",
            self.name
        )))
    }
}

/// The client as the check of proofs, or the socket, has found it.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Arc<Self>>();
        caller.map(|caller| Self::clone(caller)).ok_or_else(|| Problem::unauthorized("it is not known who asks"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_include_those_before() {
        let caller = |role| Caller { role, ..Caller::admin("t", "here") };
        for (role, needed, may) in [
            (Role::Read, Role::Read, true),
            (Role::Read, Role::Operate, false),
            (Role::Operate, Role::Read, true),
            (Role::Operate, Role::Admin, false),
            (Role::Admin, Role::Operate, true),
        ] {
            assert_eq!(caller(role).check_role(needed).is_ok(), may, "{role} {needed}");
        }
        for (name, role) in Role::NAMES {
            assert_eq!((name.parse(), role.to_string().as_str()), (Ok(role), name));
        }
    }

    #[test]
    fn a_client_of_some_targets_sees_nothing_else() {
        let caller = Caller { targets: Some(vec!["iqn.a".into()]), ..Caller::admin("t", "here") };
        assert!(caller.sees(Some("iqn.a")) && !caller.sees(Some("iqn.ab")) && !caller.sees(None));
        assert!(caller.check_target(None).unwrap_err().detail.contains("t is for iqn.a alone"));
    }
}
