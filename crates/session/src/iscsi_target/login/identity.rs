//! The names that a login gives: of the initiator and of the target.

use std::sync::Arc;

use lunette_pdu::{LoginStatus, Tsih};

use super::{Answers, Login, LoginClaims, Refusal, refuse};
use crate::chap::Authentication;
use crate::iscsi_target::directory::{Admission, Moved, TargetNode};
use crate::keys::Negotiation;
use crate::limits::{MAX_NAME_BYTES, MAX_SESSION_CONNECTIONS};
use crate::name::{folded_name, is_same_name};

/// The initiator and the target of a login; known after the first complete key list.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) initiator_name: String,
    /// `None`: the login is for discovery.
    pub(super) admission: Option<Admission>,
}

impl Identity {
    /// The target; `None`: the login is for discovery.
    pub(super) fn target(&self) -> Option<&Arc<TargetNode>> {
        self.admission.as_ref().map(|admission| &admission.target)
    }

    /// Later requests may repeat the names, as some initiators do in each stage, but not change them.
    pub(super) fn check_repeated(&self, pairs: &[(&str, &str)]) -> Result<(), Refusal> {
        let is_repeated = |key: &str, value: &str| match key {
            "InitiatorName" => is_same_name(value, &self.initiator_name),
            "TargetName" => self.target().is_none_or(|target| is_same_name(value, &target.name)),
            "SessionType" => value == if self.admission.is_some() { "Normal" } else { "Discovery" },
            _ => true,
        };
        match pairs.iter().find(|(key, value)| !is_repeated(key, value)) {
            Some((key, _)) => refuse(LoginStatus::INITIATOR_ERROR, format!("{key} changed during the login")),
            None => Ok(()),
        }
    }
}

impl Login {
    pub(super) fn identify(&mut self, pairs: &[(&str, &str)], answer: &mut Answers) -> Result<(), Refusal> {
        let value = |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let Some(initiator_name) = value("InitiatorName").filter(|name| !name.is_empty()) else {
            return refuse(LoginStatus::MISSING_PARAMETER, "InitiatorName is missing");
        };
        if initiator_name.len() > MAX_NAME_BYTES {
            return refuse(LoginStatus::INITIATOR_ERROR, "InitiatorName is longer than 223 bytes");
        }
        let target = value("TargetName").filter(|name| name.len() <= MAX_NAME_BYTES);
        self.claims = LoginClaims { initiator: Some(initiator_name.to_owned()), target: target.map(str::to_owned) };
        let admission = match value("SessionType").unwrap_or("Normal") {
            "Discovery" => None,
            "Normal" => Some(self.find_target(initiator_name, value("TargetName"))?),
            other => return refuse(LoginStatus::SESSION_TYPE_NOT_SUPPORTED, format!("SessionType={other}")),
        };
        let target = admission.as_ref().map(|admission| &admission.target);
        if let Some(target) = target {
            if let Some(alias) = &target.alias {
                answer.push("TargetAlias", alias)?;
            }
            answer.push("TargetPortalGroupTag", &self.portal_group.to_string())?;
        }
        let leading = self.leads();
        let mut offer = target.map(|target| target.offer.clone()).unwrap_or_default();
        // A discovery session has one connection and recovers nothing (RFC 7143 sections 13.2 and 7.4.1).
        let (most, level) = if target.is_some() { (MAX_SESSION_CONNECTIONS, 2) } else { (1, 0) };
        offer.max_connections = offer.max_connections.min(most);
        offer.error_recovery_level = offer.error_recovery_level.min(level);
        self.negotiation = Some(Negotiation::new(offer, leading));
        self.identity = Some(Identity { initiator_name: folded_name(initiator_name), admission });
        Ok(())
    }

    /// Whether the login is for a new session.
    fn leads(&self) -> bool {
        self.thread.is_none_or(|thread| thread.tsih == Tsih::NEW)
    }

    fn find_target(&self, initiator: &str, name: Option<&str>) -> Result<Admission, Refusal> {
        let Some(name) = name else {
            return refuse(LoginStatus::MISSING_PARAMETER, "TargetName is missing in a normal session");
        };
        let here = |target: &&Arc<TargetNode>| target.portals.iter().any(|portal| portal.group == self.portal_group);
        let Some(target) = self.directory.find(name).filter(here) else {
            return refuse(LoginStatus::NOT_FOUND, format!("no target {name} here"));
        };
        let Some(admission) = target.admit(initiator, &self.origin) else {
            let from = self.origin.identity().map_or_else(String::new, |identity| format!(" as {identity}"));
            let why = format!("{initiator} from {}{from} may not use {name}", self.origin.peer);
            return refuse(LoginStatus::AUTHORIZATION_FAILURE, why);
        };
        // A session that is here goes on, also with further connections.
        if let Some(moved) = target.moved.as_ref().filter(|_| self.leads()) {
            return redirect(name, moved);
        }
        Ok(admission)
    }

    pub(super) fn policy(&self) -> &Authentication {
        match &self.identity {
            Some(Identity { admission: Some(admission), .. }) => admission.authentication(),
            _ => &self.directory.discovery,
        }
    }
}

/// Sends the initiator elsewhere, before it has to prove anything: the proof is the affair of the target that serves
/// it.
fn redirect<T>(target: &str, moved: &Moved) -> Result<T, Refusal> {
    let why = format!("{target} has moved to {}", moved.addresses.join(", "));
    match moved.keys() {
        Ok(keys) => Err(Refusal { keys, ..Refusal::new(moved.status(), why) }),
        Err(error) => refuse(LoginStatus::TARGET_ERROR, format!("{why}: {error}")),
    }
}
