//! Which core a session lives on.
//!
//! All connections of a session are on one core, its home, and so is whatever takes its place: what a session has to do
//! with its like never leaves a core. Logins are the only ones to look here, and connections that end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lunette_handover as handover;
use lunette_pdu::{Isid, LoginStatus, Tsih};
use lunette_session::iscsi_target::AdmitRequest;
use lunette_session::limits::{MAX_SESSIONS, max_table_sessions};

use super::FIRST;

/// The homes of all sessions, which all cores share.
pub(crate) struct SessionAffinity {
    table: Mutex<Table>,
}

struct Table {
    normal: HashMap<Name, Residence>,
    /// Sessions of each core.
    sessions: Vec<usize>,
    /// How many a core may have: it has its share of the numbers.
    most: usize,
    discovery: usize,
}

/// The names that make two normal sessions the same nexus.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    /// In lower case, as that of the target is.
    initiator: String,
    isid: Isid,
    target: String,
    portal_group: u16,
}

struct Residence {
    core: usize,
    /// Connections that are there or on their way.
    connections: usize,
}

/// A connection's claim to its home. While there is one, sessions of the same nexus go there.
pub(crate) struct Home {
    affinity: Arc<SessionAffinity>,
    core: usize,
    claim: Claim,
}

enum Claim {
    Nexus(Name),
    Discovery,
    /// To a session that no core has.
    Nothing,
}

impl Home {
    pub(crate) fn core(&self) -> usize {
        self.core
    }
}

impl SessionAffinity {
    pub(crate) fn new(cores: usize) -> Arc<Self> {
        let most = max_table_sessions(cores);
        let table = Table { normal: HashMap::new(), sessions: vec![0; cores], most, discovery: 0 };
        Arc::new(Self { table: Mutex::new(table) })
    }

    /// The home of the session that a login makes or joins. The number of a session tells its home: TSIHs are given out
    /// like that. A new session of a nexus that has one goes where that is; any other where there are the fewest, but
    /// for discovery, which stays on the first core while that has numbers for it.
    ///
    /// # Errors
    ///
    /// The login status to refuse it with, when there are too many sessions.
    pub(crate) fn find(self: &Arc<Self>, request: &AdmitRequest) -> Result<Home, LoginStatus> {
        let mut table = self.table();
        let (core, claim) = match Name::of(request) {
            None => {
                table.check_room()?;
                let core = if table.sessions[FIRST] < table.most { FIRST } else { table.emptiest() };
                table.discovery += 1;
                table.sessions[core] += 1;
                (core, Claim::Discovery)
            }
            Some(name) if request.tsih == Tsih::NEW => (table.place(&name)?, Claim::Nexus(name)),
            Some(name) => {
                let core = usize::from(request.tsih.0) % table.sessions.len();
                let claim = if table.join(&name, core) { Claim::Nexus(name) } else { Claim::Nothing };
                (core, claim)
            }
        };
        Ok(Home { affinity: Arc::clone(self), core, claim })
    }

    /// The home of a session that an earlier process has left, on `core`, where its number is.
    pub(crate) fn claim_at(self: &Arc<Self>, core: usize, session: &handover::Session) -> Home {
        let mut table = self.table();
        let claim = match Name::of_left(session) {
            None => {
                table.discovery += 1;
                table.sessions[core] += 1;
                Claim::Discovery
            }
            Some(name) if table.join(&name, core) => Claim::Nexus(name),
            Some(name) if table.normal.contains_key(&name) => Claim::Nothing,
            Some(name) => {
                table.sessions[core] += 1;
                table.normal.insert(name.clone(), Residence { core, connections: 1 });
                Claim::Nexus(name)
            }
        };
        Home { affinity: Arc::clone(self), core, claim }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn check_room(&self) -> Result<(), LoginStatus> {
        let room = self.normal.len() + self.discovery < MAX_SESSIONS;
        if room { Ok(()) } else { Err(LoginStatus::OUT_OF_RESOURCES) }
    }

    fn emptiest(&self) -> usize {
        let fewest = self.sessions.iter().enumerate().min_by_key(|(_, sessions)| **sessions);
        fewest.map_or(FIRST, |(core, _)| core)
    }

    fn place(&mut self, name: &Name) -> Result<usize, LoginStatus> {
        if let Some(residence) = self.normal.get_mut(name) {
            residence.connections += 1;
            return Ok(residence.core);
        }
        self.check_room()?;
        let core = self.emptiest();
        self.sessions[core] += 1;
        self.normal.insert(name.clone(), Residence { core, connections: 1 });
        Ok(core)
    }

    /// False when no session of that nexus is there.
    fn join(&mut self, name: &Name, core: usize) -> bool {
        let Some(residence) = self.normal.get_mut(name).filter(|residence| residence.core == core) else {
            return false;
        };
        residence.connections += 1;
        true
    }

    fn leave(&mut self, name: &Name) {
        let Some(residence) = self.normal.get_mut(name) else {
            debug_assert!(false, "a claim outlives the residence of its nexus");
            return;
        };
        residence.connections -= 1;
        if residence.connections == 0 {
            self.sessions[residence.core] -= 1;
            self.normal.remove(name);
        }
    }
}

impl Name {
    /// `None` of a discovery session: it is no nexus.
    fn of(request: &AdmitRequest) -> Option<Self> {
        Some(Self {
            initiator: request.initiator_name.clone(),
            isid: request.isid,
            target: request.target()?.name.clone(),
            portal_group: request.portal_group,
        })
    }

    fn of_left(session: &handover::Session) -> Option<Self> {
        Some(Self {
            initiator: session.initiator_name.clone(),
            isid: Isid(session.isid),
            target: session.target.clone()?,
            portal_group: session.portal_group,
        })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let mut table = self.affinity.table();
        match &self.claim {
            Claim::Nexus(name) => table.leave(name),
            Claim::Discovery => {
                table.discovery -= 1;
                table.sessions[self.core] -= 1;
            }
            Claim::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use lunette_pdu::{Cid, SerialNumber};
    use lunette_session::Authentication;
    use lunette_session::iscsi_target::{Host, Origin, TargetNode};
    use lunette_session::keys::{Offer, Parameters};

    use super::*;

    fn login(initiator: &str, isid: u8, tsih: u16) -> AdmitRequest {
        let target = TargetNode {
            name: "iqn.target".into(),
            alias: None,
            authentication: Authentication::None,
            hosts: vec![Arc::new(Host::everyone())],
            portals: Vec::new(),
            offer: Offer::default(),
            moved: None,
        };
        let origin = Origin::from(IpAddr::from([192, 0, 2, 1]));
        AdmitRequest {
            initiator_name: initiator.into(),
            chap_user: None,
            secrets: lunette_session::ProvenSecrets::default(),
            isid: Isid([0, 0, 0, 0, 0, isid]),
            tsih: Tsih(tsih),
            cid: Cid(0),
            admission: Arc::new(target).admit(initiator, &origin),
            origin,
            portal_group: 1,
            cmd_sn: SerialNumber(1),
            exp_stat_sn: SerialNumber(0),
            parameters: Parameters::default(),
        }
    }

    #[test]
    fn new_sessions_go_where_the_fewest_are() {
        let affinity = SessionAffinity::new(3);
        let mut held: Vec<_> = (0..6).map(|isid| affinity.find(&login("iqn.a", isid, 0)).unwrap()).collect();
        assert_eq!(held.iter().map(Home::core).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        held.remove(1);
        assert_eq!(affinity.find(&login("iqn.b", 0, 0)).unwrap().core(), 1);
    }

    #[test]
    fn the_nexus_stays_as_long_as_any_connection_of_it() {
        let affinity = SessionAffinity::new(2);
        let _other = affinity.find(&login("iqn.other", 1, 0)).unwrap();
        let first = affinity.find(&login("iqn.a", 1, 0)).unwrap();
        assert_eq!(first.core(), 1);
        let _fills = affinity.find(&login("iqn.b", 1, 0)).unwrap();
        // Its second connection, and a login that takes its place.
        let joined = affinity.find(&login("iqn.a", 1, 7)).unwrap();
        drop(first);
        let again = affinity.find(&login("IQN.A", 1, 0)).unwrap();
        assert_eq!((joined.core(), again.core()), (1, 1));
        drop((joined, again));
        let _others = ["iqn.c", "iqn.d"].map(|name| affinity.find(&login(name, 1, 0)).unwrap());
        assert_eq!(affinity.find(&login("iqn.a", 1, 0)).unwrap().core(), 0, "it is forgotten");
    }

    #[test]
    fn a_number_that_no_session_has_claims_nothing() {
        let affinity = SessionAffinity::new(2);
        let stray = affinity.find(&login("iqn.a", 1, 3)).unwrap();
        assert_eq!(stray.core(), 1);
        let _there = affinity.find(&login("iqn.b", 1, 0)).unwrap();
        // A session of that nexus on another core is not the one that is meant.
        let _wrong = affinity.find(&login("iqn.b", 1, 3)).unwrap();
        drop(stray);
        assert_eq!(affinity.table().sessions, [1, 0]);
    }

    #[test]
    fn discovery_stays_where_it_came_in_and_counts() {
        let affinity = SessionAffinity::new(2);
        let discovery = AdmitRequest { admission: None, ..login("iqn.a", 1, 0) };
        let first = affinity.find(&discovery).unwrap();
        assert_eq!(affinity.find(&login("iqn.a", 1, 0)).unwrap().core(), 1, "where fewer are");
        drop(first);
        let held: Vec<_> = (0..MAX_SESSIONS).map(|_| affinity.find(&discovery).unwrap()).collect();
        assert!(held.iter().all(|home| home.core() == FIRST));
        assert_eq!(affinity.find(&login("iqn.a", 1, 0)).err(), Some(LoginStatus::OUT_OF_RESOURCES));
        drop(held);
        assert!(affinity.find(&login("iqn.a", 1, 0)).is_ok());
    }

    #[test]
    fn discovery_goes_elsewhere_when_the_first_core_has_no_numbers_left() {
        const CORES: usize = 64;
        let (affinity, most) = (SessionAffinity::new(CORES), max_table_sessions(CORES));
        let discovery = AdmitRequest { admission: None, ..login("iqn.a", 1, 0) };
        let held: Vec<_> = (0..MAX_SESSIONS).map(|_| affinity.find(&discovery).unwrap()).collect();
        let sessions = affinity.table().sessions.clone();
        assert_eq!((sessions[FIRST], sessions.iter().sum()), (most, MAX_SESSIONS));
        assert!(sessions.iter().all(|sessions| *sessions <= most));
        drop(held);
        assert_eq!(affinity.table().sessions, [0; CORES]);
    }
}
