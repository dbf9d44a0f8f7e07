//! Sessions of open-iscsi: login to all portals of a target, and logout.
//!
//! The records of nodes are made by hand (`-o new`), not by discovery: discovery would also bring portals that the node
//! does not reach.

use std::collections::HashMap;
use std::path::Path;

use tonic::{Code, Status};

use super::record::Target;
use super::system::Ran;
use super::{Inner, failed};

/// Exit codes of iscsiadm (iscsiadm(8), "EXIT STATUS").
const SESSION_EXISTS: i32 = 15;
const NO_OBJECTS_FOUND: i32 = 21;

/// The codes of failures that the caller can tell apart.
const FAILURES: [(i32, Code); 5] = [
    // The login was refused: CHAP.
    (24, Code::Unauthenticated),
    // The login cannot succeed: the target has not proved who it is, or has refused what was negotiated.
    (19, Code::FailedPrecondition),
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

/// How often the login to a portal that is silent is tried again. open-iscsi tries 8 times, for 15 s each: kubelet,
/// which waits for 2 minutes, would not see that another portal has answered.
const LOGIN_RETRIES: &str = "2";

/// Where open-iscsi keeps its records of nodes: `TARGET/HOST,PORT` for those made by hand.
const RECORDS: [&str; 2] = ["/etc/iscsi/nodes", "/var/lib/iscsi/nodes"];

/// The last line of a record.
const RECORD_END: &str = "# END RECORD";

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
        let users = users(target, secrets)?;
        let mut logged_in = LoggedIn { portals: 0, was_there: false };
        let mut failed = None;
        for portal in &target.portals {
            match self.log_in_to(target, portal, &users) {
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

    fn log_in_to(&self, target: &Target, portal: &str, users: &[(&str, &str)]) -> Result<bool, Status> {
        let node = ["-m", "node", "-T", &target.iqn, "-p", portal, "-I", &target.interface];
        let what = |step: &str| format!("{step} {portal} of");
        let made = self.iscsiadm(&[&node[..], &["-o", "new"]].concat())?;
        if made.code != Some(0) {
            return Err(refused(&what("the record of portal"), &target.iqn, &made));
        }
        let method = if users.is_empty() { "None" } else { "CHAP" };
        let settings = [
            // After a restart of the node, the caller stages the volume again.
            ("node.startup", "manual"),
            ("node.session.initial_login_retry_max", LOGIN_RETRIES),
            ("node.session.auth.authmethod", method),
        ];
        for (name, value) in settings {
            let set = self.iscsiadm(&[&node[..], &["-o", "update", "-n", name, "-v", value]].concat())?;
            if set.code != Some(0) {
                return Err(refused(&what(name), &target.iqn, &set));
            }
        }
        if !users.is_empty() {
            self.tell_users(target, portal, users)?;
        }
        let ran = self.iscsiadm(&[&node[..], &["-l"]].concat())?;
        match ran.code {
            Some(0) => Ok(false),
            Some(SESSION_EXISTS) => Ok(true),
            _ => Err(refused(&what("the login to portal"), &target.iqn, &ran)),
        }
    }

    /// Writes users and secrets into the record of a portal. As arguments of iscsiadm, every user of the machine could
    /// see them.
    fn tell_users(&self, target: &Target, portal: &str, users: &[(&str, &str)]) -> Result<(), Status> {
        let (host, port) = portal.rsplit_once(':').unwrap_or((portal, "3260"));
        let name = format!("{},{port}", host.trim_matches(['[', ']']));
        for folder in RECORDS {
            let path = Path::new(folder).join(&target.iqn).join(&name);
            let before = match self.system.read_of_host(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                text => text.map_err(failed(path.display()))?,
            };
            let after = record_with(&before, users).ok_or_else(|| {
                Status::internal(format!(
                    "{} is no record of open-iscsi as this driver knows it; see which version the host has",
                    path.display()
                ))
            })?;
            return self.system.rewrite_of_host(&path, &after).map_err(failed(path.display()));
        }
        Err(Status::internal(format!(
            "iscsiadm has made a record of {portal} of {}, and {name} is neither in {}; if open-iscsi keeps its records \
             elsewhere, link one of these folders there",
            target.iqn,
            RECORDS.join(" nor in ")
        )))
    }

    fn iscsiadm(&self, arguments: &[&str]) -> Result<Ran, Status> {
        self.system.run("iscsiadm", arguments).map_err(|error| {
            Status::failed_precondition(format!(
                "iscsiadm: {error}; install open-iscsi on the node, and see --host-root"
            ))
        })
    }
}

/// The users and secrets for the records of a target; none when it asks for no proof.
fn users<'a>(target: &Target, secrets: &'a HashMap<String, String>) -> Result<Vec<(&'a str, &'a str)>, Status> {
    if !target.has_chap {
        return Ok(Vec::new());
    }
    let [user, password, user_in, password_in] =
        SECRETS.map(|name| secrets.get_key_value(name).map(|(name, value)| (name.as_str(), value.as_str())));
    let mut users = match (user, password) {
        (Some(user), Some(password)) => vec![user, password],
        _ => {
            return Err(Status::invalid_argument(format!(
                "the target asks for a user, and the secrets have no {} or {}; name a Secret with csi.storage.k8s.io/node-stage-secret-name",
                SECRETS[0], SECRETS[1]
            )));
        }
    };
    match (user_in, password_in) {
        (Some(user), Some(password)) => users.extend([user, password]),
        (None, None) => {}
        _ => return Err(Status::invalid_argument(format!("{} and {} go together", SECRETS[2], SECRETS[3]))),
    }
    // A record has a line for each, without the blanks around it.
    match users.iter().find(|(_, value)| value.is_empty() || value.trim() != *value || value.contains(char::is_control))
    {
        Some((name, _)) => Err(Status::invalid_argument(format!(
            "{name} is empty, begins or ends with a blank, or has more than one line; open-iscsi takes no such text"
        ))),
        None => Ok(users),
    }
}

/// A record with further settings; `None` when the text is no record.
fn record_with(record: &str, settings: &[(&str, &str)]) -> Option<String> {
    let is_other = |line: &&str| !settings.iter().any(|(name, _)| line.split(" = ").next() == Some(name));
    let kept = record.trim_end().strip_suffix(RECORD_END)?;
    let kept = kept.lines().filter(is_other).map(str::to_owned);
    let new = settings.iter().map(|(name, value)| format!("{name} = {value}"));
    let lines: Vec<String> = kept.chain(new).chain([RECORD_END.to_owned()]).collect();
    Some(lines.join("\n") + "\n")
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
            let users = users(&target(has_chap), secrets).map_err(|status| status.code());
            users.map(|users| users.into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names(false, &secrets(&SECRETS)), Ok(Vec::new()));
        assert_eq!(names(true, &secrets(&SECRETS)).unwrap(), SECRETS);
        assert_eq!(names(true, &secrets(&SECRETS[..2])).unwrap(), SECRETS[..2]);
        for some in [&SECRETS[..0], &SECRETS[..1], &SECRETS[..3]] {
            assert_eq!(names(true, &secrets(some)), Err(Code::InvalidArgument), "{some:?}");
        }
        for secret in ["", " x", "x\t", "x\nnode.startup = automatic"] {
            let secrets = [(SECRETS[0], "nodes"), (SECRETS[1], secret)].map(|(k, v)| (k.to_owned(), v.to_owned()));
            assert_eq!(names(true, &secrets.into()), Err(Code::InvalidArgument), "{secret:?}");
        }
    }

    #[test]
    fn a_record_has_each_setting_once_and_keeps_the_others() {
        let record = "# BEGIN RECORD 2.1.8\nnode.name = x\nnode.session.auth.username = old\n# END RECORD\n";
        let settings = [("node.session.auth.username", "nodes"), ("node.session.auth.password", "a = \"b\" #c")];
        assert_eq!(
            record_with(record, &settings).unwrap(),
            "# BEGIN RECORD 2.1.8\nnode.name = x\nnode.session.auth.username = nodes\n\
             node.session.auth.password = a = \"b\" #c\n# END RECORD\n"
        );
        assert_eq!(record_with("something else\n", &settings), None);
    }
}
