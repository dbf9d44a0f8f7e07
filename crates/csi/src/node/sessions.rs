//! Sessions of open-iscsi: login to all portals of a target, and logout.
//!
//! The records of nodes are made by hand (`-o new`), not by discovery: discovery would also bring portals that the node
//! does not reach.

use std::collections::HashMap;

use tonic::{Code, Status};

use super::Inner;
use super::record::Target;
use super::system::Ran;

/// Exit codes of iscsiadm (iscsiadm(8), "EXIT STATUS").
const SESSION_EXISTS: i32 = 15;
const NO_OBJECTS_FOUND: i32 = 21;

/// The codes of failures that the caller can tell apart.
const FAILURES: [(i32, Code); 4] = [
    // The login was refused: CHAP.
    (24, Code::Unauthenticated),
    // No connection, a timeout, a name that is not known.
    (4, Code::Unavailable),
    (8, Code::Unavailable),
    (20, Code::Unavailable),
];

/// The secrets of a call, with open-iscsi's own names.
const SECRETS: [&str; 4] = [
    "node.session.auth.username",
    "node.session.auth.password",
    "node.session.auth.username_in",
    "node.session.auth.password_in",
];

/// The paths that a login has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoggedIn {
    pub(super) portals: usize,
    /// Whether a session was there already, which does not look for new logical units by itself.
    pub(super) was_there: bool,
}

impl Inner {
    /// Logs in to all portals of a target, of which one has to answer.
    pub(super) fn log_in(&self, target: &Target, secrets: &HashMap<String, String>) -> Result<LoggedIn, Status> {
        let settings = node_settings(target, secrets)?;
        let mut logged_in = LoggedIn { portals: 0, was_there: false };
        let mut failed = None;
        for portal in &target.portals {
            match self.log_in_to(target, portal, &settings) {
                Ok(was_there) => {
                    logged_in.portals += 1;
                    logged_in.was_there |= was_there;
                }
                Err(status) => {
                    tracing::warn!(target = target.iqn, portal, "{}", status.message());
                    failed = Some(status);
                }
            }
        }
        match failed {
            Some(status) if logged_in.portals == 0 => Err(status),
            _ => Ok(logged_in),
        }
    }

    /// Ends all sessions with a target, and forgets its portals.
    pub(super) fn log_out(&self, target: &Target) -> Result<(), Status> {
        for action in [&["-u"][..], &["-o", "delete"]] {
            let ran = self.iscsiadm(&[&["-m", "node", "-T", &target.iqn], action].concat())?;
            if !matches!(ran.code, Some(0 | NO_OBJECTS_FOUND)) {
                return Err(refused("the logout from", &target.iqn, &ran));
            }
        }
        Ok(())
    }

    /// Has the kernel look for logical units and their lengths again.
    pub(super) fn rescan(&self, target: &Target) -> Result<(), Status> {
        let ran = self.iscsiadm(&["-m", "node", "-T", &target.iqn, "-R"])?;
        if ran.code == Some(0) { Ok(()) } else { Err(refused("the rescan of", &target.iqn, &ran)) }
    }

    fn log_in_to(&self, target: &Target, portal: &str, settings: &[(&str, &str)]) -> Result<bool, Status> {
        let node = ["-m", "node", "-T", &target.iqn, "-p", portal, "-I", &target.interface];
        let what = |step: &str| format!("{step} {portal} of");
        let made = self.iscsiadm(&[&node[..], &["-o", "new"]].concat())?;
        if made.code != Some(0) {
            return Err(refused(&what("the record of portal"), &target.iqn, &made));
        }
        for (name, value) in settings {
            let set = self.iscsiadm(&[&node[..], &["-o", "update", "-n", name, "-v", value]].concat())?;
            if set.code != Some(0) {
                // The output is not told: it could repeat a secret.
                return Err(Status::internal(format!("iscsiadm does not take {name} for {}", target.iqn)));
            }
        }
        let ran = self.iscsiadm(&[&node[..], &["-l"]].concat())?;
        match ran.code {
            Some(0) => Ok(false),
            Some(SESSION_EXISTS) => Ok(true),
            _ => Err(refused(&what("the login to portal"), &target.iqn, &ran)),
        }
    }

    fn iscsiadm(&self, arguments: &[&str]) -> Result<Ran, Status> {
        self.system.run("iscsiadm", arguments).map_err(|error| {
            Status::failed_precondition(format!(
                "iscsiadm: {error}; install open-iscsi on the node, and see --host-root"
            ))
        })
    }
}

/// The settings of the records of a target.
fn node_settings<'a>(target: &Target, secrets: &'a HashMap<String, String>) -> Result<Vec<(&'a str, &'a str)>, Status> {
    // After a restart of the node, the caller stages the volume again.
    let mut settings = vec![("node.startup", "manual")];
    if !target.has_chap {
        settings.push(("node.session.auth.authmethod", "None"));
        return Ok(settings);
    }
    settings.push(("node.session.auth.authmethod", "CHAP"));
    let [user, password, user_in, password_in] =
        SECRETS.map(|name| secrets.get_key_value(name).map(|(name, value)| (name.as_str(), value.as_str())));
    match (user, password) {
        (Some(user), Some(password)) => settings.extend([user, password]),
        _ => {
            return Err(Status::invalid_argument(format!(
                "the target asks for a user, and the secrets have no {} or {}; name a Secret with csi.storage.k8s.io/node-stage-secret-name",
                SECRETS[0], SECRETS[1]
            )));
        }
    }
    match (user_in, password_in) {
        (Some(user), Some(password)) => settings.extend([user, password]),
        (None, None) => {}
        _ => return Err(Status::invalid_argument(format!("{} and {} go together", SECRETS[2], SECRETS[3]))),
    }
    Ok(settings)
}

fn refused(what: &str, iqn: &str, ran: &Ran) -> Status {
    let row = ran.code.and_then(|code| FAILURES.iter().find(|(known, _)| *known == code));
    let code = row.map_or(Code::Internal, |(_, code)| *code);
    let ended = ran.code.map_or("was ended after its time".into(), |code| format!("exit code {code}"));
    let said = ran.stderr.trim().lines().next().unwrap_or_default().to_owned();
    Status::new(code, format!("{what} {iqn}: iscsiadm: {ended}; {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(has_chap: bool) -> Target {
        let portals = vec!["192.0.2.1:3260".into()];
        Target { iqn: "iqn.x".into(), portals, lun: 0, interface: "default".into(), has_chap }
    }

    #[test]
    fn secrets_go_to_targets_that_ask_for_them_alone() {
        let secrets = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), format!("x{name}"))).collect();
        let names = |has_chap, secrets: &HashMap<String, String>| {
            let settings = node_settings(&target(has_chap), secrets).map_err(|status| status.code());
            settings.map(|settings| settings.into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
        };
        let plain = vec!["node.startup".to_owned(), "node.session.auth.authmethod".into()];
        assert_eq!(names(false, &secrets(&SECRETS)), Ok(plain.clone()));
        assert_eq!(names(true, &secrets(&SECRETS)).unwrap(), [plain, SECRETS.map(str::to_owned).to_vec()].concat());
        for some in [&SECRETS[..0], &SECRETS[..1], &SECRETS[..3]] {
            assert_eq!(names(true, &secrets(some)), Err(Code::InvalidArgument), "{some:?}");
        }
    }
}
