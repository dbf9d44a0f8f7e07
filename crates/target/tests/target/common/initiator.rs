//! A small blocking initiator. It sends what a test says, and answers nothing by itself but R2Ts and pings.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use lunette_pdu::sense::split_sense;
use lunette_pdu::{
    Ahs, AsyncEvent, AsyncMessage, BHS_LEN, Bhs, Cid, DataOut, InitiatorTaskTag, Isid, LoginRequest, LoginStatus,
    LogoutReason, LogoutRequest, LogoutResponseCode, LunField, MAX_AHS_LEN, NopOut, R2t, ScsiCommand, SerialNumber,
    Stage, TargetPdu, TargetTransferTag, TaskAttribute, TaskManagementFunction, TaskManagementRequest,
    TaskManagementResponseCode, TextRequest, Tsih, pad_len,
};
use lunette_scsi::Lun;
use lunette_store::filters::Delay;

use super::{BLOCK_LEN, LIMIT, TARGET, Target};

/// Who logs in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    pub(crate) initiator: u8,
    pub(crate) isid: u16,
    pub(crate) target: &'static str,
}

impl Port {
    pub(crate) const A: Self = Self { initiator: b'a', isid: 1, target: TARGET };
    pub(crate) const B: Self = Self { initiator: b'b', isid: 1, target: TARGET };
}

fn initiator_name(initiator: u8) -> String {
    format!("iqn.2026-11.org.example:{}", char::from(initiator))
}

pub(crate) struct Initiator {
    stream: TcpStream,
    /// The number of the next command. Connections of one session share it: a test deals them out.
    pub(crate) cmd_sn: SerialNumber,
    exp_stat_sn: SerialNumber,
    tsih: Tsih,
    cid: Cid,
    next_itt: u32,
    tasks: HashMap<InitiatorTaskTag, Task>,
    /// Answers to task management requests.
    /// Pings of the target that were answered.
    pings: usize,
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

#[derive(Default)]
struct Task {
    data_out: Vec<u8>,
    data_in: Vec<u8>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) status: u8,
    pub(crate) sense: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Outcome {
    pub(crate) fn good(self) -> Vec<u8> {
        assert_eq!(self.status, 0, "{self:02x?}");
        self.data
    }

    /// Sense key and additional sense of a CHECK CONDITION with fixed format sense data.
    pub(crate) fn sense(&self) -> (u8, u8, u8) {
        assert_eq!(self.status, 2, "{self:02x?}");
        (self.sense[2] & 0x0f, self.sense[12], self.sense[13])
    }
}

/// Sense data of a nexus that is new, and of one that comes back.
pub(crate) const POWER_ON: (u8, u8, u8) = (6, 0x29, 0);
pub(crate) const NEXUS_LOSS: (u8, u8, u8) = (6, 0x29, 7);

/// Sense data of a nexus that has lost commands with a connection.
pub(crate) const COMMANDS_CLEARED: (u8, u8, u8) = (6, 0x47, 0x7f);

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

    /// Logs in, with the keys given beside the names.
    pub(crate) fn log_in(target: &Target, port: Port, keys: &[(&str, &str)]) -> Self {
        let mut initiator = Self::connect(target.address);
        initiator.send_login(port, keys);
        initiator.finish_login();
        initiator
    }

    /// Begins the login of one more connection of the session.
    pub(crate) fn send_join(&self, target: &Target, port: Port, cid: u16, keys: &[(&str, &str)]) -> Self {
        let mut joining = Self::connect(target.address);
        (joining.tsih, joining.cid, joining.cmd_sn) = (self.tsih, Cid(cid), self.cmd_sn);
        if joining.cid == self.cid {
            joining.exp_stat_sn = self.exp_stat_sn;
        }
        joining.next_itt = u32::from(cid) << 16;
        joining.send_login(port, keys);
        joining
    }

    /// One more connection of the session.
    pub(crate) fn join(&self, target: &Target, port: Port, cid: u16) -> Self {
        let mut joining = self.send_join(target, port, cid, &[]);
        joining.finish_login();
        joining
    }

    /// Logs in, and takes the unit attention of a new nexus on LUN 0.
    pub(crate) fn attach(target: &Target, port: Port) -> Self {
        Self::attach_to(target, port, POWER_ON)
    }

    /// The same for a nexus that comes back.
    pub(crate) fn attach_again(target: &Target, port: Port) -> Self {
        Self::attach_to(target, port, NEXUS_LOSS)
    }

    fn attach_to(target: &Target, port: Port, attention: (u8, u8, u8)) -> Self {
        let mut initiator = Self::log_in(target, port, &[]);
        assert_eq!(initiator.test_unit_ready(0).sense(), attention);
        initiator
    }

    pub(crate) fn send_login(&mut self, port: Port, keys: &[(&str, &str)]) {
        self.send_login_step(Stage::LoginOperationalNegotiation, Stage::FullFeaturePhase, port, keys);
    }

    /// One request of a login, from a stage to another one.
    pub(crate) fn send_login_step(&mut self, csg: Stage, nsg: Stage, port: Port, keys: &[(&str, &str)]) {
        let name = initiator_name(port.initiator);
        let names = [("InitiatorName", name.as_str()), ("SessionType", "Normal"), ("TargetName", port.target)];
        let text: String = names.iter().chain(keys).flat_map(|(key, value)| [key, "=", value, "\0"]).collect();
        let request = LoginRequest {
            transit: true,
            continue_: false,
            csg,
            nsg,
            version_max: 0,
            version_min: 0,
            isid: Isid::random(1, port.isid),
            tsih: self.tsih,
            itt: InitiatorTaskTag(0),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_segment_len: text.len(),
        };
        self.send(request.emit(), text.as_bytes());
    }

    pub(crate) fn finish_login(&mut self) {
        assert!(self.login_status().is_success());
    }

    /// How a login, or a step of it, ended.
    pub(crate) fn login_status(&mut self) -> LoginStatus {
        let (pdu, _) = self.receive().unwrap();
        let TargetPdu::LoginResponse(response) = pdu else { panic!("{pdu:?} answers a login") };
        if response.tsih != Tsih::NEW {
            self.tsih = response.tsih;
        }
        response.status
    }

    /// The next unit attention that comes by asynchronous message.
    pub(crate) fn news(&mut self) -> (u16, (u8, u8, u8)) {
        while self.news.is_empty() {
            self.take_one();
        }
        self.news.remove(0)
    }

    /// Acknowledges news of ended tasks: a NOP-Out that asks for nothing.
    pub(crate) fn acknowledge(&mut self, lun: LunField) {
        let (itt, ttt) = (InitiatorTaskTag::RESERVED, TargetTransferTag::RESERVED);
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        self.send(NopOut { immediate: true, lun, itt, ttt, cmd_sn, exp_stat_sn, data_segment_len: 0 }.emit(), &[]);
    }

    /// The next asynchronous message for that event; others before it do not come.
    pub(crate) fn message(&mut self, event: AsyncEvent) -> AsyncMessage {
        while self.messages.is_empty() {
            self.take_one();
        }
        let message = self.messages.remove(0);
        assert_eq!(message.event, event);
        message
    }

    /// A text request in one piece, and the answer to it.
    pub(crate) fn text(&mut self, list: &[u8]) -> Vec<u8> {
        let request = TextRequest {
            immediate: true,
            final_: true,
            continue_: false,
            lun: LunField([0; 8]),
            itt: self.next_itt(),
            ttt: TargetTransferTag::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_segment_len: list.len(),
        };
        self.send(request.emit(), list);
        let (pdu, data) = self.receive().unwrap();
        assert!(matches!(pdu, TargetPdu::TextResponse(response) if response.final_), "{pdu:?}");
        data
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

    // Recovery.

    /// The connection breaks. What it had under way can be [taken over](Self::reassign).
    pub(crate) fn cut(&self) {
        // The target may have closed it.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Waits until the target calls another connection of the session lost.
    pub(crate) fn hear_of_loss(&mut self) -> Cid {
        while self.dropped.is_empty() {
            self.take_one();
        }
        self.dropped.remove(0)
    }

    /// Expects the end of a task of another connection here.
    pub(crate) fn take_over(&mut self, from: &mut Self, itt: InitiatorTaskTag) {
        if let Some(task) = from.tasks.remove(&itt) {
            self.tasks.insert(itt, task);
        }
    }

    /// Names its tasks as `old`, whose place it takes, would have gone on.
    pub(crate) fn with_tags_after(mut self, old: &Self) -> Self {
        self.next_itt = old.next_itt;
        self
    }

    /// Asks for a task of another connection to go on here.
    pub(crate) fn reassign(&mut self, from: &mut Self, itt: InitiatorTaskTag) -> TaskManagementResponseCode {
        self.reassign_from(from, itt, 0)
    }

    /// The same when data of it has been received.
    pub(crate) fn reassign_from(
        &mut self,
        from: &mut Self,
        itt: InitiatorTaskTag,
        exp_data_sn: u32,
    ) -> TaskManagementResponseCode {
        self.take_over(from, itt);
        let request = self.send_management(TaskManagementFunction::TASK_REASSIGN, 0, Some(itt), exp_data_sn);
        self.finish_management(request)
    }

    // PDUs.

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

    /// Reads until the target ends the connection.
    pub(crate) fn wait_for_end(mut self) {
        loop {
            match self.receive() {
                Ok((TargetPdu::NopIn(ping), _)) if !ping.ttt.is_reserved() => {
                    panic!("the connection is open: {ping:?}")
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    panic!("the connection is open after {LIMIT:?}")
                }
                Err(_) => return,
            }
        }
    }

    // Commands.

    fn next_cmd_sn(&mut self) -> SerialNumber {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        cmd_sn
    }

    fn next_itt(&mut self) -> InitiatorTaskTag {
        self.next_itt += 1;
        InitiatorTaskTag(self.next_itt)
    }

    /// Sends a command, with the first `immediate` bytes of its data.
    pub(crate) fn start(
        &mut self,
        lun: u16,
        cdb: &[u8],
        data_out: Vec<u8>,
        data_in_len: u32,
        immediate: usize,
    ) -> InitiatorTaskTag {
        let itt = self.next_itt();
        let mut whole_cdb = [0; 16];
        whole_cdb[..cdb.len()].copy_from_slice(cdb);
        let write = !data_out.is_empty();
        let command = ScsiCommand {
            immediate: false,
            final_: !self.announces_data,
            read: data_in_len > 0,
            write,
            attr: self.attribute,
            priority: 0,
            lun: LunField(Lun::new(lun).unwrap().encode()),
            itt,
            expected_data_transfer_length: if write { data_out.len() as u32 } else { data_in_len },
            cmd_sn: self.next_cmd_sn(),
            exp_stat_sn: SerialNumber(0),
            cdb: whole_cdb,
            ahs_len: 0,
            data_segment_len: immediate,
        };
        self.send(command.emit(), &data_out[..immediate]);
        self.tasks.insert(itt, Task { data_out, ..Task::default() });
        itt
    }

    /// Sends a command without data, whose CDB has so many bytes beyond its first 16.
    pub(crate) fn start_with_extended_cdb(&mut self, additional: usize) -> InitiatorTaskTag {
        let rest = vec![0; additional];
        let mut ahs = [0; MAX_AHS_LEN];
        let ahs_len = Ahs::ExtendedCdb(&rest).emit(&mut ahs).unwrap().next_multiple_of(4);
        let itt = self.next_itt();
        let command = ScsiCommand {
            immediate: false,
            final_: true,
            read: false,
            write: false,
            attr: TaskAttribute::SIMPLE,
            priority: 0,
            lun: LunField([0; 8]),
            itt,
            expected_data_transfer_length: 0,
            cmd_sn: self.next_cmd_sn(),
            exp_stat_sn: SerialNumber(0),
            cdb: [0x7f; 16],
            ahs_len,
            data_segment_len: 0,
        };
        self.send_bytes(&command.emit());
        self.send_bytes(&ahs[..ahs_len]);
        self.tasks.insert(itt, Task::default());
        itt
    }

    /// Waits for the end of a command.
    pub(crate) fn finish(&mut self, itt: InitiatorTaskTag) -> Outcome {
        loop {
            if let Some(outcome) = self.tasks.get_mut(&itt).expect("a task under way").outcome.take() {
                self.tasks.remove(&itt);
                return outcome;
            }
            self.take_one();
        }
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

    fn answer_ping(&mut self, ttt: TargetTransferTag) {
        self.nop_out(InitiatorTaskTag::RESERVED, ttt);
    }

    fn nop_out(&mut self, itt: InitiatorTaskTag, ttt: TargetTransferTag) {
        let (cmd_sn, exp_stat_sn) = (self.cmd_sn, self.exp_stat_sn);
        let lun = LunField([0; 8]);
        self.send(NopOut { immediate: true, lun, itt, ttt, cmd_sn, exp_stat_sn, data_segment_len: 0 }.emit(), &[]);
    }

    /// Answers the first ping of the target, which may have come before.
    pub(crate) fn answer_first_ping(&mut self) {
        while self.pings == 0 {
            self.take_one();
        }
    }

    /// When this returns, the target has dealt with all that was sent before and nothing but its answers to that has come:
    /// it takes PDUs in their order.
    pub(crate) fn round_trip(&mut self) {
        let itt = self.next_itt();
        self.nop_out(itt, TargetTransferTag::RESERVED);
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

    /// Whether the answer to `itt` has come.
    pub(crate) fn has_answer(&self, itt: InitiatorTaskTag) -> bool {
        self.managed.contains_key(&itt) || self.tasks.get(&itt).is_some_and(|task| task.outcome.is_some())
    }

    /// Sends all data of a command that has announced it.
    pub(crate) fn send_unsolicited(&mut self, lun: u16, itt: InitiatorTaskTag) {
        let zero = SerialNumber(0);
        self.answer_r2t(&R2t {
            lun: LunField(Lun::new(lun).unwrap().encode()),
            itt,
            ttt: TargetTransferTag::RESERVED,
            stat_sn: zero,
            exp_cmd_sn: zero,
            max_cmd_sn: zero,
            r2t_sn: 0,
            buffer_offset: 0,
            desired_data_transfer_length: self.tasks[&itt].data_out.len() as u32,
        });
    }

    pub(crate) fn answer_r2t(&mut self, r2t: &R2t) {
        self.send_part_of(r2t, usize::MAX);
    }

    /// Answers an R2T with its first PDUs.
    pub(crate) fn send_part_of(&mut self, r2t: &R2t, pdus: usize) {
        let start = r2t.buffer_offset as usize;
        let data = self.tasks[&r2t.itt].data_out[start..start + r2t.desired_data_transfer_length as usize].to_vec();
        let count = data.len().div_ceil(self.data_out_len);
        for (index, piece) in data.chunks(self.data_out_len).enumerate().take(pdus) {
            let pdu = DataOut {
                final_: index + 1 == count,
                lun: r2t.lun,
                itt: r2t.itt,
                ttt: r2t.ttt,
                exp_stat_sn: SerialNumber(0),
                data_sn: index as u32,
                buffer_offset: (start + index * self.data_out_len) as u32,
                data_segment_len: piece.len(),
            };
            self.send(pdu.emit(), piece);
        }
    }

    pub(crate) fn command(&mut self, lun: u16, cdb: &[u8], data_out: Vec<u8>, data_in_len: u32) -> Outcome {
        let itt = self.start(lun, cdb, data_out, data_in_len, 0);
        self.finish(itt)
    }

    pub(crate) fn test_unit_ready(&mut self, lun: u16) -> Outcome {
        self.command(lun, &[0; 6], Vec::new(), 0)
    }

    pub(crate) fn start_read(&mut self, lun: u16, lba: u32, blocks: u16) -> InitiatorTaskTag {
        self.start(lun, &cdb_10(0x28, lba, blocks), Vec::new(), u32::from(blocks) * BLOCK_LEN as u32, 0)
    }

    pub(crate) fn read(&mut self, lun: u16, lba: u32, blocks: u16) -> Outcome {
        let itt = self.start_read(lun, lba, blocks);
        self.finish(itt)
    }

    pub(crate) fn start_write(&mut self, lun: u16, lba: u32, data: Vec<u8>, immediate: usize) -> InitiatorTaskTag {
        let blocks = u16::try_from(data.len() / BLOCK_LEN).unwrap();
        self.start(lun, &cdb_10(0x2a, lba, blocks), data, 0, immediate)
    }

    pub(crate) fn write(&mut self, lun: u16, lba: u32, data: Vec<u8>) -> Outcome {
        let itt = self.start_write(lun, lba, data, 0);
        self.finish(itt)
    }

    pub(crate) fn synchronize_cache(&mut self, lun: u16) -> Outcome {
        self.command(lun, &cdb_10(0x35, 0, 0), Vec::new(), 0)
    }

    // Task management and logout.

    pub(crate) fn start_management(
        &mut self,
        function: TaskManagementFunction,
        lun: u16,
        referenced: Option<InitiatorTaskTag>,
    ) -> InitiatorTaskTag {
        self.send_management(function, lun, referenced, 0)
    }

    pub(crate) fn send_management(
        &mut self,
        function: TaskManagementFunction,
        lun: u16,
        referenced: Option<InitiatorTaskTag>,
        exp_data_sn: u32,
    ) -> InitiatorTaskTag {
        let itt = self.next_itt();
        let request = TaskManagementRequest {
            immediate: true,
            function,
            lun: LunField(Lun::new(lun).unwrap().encode()),
            itt,
            referenced_task_tag: referenced.unwrap_or(InitiatorTaskTag::RESERVED),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: SerialNumber(0),
            ref_cmd_sn: SerialNumber(1),
            exp_data_sn,
        };
        self.send(request.emit(), &[]);
        itt
    }

    pub(crate) fn finish_management(&mut self, itt: InitiatorTaskTag) -> TaskManagementResponseCode {
        loop {
            if let Some(response) = self.managed.remove(&itt) {
                return response;
            }
            self.take_one();
        }
    }

    /// A function that concerns a task of the store: its answer comes when the store is done with it, and not before.
    pub(crate) fn manage_held(&mut self, function: TaskManagementFunction, task: InitiatorTaskTag, store: &Delay) {
        let request = self.start_management(function, 0, Some(task));
        self.round_trip();
        self.round_trip();
        assert!(!self.has_answer(request), "the store still works on the task");
        store.release();
        assert_eq!(self.finish_management(request), TaskManagementResponseCode::FUNCTION_COMPLETE);
    }

    pub(crate) fn send_logout(&mut self) {
        self.send_logout_of(LogoutReason::CLOSE_SESSION, 0);
    }

    /// Asks for the end of a connection of the session, or of all.
    pub(crate) fn send_logout_of(&mut self, reason: LogoutReason, cid: u16) {
        self.send_logout_after(reason, Cid(cid), SerialNumber(0));
    }

    /// Logs another connection out for recovery.
    pub(crate) fn recover(&mut self, lost: &Self) {
        self.send_logout_after(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, lost.cid, lost.exp_stat_sn);
        assert_eq!(self.logout_response(), LogoutResponseCode::CLOSED);
    }

    fn send_logout_after(&mut self, reason: LogoutReason, cid: Cid, exp_stat_sn: SerialNumber) {
        let request =
            LogoutRequest { immediate: true, reason, itt: self.next_itt(), cid, cmd_sn: self.cmd_sn, exp_stat_sn };
        self.send(request.emit(), &[]);
    }

    pub(crate) fn logout_response(&mut self) -> LogoutResponseCode {
        let (pdu, _) = self.receive().unwrap();
        let TargetPdu::LogoutResponse(response) = pdu else { panic!("{pdu:?} answers a logout") };
        response.response
    }

    /// Waits until the target asks for a logout.
    pub(crate) fn wait_for_logout_request(&mut self) {
        while !self.logout_requested {
            self.take_one();
        }
    }

    /// Says that nothing more will come.
    pub(crate) fn close_sending_side(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
}

pub(crate) fn cdb_10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = blocks.to_be_bytes();
    [opcode, 0, a, b, c, d, 0, high, low, 0]
}
