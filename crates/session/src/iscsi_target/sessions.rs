//! The sessions of a daemon, and the rules by which logins create, join and replace them (RFC 7143 sections 4.4.3 and
//! 6.3.5).

mod handover;

use std::collections::HashMap;
use std::sync::Arc;

use lunette_pdu::{LoginStatus, Tsih};

use super::admit_request::AdmitRequest;
use super::connection::LoginConnection;
use super::directory::TargetNode;
use super::session::Session;
use super::session_info::SessionInfo;
use super::tasks::window::BufferShare;
use crate::Time;
use crate::limits::{MAX_EXTRA_COMMANDS, MAX_SESSION_TABLES, max_table_sessions};
use crate::name::is_same_name;

/// The relations of an admitted login to others.
#[derive(Debug)]
pub struct Admitted<H> {
    /// Takes the connection into its session, by [`Sessions::enter`].
    pub ticket: LoginTicket<H>,
    /// The session.
    pub session: Arc<SessionInfo>,
    /// Connections that it replaces. End them, with their tasks, before the login is answered.
    pub displaced: Vec<H>,
}

/// The right of one connection, whose login was admitted, to enter its session.
#[derive(Debug)]
pub struct LoginTicket<H> {
    session: SessionKey,
    connection: H,
}

impl<H> LoginTicket<H> {
    /// The session that it is in.
    pub fn session(&self) -> SessionKey {
        self.session
    }
}

/// Names a session among the [`Sessions`] of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey {
    index: usize,
    /// Numbers come again later than places.
    tsih: Tsih,
}

/// The sessions of a daemon. `H` is how the driver calls a connection.
pub struct Sessions<H> {
    slots: Vec<Option<Box<Session<H>>>>,
    /// The sessions that have not ended. One that has is kept until its last connection is [removed](Session::remove).
    by_tsih: HashMap<Tsih, SessionKey>,
    last_tsih: u16,
    /// The remainder of all numbers by `sharers`.
    remainder: u16,
    sharers: u16,
    /// Places in command windows beyond those that every session has: the sum of what the sessions have
    /// [counted](Session::count_places).
    extra_places: u32,
}

impl<H: Copy + PartialEq> Default for Sessions<H> {
    fn default() -> Self {
        Self::sharing(0, 1)
    }
}

impl<H: Copy + PartialEq> Sessions<H> {
    /// A table that is one of `sharers` tables of a daemon: the `remainder` of a TSIH by `sharers` tells the table that
    /// the session is in. There may be [`MAX_SESSION_TABLES`].
    pub fn sharing(remainder: usize, sharers: usize) -> Self {
        debug_assert!(remainder < sharers && sharers <= MAX_SESSION_TABLES);
        let (remainder, sharers) = (remainder as u16, sharers as u16);
        Self { slots: Vec::new(), by_tsih: HashMap::new(), last_tsih: remainder, remainder, sharers, extra_places: 0 }
    }

    /// The session of that name, also when it has ended and its last PDUs are on their way.
    #[inline]
    pub fn get(&self, key: SessionKey) -> Option<&Session<H>> {
        self.slots.get(key.index)?.as_deref().filter(|session| session.info().tsih == key.tsih)
    }

    /// The session, for changes.
    #[inline]
    pub fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session<H>> {
        self.slots.get_mut(key.index)?.as_deref_mut().filter(|session| session.info().tsih == key.tsih)
    }

    /// Decides on a login: a new session, one that replaces an older of the same name (reinstatement), or one more
    /// connection of a session that exists.
    ///
    /// A session belongs to the CHAP user, the certificate and the host that began it. The login of another neither
    /// joins nor replaces it, so a name and a TSIH that were overheard give no access to its commands. A user or host
    /// that the target does not let in any more keeps nothing: its session may be replaced.
    ///
    /// # Errors
    ///
    /// The login status to refuse it with. A session of another user is not told from one that does not exist, except
    /// by a login that would replace it.
    pub fn admit(&mut self, request: &AdmitRequest, connection: H, now: Time) -> Result<Admitted<H>, LoginStatus> {
        if request.tsih == Tsih::NEW { self.open(request, connection) } else { self.join(request, connection, now) }
    }

    /// Takes a login that was admitted into its session. The response goes out, and the connection is in its full
    /// feature phase. `None`, and the login is dropped, when its place is gone: it was replaced meanwhile.
    pub fn enter(
        &mut self,
        LoginTicket { session, connection }: LoginTicket<H>,
        login: LoginConnection,
        now: Time,
    ) -> Option<SessionKey> {
        self.get_mut(session)?.enter(connection, login, now).then_some(session)
    }

    fn open(&mut self, request: &AdmitRequest, connection: H) -> Result<Admitted<H>, LoginStatus> {
        let replaced = self.same_nexus(request);
        if let Some(session) = replaced.and_then(|key| self.get(key))
            && !may_replace(session.info(), request)
        {
            return Err(LoginStatus::AUTHORIZATION_FAILURE);
        }
        let displaced = replaced.map(|key| self.end(key)).unwrap_or_default();
        let tsih = self.free_tsih().ok_or(LoginStatus::OUT_OF_RESOURCES)?;
        let session = Session::new(request, tsih, connection);
        let info = Arc::clone(session.info());
        let index = self.free_slot();
        self.slots[index] = Some(Box::new(session));
        let key = SessionKey { index, tsih };
        self.by_tsih.insert(tsih, key);
        Ok(Admitted { ticket: LoginTicket { session: key, connection }, session: info, displaced })
    }

    fn join(&mut self, request: &AdmitRequest, connection: H, now: Time) -> Result<Admitted<H>, LoginStatus> {
        let key = self.find(request.tsih).ok_or(LoginStatus::SESSION_DOES_NOT_EXIST)?;
        let may_join = |session: &&mut Session<H>| {
            let info = session.info();
            same_name(info, request) && is_of_same(info, request) && info.host == request.host()
        };
        let session = self.get_mut(key).filter(may_join).ok_or(LoginStatus::SESSION_DOES_NOT_EXIST)?;
        let replaced = session.join(request, connection, now)?;
        let (session, ticket) = (Arc::clone(session.info()), LoginTicket { session: key, connection });
        Ok(Admitted { ticket, session, displaced: replaced.into_iter().collect() })
    }

    /// A connection has ended. What is ready is still to be sent, until it is [removed](Self::remove).
    pub fn leave(&mut self, key: SessionKey, connection: H) {
        let Some(session) = self.get_mut(key) else { return };
        session.leave(connection);
        if session.is_over() {
            self.by_tsih.remove(&key.tsih);
        }
    }

    /// A connection is gone, and so is what it had to send.
    pub fn remove(&mut self, key: SessionKey, connection: H) {
        self.leave(key, connection);
        let Some(session) = self.get_mut(key) else { return };
        session.remove(connection);
        if session.is_empty() {
            self.extra_places -= session.counted_places();
            self.slots[key.index] = None;
        }
    }

    /// Lets the command window of a session follow its use, within what the shares of the buffers of its connections
    /// carry. To be called when PDUs of the session have been dealt with, as soon as a connection has as many commands
    /// under way as the last call gave.
    pub fn fit_window(&mut self, key: SessionKey, share_of: impl Fn(H) -> Option<BufferShare>) -> usize {
        // No more than it leaves free.
        self.change_window(key, |session, others| {
            session.fit_window(share_of, MAX_EXTRA_COMMANDS.saturating_sub(others) / 2)
        })
    }

    /// Takes places of the command window of a session back that have not been used for long. To be called when a
    /// connection of it has been told the time; what it gives holds for each of them.
    pub fn narrow_unused_window(&mut self, key: SessionKey, now: Time) -> usize {
        self.change_window(key, |session, _| session.narrow_unused_window(now))
    }

    /// Counts the places of a session again after a change, which is told how many the others have.
    fn change_window(&mut self, key: SessionKey, change: impl FnOnce(&mut Session<H>, u32) -> usize) -> usize {
        let all = self.extra_places;
        let Some(session) = self.get_mut(key) else { return usize::MAX };
        let others = all - session.counted_places();
        let used_again = change(session, others);
        self.extra_places = others + session.count_places();
        used_again
    }

    /// The session has ended: gives the connections that it still had, those that wait to be recovered among them.
    fn end(&mut self, key: SessionKey) -> Vec<H> {
        self.by_tsih.remove(&key.tsih);
        let Some(session) = self.get_mut(key) else { return Vec::new() };
        session.end()
    }

    /// The session of that number, unless it has ended.
    pub(super) fn find(&self, tsih: Tsih) -> Option<SessionKey> {
        let key = self.by_tsih.get(&tsih).copied()?;
        self.get(key).is_some_and(|session| !session.is_over()).then_some(key)
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
    fn same_nexus(&self, request: &AdmitRequest) -> Option<SessionKey> {
        request.admission.as_ref()?;
        let is_same = |key: &&SessionKey| self.get(**key).is_some_and(|session| same_name(session.info(), request));
        self.by_tsih.values().find(is_same).copied()
    }

    /// A slot without a session.
    fn free_slot(&mut self) -> usize {
        self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        })
    }

    fn free_tsih(&mut self) -> Option<Tsih> {
        if self.by_tsih.len() >= max_table_sessions(self.sharers.into()) {
            return None;
        }
        loop {
            self.last_tsih = self.last_tsih.checked_add(self.sharers).unwrap_or(self.remainder);
            let tsih = Tsih(self.last_tsih);
            if tsih != Tsih::NEW && !self.by_tsih.contains_key(&tsih) {
                return Some(tsih);
            }
        }
    }
}

/// Whether the session is the requesting user's and host's own, or that of a user or host that the target would not let
/// in any more.
fn may_replace(session: &SessionInfo, request: &AdmitRequest) -> bool {
    let owner_is_known = |target: &Arc<TargetNode>| target.lets_in(session.chap_user.as_deref());
    let host_is_known =
        |target: &Arc<TargetNode>| target.hosts.iter().any(|host| Some(&host.name) == session.host.as_ref());
    (is_of_same(session, request) || !request.target().is_some_and(owner_is_known))
        && (session.host == request.host() || !request.target().is_some_and(host_is_known))
}

/// Whether user and certificate are those of the session.
fn is_of_same(session: &SessionInfo, request: &AdmitRequest) -> bool {
    session.chap_user == request.chap_user && session.origin.names() == request.origin.names()
}

fn same_name(session: &SessionInfo, request: &AdmitRequest) -> bool {
    let name = |target: Option<&Arc<TargetNode>>| target.map(|target| target.name.clone());
    is_same_name(&session.initiator_name, &request.initiator_name)
        && session.isid == request.isid
        && session.portal_group == request.portal_group
        && name(session.target.as_ref()) == name(request.target())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use lunette_pdu::{Cid, Isid, SerialNumber};

    use super::*;
    use crate::iscsi_target::directory::Admission;
    use crate::iscsi_target::hosts::Host;
    use crate::iscsi_target::origin::Origin;
    use crate::keys::Parameters;
    use crate::{Authentication, ChapAlgorithms, Credentials, ProvenSecrets, Secret};

    const NOW: Time = Time::new(std::time::Duration::from_secs(1));

    fn session<H: Copy + PartialEq>(sessions: &mut Sessions<H>, tsih: Tsih) -> &mut Session<H> {
        let key = sessions.find(tsih).unwrap();
        sessions.get_mut(key).unwrap()
    }

    /// True when the session ended with it.
    fn leaves(sessions: &mut Sessions<char>, tsih: Tsih, connection: char) -> bool {
        let Some(key) = sessions.find(tsih) else { return false };
        sessions.leave(key, connection);
        sessions.find(tsih).is_none()
    }

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn admission(node: TargetNode) -> Admission {
        Arc::new(node).admit("iqn.any", &PEER.into()).unwrap()
    }

    fn request(initiator: &str, isid: u8, tsih: Tsih, cid: u16) -> AdmitRequest {
        let node = TargetNode {
            name: "iqn.2026-11.example:t".into(),
            alias: None,
            authentication: crate::Authentication::None,
            hosts: vec![Arc::new(Host::everyone())],
            portals: Vec::new(),
            offer: crate::keys::Offer::default(),
            moved: None,
        };
        AdmitRequest {
            initiator_name: initiator.into(),
            chap_user: None,
            secrets: ProvenSecrets::default(),
            isid: Isid([0, 0, 0, 0, 0, isid]),
            tsih,
            cid: Cid(cid),
            admission: Some(admission(node)),
            origin: PEER.into(),
            portal_group: 1,
            cmd_sn: SerialNumber(1),
            exp_stat_sn: SerialNumber(0),
            parameters: Parameters::default(),
        }
    }

    #[test]
    fn the_same_initiator_port_replaces_its_session() {
        let mut sessions = Sessions::default();
        let first = sessions.admit(&request("iqn.a", 1, Tsih::NEW, 0), 'a', NOW).unwrap();
        let second = sessions.admit(&request("IQN.A", 1, Tsih::NEW, 0), 'b', NOW).unwrap();
        assert_eq!(second.displaced, ['a']);
        assert_ne!(first.session.tsih, second.session.tsih);
        assert_eq!(sessions.len(), 1);
        assert!(!leaves(&mut sessions, first.session.tsih, 'a'), "the old session is gone already");
        assert!(leaves(&mut sessions, second.session.tsih, 'b'));
    }

    #[test]
    fn another_port_or_another_initiator_has_its_own_session() {
        let mut sessions = Sessions::default();
        for (n, (initiator, isid)) in [("iqn.a", 1), ("iqn.a", 2), ("iqn.b", 1)].into_iter().enumerate() {
            assert!(sessions.admit(&request(initiator, isid, Tsih::NEW, 0), n, NOW).unwrap().displaced.is_empty());
        }
        assert_eq!(sessions.len(), 3);
    }

    #[test]
    fn discovery_sessions_do_not_replace_each_other() {
        let mut sessions = Sessions::default();
        for n in 0..2 {
            let discovery = AdmitRequest { admission: None, ..request("iqn.a", 1, Tsih::NEW, 0) };
            assert!(sessions.admit(&discovery, n, NOW).unwrap().displaced.is_empty());
        }
        assert_eq!(sessions.len(), 2);
    }

    #[test]
    fn a_tsih_must_name_a_session_of_the_same_initiator_port() {
        let mut sessions = Sessions::default();
        let tsih = sessions.admit(&request("iqn.a", 1, Tsih::NEW, 0), 'a', NOW).unwrap().session.tsih;
        for (initiator, isid, tsih) in [("iqn.a", 1, Tsih(tsih.0 + 1)), ("iqn.b", 1, tsih), ("iqn.a", 2, tsih)] {
            let refused = sessions.admit(&request(initiator, isid, tsih, 0), 'x', NOW);
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
            users => Authentication::Chap {
                initiators: users.iter().map(secret).collect(),
                target: None,
                algorithms: ChapAlgorithms::ALL,
            },
        };
        let admission = request.target().map(|target| {
            let name = target.name.clone();
            let (offer, portals) = (target.offer.clone(), target.portals.clone());
            let hosts = vec![Arc::new(Host::everyone())];
            admission(TargetNode { name, alias: None, authentication, hosts, portals, offer, moved: None })
        });
        AdmitRequest { admission, ..request }
    }

    #[test]
    fn a_session_may_be_replaced_by_its_user_or_when_that_is_not_let_in_any_more() {
        /// The user that began the session, the user that asks, the users that are let in now, and whether the session
        /// is replaced.
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
            let tsih = sessions.admit(&first, 'a', NOW).unwrap().session.tsih;
            let second = at_target_of(now, of_user(*user, request("iqn.a", 1, Tsih::NEW, 0)));
            let displaced = sessions.admit(&second, 'b', NOW).map(|admitted| admitted.displaced);
            let expected = if *replaces { Ok(vec!['a']) } else { Err(LoginStatus::AUTHORIZATION_FAILURE) };
            assert_eq!(displaced, expected, "{owner:?}, then {user:?} of {now:?}");
            assert_eq!(sessions.find(tsih).is_some(), !replaces);
        }
    }

    /// The request of an initiator of `host`, at a target that has these hosts now.
    fn of_host(host: &str, now: &[&str], request: AdmitRequest) -> AdmitRequest {
        let named = |name: &&str| Arc::new(Host { name: (*name).into(), ..Host::everyone() });
        let Admission { target, .. } = request.admission.clone().unwrap();
        let TargetNode { name, offer, .. } = &*target;
        let target = Arc::new(TargetNode {
            name: name.clone(),
            alias: None,
            authentication: Authentication::None,
            hosts: now.iter().map(named).collect(),
            portals: Vec::new(),
            offer: offer.clone(),
            moved: None,
        });
        AdmitRequest { admission: Some(Admission { target, host: named(&host) }), ..request }
    }

    #[test]
    fn a_session_is_that_of_its_host() {
        let first = of_host("one", &["one", "two"], request("iqn.a", 1, Tsih::NEW, 0));
        for (host, now, may_replace) in
            [("one", &["one", "two"][..], true), ("two", &["one", "two"], false), ("two", &["two"], true)]
        {
            let mut sessions = Sessions::default();
            let tsih = sessions.admit(&first, 'a', NOW).unwrap().session.tsih;
            let joins = sessions.admit(&of_host(host, now, request("iqn.a", 1, tsih, 0)), 'b', NOW);
            assert_eq!(joins.map(drop).err(), (host != "one").then_some(LoginStatus::SESSION_DOES_NOT_EXIST));
            let replaces = sessions.admit(&of_host(host, now, request("iqn.a", 1, Tsih::NEW, 0)), 'c', NOW);
            assert_eq!(replaces.map(drop).err(), (!may_replace).then_some(LoginStatus::AUTHORIZATION_FAILURE));
        }
    }

    #[test]
    fn nobody_joins_the_session_of_another_user_whatever_is_configured() {
        for target in [true, false] {
            for now in [&["alice", "bob"][..], &["bob"]] {
                let mut sessions = Sessions::default();
                let node = |request: AdmitRequest| {
                    if target { at_target_of(now, request) } else { AdmitRequest { admission: None, ..request } }
                };
                let first = node(of_user(Some("alice"), request("iqn.a", 1, Tsih::NEW, 0)));
                let tsih = sessions.admit(&first, 'a', NOW).unwrap().session.tsih;
                for (user, cid) in [(Some("bob"), 0), (Some("bob"), 1), (None, 0), (None, 1)] {
                    let refused = sessions.admit(&node(of_user(user, request("iqn.a", 1, tsih, cid))), 'b', NOW);
                    assert_eq!(refused.map(drop).unwrap_err(), LoginStatus::SESSION_DOES_NOT_EXIST);
                }
                let session = session(&mut sessions, tsih);
                assert_eq!((session.connections().collect::<Vec<_>>(), session.find(Cid(0))), (vec!['a'], Some('a')));
            }
        }
    }

    #[test]
    fn a_session_takes_no_more_connections_than_agreed_but_lets_one_be_replaced() {
        let mut sessions = Sessions::default();
        let tsih = sessions.admit(&request("iqn.a", 1, Tsih::NEW, 0), 'a', NOW).unwrap().session.tsih;
        let refused = sessions.admit(&request("iqn.a", 1, tsih, 1), 'b', NOW);
        assert_eq!(refused.map(drop).unwrap_err(), LoginStatus::TOO_MANY_CONNECTIONS);
        assert_eq!(sessions.admit(&request("iqn.a", 1, tsih, 0), 'c', NOW).unwrap().displaced, ['a']);
        assert!(leaves(&mut sessions, tsih, 'c'));
    }

    fn of_certificate(identities: &[&str], request: AdmitRequest) -> AdmitRequest {
        let identities = identities.iter().map(|name| (*name).to_owned()).collect();
        AdmitRequest { origin: Origin { identities, ..PEER.into() }, ..request }
    }

    #[test]
    fn a_session_belongs_to_the_names_of_its_certificate() {
        let began = ["cluster.example", "a.example", "sha256:1"];
        for (identities, is_same) in [
            (&["cluster.example", "a.example", "sha256:2"][..], true),
            (&["cluster.example", "b.example", "sha256:1"], false),
            (&["cluster.example", "sha256:1"], false),
            (&["sha256:1"], false),
            (&[], false),
        ] {
            let mut sessions = Sessions::default();
            let parameters = Parameters { max_connections: 2, ..Parameters::default() };
            let first = AdmitRequest { parameters, ..request("iqn.a", 1, Tsih::NEW, 0) };
            let tsih = sessions.admit(&of_certificate(&began, first), 'a', NOW).unwrap().session.tsih;
            let joins = sessions.admit(&of_certificate(identities, request("iqn.a", 1, tsih, 1)), 'b', NOW);
            assert_eq!(joins.is_ok(), is_same, "{identities:?}");
            let replaces = sessions.admit(&of_certificate(identities, request("iqn.a", 1, Tsih::NEW, 0)), 'c', NOW);
            assert_eq!(replaces.is_ok(), is_same, "{identities:?}");
        }
    }

    fn recoverable(tsih: Tsih, cid: u16) -> AdmitRequest {
        let parameters = Parameters { error_recovery_level: 2, time2retain_s: 20, ..Parameters::default() };
        AdmitRequest { parameters, ..request("iqn.a", 1, tsih, cid) }
    }

    #[test]
    fn at_level_2_a_second_connection_may_come_to_log_out_the_first() {
        let mut sessions = Sessions::default();
        let tsih = sessions.admit(&recoverable(Tsih::NEW, 0), 'a', NOW).unwrap().session.tsih;
        assert!(sessions.admit(&recoverable(tsih, 1), 'b', NOW).is_ok());
        let third = sessions.admit(&recoverable(tsih, 2), 'c', NOW);
        assert_eq!(third.map(drop).unwrap_err(), LoginStatus::TOO_MANY_CONNECTIONS);
    }

    #[test]
    fn tsihs_are_never_zero_nor_taken_twice() {
        let mut sessions = Sessions { last_tsih: u16::MAX - 1, ..Sessions::default() };
        let taken: Vec<_> =
            (0..3).map(|n| sessions.admit(&request("iqn.a", n, Tsih::NEW, 0), n, NOW).unwrap().session.tsih).collect();
        assert_eq!(taken, [Tsih(u16::MAX), Tsih(1), Tsih(2)]);
    }
}
