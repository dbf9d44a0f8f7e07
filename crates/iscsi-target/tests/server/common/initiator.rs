//! A small blocking initiator. It sends what a test says, and answers nothing by itself but R2Ts and pings.

mod commands;
mod control;
mod login;
mod recovery;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use lunette_pdu::sense::split_sense;
use lunette_pdu::{
    AsyncEvent, AsyncMessage, BHS_LEN, Bhs, Cid, InitiatorTaskTag, LunField, R2t, SerialNumber, TargetPdu,
    TargetTransferTag, TaskAttribute, TaskManagementResponseCode, Tsih, pad_len,
};
use lunette_scsi::Lun;

pub(crate) use commands::{COMMANDS_CLEARED, NEXUS_LOSS, Outcome, POWER_ON, cdb_10};
pub(crate) use login::Port;

use super::LIMIT;
use commands::Task;

pub(crate) struct Initiator {
    stream: TcpStream,
    /// The number of the next command. Connections of one session share it: a test deals them out.
    pub(crate) cmd_sn: SerialNumber,
    exp_stat_sn: SerialNumber,
    tsih: Tsih,
    cid: Cid,
    next_itt: u32,
    tasks: HashMap<InitiatorTaskTag, Task>,
    /// Pings of the target that were answered.
    pings: usize,
    /// Answers to task management requests.
    managed: HashMap<InitiatorTaskTag, TaskManagementResponseCode>,
    /// Whether R2Ts are answered as they come.
    pub(crate) answers_r2ts: bool,
    /// Of the commands that follow.
    pub(crate) attribute: TaskAttribute,
    /// The commands that follow announce Data-Out PDUs that nobody has asked for.
    pub(crate) announces_data: bool,
    /// Bytes per Data-Out PDU.
    pub(crate) data_out_len: usize,
    pub(crate) r2ts: Vec<R2t>,
    logout_requested: bool,
    /// Connections of the session that the target calls lost.
    dropped: Vec<Cid>,
    messages: Vec<AsyncMessage>,
    /// Unit attentions that came by asynchronous message: the LUN, and sense key and additional sense.
    news: Vec<(u16, (u8, u8, u8))>,
}

impl Initiator {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            cmd_sn: SerialNumber(1),
            exp_stat_sn: SerialNumber(0),
            tsih: Tsih::NEW,
            cid: Cid(0),
            next_itt: 1,
            tasks: HashMap::new(),
            pings: 0,
            managed: HashMap::new(),
            answers_r2ts: true,
            attribute: TaskAttribute::SIMPLE,
            announces_data: false,
            data_out_len: 8192,
            r2ts: Vec::new(),
            logout_requested: false,
            dropped: Vec::new(),
            messages: Vec::new(),
            news: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, header: [u8; BHS_LEN], data: &[u8]) {
        self.try_send(header, data).unwrap();
    }

    pub(crate) fn try_send(&mut self, header: [u8; BHS_LEN], data: &[u8]) -> io::Result<()> {
        let mut wire = header.to_vec();
        wire.extend_from_slice(data);
        wire.resize(wire.len() + pad_len(data.len()), 0);
        self.stream.write_all(&wire)
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn receive(&mut self) -> io::Result<(TargetPdu, Vec<u8>)> {
        let mut header = [0; BHS_LEN];
        self.stream.read_exact(&mut header)?;
        let bhs = Bhs::from(header);
        let len = bhs.data_segment_len();
        let mut data = vec![0; len + pad_len(len)];
        self.stream.read_exact(&mut data)?;
        data.truncate(len);
        let pdu = TargetPdu::parse(&bhs).unwrap();
        let stat_sn = match &pdu {
            TargetPdu::LoginResponse(pdu) => Some(pdu.stat_sn),
            TargetPdu::ScsiResponse(pdu) => Some(pdu.stat_sn),
            TargetPdu::DataIn(pdu) => pdu.status.map(|status| status.stat_sn),
            TargetPdu::NopIn(pdu) => (!pdu.itt.is_reserved()).then_some(pdu.stat_sn),
            TargetPdu::TaskManagementResponse(pdu) => Some(pdu.stat_sn),
            TargetPdu::AsyncMessage(pdu) => Some(pdu.stat_sn),
            TargetPdu::LogoutResponse(pdu) => Some(pdu.stat_sn),
            TargetPdu::TextResponse(pdu) => Some(pdu.stat_sn),
            _ => None,
        };
        if let Some(stat_sn) = stat_sn {
            self.exp_stat_sn = stat_sn.next();
        }
        Ok((pdu, data))
    }

    /// Receives one PDU and does what it asks for.
    pub(crate) fn take_one(&mut self) {
        let (pdu, data) = self.receive().unwrap();
        match pdu {
            TargetPdu::NopIn(ping) if !ping.ttt.is_reserved() => {
                self.pings += 1;
                self.answer_ping(ping.ttt);
            }
            TargetPdu::R2t(r2t) if self.answers_r2ts => self.answer_r2t(&r2t),
            TargetPdu::R2t(r2t) => self.r2ts.push(r2t),
            TargetPdu::DataIn(pdu) => {
                let task = self.tasks.get_mut(&pdu.itt).expect("data of a task under way");
                assert_eq!(task.data_in.len(), pdu.buffer_offset as usize, "data comes in order");
                task.data_in.extend(data);
                if let Some(status) = pdu.status {
                    let data = std::mem::take(&mut task.data_in);
                    task.outcome = Some(Outcome { status: status.status, sense: Vec::new(), data });
                }
            }
            TargetPdu::ScsiResponse(pdu) => {
                let task = self.tasks.get_mut(&pdu.itt).expect("the end of a task under way");
                let (sense, _) = split_sense(&data).unwrap();
                let data = std::mem::take(&mut task.data_in);
                task.outcome = Some(Outcome { status: pdu.status, sense: sense.to_vec(), data });
            }
            TargetPdu::TaskManagementResponse(pdu) => {
                self.managed.insert(pdu.itt, pdu.response);
            }
            TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::SCSI_EVENT => {
                let (sense, _) = split_sense(&data).unwrap();
                let lun = Lun::decode(message.lun.0).number().unwrap();
                self.news.push((lun, (sense[2] & 0x0f, sense[12], sense[13])));
            }
            TargetPdu::AsyncMessage(message) if message.event == AsyncEvent::CONNECTION_DROP => {
                self.dropped.push(Cid(message.parameter1));
            }
            TargetPdu::AsyncMessage(message) => {
                self.logout_requested |= message.event == AsyncEvent::LOGOUT_REQUEST;
                self.messages.push(message);
            }
            TargetPdu::NopIn(_) => {}
            _ => panic!("{pdu:?}"),
        }
    }

    fn next_cmd_sn(&mut self) -> SerialNumber {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        cmd_sn
    }

    fn next_itt(&mut self) -> InitiatorTaskTag {
        self.next_itt += 1;
        InitiatorTaskTag(self.next_itt)
    }

    /// When this returns, the target has dealt with all that was sent before and nothing but its answers to that has come:
    /// it takes PDUs in their order.
    pub(crate) fn round_trip(&mut self) {
        let itt = self.next_itt();
        self.nop_out(LunField([0; 8]), itt, TargetTransferTag::RESERVED);
        loop {
            let mut header = [0; BHS_LEN];
            let peeked = loop {
                match self.stream.peek(&mut header).unwrap() {
                    BHS_LEN => break TargetPdu::parse(&Bhs::from(header)).unwrap(),
                    0 => panic!("the target closed the connection"),
                    _ => {}
                }
            };
            if matches!(peeked, TargetPdu::NopIn(echo) if echo.itt == itt) {
                self.receive().unwrap();
                return;
            }
            self.take_one();
        }
    }

    /// When this returns, the target has applied all that was asked of it before, and has not told this initiator of it.
    pub(crate) fn is_undisturbed(&mut self) {
        self.round_trip();
        assert_eq!(self.news, []);
        assert_eq!(self.messages, []);
        assert!(!self.logout_requested);
    }

    /// Whether nothing has come that was not taken yet.
    pub(crate) fn hears_nothing(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Reads until the target ends the connection, and is not asked whether it lives before.
    pub(crate) fn wait_for_end(self) {
        self.read_to_end(|pdu| {
            let is_ping = matches!(pdu, TargetPdu::NopIn(ping) if !ping.ttt.is_reserved());
            assert!(!is_ping, "the connection is open: {pdu:?}");
        });
    }

    /// Reads until the target ends the connection, and answers nothing.
    pub(crate) fn skip_to_end(self) {
        self.read_to_end(|_| {});
    }

    fn read_to_end(mut self, check: impl Fn(&TargetPdu)) {
        loop {
            match self.receive() {
                Ok((pdu, _)) => check(&pdu),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("the connection is open after {LIMIT:?}")
                }
                Err(_) => return,
            }
        }
    }

    /// The connection breaks. What it had under way can be [taken over](Self::reassign).
    pub(crate) fn cut(&self) {
        // The target may have closed it.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Says that nothing more will come.
    pub(crate) fn close_sending_side(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}
