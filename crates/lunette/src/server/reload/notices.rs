//! The effects of a change on open sessions: `docs/configuration.md` has the table for people.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use lunette_target::{Host, Origin, SessionStatus, host_of};

use crate::config::diff::{Change, HostChange, LunChange};
use crate::config::hosts::MappedLun;
use crate::config::{Config, LunEntry, Target, hosts};

/// The effect of a change on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The notice that its initiator gets.
    pub(crate) notice: &'static str,
    /// Whether the session loses something that it uses: itself, a disk, or the right to write.
    pub(crate) is_loss: bool,
}

const fn loss(notice: &'static str) -> Effect {
    Effect { notice, is_loss: true }
}

const fn news(notice: &'static str) -> Effect {
    Effect { notice, is_loss: false }
}

const LOGOUT: Effect = loss("is asked to log out, and its session ends after 3 s at the latest");
const MOVED: Effect = loss("is asked to log out, and its next login is redirected");
const LUN_ADDED: Effect = news("unit attention REPORTED LUNS DATA HAS CHANGED");
const LUN_REMOVED: Effect = loss(LUN_ADDED.notice);
const SETTINGS_CHANGED: Effect =
    news("unit attentions POWER ON, RESET, OR BUS DEVICE RESET OCCURRED and INQUIRY DATA HAS CHANGED");
const REPLACED: Effect = loss(SETTINGS_CHANGED.notice);
const RESIZED: Effect = news("unit attention CAPACITY DATA HAS CHANGED");
const STATES_CHANGED: Effect =
    news("unit attention ASYMMETRIC ACCESS STATE CHANGED, where its state or preference is another");
const MAP_CHANGED: Effect = news(
    "unit attentions REPORTED LUNS DATA HAS CHANGED, INQUIRY DATA HAS CHANGED or MODE PARAMETERS CHANGED, for the LUNs \
     that it sees otherwise",
);
const MAP_NARROWED: Effect = loss(MAP_CHANGED.notice);
const PORTAL_GONE: Effect = loss("stays, and cannot come back through this portal");
const NEGOTIATES: Effect = news("is asked to negotiate, if max_recv_data_segment_length is another");

/// The effect on a session when `change` turns `old` into `new`.
pub(crate) fn noticed(change: &Change, old: &Config, new: &Config, session: &SessionStatus) -> Option<Effect> {
    if let Change::PortalRemoved(portal) = change {
        return session.portals.iter().any(|local| is_at(portal.address, *local)).then_some(PORTAL_GONE);
    }
    let name = session.target.as_deref()?;
    if change.target().as_deref() != Some(name) {
        return None;
    }
    let find = |config: &'_ Config| config.targets.iter().find(|target| target.name == name).cloned();
    let (before, after) = (find(old), find(new));
    match change {
        Change::TargetRemoved(_) => Some(LOGOUT),
        Change::Redirection(_) => after?.redirect.map(|_| MOVED),
        Change::Session(_) => Some(NEGOTIATES),
        Change::Admission(_) | Change::HostOrder(_) => loses_its_host(&after?, session).then_some(LOGOUT),
        Change::Host { name, change, .. } => {
            match (loses_its_host(after.as_ref()?, session), session.host.as_deref()) {
                // A host that goes concerns its own sessions; what else has changed concerns the others.
                (true, host) if *change == HostChange::Removed && host != Some(name) => None,
                (true, _) => Some(LOGOUT),
                (false, Some(host)) if host == name && *change == HostChange::Changed => {
                    let [old, new] = [before?, after?].map(|target| views(&target, name));
                    Some(if is_narrower(&new, &old) { MAP_NARROWED } else { MAP_CHANGED })
                }
                (false, _) => None,
            }
        }
        Change::PortGroups(_) => Some(STATES_CHANGED),
        Change::Lun { number, change, .. } => {
            let sees = |target: &Option<Target>| target.as_ref().is_some_and(|target| sees(target, session, *number));
            let lun = |target: &'_ Option<Target>| target.as_ref()?.lun(*number).cloned();
            let is_kept = || lun(&before).zip(lun(&after)).is_some_and(|(old, new)| is_kept(&old, &new, name));
            (sees(&before) || sees(&after)).then(|| match change {
                LunChange::Removed => LUN_REMOVED,
                LunChange::Added => LUN_ADDED,
                LunChange::Replaced if is_kept() => SETTINGS_CHANGED,
                LunChange::Replaced => REPLACED,
                LunChange::Extended(_) | LunChange::Grown(_) | LunChange::Shrunk(_) => RESIZED,
            })
        }
        Change::PortalRemoved(_)
        | Change::PortalAdded(_)
        | Change::DatagramPortalRemoved(_)
        | Change::DatagramPortalAdded(_)
        | Change::TargetAdded(_)
        | Change::Alias(_)
        | Change::MaxConnections(_)
        | Change::MarkerInterval(_)
        | Change::Secrets(_)
        | Change::Algorithms(_)
        | Change::Unproven(_)
        | Change::DiscoverySecrets
        | Change::DiscoveryAlgorithms
        | Change::Pools => None,
    }
}

/// Whether a connection at this address of the server has come through a portal.
fn is_at(portal: SocketAddr, local: SocketAddr) -> bool {
    let is_same = portal.ip().to_canonical() == local.ip().to_canonical();
    portal.port() == local.port() && (portal.ip().is_unspecified() || is_same)
}

/// Whether one of its connections belongs to another host of the target than before, or to none.
fn loses_its_host(target: &Target, session: &SessionStatus) -> bool {
    let hosts = hosts::without_secrets(target);
    let host = |peer: &SocketAddr| {
        let origin = Origin { peer: peer.ip(), identities: Arc::clone(&session.identities) };
        host_of(&hosts, &session.initiator, &origin).map(|host: &Arc<Host>| &*host.name)
    };
    session.peers.iter().any(|peer| host(peer).is_none() || host(peer) != session.host.as_deref())
}

/// Whether the session's host sees the logical unit.
fn sees(target: &Target, session: &SessionStatus, number: u16) -> bool {
    let host = target.hosts.iter().find(|host| Some(host.name.as_str()) == session.host.as_deref());
    let mapped = host.and_then(|host| host.luns.as_ref());
    let is_given = target.lun(number).is_some_and(|lun| lun.is_given);
    mapped.map_or(!is_given, |luns| luns.iter().any(|lun| lun.number == number))
}

/// The LUNs of a target that a host sees: with each the number that it uses, and whether it may only read.
fn views(target: &Target, host: &str) -> BTreeMap<u16, (u16, bool)> {
    let Some(host) = target.host(host) else { return BTreeMap::new() };
    let own = || target.luns.iter().filter(|lun| !lun.is_given);
    let all = || own().map(|lun| (lun.number, (lun.number, host.read_only))).collect();
    let mapped = |lun: &MappedLun| (lun.number, (lun.seen_as.unwrap_or(lun.number), lun.read_only || host.read_only));
    host.luns.as_ref().map_or_else(all, |luns| luns.iter().map(mapped).collect())
}

/// Whether a host sees less than before, or may write less. What it sees under another number is lost.
fn is_narrower(new: &BTreeMap<u16, (u16, bool)>, old: &BTreeMap<u16, (u16, bool)>) -> bool {
    old.iter().any(|(lun, (seen_as, read_only))| match new.get(lun) {
        Some((now, now_read_only)) => now != seen_as || (*now_read_only && !read_only),
        None => true,
    })
}

/// Whether a logical unit of `target` is the disk that it was to its initiators, and takes their writes as before.
fn is_kept(old: &LunEntry, new: &LunEntry, target: &str) -> bool {
    old.disk == new.disk && old.serial_at(target) == new.serial_at(target) && (old.read_only || !new.read_only)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lunette_target::Parameters;

    use super::*;
    use crate::config::{diff, parse};

    fn session(initiator: &str, host: &str) -> SessionStatus {
        SessionStatus {
            tsih: 1,
            isid: String::new(),
            initiator: initiator.into(),
            target: Some("iqn.a".into()),
            host: Some(host.into()),
            user: None,
            identities: Arc::default(),
            chap_algorithm: None,
            portal_group: 1,
            peers: vec!["192.0.2.7:1".parse().unwrap()],
            portals: vec!["192.0.2.1:3260".parse().unwrap()],
            age: Duration::ZERO,
            commands: 0,
            parameters: Parameters::default(),
        }
    }

    /// The effects on the session of all changes between two tables of target `iqn.a`.
    fn between(old: &str, new: &str, session: &SessionStatus) -> Vec<Effect> {
        let config = |rest: &str| parse(&format!("[[target]]\nname = \"iqn.b\"\n{rest}")).unwrap();
        let (old, new) = (config(old), config(new));
        let changes = diff::between(&old, &new).unwrap();
        changes.iter().filter_map(|change| noticed(change, &old, &new, session)).collect()
    }

    const LUNS: &str =
        "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"mem:1M\" }, { number = 1, disk = \"/d\" }]\n";
    const ONE: &str = "[[target]]\nname = \"iqn.a\"\nlun = [{ number = 0, disk = \"mem:1M\" }]\n";

    #[test]
    fn sessions_of_the_target_notice_its_luns() {
        let plain = session("iqn.i", "");
        assert_eq!(between(LUNS, ONE, &plain), [LUN_REMOVED]);
        assert_eq!(between(ONE, LUNS, &plain), [LUN_ADDED]);
        for (keys, expected) in [
            ("\"/e\"", REPLACED),
            ("\"/d\", serial = \"S\"", REPLACED),
            ("\"/d\", read_only = true", REPLACED),
            ("\"/d\", sanitize_rate = \"100M\"", SETTINGS_CHANGED),
        ] {
            assert_eq!(between(LUNS, &LUNS.replace("\"/d\"", keys), &plain), [expected], "{keys}");
        }
        assert_eq!(between(LUNS, &LUNS.replace("\"/d\"", "\"/d\", create = \"1G\""), &plain), [RESIZED]);
        assert_eq!(between(LUNS, "", &plain), [LOGOUT]);
        let other = SessionStatus { target: Some("iqn.b".into()), ..plain };
        assert_eq!(between(LUNS, "", &other), []);
    }

    #[test]
    fn sessions_of_a_portal_notice_its_end() {
        let config = |listen: &str| parse(&format!("listen = [{listen}]\n{ONE}")).unwrap();
        let noticed_without = |portal: &str| {
            let (old, new) = (config(&format!("\"{portal}\", \"198.51.100.1:1\"")), config("\"198.51.100.1:1\""));
            let changes = diff::between(&old, &new).unwrap();
            let session = session("iqn.i", "");
            changes.iter().filter_map(|change| noticed(change, &old, &new, &session)).count()
        };
        for (portal, count) in [("192.0.2.1", 1), ("0.0.0.0", 1), ("192.0.2.2", 0), ("192.0.2.1:3261", 0)] {
            assert_eq!(noticed_without(portal), count, "{portal}");
        }
    }

    #[test]
    fn only_initiators_that_lose_their_place_are_asked_to_log_out() {
        let plain = session("iqn.i", "");
        let allow = |who: &str| format!("{ONE}allow = [\"{who}\"]");
        assert_eq!(between(ONE, &allow("iqn.other"), &plain), [LOGOUT]);
        assert_eq!(between(ONE, &allow("iqn.i"), &plain), []);
        assert_eq!(between(ONE, &format!("{ONE}redirect = {{ to = [\"192.0.2.9\"] }}"), &plain), [MOVED]);
    }

    #[test]
    fn hosts_notice_what_concerns_them() {
        let hosts = |h: &str| format!("{LUNS}[[target.host]]\nname = \"h\"\n{h}\n[[target.host]]\nname = \"rest\"");
        let old = hosts("initiators = [\"iqn.i\"]\nlun = [{ number = 1 }]");
        let (of_h, of_rest) = (session("iqn.i", "h"), session("iqn.x", "rest"));
        let read_only = hosts("initiators = [\"iqn.i\"]\nlun = [{ number = 1, read_only = true }]");
        assert_eq!(between(&old, &read_only, &of_h), [MAP_NARROWED]);
        assert_eq!(between(&read_only, &old, &of_h), [MAP_CHANGED]);
        for (luns, expected) in [
            ("[{ number = 1 }, { number = 0 }]", MAP_CHANGED),
            ("[{ number = 1, as = 7 }]", MAP_NARROWED),
            ("[]", MAP_NARROWED),
        ] {
            let other = hosts(&format!("initiators = [\"iqn.i\"]\nlun = {luns}"));
            assert_eq!(between(&old, &other, &of_h), [expected], "{luns}");
        }
        assert_eq!(between(&old, &read_only, &of_rest), []);
        assert_eq!(between(&old, &hosts("initiators = [\"iqn.j\"]\nlun = [{ number = 1 }]"), &of_h), [LOGOUT]);
        let without_h = format!("{LUNS}[[target.host]]\nname = \"rest\"");
        let stale = session("iqn.i", "");
        let noticed_of = |session| between(&old, &without_h, session);
        assert_eq!((noticed_of(&of_h), noticed_of(&stale)), (vec![LOGOUT], vec![]), "of another host, or none");
        let without_0 = old.replace("{ number = 0, disk = \"mem:1M\" }, ", "");
        assert_eq!(between(&old, &without_0, &of_h), [], "it does not see LUN 0");
        assert_eq!(between(&old, &without_0, &of_rest), [LUN_REMOVED]);
    }
}
