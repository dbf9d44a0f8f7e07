//! Sessions, and the rules by which logins create, join and replace them (RFC 7143 sections 4.4.3 and 6.3.5).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lunette_pdu::{Cid, Isid, LoginStatus, SerialNumber, Tsih};

use super::directory::TargetNode;
use super::window::CommandWindow;
use crate::keys::Parameters;
use crate::limits::{MAX_SESSION_TABLES, max_table_sessions};

/// What is common to the connections of a session.
#[derive(Debug)]
pub struct Session {
    /// The initiator's iSCSI name.
    pub initiator_name: String,
    /// The CHAP user that its first login proved to be; `None` when no proof was asked for. All of the session's connections belong
    /// to that user.
    pub chap_user: Option<String>,
    /// The initiator's part of the session's name.
    pub isid: Isid,
    /// Our part of the session's name.
    pub tsih: Tsih,
    /// The target; `None` in a discovery session.
    pub target: Option<Arc<TargetNode>>,
    /// The portal group that the session uses.
    pub portal_group: u16,
    /// Session-wide parameters, as the leading connection negotiated them.
    pub parameters: Parameters,
    window: Mutex<CommandWindow>,
}

impl Session {
    /// Whether other connections may bring commands: beside this one, or after it was lost.
    pub(crate) fn may_have_siblings(&self) -> bool {
        self.parameters.max_connections > 1 || self.recovers_connections()
    }

    /// Whether the session outlives the loss of a connection (ErrorRecoveryLevel 2): its tasks wait to be taken over by
    /// another one.
    pub fn recovers_connections(&self) -> bool {
        self.parameters.error_recovery_level >= 2
    }

    /// How long the tasks of a lost connection wait for that (RFC 7143 sections 13.15 and 13.16): Time2Retain begins when
    /// Time2Wait is over. With a Time2Retain of 0 they do not wait.
    pub(crate) fn recovery_time(&self) -> Option<Duration> {
        let Parameters { time2wait_s, time2retain_s, .. } = &self.parameters;
        let time = Duration::from_secs(u64::from(*time2wait_s) + u64::from(*time2retain_s));
        (self.recovers_connections() && *time2retain_s > 0).then_some(time)
    }

    /// Whether commands may come before others that have smaller numbers: over another connection, or because a damaged PDU
    /// was discarded and comes again.
    pub(crate) fn may_have_gaps(&self) -> bool {
        self.may_have_siblings() || self.parameters.error_recovery_level > 0
    }

    pub(crate) fn window(&self) -> MutexGuard<'_, CommandWindow> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the next command that is to be delivered: those before it have come.
    pub fn exp_cmd_sn(&self) -> SerialNumber {
        self.window().exp_cmd_sn()
    }

    /// ExpCmdSN and MaxCmdSN, as every PDU of the target reports them.
    pub(crate) fn command_numbers(&self) -> (SerialNumber, SerialNumber) {
        let mut window = self.window();
        (window.exp_cmd_sn(), window.max_cmd_sn())
    }
}

/// A login that has passed all stages and asks to become, or to join, a session.
#[derive(Debug, Clone)]
pub struct AdmitRequest {
    /// The initiator's iSCSI name.
    pub initiator_name: String,
    /// The CHAP user that the initiator proved to be; `None` when no proof was asked for.
    pub chap_user: Option<String>,
    /// From the login's header.
    pub isid: Isid,
    /// Zero asks for a new session.
    pub tsih: Tsih,
    /// The connection's number within its session.
    pub cid: Cid,
    /// The target; `None` in a discovery session.
    pub target: Option<Arc<TargetNode>>,
    /// The portal group of the portal that the connection came through.
    pub portal_group: u16,
    /// The first command number of a new session.
    pub cmd_sn: SerialNumber,
    /// What the initiator has received on the connection of that number, when the login takes its place (RFC 7143 section
    /// 11.12.9).
    pub exp_stat_sn: SerialNumber,
    /// As negotiated.
    pub parameters: Parameters,
}

/// What an admitted login has to do with others.
#[derive(Debug)]
pub struct Admitted<H> {
    /// The session that the connection belongs to from now on.
    pub session: Arc<Session>,
    /// Connections that it replaces. End them, with their tasks, before the login is answered.
    pub displaced: Vec<H>,
    /// The connection that it takes the place of at recovery level 2: this is its logout for recovery (RFC 7143 section
    /// 6.3.4). Its tasks wait to be taken over.
    pub detached: Option<H>,
}

struct Entry<H> {
    session: Arc<Session>,
    connections: Vec<(Cid, H)>,
    /// Lost connections whose tasks wait. The number is theirs until they are logged out.
    suspended: Vec<(Option<Cid>, H)>,
}

impl<H: Copy + PartialEq> Entry<H> {
    fn is_over(&self) -> bool {
        self.connections.is_empty() && self.suspended.is_empty()
    }

    fn members(&self) -> impl Iterator<Item = H> {
        self.connections.iter().map(|(_, handle)| *handle).chain(self.suspended.iter().map(|(_, handle)| *handle))
    }

    /// Takes out the connection of that number, served or lost.
    fn take(&mut self, cid: Cid) -> Option<H> {
        if let Some(at) = self.connections.iter().position(|(known, _)| *known == cid) {
            return Some(self.connections.swap_remove(at).1);
        }
        let at = self.suspended.iter().position(|(known, _)| *known == Some(cid))?;
        Some(self.suspended.remove(at).1)
    }

    /// Connections that may be served at one time. At recovery level 2 there is a second one in any case, to log out a first
    /// one that was lost (RFC 7143 section 6.3.4).
    fn most_connections(&self) -> usize {
        let least = if self.session.recovers_connections() { 2 } else { 1 };
        self.session.parameters.max_connections.max(least) as usize
    }
}

/// The sessions of a daemon. `H` is how the driver calls a connection.
pub struct Sessions<H> {
    by_tsih: HashMap<Tsih, Entry<H>>,
    last_tsih: u16,
    /// The remainder of all numbers by `sharers`.
    share: u16,
    sharers: u16,
}

impl<H: Copy + PartialEq> Default for Sessions<H> {
    fn default() -> Self {
        Self::sharing(0, 1)
    }
}

impl<H: Copy + PartialEq> Sessions<H> {
    /// One of `sharers` tables of a daemon: the remainder of a TSIH by `sharers` is the `share` of the table that the session
    /// is in. There may be [`MAX_SESSION_TABLES`].
    pub fn sharing(share: usize, sharers: usize) -> Self {
        debug_assert!(share < sharers && sharers <= MAX_SESSION_TABLES);
        let (share, sharers) = (share as u16, sharers as u16);
        Self { by_tsih: HashMap::new(), last_tsih: share, share, sharers }
    }

    /// Decides on a login: a new session, one that replaces an older of the same name (reinstatement), or one more
    /// connection of a session that exists.
    ///
    /// A session belongs to the CHAP user that began it. The login of another user neither joins nor replaces it, so a name and a TSIH
    /// that were overheard give no access to its commands. A user that the target does not let in any more keeps nothing: its session
    /// may be replaced.
    ///
    /// # Errors
    ///
    /// The login status to refuse it with. A session of another user is not told from one that does not exist, except by a login that
    /// would replace it.
    pub fn admit(&mut self, request: &AdmitRequest, connection: H) -> Result<Admitted<H>, LoginStatus> {
        if request.tsih == Tsih::NEW { self.open(request, connection) } else { self.join(request, connection) }
    }

    fn open(&mut self, request: &AdmitRequest, connection: H) -> Result<Admitted<H>, LoginStatus> {
        let same_nexus = self.same_nexus(request);
        if let Some((_, entry)) = same_nexus
            && !may_replace(&entry.session, request)
        {
            return Err(LoginStatus::AUTHORIZATION_FAILURE);
        }
        let replaced = same_nexus.map(|(tsih, _)| tsih).and_then(|tsih| self.by_tsih.remove(&tsih));
        let tsih = self.free_tsih().ok_or(LoginStatus::OUT_OF_RESOURCES)?;
        let session = Arc::new(Session {
            initiator_name: request.initiator_name.clone(),
            chap_user: request.chap_user.clone(),
            isid: request.isid,
            tsih,
            target: request.target.clone(),
            portal_group: request.portal_group,
            parameters: request.parameters.clone(),
            window: Mutex::new(CommandWindow::new(request.cmd_sn)),
        });
        let connections = vec![(request.cid, connection)];
        self.by_tsih.insert(tsih, Entry { session: Arc::clone(&session), connections, suspended: Vec::new() });
        let displaced = replaced.iter().flat_map(Entry::members).collect();
        Ok(Admitted { session, displaced, detached: None })
    }

    fn join(&mut self, request: &AdmitRequest, connection: H) -> Result<Admitted<H>, LoginStatus> {
        let entry = self
            .by_tsih
            .get_mut(&request.tsih)
            .filter(|entry| same_name(&entry.session, request) && entry.session.chap_user == request.chap_user)
            .ok_or(LoginStatus::SESSION_DOES_NOT_EXIST)?;
        let is_new = entry.connections.iter().all(|(cid, _)| *cid != request.cid);
        if is_new && entry.connections.len() >= entry.most_connections() {
            return Err(LoginStatus::TOO_MANY_CONNECTIONS);
        }
        let old = entry.take(request.cid);
        let (displaced, detached) = if entry.session.recovers_connections() { (None, old) } else { (old, None) };
        entry.suspended.extend(detached.map(|handle| (None, handle)));
        entry.connections.push((request.cid, connection));
        let session = Arc::clone(&entry.session);
        Ok(Admitted { session, displaced: displaced.into_iter().collect(), detached })
    }

    /// A connection has ended. True when its session ended with it.
    pub fn remove(&mut self, tsih: Tsih, connection: H) -> bool {
        let Some(entry) = self.by_tsih.get_mut(&tsih) else { return false };
        entry.connections.retain(|(_, handle)| *handle != connection);
        entry.suspended.retain(|(_, handle)| *handle != connection);
        let ended = entry.is_over();
        if ended {
            self.by_tsih.remove(&tsih);
        }
        ended
    }

    /// The session has ended: gives the connections that it still had, those that wait to be recovered among them.
    pub fn end(&mut self, tsih: Tsih) -> Vec<H> {
        self.by_tsih.remove(&tsih).iter().flat_map(Entry::members).collect()
    }

    /// A connection is lost and waits to be recovered. It keeps its number until it is logged out.
    pub fn suspend(&mut self, tsih: Tsih, connection: H) {
        let Some(entry) = self.by_tsih.get_mut(&tsih) else { return };
        let lost: Vec<_> = entry.connections.extract_if(.., |(_, handle)| *handle == connection).collect();
        entry.suspended.extend(lost.into_iter().map(|(cid, handle)| (Some(cid), handle)));
    }

    /// A connection is logged out for recovery: its number is free.
    pub fn detach(&mut self, tsih: Tsih, connection: H) {
        self.suspend(tsih, connection);
        let Some(entry) = self.by_tsih.get_mut(&tsih) else { return };
        for (cid, _) in entry.suspended.iter_mut().filter(|(_, handle)| *handle == connection) {
            *cid = None;
        }
    }

    /// The connection of that number: one that is served, or that is lost and not logged out.
    pub fn find(&self, tsih: Tsih, cid: Cid) -> Option<H> {
        let entry = self.by_tsih.get(&tsih)?;
        let served = entry.connections.iter().find(|(known, _)| *known == cid).map(|(_, handle)| *handle);
        served.or_else(|| entry.suspended.iter().find(|(known, _)| *known == Some(cid)).map(|(_, handle)| *handle))
    }

    /// The lost connections of a session whose tasks wait to be taken over, the first lost first. The number is there when
    /// the connection has not been logged out.
    pub fn suspended(&self, tsih: Tsih) -> &[(Option<Cid>, H)] {
        self.by_tsih.get(&tsih).map(|entry| entry.suspended.as_slice()).unwrap_or_default()
    }

    /// All connections of a session, served and lost.
    pub fn members(&self, tsih: Tsih) -> impl Iterator<Item = H> {
        self.by_tsih.get(&tsih).into_iter().flat_map(Entry::members)
    }

    /// The connections of a session that are served, with their numbers.
    pub fn connections(&self, tsih: Tsih) -> &[(Cid, H)] {
        self.by_tsih.get(&tsih).map(|entry| entry.connections.as_slice()).unwrap_or_default()
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.by_tsih.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_tsih.is_empty()
    }

    /// A normal session is the nexus of an initiator port and a target portal group; two at a time cannot be. Discovery
    /// sessions reach no target and may be as many as come.
    fn same_nexus(&self, request: &AdmitRequest) -> Option<(Tsih, &Entry<H>)> {
        request.target.as_ref()?;
        let mut entries = self.by_tsih.iter().map(|(tsih, entry)| (*tsih, entry));
        entries.find(|(_, entry)| same_name(&entry.session, request))
    }

    fn free_tsih(&mut self) -> Option<Tsih> {
        if self.by_tsih.len() >= max_table_sessions(self.sharers.into()) {
            return None;
        }
        loop {
            self.last_tsih = self.last_tsih.checked_add(self.sharers).unwrap_or(self.share);
            let tsih = Tsih(self.last_tsih);
            if tsih != Tsih::NEW && !self.by_tsih.contains_key(&tsih) {
                return Some(tsih);
            }
        }
    }
}

/// Whether the session is the requesting user's own, or that of a user whom the target would not let in any more.
fn may_replace(session: &Session, request: &AdmitRequest) -> bool {
    let owner_is_known = |target: &Arc<TargetNode>| target.authentication.lets_in(session.chap_user.as_deref());
    session.chap_user == request.chap_user || !request.target.as_ref().is_some_and(owner_is_known)
}

fn same_name(session: &Session, request: &AdmitRequest) -> bool {
    let name = |target: &Option<Arc<TargetNode>>| target.as_ref().map(|t| t.name.clone());
    session.initiator_name.eq_ignore_ascii_case(&request.initiator_name)
        && session.isid == request.isid
        && session.portal_group == request.portal_group
        && name(&session.target) == name(&request.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authentication, Credentials, Secret};

    fn request(initiator: &str, isid: u8, tsih: Tsih, cid: u16) -> AdmitRequest {
        let node = TargetNode {
            name: "iqn.2026-11.example:t".into(),
            alias: None,
            authentication: crate::Authentication::None,
            initiators: None,
            portals: Vec::new(),
            offer: crate::keys::Offer::default(),
            moved: None,
        };
        AdmitRequest {
            initiator_name: initiator.into(),
            chap_user: None,
            isid: Isid([0, 0, 0, 0, 0, isid]),
            tsih,
            cid: Cid(cid),
            target: Some(Arc::new(node)),
            portal_group: 1,
            cmd_sn: SerialNumber(1),
            exp_stat_sn: SerialNumber(0),
            parameters: Parameters::default(),
        }
    }

    #[test]
    fn the_same_initiator_port_replaces_its_session() {
        let mut sessions = Sessions::default();
        let first = sessions.admit(&request("iqn.a", 1, Tsih::NEW, 0), 'a').unwrap();
        let second = sessions.admit(&request("IQN.A", 1, Tsih::NEW, 0), 'b').unwrap();
        assert_eq!(second.displaced, ['a']);
        assert_ne!(first.session.tsih, second.session.tsih);
        assert_eq!(sessions.len(), 1);
        assert!(!sessions.remove(first.session.tsih, 'a'), "the old session is gone already");
        assert!(sessions.remove(second.session.tsih, 'b'));
    }

    #[test]
    fn another_port_or_another_initiator_has_its_own_session() {
        let mut sessions = Sessions::default();
        for (n, (initiator, isid)) in [("iqn.a", 1), ("iqn.a", 2), ("iqn.b", 1)].into_iter().enumerate() {
            assert!(sessions.admit(&request(initiator, isid, Tsih::NEW, 0), n).unwrap().displaced.is_empty());
        }
        assert_eq!(sessions.len(), 3);
    }

    #[test]
    fn discovery_sessions_do_not_replace_each_other() {
        let mut sessions = Sessions::default();
        for n in 0..2 {
            let discovery = AdmitRequest { target: None, ..request("iqn.a", 1, Tsih::NEW, 0) };
            assert!(sessions.admit(&discovery, n).unwrap().displaced.is_empty());
        }
        assert_eq!(sessions.len(), 2);
    }

    #[test]
    fn a_tsih_must_name_a_session_of_the_same_initiator_port() {
        let mut sessions = Sessions::default();
        let tsih = sessions.admit(&request("iqn.a", 1, Tsih::NEW, 0), 'a').unwrap().session.tsih;
        for (initiator, isid, tsih) in [("iqn.a", 1, Tsih(tsih.0 + 1)), ("iqn.b", 1, tsih), ("iqn.a", 2, tsih)] {
            let refused = sessions.admit(&request(initiator, isid, tsih, 0), 'x');
            assert_eq!(refused.map(drop).unwrap_err(), LoginStatus::SESSION_DOES_NOT_EXIST);
        }
    }

    fn of_user(user: Option<&str>, request: AdmitRequest) -> AdmitRequest {
        AdmitRequest { chap_user: user.map(Into::into), ..request }
    }

    /// With a target that asks these users for a proof; with an empty list it asks for none.
    fn at_target_of(users: &[&str], request: AdmitRequest) -> AdmitRequest {
        let secret = |user: &&str| Credentials { user: (*user).into(), secret: Secret::new(vec![1; 12]) };
        let authentication = match users {
            [] => Authentication::None,
            users => Authentication::Chap { initiators: users.iter().map(secret).collect(), target: None },
        };
        let target = request.target.as_ref().map(|target| {
            let name = target.name.clone();
            let (offer, portals) = (target.offer.clone(), target.portals.clone());
            Arc::new(TargetNode { name, alias: None, authentication, initiators: None, portals, offer, moved: None })
        });
        AdmitRequest { target, ..request }
    }

    #[test]
    fn a_session_may_be_replaced_by_its_user_or_when_that_is_not_let_in_any_more() {
        /// The user that began the session, the user that asks, the users that are let in now, and whether the session is replaced.
        type Case<'a> = (Option<&'a str>, Option<&'a str>, &'a [&'a str], bool);
        let (alice, bob) = (Some("alice"), Some("bob"));
        let cases: &[Case<'_>] = &[
            (alice, alice, &["alice", "bob"], true),
            (alice, bob, &["alice", "bob"], false),
            (alice, bob, &["bob"], true),
            (alice, None, &[], true),
            (None, None, &[], true),
            (None, bob, &["bob"], true),
        ];
        for (owner, user, now, replaces) in cases {
            let mut sessions = Sessions::default();
            let first = of_user(*owner, request("iqn.a", 1, Tsih::NEW, 0));
            let tsih = sessions.admit(&first, 'a').unwrap().session.tsih;
            let second = at_target_of(now, of_user(*user, request("iqn.a", 1, Tsih::NEW, 0)));
            let displaced = sessions.admit(&second, 'b').map(|admitted| admitted.displaced);
            let expected = if *replaces { Ok(vec!['a']) } else { Err(LoginStatus::AUTHORIZATION_FAILURE) };
            assert_eq!(displaced, expected, "{owner:?}, then {user:?} of {now:?}");
            assert_eq!(sessions.find(tsih, Cid(0)).is_some(), !replaces);
        }
    }

    #[test]
    fn nobody_joins_the_session_of_another_user_whatever_is_configured() {
        for target in [true, false] {
            for now in [&["alice", "bob"][..], &["bob"]] {
                let mut sessions = Sessions::default();
                let node = |request: AdmitRequest| {
                    if target { at_target_of(now, request) } else { AdmitRequest { target: None, ..request } }
                };
                let first = node(of_user(Some("alice"), request("iqn.a", 1, Tsih::NEW, 0)));
                let tsih = sessions.admit(&first, 'a').unwrap().session.tsih;
                for (user, cid) in [(Some("bob"), 0), (Some("bob"), 1), (None, 0), (None, 1)] {
                    let refused = sessions.admit(&node(of_user(user, request("iqn.a", 1, tsih, cid))), 'b');
                    assert_eq!(refused.map(drop).unwrap_err(), LoginStatus::SESSION_DOES_NOT_EXIST);
                }
                assert_eq!(sessions.connections(tsih), [(Cid(0), 'a')]);
            }
        }
    }

    #[test]
    fn a_session_takes_no_more_connections_than_agreed_but_lets_one_be_replaced() {
        let mut sessions = Sessions::default();
        let tsih = sessions.admit(&request("iqn.a", 1, Tsih::NEW, 0), 'a').unwrap().session.tsih;
        let refused = sessions.admit(&request("iqn.a", 1, tsih, 1), 'b');
        assert_eq!(refused.map(drop).unwrap_err(), LoginStatus::TOO_MANY_CONNECTIONS);
        assert_eq!(sessions.admit(&request("iqn.a", 1, tsih, 0), 'c').unwrap().displaced, ['a']);
        assert!(sessions.remove(tsih, 'c'));
    }

    fn recoverable(tsih: Tsih, cid: u16) -> AdmitRequest {
        let parameters = Parameters { error_recovery_level: 2, time2retain_s: 20, ..Parameters::default() };
        AdmitRequest { parameters, ..request("iqn.a", 1, tsih, cid) }
    }

    #[test]
    fn a_lost_connection_keeps_its_session_and_its_number_until_it_is_logged_out() {
        let mut sessions = Sessions::default();
        let tsih = sessions.admit(&recoverable(Tsih::NEW, 0), 'a').unwrap().session.tsih;
        sessions.suspend(tsih, 'a');
        assert_eq!((sessions.connections(tsih), sessions.suspended(tsih)), (&[][..], &[(Some(Cid(0)), 'a')][..]));
        assert_eq!(sessions.find(tsih, Cid(0)), Some('a'));
        let joined = sessions.admit(&recoverable(tsih, 7), 'b').unwrap();
        assert!(joined.displaced.is_empty() && joined.detached.is_none());
        sessions.detach(tsih, 'a');
        assert_eq!(sessions.find(tsih, Cid(0)), None);
        assert_eq!(sessions.members(tsih).collect::<Vec<_>>(), ['b', 'a']);
        assert!(!sessions.remove(tsih, 'b'), "tasks wait");
        assert!(sessions.remove(tsih, 'a'));
    }

    #[test]
    fn at_level_2_a_login_with_the_number_of_another_connection_detaches_it() {
        for lost in [false, true] {
            let mut sessions = Sessions::default();
            let tsih = sessions.admit(&recoverable(Tsih::NEW, 0), 'a').unwrap().session.tsih;
            if lost {
                sessions.suspend(tsih, 'a');
            }
            let again = sessions.admit(&recoverable(tsih, 0), 'b').unwrap();
            assert_eq!((again.displaced.as_slice(), again.detached), (&[][..], Some('a')));
            assert_eq!(sessions.suspended(tsih), [(None, 'a')]);
            assert_eq!(sessions.connections(tsih), [(Cid(0), 'b')]);
            let new = sessions.admit(&recoverable(Tsih::NEW, 0), 'c').unwrap();
            assert_eq!(new.displaced, ['b', 'a'], "session reinstatement ends all of it");
        }
    }

    #[test]
    fn at_level_2_a_second_connection_may_come_to_log_out_the_first() {
        let mut sessions = Sessions::default();
        let tsih = sessions.admit(&recoverable(Tsih::NEW, 0), 'a').unwrap().session.tsih;
        assert!(sessions.admit(&recoverable(tsih, 1), 'b').is_ok());
        let third = sessions.admit(&recoverable(tsih, 2), 'c');
        assert_eq!(third.map(drop).unwrap_err(), LoginStatus::TOO_MANY_CONNECTIONS);
    }

    #[test]
    fn tsihs_are_never_zero_nor_taken_twice() {
        let mut sessions = Sessions { last_tsih: u16::MAX - 1, ..Sessions::default() };
        let taken: Vec<_> =
            (0..3).map(|n| sessions.admit(&request("iqn.a", n, Tsih::NEW, 0), n).unwrap().session.tsih).collect();
        assert_eq!(taken, [Tsih(u16::MAX), Tsih(1), Tsih(2)]);
    }
}
