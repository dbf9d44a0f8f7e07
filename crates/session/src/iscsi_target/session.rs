//! A session with its connections: what is decided between them.

mod ending;
mod fences;
mod handover;
mod recovery;
mod task_management;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lunette_pdu::{Cid, LoginStatus, LunField, SerialNumber, Tsih};

use self::fences::Fence;
use super::admit_request::AdmitRequest;
use super::connection::{CommandsAtOnce, Connection, ConnectionMut, LoginConnection};
use super::directory::Directory;
use super::event::{Event, Signal};
use super::session_info::SessionInfo;
use super::tasks::window::{BufferShare, CommandWindow};
use crate::{Time, Timers};

/// The state of a connection in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The connection is served under this CID, or its login waits to be answered.
    Served(Cid),
    /// The connection is lost and its tasks wait. The CID is its own until it is logged out.
    Suspended(Option<Cid>),
    /// The connection has ended. What is ready is still sent.
    Over,
}

struct Member<H> {
    handle: H,
    state: State,
    /// `None` while its login waits to be answered.
    connection: Option<Connection>,
}

impl<H> Member<H> {
    /// Whether this is its number: it is served, or lost and not logged out.
    fn has_cid(&self, cid: Cid) -> bool {
        self.state == State::Served(cid) || self.state == State::Suspended(Some(cid))
    }

    fn is_served(&self) -> bool {
        matches!(self.state, State::Served(_))
    }
}

/// One session with all of its connections. `H` is how the driver calls a connection.
pub struct Session<H> {
    info: Arc<SessionInfo>,
    window: CommandWindow,
    counted_places: u32,
    /// The connections; suspended ones stand in the order of their loss.
    members: Vec<Member<H>>,
    timers: Timers,
    fences: Vec<Fence<H>>,
    /// The events that the connections do not tell by themselves.
    events: VecDeque<(H, Event<H>)>,
    touched: Vec<H>,
    /// The initiator was asked to log out of the session: a connection that is lost takes its tasks along.
    is_ending: bool,
    /// On the way to a standstill.
    comes_to_rest: bool,
}

impl<H: Copy + PartialEq> Session<H> {
    /// A session whose leading login waits to be answered.
    pub(super) fn new(request: &AdmitRequest, tsih: Tsih, leading: H) -> Self {
        let info = SessionInfo {
            initiator_name: request.initiator_name.clone(),
            chap_user: request.chap_user.clone(),
            origin: request.origin.clone(),
            secrets: request.secrets.clone(),
            isid: request.isid,
            tsih,
            target: request.target().cloned(),
            host: request.host(),
            portal_group: request.portal_group,
            parameters: request.parameters.clone(),
        };
        let window = CommandWindow::new(request.cmd_sn, info.parameters.error_recovery_level);
        let mut session = Self::without_connections(Arc::new(info), window);
        session.add(request.cid, leading);
        session
    }

    fn without_connections(info: Arc<SessionInfo>, window: CommandWindow) -> Self {
        Self {
            info,
            window,
            counted_places: 0,
            members: Vec::new(),
            timers: Timers::default(),
            fences: Vec::new(),
            events: VecDeque::new(),
            touched: Vec::new(),
            is_ending: false,
            comes_to_rest: false,
        }
    }

    /// The initiator, the target, and what was agreed on.
    pub fn info(&self) -> &Arc<SessionInfo> {
        &self.info
    }

    /// The number of the next command that is to be delivered: those before it have come.
    pub fn exp_cmd_sn(&self) -> SerialNumber {
        self.window.exp_cmd_sn()
    }

    // Its command window.

    /// Resizes the command window from its use and from the fullest connection's buffer share, by at most `most_extra`
    /// extra places. Returns the per-connection command count at which to call this again.
    pub(super) fn fit_window(&mut self, share_of: impl Fn(H) -> Option<BufferShare>, most_extra: u32) -> usize {
        let shares = self.members.iter().filter_map(|member| share_of(member.handle));
        let Some(share) = shares.reduce(BufferShare::fuller) else { return usize::MAX };
        self.window.fit(self.awaited_commands(), share, most_extra);
        self.fit_from()
    }

    /// Takes places of the command window back that have not been used for long. Gives the same.
    pub(super) fn narrow_unused_window(&mut self, now: Time) -> usize {
        self.window.narrow_unused(self.awaited_commands(), now);
        self.fit_from()
    }

    fn awaited_commands(&self) -> u32 {
        let connections = self.members.iter().filter_map(|member| member.connection.as_ref());
        connections.map(Connection::awaited_commands).sum()
    }

    fn fit_from(&self) -> usize {
        self.window.fit_from() as usize / self.members.len().max(1)
    }

    /// Places of the command window beyond those that every session has, as last counted. Until the window is fitted
    /// again there may be fewer, but not more.
    pub(super) fn counted_places(&self) -> u32 {
        self.counted_places
    }

    /// Counts the places that the window has promised.
    pub(super) fn count_places(&mut self) -> u32 {
        self.counted_places = self.window.extra_places();
        self.counted_places
    }

    // Its connections.

    fn add(&mut self, cid: Cid, handle: H) {
        self.members.push(Member { handle, state: State::Served(cid), connection: None });
    }

    /// Keeps a place for a connection whose login was let pass. Gives the connection that it replaces, unless the tasks
    /// of that one wait to be taken over: then this is its logout for recovery (RFC 7143 section 6.3.4).
    pub(super) fn join(&mut self, request: &AdmitRequest, handle: H, now: Time) -> Result<Option<H>, LoginStatus> {
        let is_new = self.members.iter().all(|member| member.state != State::Served(request.cid));
        if is_new && self.connections().count() >= self.most_connections() {
            return Err(LoginStatus::TOO_MANY_CONNECTIONS);
        }
        let replaced = self.find(request.cid).filter(|old| !self.detach(*old, request.exp_stat_sn, now));
        if let Some(old) = replaced {
            self.leave(old);
        }
        self.add(request.cid, handle);
        self.let_go_of_empty();
        Ok(replaced)
    }

    /// Connections that may be served at one time. At recovery level 2 there is a second one in any case, to log out a
    /// first one that was lost (RFC 7143 section 6.3.4).
    fn most_connections(&self) -> usize {
        let least = if self.info.recovers_connections() { 2 } else { 1 };
        self.info.parameters.max_connections.max(least) as usize
    }

    /// Answers the login of a connection, for which there is a place. False when that is gone.
    pub(super) fn enter(&mut self, handle: H, login: LoginConnection, now: Time) -> bool {
        self.timers = login.timers();
        let (info, window) = (&self.info, &mut self.window);
        let waits =
            |member: &&mut Member<H>| member.handle == handle && member.is_served() && member.connection.is_none();
        let Some(member) = self.members.iter_mut().find(waits) else { return false };
        member.connection = login.admitted(info, window, now);
        if let Some(connection) = member.connection.as_mut().filter(|_| self.comes_to_rest) {
            connection.come_to_rest();
        }
        member.connection.is_some()
    }

    /// A connection that is gone holds up nothing.
    fn touch_fenced(&mut self) {
        let fenced: Vec<H> = self.fences.iter().map(Fence::connection).collect();
        for connection in fenced {
            self.touch(connection);
        }
    }

    /// Something has changed for a connection without an event of its own.
    fn touch(&mut self, connection: H) {
        if !self.touched.contains(&connection) {
            self.touched.push(connection);
        }
    }

    /// Connections that may have become able to go on, or have something to send: ask them for their next event. To be
    /// called after whatever changes the session.
    #[inline]
    pub fn take_touched(&mut self) -> Vec<H> {
        std::mem::take(&mut self.touched)
    }

    /// A connection is gone.
    pub(super) fn remove(&mut self, handle: H) {
        self.members.retain(|member| member.handle != handle);
        self.events.retain(|(of, _)| *of != handle);
    }

    /// Whether no connection is served or waits to be recovered.
    pub(super) fn is_over(&self) -> bool {
        self.members.iter().all(|member| member.state == State::Over)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The connection of that number: one that is served, or that is lost and not logged out.
    pub(super) fn find(&self, cid: Cid) -> Option<H> {
        self.members.iter().find(|member| member.has_cid(cid)).map(|member| member.handle)
    }

    /// The connections that are served.
    pub fn connections(&self) -> impl Iterator<Item = H> {
        self.members.iter().filter(|member| member.is_served()).map(|member| member.handle)
    }

    /// The lost connections whose tasks wait to be taken over, the first lost first.
    fn suspended(&self) -> impl Iterator<Item = H> {
        let lost = self.members.iter().filter(|member| matches!(member.state, State::Suspended(_)));
        lost.map(|member| member.handle)
    }

    /// Whether a connection is lost and was logged out for recovery.
    fn is_detached(&self, handle: H) -> bool {
        self.member(handle).is_some_and(|member| member.state == State::Suspended(None))
    }

    /// All connections, served and lost.
    pub fn members(&self) -> impl Iterator<Item = H> {
        self.members.iter().filter(|member| member.state != State::Over).map(|member| member.handle)
    }

    #[inline]
    fn member(&self, handle: H) -> Option<&Member<H>> {
        self.members.iter().find(|member| member.handle == handle)
    }

    #[inline]
    fn member_mut(&mut self, handle: H) -> Option<&mut Member<H>> {
        self.members.iter_mut().find(|member| member.handle == handle)
    }

    /// A connection, to look at.
    #[inline]
    pub fn connection(&self, handle: H) -> Option<&Connection> {
        self.member(handle)?.connection.as_ref()
    }

    /// A connection, to work with.
    #[inline]
    pub fn connection_mut(&mut self, handle: H) -> Option<ConnectionMut<'_>> {
        let member = self.members.iter_mut().find(|member| member.handle == handle)?;
        Some(ConnectionMut::new(member.connection.as_mut()?, &mut self.window))
    }

    /// Does what concerns the session on one of its connections. False when none can send it.
    fn on_any_served(&mut self, act: impl FnOnce(&mut ConnectionMut<'_>)) -> bool {
        let can_send = |member: &&Member<H>| member.connection.as_ref().is_some_and(Connection::takes_announcements);
        let served = self.members.iter().find(|member| member.is_served() && can_send(member));
        let Some(connection) = served.map(|member| member.handle) else { return false };
        if let Some(mut protocol) = self.connection_mut(connection) {
            act(&mut protocol);
        }
        self.touch(connection);
        true
    }

    fn for_each_served(&mut self, mut act: impl FnMut(&mut ConnectionMut<'_>)) {
        let served: Vec<H> = self.connections().collect();
        for connection in served {
            if let Some(mut protocol) = self.connection_mut(connection) {
                act(&mut protocol);
            }
            self.touch(connection);
        }
    }

    /// Answers from now on with these targets. What they declare otherwise than before is negotiated within `grace`.
    pub fn set_directory(&mut self, directory: &Arc<Directory>, grace: Duration) {
        let target = self.info.target.as_ref().and_then(|target| directory.find(&target.name));
        let declared = target.map(|target| target.offer.recv_data_segment_len);
        self.for_each_served(|protocol| {
            protocol.set_directory(directory);
            if let Some(declared) = declared {
                protocol.renegotiate(declared, grace);
            }
        });
    }

    /// Tells the initiator at once of a unit attention on a logical unit, with its `sense` data (RFC 7143 section
    /// 11.9). The next command finds it too, so a peer that does not read is not told.
    pub fn scsi_event(&mut self, lun: LunField, sense: &[u8]) {
        self.on_any_served(|protocol| protocol.scsi_event(lun, sense));
    }

    /// The commands at the front of bytes that have come on a connection now, as long as they can be answered while
    /// they are read. What cannot is left for [`next_event`](Self::next_event).
    pub fn commands_at_once(&mut self, handle: H, now: Time) -> Option<CommandsAtOnce<'_>> {
        if !self.fences.is_empty() || !self.events.is_empty() {
            return None;
        }
        self.connection_mut(handle)?.into_commands_at_once(now)
    }

    /// Consumes bytes from the front of `input`, which came on a connection, up to the next event. `None`: everything
    /// is consumed, or the connection waits for its driver; [hold](Connection::hold) what is left then.
    pub fn next_event(&mut self, handle: H, input: &mut &[u8], now: Time) -> Option<Event<H>> {
        loop {
            if !self.events.is_empty()
                && let Some(at) = self.events.iter().position(|(of, _)| *of == handle)
            {
                return self.events.remove(at).map(|(_, event)| event);
            }
            let signal = self.connection_mut(handle)?.next_event(input, now);
            let event = match signal {
                // Returned at once: an event is long, and each detour would copy it.
                Some(Signal::Command(command)) => return Some(Event::Command(command)),
                Some(Signal::DataOut { task, buffer }) => return Some(Event::DataOut { task, buffer }),
                Some(Signal::Aborted(task)) => return Some(Event::Aborted(task)),
                None if self.fences.is_empty() => return None,
                Some(Signal::TaskManagement(request)) => self.manage_tasks(handle, request),
                Some(Signal::DataDamaged) => Some(Event::DataDamaged),
                Some(Signal::Resume(cid)) => {
                    self.resume(handle, cid);
                    None
                }
                Some(Signal::Logout(cid)) => self.log_out(handle, cid),
                Some(Signal::LogoutForRecovery { cid, received }) => {
                    self.log_out_for_recovery(handle, cid, received, now)
                }
                Some(Signal::Close(reason)) => Some(self.closed(handle, reason)),
                None if self.pass_fences(now) => None,
                None => return None,
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Commands of a connection have made way for those that another one holds.
    fn resume(&mut self, by: H, cid: Option<Cid>) {
        let is_meant = |member: &&Member<H>| match member.state {
            State::Served(own) => member.handle != by && cid.is_none_or(|cid| cid == own),
            _ => false,
        };
        let waiting: Vec<H> = self.members.iter().filter(is_meant).map(|member| member.handle).collect();
        for other in waiting {
            self.touch(other);
        }
    }

    /// When a connection wants to be called.
    pub fn next_timeout(&self, handle: H) -> Option<Time> {
        let fences = if self.fences.is_empty() { None } else { self.next_fence_timeout() };
        self.connection(handle)?.next_timeout().into_iter().chain(fences).min()
    }
}
