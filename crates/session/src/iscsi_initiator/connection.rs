//! One connection: its stream, its phases, its patience.
//!
//! Here is what it is made of and what may work with it; the modules below have the way of the bytes through the
//! phases, its time and its end.

mod ending;
mod login;
pub(super) mod placing;
mod receiving;
mod sending;
mod straight;
mod time;

use std::collections::VecDeque;

use lunette_pdu::{Cid, DataIn};

use super::error::{LoginError, SessionError};
use super::event::Event;
use super::expect::Expect;
use super::full_feature::FullFeature;
use super::login::Login;
use super::sender::Sender;
use super::shared::Shared;
use super::turn_context::TurnContext;
use super::window::Window;
use crate::limits::LOGIN_DATA_SEGMENT_BYTES;
use crate::markers::MarkedReceiver;
use crate::receiver::Receiver;
use crate::{Entropy, Time, Timers};

enum Phase {
    Login(Box<Login>),
    FullFeature(Box<FullFeature>),
    Closed,
}

pub(super) struct Connection {
    cid: Cid,
    receiver: MarkedReceiver,
    sender: Sender,
    phase: Phase,
    expect: Expect,
    /// Data segments of PDUs that are not for a task. Kept for the next one.
    segment: Vec<u8>,
    events: VecDeque<Event>,
    timers: Timers,
    deadline: Option<(Time, SessionError)>,
    last_received: Time,
    /// Whether its end is one of the session: it leads, or has carried commands.
    carries_session: bool,
    /// Another one had its number before.
    is_successor: bool,
    /// A Data-In whose segment had not come whole when the connection ended.
    cut_short: Option<DataIn>,
    /// Time2Wait and Time2Retain in seconds, when the target has announced the end of the connection.
    announced: Option<(u32, u32)>,
}

impl Connection {
    /// Begins a login.
    pub(super) fn new(cid: Cid, shared: &mut Shared, entropy: Entropy, now: Time) -> Self {
        let timers = shared.config.timers;
        let leads = !shared.agreed.is_begun();
        let mut connection = Self {
            cid,
            receiver: Receiver::new(LOGIN_DATA_SEGMENT_BYTES).into(),
            sender: Sender::default(),
            phase: Phase::Closed,
            expect: Expect::Nothing,
            segment: Vec::new(),
            events: VecDeque::new(),
            timers,
            deadline: Some((now + timers.login, LoginError::Timeout.into())),
            last_received: now,
            carries_session: leads,
            is_successor: false,
            cut_short: None,
            announced: None,
        };
        if let Some(lost) = shared.lost.get(cid) {
            // RFC 7143 section 11.12.9: the first request of a login that restarts a connection says what came on the
            // old one.
            connection.sender.expect_status(lost.exp_stat_sn);
        }
        shared.add_connection(cid);
        if leads {
            shared.window = Window::new(entropy.first_serial_number());
        }
        match Login::start(&shared.config, cid, shared.agreed.tsih(), shared.window.cmd_sn(), entropy) {
            Ok((login, first)) => {
                connection.phase = Phase::Login(Box::new(login));
                connection.login_step(first, shared, now);
            }
            Err(error) => connection.end(error),
        }
        connection
    }

    /// A connection that the session cannot have: [`Event::Closed`] is all that comes of it.
    pub(super) fn refused(cid: Cid, timers: Timers, now: Time) -> Self {
        let why = LoginError::Incompatible("MaxConnections".into()).into();
        Self {
            cid,
            receiver: Receiver::new(LOGIN_DATA_SEGMENT_BYTES).into(),
            sender: Sender::default(),
            phase: Phase::Closed,
            expect: Expect::Nothing,
            segment: Vec::new(),
            events: VecDeque::from([Event::Closed { cid, why }]),
            timers,
            deadline: None,
            last_received: now,
            carries_session: false,
            is_successor: false,
            cut_short: None,
            announced: None,
        }
    }

    /// Another one had its number before.
    pub(super) fn into_successor(self) -> Self {
        Self { is_successor: true, ..self }
    }

    pub(super) fn is_successor(&self) -> bool {
        self.is_successor
    }

    pub(super) fn cid(&self) -> Cid {
        self.cid
    }

    /// Whether it is closed, and its driver knows.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed() && self.events.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// The full feature phase with what it works on.
    fn split<'a>(&'a mut self, shared: &'a mut Shared) -> Option<(&'a mut FullFeature, TurnContext<'a>)> {
        let Phase::FullFeature(full) = &mut self.phase else { return None };
        let (sender, events) = (&mut self.sender, &mut self.events);
        Some((full, TurnContext { cid: self.cid, shared, sender, events, now: self.last_received }))
    }

    /// The full feature phase, while requests may be sent.
    pub(super) fn for_requests<'a>(
        &'a mut self,
        shared: &'a mut Shared,
    ) -> Option<(&'a mut FullFeature, TurnContext<'a>)> {
        let (full, context) = self.split(shared)?;
        let takes = full.takes_requests() && !context.shared.logging_out;
        takes.then_some((full, context))
    }

    /// The full feature phase, for the work that another connection leaves behind. It is no work of this one, so its
    /// events go elsewhere.
    pub(super) fn for_recovery<'a>(
        &'a mut self,
        shared: &'a mut Shared,
        events: &'a mut VecDeque<Event>,
    ) -> Option<(&'a mut FullFeature, TurnContext<'a>)> {
        let (full, context) = self.for_requests(shared)?;
        Some((full, TurnContext { events, ..context }))
    }

    pub(super) fn takes_requests(&self) -> bool {
        matches!(&self.phase, Phase::FullFeature(full) if full.takes_requests())
    }

    pub(super) fn carries_session(&self) -> bool {
        self.carries_session
    }

    pub(super) fn full_feature(&self) -> Option<&FullFeature> {
        if let Phase::FullFeature(full) = &self.phase { Some(full) } else { None }
    }
}
