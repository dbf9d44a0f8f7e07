//! One session with eight connections: both of its ends, logged in to each other in memory.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lunette_buffer::Buffer;
use lunette_pdu::{Cid, Isid, LunField, TaskAttribute};
use lunette_session::iscsi_initiator::{self, Session, SessionConfig};
use lunette_session::iscsi_target::{
    self, ConnectionConfig, Directory, Host, LoginConnection, LoginEvent, Portal, SessionKey, Sessions, TargetNode,
    Transport,
};
use lunette_session::keys::{Choices, Offer};
use lunette_session::{Authentication, Entropy, Time, Timers};

/// Connections of the session, as in the paper.
pub(super) const CONNECTIONS: usize = 8;
/// MaxRecvDataSegmentLength of both sides, as in the paper.
pub(super) const SEGMENT_LEN: usize = 8 << 10;
/// From a marker to the next one, in 4-byte words: the default of RFC 3720.
const MARKER_INTERVAL: u32 = 2048;

const TARGET: &str = "iqn.2026-11.example:disk";
const NOW: Time = Time::new(Duration::from_secs(1));

/// The options of a session beside the parameters of the paper.
#[derive(Clone, Copy, Default)]
pub(super) struct Extras {
    /// Writes send their data unasked, up to FirstBurstLength of 64 KB.
    pub(super) unsolicited: bool,
    pub(super) markers: bool,
}

/// The two ends. A connection is called by the number of its turn, from 0.
pub(super) struct Pair {
    initiator: Session,
    cids: Vec<Cid>,
    sessions: Sessions<usize>,
    key: SessionKey,
}

impl Pair {
    /// Logs all connections in.
    pub(super) fn logged_in(extras: Extras) -> Result<Self> {
        let offer = offer(extras);
        let mut initiator = Session::new(SessionConfig {
            initiator_name: "iqn.2026-11.example:host".into(),
            initiator_alias: None,
            target_name: Some(TARGET.into()),
            isid: Isid::random(1, 1),
            chap: None,
            offer: offer.clone(),
            timers: Timers::default(),
        });
        let directory = directory(offer)?;
        let mut sessions = Sessions::default();
        let first = initiator.connect(entropy(0), NOW);
        let key = log_in(&mut initiator, first, &mut sessions, 0, &directory)?;
        let mut pair = Self { initiator, cids: vec![first], sessions, key };
        pair.joined(0)?;
        for lane in 1..CONNECTIONS {
            let cid = pair.initiator.connect(entropy(lane), NOW);
            pair.cids.push(cid);
            log_in(&mut pair.initiator, cid, &mut pair.sessions, lane, &directory)?;
            pair.joined(lane)?;
        }
        Ok(pair)
    }

    /// The target's last answer of a login reaches the initiator.
    fn joined(&mut self, lane: usize) -> Result<()> {
        let answer = self.sent_by_target(lane)?;
        let event = self.initiator_event(lane, &mut &answer[..]);
        ensure!(matches!(event, Some(iscsi_initiator::Event::LoggedIn(_))), "a login ended with {event:?}");
        Ok(())
    }

    /// The initiator takes a command. Gives the connection that it chose.
    #[inline]
    pub(super) fn submit(&mut self, command: iscsi_initiator::Command) -> Option<usize> {
        self.initiator.submit(command, NOW).ok()?;
        self.cids.iter().position(|cid| self.initiator.has_output(*cid))
    }

    /// The initiator's event for received bytes.
    #[inline]
    pub(super) fn initiator_event(&mut self, lane: usize, input: &mut &[u8]) -> Option<iscsi_initiator::Event> {
        self.initiator.next_event(self.cids[lane], input, NOW)
    }

    /// The target's event for received bytes.
    #[inline]
    pub(super) fn target_event(&mut self, lane: usize, input: &mut &[u8]) -> Option<iscsi_target::Event<usize>> {
        self.sessions.get_mut(self.key)?.next_event(lane, input, NOW)
    }

    /// The target's end of a connection.
    #[inline]
    pub(super) fn target(&mut self, lane: usize) -> Option<iscsi_target::ConnectionMut<'_>> {
        self.sessions.get_mut(self.key)?.connection_mut(lane)
    }

    /// Ends a command at the target.
    #[inline]
    pub(super) fn complete(&mut self, lane: usize, task: iscsi_target::TaskTag, response: iscsi_target::Response) {
        if let Some(session) = self.sessions.get_mut(self.key) {
            session.complete(lane, task, response);
        }
    }

    /// Looks at each slice that the initiator has to send, and lets them go. Gives their bytes.
    #[inline]
    pub(super) fn send_by_initiator(&mut self, lane: usize, mut look: impl FnMut(&[u8])) -> usize {
        let (cid, mut total) = (self.cids[lane], 0);
        while self.initiator.has_output(cid) {
            let len = self
                .initiator
                .slices(cid)
                .map(|slice| {
                    look(slice);
                    slice.len()
                })
                .sum();
            self.initiator.sent(cid, len);
            total += len;
        }
        total
    }

    /// Sends at the target.
    #[inline]
    pub(super) fn send_by_target(&mut self, lane: usize, mut look: impl FnMut(&[u8])) -> usize {
        let mut total = 0;
        while let Some(mut connection) = self.target(lane) {
            let len = connection
                .slices()
                .map(|slice| {
                    look(slice);
                    slice.len()
                })
                .sum();
            if len == 0 {
                break;
            }
            connection.sent(len);
            total += len;
        }
        total
    }

    /// The bytes that the initiator has to send.
    pub(super) fn sent_by_initiator(&mut self, lane: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.send_by_initiator(lane, |slice| bytes.extend_from_slice(slice));
        bytes
    }

    /// The bytes that the target has to send.
    pub(super) fn sent_by_target(&mut self, lane: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.send_by_target(lane, |slice| bytes.extend_from_slice(slice));
        ensure!(!bytes.is_empty(), "the target has nothing to send");
        Ok(bytes)
    }

    /// Brings the target a command that the initiator has taken.
    pub(super) fn deliver(&mut self, lane: usize) -> Result<iscsi_target::Command> {
        let bytes = self.sent_by_initiator(lane);
        match self.target_event(lane, &mut &bytes[..]) {
            Some(iscsi_target::Event::Command(command)) => Ok(command),
            other => bail!("a command came as {other:?}"),
        }
    }
}

/// A command that reads into a buffer, or writes one.
pub(super) fn command(data_in: Option<Buffer>, data_out: Option<Buffer>) -> iscsi_initiator::Command {
    iscsi_initiator::Command {
        user: 0,
        lun: LunField::default(),
        cdb: [0; 16],
        cdb_rest: Box::default(),
        attribute: TaskAttribute::SIMPLE,
        priority: 0,
        data_out: data_out.map(Buffer::share),
        data_in,
        block_len: 0,
    }
}

/// Table 2 of the paper.
fn offer(extras: Extras) -> Offer {
    const ONLY_CRC32C: Choices = Choices(0b10);
    Offer {
        header_digest: ONLY_CRC32C,
        data_digest: ONLY_CRC32C,
        recv_data_segment_len: SEGMENT_LEN as u32,
        max_connections: CONNECTIONS as u32,
        initial_r2t: !extras.unsolicited,
        immediate_data: false,
        max_burst_len: 256 << 10,
        first_burst_len: 64 << 10,
        data_pdu_in_order: false,
        data_sequence_in_order: false,
        marker_interval: extras.markers.then_some(MARKER_INTERVAL),
        ..Offer::default()
    }
}

fn directory(offer: Offer) -> Result<Arc<Directory>> {
    let node = TargetNode {
        name: TARGET.into(),
        alias: None,
        authentication: Authentication::None,
        hosts: vec![Arc::new(Host::everyone())],
        portals: vec![Portal { address: portal()?, group: 1, transport: Transport::Stream }],
        offer,
        moved: None,
    };
    Ok(Arc::new(Directory { targets: vec![Arc::new(node)], discovery: Authentication::None }))
}

fn portal() -> Result<std::net::SocketAddr> {
    "192.0.2.1:3260".parse().context("an address")
}

fn entropy(lane: usize) -> Entropy {
    Entropy(std::array::from_fn(|at| (at + lane) as u8))
}

/// Takes one connection through its login, up to the answer that ends it.
fn log_in(
    initiator: &mut Session,
    cid: Cid,
    sessions: &mut Sessions<usize>,
    lane: usize,
    directory: &Arc<Directory>,
) -> Result<SessionKey> {
    let config = ConnectionConfig {
        directory: Arc::clone(directory),
        local: portal()?,
        peer: portal()?.ip(),
        portal_group: 1,
        timers: Timers::default(),
        entropy: entropy(lane),
    };
    let mut login = LoginConnection::new(config, NOW);
    loop {
        let asked = initiator.slices(cid).collect::<Vec<_>>().concat();
        ensure!(!asked.is_empty(), "the initiator has nothing more to ask");
        initiator.sent(cid, asked.len());
        match login.next_event(&mut &asked[..]) {
            Some(LoginEvent::Admit(request)) => {
                let admitted = sessions.admit(&request, lane, NOW).ok().context("the target admits the connection")?;
                return sessions.enter(admitted.ticket, login, NOW).context("the session lives");
            }
            Some(LoginEvent::Close(why)) => bail!("the login failed: {why:?}"),
            None => {}
        }
        let answer = login.slices().collect::<Vec<_>>().concat();
        login.sent(answer.len());
        let event = initiator.next_event(cid, &mut &answer[..], NOW);
        ensure!(event.is_none(), "a login goes on with {event:?}");
    }
}
