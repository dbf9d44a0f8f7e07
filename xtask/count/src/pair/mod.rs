//! The two sides of the protocol, logged in to each other, for the programs whose instructions are counted.

use std::sync::Arc;
use std::time::Duration;

use lunette_buffer::Buffer;
use lunette_pdu::{Cid, Isid, LunField, TaskAttribute};
use lunette_session::iscsi_initiator::{self, Session, SessionConfig};
use lunette_session::iscsi_target::{
    self, ConnectionConfig, Directory, Host, LoginConnection, LoginEvent, Portal, SessionKey, Sessions, TargetNode,
    Transport,
};
use lunette_session::keys::{Choices, Offer};
use lunette_session::{Authentication, Entropy, Time, Timers};

const TARGET: &str = "iqn.2026-11.example:disk";

/// The two sides.
pub(crate) struct Pair {
    pub(crate) session: Session,
    pub(crate) cid: Cid,
    sessions: Sessions<()>,
    key: SessionKey,
    /// The commands that the target has received.
    pub(crate) commands: Vec<iscsi_target::Command>,
    pub(crate) now: Time,
}

impl Pair {
    /// In full feature phase, when both sides offer and accept `offer`, with both digests or none.
    pub(crate) fn logged_in(offer: &Offer, digests: bool) -> Self {
        let now = Time::new(Duration::ZERO);
        let choice = Choices(if digests { 0b10 } else { 0b01 });
        let offer = || Offer { header_digest: choice, data_digest: choice, ..offer.clone() };
        let mut session = Session::new(SessionConfig {
            initiator_name: "iqn.2026-11.example:host".into(),
            initiator_alias: None,
            target_name: Some(TARGET.into()),
            isid: Isid::random(1, 1),
            chap: None,
            offer: offer(),
            timers: Timers::default(),
        });
        let local = "192.0.2.1:3260".parse().expect("an address");
        let node = TargetNode {
            name: TARGET.into(),
            alias: None,
            authentication: Authentication::None,
            hosts: vec![Arc::new(Host::everyone())],
            portals: vec![Portal { address: local, group: 1, transport: Transport::Stream }],
            offer: offer(),
            moved: None,
        };
        let directory = Directory { targets: vec![Arc::new(node)], discovery: Authentication::None };
        let config = ConnectionConfig {
            directory: Arc::new(directory),
            local,
            peer: [192, 0, 2, 2].into(),
            portal_group: 1,
            timers: Timers::default(),
            entropy: Entropy(std::array::from_fn(|n| n as u8)),
        };
        let cid = session.connect(Entropy(std::array::from_fn(|n| n as u8)), now);
        let mut login = LoginConnection::new(config, now);
        let request = loop {
            let asked = session.slices(cid).collect::<Vec<_>>().concat();
            session.sent(cid, asked.len());
            if let Some(LoginEvent::Admit(request)) = login.next_event(&mut &asked[..]) {
                break request;
            }
            let answer = login.slices().collect::<Vec<_>>().concat();
            login.sent(answer.len());
            assert!(session.next_event(cid, &mut &answer[..], now).is_none(), "the login goes on");
        };
        let mut sessions = Sessions::default();
        let admitted = sessions.admit(&request, (), now).expect("there is room");
        let key = sessions.enter(admitted.ticket, login, now).expect("nothing has taken its place");
        let mut pair = Self { session, cid, sessions, key, commands: Vec::new(), now };
        while pair.feed_target() | pair.feed_initiator() {}
        pair
    }

    pub(crate) fn target(&mut self) -> &mut iscsi_target::Session<()> {
        self.sessions.get_mut(self.key).expect("it lives")
    }

    /// The end of the target's side.
    pub(crate) fn connection(&mut self) -> iscsi_target::ConnectionMut<'_> {
        self.target().connection_mut(()).expect("it lives")
    }

    pub(crate) fn initiator_output(&mut self) -> Vec<u8> {
        let bytes = self.session.slices(self.cid).collect::<Vec<_>>().concat();
        self.session.sent(self.cid, bytes.len());
        bytes
    }

    pub(crate) fn target_output(&mut self) -> Vec<u8> {
        let mut connection = self.connection();
        let bytes = connection.slices().collect::<Vec<_>>().concat();
        connection.sent(bytes.len());
        bytes
    }

    pub(crate) fn feed_target(&mut self) -> bool {
        let bytes = self.initiator_output();
        let mut input = &bytes[..];
        let now = self.now;
        while let Some(event) = self.target().next_event((), &mut input, now) {
            match event {
                iscsi_target::Event::Command(command) => self.commands.push(command),
                other => panic!("{other:?}"),
            }
        }
        !bytes.is_empty()
    }

    pub(crate) fn feed_initiator(&mut self) -> bool {
        let bytes = self.target_output();
        let mut input = &bytes[..];
        while let Some(event) = self.session.next_event(self.cid, &mut input, self.now) {
            assert!(matches!(event, iscsi_initiator::Event::LoggedIn(_)), "{event:?}");
        }
        !bytes.is_empty()
    }
}

pub(crate) fn command(data_in: Option<Buffer>, data_out: Option<Buffer>) -> iscsi_initiator::Command {
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
