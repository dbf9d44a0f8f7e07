//! A blocking initiator with one connection. It sends what a test says, and answers nothing by itself but R2Ts and
//! pings.

mod commands;
mod login;
mod management;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lunette_pdu::sense::split_sense;
use lunette_pdu::{
    AsyncEvent, AsyncMessage, BHS_LEN, Bhs, Cid, InitiatorTaskTag, Isid, LunField, NopOut, R2t, SerialNumber,
    TargetPdu, TargetTransferTag, TaskAttribute, Tsih,
};
use lunette_scsi::Lun;

use crate::{Format, LIMIT, read_frame, requests, stat_sn_of};
use commands::Task;
pub use commands::{Outcome, Sense, cdb_10};
pub use login::Port;

/// A PDU of a target, with its data segment.
pub type Pdu = (TargetPdu, Vec<u8>);

/// The part of the ISID that differs between the initiators of one process.
static NEXT_QUALIFIER: AtomicU32 = AtomicU32::new(1);

/// A connection to a target, with what an initiator knows of its session.
pub struct ScriptedInitiator {
    stream: TcpStream,
    format: Format,
    /// The ISID of its initiator port.
    pub isid: Isid,
    /// The session that its login asks to join, and then the one that it belongs to.
    pub tsih: Tsih,
    /// The connection ID in the session.
    pub cid: Cid,
    /// The number of the next command. Connections of one session share it: a test deals them out.
    pub cmd_sn: SerialNumber,
    exp_stat_sn: SerialNumber,
    next_itt: u32,
    tasks: HashMap<InitiatorTaskTag, Task>,
    /// Pings of the target that were answered.
    pings: usize,
    /// Whether R2Ts are answered as they come.
    pub answers_r2ts: bool,
    /// R2Ts that were not.
    pub r2ts: Vec<R2t>,
    /// The task attribute of the commands that follow.
    pub attribute: TaskAttribute,
    /// The commands that follow announce unsolicited Data-Out PDUs.
    pub announces_data: bool,
    /// The longest Data-Out PDU, in bytes.
    pub data_out_len: usize,
    /// Answers to task management requests, and asynchronous messages, that no test has asked for yet.
    pub others: Vec<Pdu>,
}

impl ScriptedInitiator {
    /// Connects without logging in.
    pub fn connect(address: impl Into<SocketAddr>) -> Self {
        Self::over(TcpStream::connect(address.into()).expect("the target listens"))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).expect("a time limit that is not zero");
        stream.set_write_timeout(Some(LIMIT)).expect("a time limit that is not zero");
        stream.set_nodelay(true).expect("a socket of our own");
        let qualifier = NEXT_QUALIFIER.fetch_add(1, Ordering::Relaxed);
        Self {
            stream,
            format: Format::PLAIN,
            isid: Isid::random(std::process::id(), qualifier as u16),
            tsih: Tsih::NEW,
            cid: Cid(0),
            cmd_sn: SerialNumber(1),
            exp_stat_sn: SerialNumber(0),
            next_itt: 1,
            tasks: HashMap::new(),
            pings: 0,
            answers_r2ts: true,
            r2ts: Vec::new(),
            attribute: TaskAttribute::SIMPLE,
            announces_data: false,
            data_out_len: 8192,
            others: Vec::new(),
        }
    }

    // PDUs

    /// The number for the next command.
    pub fn next_cmd_sn(&mut self) -> SerialNumber {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        cmd_sn
    }

    /// A task tag that has not been used.
    pub fn next_itt(&mut self) -> InitiatorTaskTag {
        self.next_itt += 1;
        InitiatorTaskTag(self.next_itt)
    }

    /// Sends a PDU with the negotiated digests.
    pub fn send(&mut self, header: [u8; BHS_LEN], data: &[u8]) {
        self.try_send(header, data).expect("the target takes it");
    }

    /// Like [`send`](Self::send), for targets that may have closed the connection.
    pub fn try_send(&mut self, header: [u8; BHS_LEN], data: &[u8]) -> io::Result<()> {
        self.stream.write_all(&self.format.encode(&header, &[], data))
    }

    /// Sends bytes unchanged.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send_bytes(bytes).expect("the target takes it");
    }

    /// Like [`send_bytes`](Self::send_bytes), for targets that may have closed the connection.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Receives the next PDU and verifies its digests.
    pub fn receive(&mut self) -> io::Result<Pdu> {
        let frame = read_frame(&mut self.stream, self.format)?.verified();
        let pdu = frame.target_pdu();
        if let Some(stat_sn) = stat_sn_of(&pdu) {
            self.exp_stat_sn = stat_sn.next();
        }
        Ok((pdu, frame.data))
    }

    /// Receives one PDU and does what it asks for.
    pub fn take_one(&mut self) {
        self.try_take_one().expect("the connection is open");
    }

    fn try_take_one(&mut self) -> io::Result<()> {
        let (pdu, data) = self.receive()?;
        match pdu {
            TargetPdu::NopIn(ping) if !ping.ttt.is_reserved() => {
                self.pings += 1;
                self.try_nop_out(requests::pong(ping.ttt), &[])?;
            }
            TargetPdu::R2t(r2t) if self.answers_r2ts => self.send_part_of(&r2t, usize::MAX)?,
            TargetPdu::R2t(r2t) => self.r2ts.push(r2t),
            TargetPdu::DataIn(pdu) => {
                let task = self.task(pdu.itt);
                assert_eq!(task.data_in.len(), pdu.buffer_offset as usize, "data comes in order");
                task.data_in.extend(data);
                if let Some(status) = pdu.status {
                    task.end(status.status, &[]);
                }
            }
            TargetPdu::ScsiResponse(pdu) => {
                let (sense, _) = split_sense(&data).expect("sense data with its length");
                self.task(pdu.itt).end(pdu.status, sense);
            }
            TargetPdu::TaskManagementResponse(_) | TargetPdu::AsyncMessage(_) => self.others.push((pdu, data)),
            TargetPdu::NopIn(_) => {}
            _ => panic!("{pdu:?}"),
        }
        Ok(())
    }

    /// The first of the [other](Self::others) PDUs in which `find` finds what a test waits for.
    fn wait_for<T>(&mut self, find: impl Fn(&TargetPdu, &[u8]) -> Option<T>) -> T {
        loop {
            if let Some((at, found)) = find_in(&self.others, &find) {
                self.others.remove(at);
                return found;
            }
            self.take_one();
        }
    }

    // Pings

    fn try_nop_out(&mut self, ping: NopOut, data: &[u8]) -> io::Result<()> {
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        self.try_send(NopOut { cmd_sn, exp_stat_sn, data_segment_len: data.len(), ..ping }.emit(), data)
    }

    fn nop_out(&mut self, ping: NopOut, data: &[u8]) {
        self.try_nop_out(ping, data).expect("the target takes it");
    }

    /// Sends a ping with data, and does not wait for its echo.
    pub fn send_ping(&mut self, data: &[u8]) {
        let itt = self.next_itt().0;
        self.nop_out(requests::nop_out(itt), data);
    }

    /// Acknowledges what was received, by a NOP-Out that asks for nothing.
    pub fn acknowledge(&mut self, lun: LunField) {
        self.nop_out(NopOut { lun, ..requests::pong(TargetTransferTag::RESERVED) }, &[]);
    }

    /// Answers the first ping of the target, which may have come before.
    pub fn answer_first_ping(&mut self) {
        while self.pings == 0 {
            self.take_one();
        }
    }

    /// When this returns, the target has dealt with all that was sent before, and nothing but its answers to that has
    /// come: it takes PDUs in their order.
    pub fn round_trip(&mut self) {
        let itt = self.next_itt();
        self.nop_out(requests::nop_out(itt.0), &[]);
        loop {
            let mut header = [0; BHS_LEN];
            let peeked = loop {
                match self.stream.peek(&mut header).expect("the connection is open") {
                    BHS_LEN => break TargetPdu::parse(&Bhs::from(header)).expect("a header of a target"),
                    0 => panic!("the target closed the connection"),
                    _ => {}
                }
            };
            if matches!(peeked, TargetPdu::NopIn(echo) if echo.itt == itt) {
                self.receive().expect("the header has come");
                return;
            }
            self.take_one();
        }
    }

    // Asynchronous messages

    /// The next unit attention that comes by asynchronous message: the LUN, and sense key and additional sense.
    pub fn news(&mut self) -> (u16, Sense) {
        self.wait_for(news_in)
    }

    /// The next asynchronous message that is neither a unit attention nor the loss of another connection; it is for
    /// `event`.
    pub fn message(&mut self, event: AsyncEvent) -> AsyncMessage {
        let message = self.wait_for(message_in);
        assert_eq!(message.event, event);
        message
    }

    /// Waits until the target asks for a logout.
    pub fn wait_for_logout_request(&mut self) {
        let is_request = |message: AsyncMessage| message.event == AsyncEvent::LOGOUT_REQUEST;
        while !self.others.iter().any(|(pdu, data)| message_in(pdu, data).is_some_and(is_request)) {
            self.take_one();
        }
    }

    /// Waits until the target calls another connection of the session lost.
    pub fn hear_of_loss(&mut self) -> Cid {
        self.wait_for(|pdu, _| match pdu {
            TargetPdu::AsyncMessage(pdu) if pdu.event == AsyncEvent::CONNECTION_DROP => Some(Cid(pdu.parameter1)),
            _ => None,
        })
    }

    /// When this returns, the target has applied all that was asked of it before, and has not told this initiator of
    /// it.
    pub fn is_undisturbed(&mut self) {
        self.round_trip();
        assert_eq!(find_in(&self.others, &news_in), None);
        assert_eq!(find_in(&self.others, &message_in), None);
    }

    // The stream

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether nothing has come that was not taken yet.
    pub fn hears_nothing(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket of our own");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket of our own");
        matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Reads until the target ends the connection, and answers nothing. The target does not ping before the end.
    pub fn wait_for_end(self) {
        self.read_to_end(LIMIT, |pdu| {
            let is_ping = matches!(pdu, TargetPdu::NopIn(ping) if !ping.ttt.is_reserved());
            assert!(!is_ping, "the connection is open: {pdu:?}");
        });
    }

    /// Reads until the target ends the connection, answers nothing, and returns what came before. `limit` is the
    /// longest wait for a PDU or the end.
    pub fn wait_for_end_within(self, limit: Duration) -> Vec<Pdu> {
        self.read_to_end(limit, |_| {})
    }

    fn read_to_end(mut self, limit: Duration, check: impl Fn(&TargetPdu)) -> Vec<Pdu> {
        self.stream.set_read_timeout(Some(limit)).expect("a time limit that is not zero");
        let mut before = Vec::new();
        loop {
            match self.receive() {
                Ok(pdu) => {
                    check(&pdu.0);
                    before.push(pdu);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("the connection is open after {limit:?}; got {before:?}")
                }
                Err(_) => return before,
            }
        }
    }

    /// Reads until the target ends the connection, and keeps nothing.
    pub fn skip_to_end(mut self) {
        io::copy(&mut self.stream, &mut io::sink()).map_or_else(
            |error| assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "it is open"),
            drop,
        );
    }

    /// The connection breaks. What it had under way can be [taken over](Self::reassign).
    pub fn cut(&self) {
        // The target may have closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Says that nothing more will come.
    pub fn close_sending_side(&self) {
        self.stream.shutdown(Shutdown::Write).expect("the connection is open");
    }
}

/// The first PDU in which `find` finds something.
fn find_in<T>(pdus: &[Pdu], find: &impl Fn(&TargetPdu, &[u8]) -> Option<T>) -> Option<(usize, T)> {
    pdus.iter().enumerate().find_map(|(at, (pdu, data))| Some((at, find(pdu, data)?)))
}

/// A unit attention.
fn news_in(pdu: &TargetPdu, data: &[u8]) -> Option<(u16, Sense)> {
    let TargetPdu::AsyncMessage(message) = pdu else { return None };
    (message.event == AsyncEvent::SCSI_EVENT).then(|| {
        let (sense, _) = split_sense(data).expect("sense data with its length");
        let lun = Lun::decode(message.lun.0).number().expect("a LUN with a number");
        (lun, commands::fixed_sense(sense))
    })
}

/// Any other message that is not the loss of a connection.
fn message_in(pdu: &TargetPdu, _: &[u8]) -> Option<AsyncMessage> {
    match pdu {
        TargetPdu::AsyncMessage(message)
            if ![AsyncEvent::SCSI_EVENT, AsyncEvent::CONNECTION_DROP].contains(&message.event) =>
        {
            Some(*message)
        }
        _ => None,
    }
}
