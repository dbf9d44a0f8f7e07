//! A login of the initiator that always succeeds, then commands, requests and PDUs of the target as the input says.
//!
//! PDUs are right by default: the input says what is wrong with them. Whatever happens, every command comes back once.

use std::time::Duration;

use lunette_buffer::Pool;
use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::{
    AsyncEvent, AsyncMessage, BHS_LEN, DataIn, DataInStatus, InitiatorPdu, InitiatorTaskTag, LogoutResponse,
    LogoutResponseCode, LunField, NopIn, R2t, RejectReason, Residual, ScsiResponse, ScsiResponseCode, SerialNumber,
    TargetTransferTag, TaskAttribute, TaskManagementFunction, TaskManagementResponseCode, TextResponse,
};
use lunette_session::iscsi_initiator::{Command, Event, TaskTag};
use lunette_session::keys::{Choices, Offer};
use lunette_testkit::Numbers;

use crate::full_feature::Recovery;
use crate::initiator::{Chap, Host, login_response, offer, wire};
use crate::input::{Input, Random};

/// Steps of one input.
const MAX_STEPS: usize = 400;

/// The target.
pub fn run(data: &[u8]) {
    // A bit of the first byte that nothing else uses.
    let level = u32::from(data.first().is_some_and(|choice| choice & 0x20 != 0));
    play(data, &Recovery { level, ..Recovery::default() });
}

/// The state of a play of the input.
struct Play {
    host: Host,
    pool: Pool,
    tags: Vec<TaskTag>,
    /// Tags of everything that was sent and wants an answer, the newest last.
    itts: Vec<InitiatorTaskTag>,
    submitted: usize,
    stat_sn: SerialNumber,
    exp_cmd_sn: SerialNumber,
    data_sn: u32,
    offset: u32,
    /// PDUs of the target have a header digest; the next one is never right.
    header_digest: bool,
    spoil: bool,
    spoilt: bool,
}

/// Plays an input to its end. Gives the number of commands that completed, what the session sent after its login, and
/// whether a PDU was damaged on its way.
pub(crate) fn play(data: &[u8], recovery: &Recovery) -> (usize, Vec<u8>, bool) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let header_digest = choice & 0x10 != 0 && recovery.level > 0;
    let offer = Offer {
        header_digest: Choices(if header_digest { 2 } else { 1 }),
        marker_interval: recovery.marker_interval,
        error_recovery_level: recovery.level,
        ..offer()
    };
    let mut host = Host::new(Chap::None, choice & 8 != 0, offer);
    let exp_cmd_sn = log_in(&mut host, choice);
    host.chunk_len = [usize::MAX, 1, 47, 1000][usize::from(choice & 3)];
    let mut play = Play {
        host,
        pool: Pool::new(8 << 20),
        tags: Vec::new(),
        itts: Vec::new(),
        submitted: 0,
        stat_sn: SerialNumber(2),
        exp_cmd_sn,
        data_sn: 0,
        offset: 0,
        header_digest,
        spoil: false,
        spoilt: false,
    };
    for _ in 0..MAX_STEPS {
        if input.is_empty() || play.host.closed {
            break;
        }
        play.step(&mut input);
    }
    play.end()
}

/// Answers the two requests of a login, as the bits of `choice` say. Gives the number of the first command.
fn log_in(host: &mut Host, choice: u8) -> SerialNumber {
    let asked_only = choice & 4 != 0;
    // Bits that nothing else uses.
    let task_reporting = ["RFC3720", "ResponseFence", "FastAbort"][usize::from(choice >> 6) % 3];
    let answer = |(key, offer): &(String, String)| {
        let value = match &key[..] {
            "InitialR2T" if asked_only => "Yes",
            "ImmediateData" if asked_only => "No",
            "TaskReporting" => task_reporting,
            "InitiatorName" | "TargetName" | "SessionType" => return Vec::new(),
            // Of a list, one is chosen.
            _ => offer.split(',').next().unwrap_or(offer),
        };
        format!("{key}={value}\0").into_bytes()
    };
    let mut exp_cmd_sn = SerialNumber(0);
    for stat_sn in 0..2 {
        let Some((request, keys)) = host.login_request() else { panic!("no login request") };
        exp_cmd_sn = request.cmd_sn;
        let text: Vec<u8> = keys.iter().flat_map(answer).collect();
        host.feed(&wire(login_response(&request, stat_sn).emit(), &text));
    }
    assert!(host.logged_in);
    exp_cmd_sn
}

impl Play {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 16 {
            0 | 1 => self.submit(input),
            2 | 3 => self.data_in(input),
            4 => self.r2t(input),
            5 => self.response(input),
            6 => self.nop_in(input),
            7 => self.text_response(input),
            8 => self.task_management_response(input),
            9 => self.news(input),
            10 => self.request(input),
            11 => self.host.wait(Duration::from_secs(u64::from(input.byte()))),
            12 => {
                let len = usize::from(input.byte());
                let bytes = input.bytes(len);
                self.spoilt |= self.header_digest;
                self.host.feed(bytes);
            }
            13 => self.logout_response(input),
            14 => self.host.reading = !self.host.reading,
            _ if self.header_digest && input.one_in(2) => {
                let bits = input.array();
                self.host.markers.iter_mut().for_each(|markers| markers.spoil = Some(bits));
            }
            _ if self.header_digest => self.spoil = true,
            _ => {
                self.host.session.disconnected(self.host.cid, self.host.now);
                self.host.feed(&[]);
            }
        }
        for (pdu, _) in self.host.sent.drain(..) {
            match pdu {
                InitiatorPdu::ScsiCommand(pdu) => {
                    self.exp_cmd_sn = pdu.cmd_sn.next();
                    self.itts.push(pdu.itt);
                    (self.data_sn, self.offset) = (0, 0);
                }
                InitiatorPdu::NopOut(pdu) => self.itts.push(pdu.itt),
                InitiatorPdu::TextRequest(pdu) => self.itts.push(pdu.itt),
                InitiatorPdu::TaskManagementRequest(pdu) => self.itts.push(pdu.itt),
                InitiatorPdu::LogoutRequest(pdu) => self.itts.push(pdu.itt),
                _ => {}
            }
        }
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let (kind, len) = (input.byte(), usize::from(input.u16()));
        let buffer = |wanted: bool| (wanted && len > 0).then(|| self.pool.take(len)).flatten();
        let command = Command {
            user: self.submitted as u64,
            lun: LunField([0, kind >> 6, 0, 0, 0, 0, 0, 0]),
            cdb: [0; 16],
            cdb_rest: if kind & 4 == 0 { Box::default() } else { vec![1; usize::from(kind)].into() },
            attribute: TaskAttribute::SIMPLE,
            priority: kind >> 4,
            data_out: buffer(kind & 1 != 0).map(lunette_buffer::Buffer::share),
            data_in: buffer(kind & 2 != 0),
            block_len: if kind & 8 == 0 { 0 } else { 100 },
        };
        if let Ok(tag) = self.host.session.submit(command, self.host.now) {
            self.submitted += 1;
            self.tags.push(tag);
        }
        self.host.feed(&[]);
    }

    /// The newest tag, or another.
    fn itt(&self, input: &mut Input<'_>) -> InitiatorTaskTag {
        match input.byte() {
            0xff => InitiatorTaskTag(input.u32()),
            back => {
                let index = self.itts.len().checked_sub(1 + usize::from(back & 7));
                index.map_or(InitiatorTaskTag::RESERVED, |index| self.itts[index])
            }
        }
    }

    /// A number, or one that is beside it.
    fn near(input: &mut Input<'_>, right: u32) -> u32 {
        let byte = input.byte();
        if byte < 0xe0 { right } else { right.wrapping_add(u32::from(byte) << (byte & 15)) }
    }

    fn status(&mut self, input: &mut Input<'_>) -> SerialNumber {
        let stat_sn = SerialNumber(Self::near(input, self.stat_sn.0));
        self.stat_sn = self.stat_sn.next();
        stat_sn
    }

    /// Numbers with this StatSN, the others from the input.
    fn numbers(&self, stat_sn: SerialNumber, input: &mut Input<'_>) -> Numbers {
        let exp_cmd_sn = SerialNumber(Self::near(input, self.exp_cmd_sn.0));
        Numbers { stat_sn, exp_cmd_sn, max_cmd_sn: exp_cmd_sn.add(u32::from(input.byte())) }
    }

    fn residual(input: &mut Input<'_>) -> Residual {
        match input.byte() & 3 {
            0 | 1 => Residual::None,
            2 => Residual::Underflow(u32::from(input.u16())),
            _ => Residual::Overflow(u32::from(input.u16())),
        }
    }

    fn send(&mut self, header: [u8; BHS_LEN], data: &[u8]) {
        let mut wire = wire(header, data);
        if self.header_digest {
            let digest = to_wire(crc32c(&wire[..BHS_LEN]));
            let spoil = std::mem::take(&mut self.spoil);
            self.spoilt |= spoil;
            wire.splice(BHS_LEN..BHS_LEN, if spoil { [0xff; 4] } else { digest });
        }
        self.host.feed(&wire);
    }

    fn data_in(&mut self, input: &mut Input<'_>) {
        let (itt, flags, len) = (self.itt(input), input.byte(), usize::from(input.u16()));
        let numbers = self.numbers(self.stat_sn, input);
        let residual = Self::residual(input);
        let status = (flags & 1 != 0).then(|| DataInStatus { stat_sn: self.status(input), ..numbers.good(residual) });
        let (data_sn, offset) = (Self::near(input, self.data_sn), Self::near(input, self.offset));
        let pdu = DataIn {
            final_: flags & 3 != 0,
            acknowledge: flags & 0xf0 == 0xf0,
            status,
            ..numbers.data_in(itt, data_sn, offset, 0)
        };
        (self.data_sn, self.offset) = (self.data_sn.wrapping_add(1), self.offset.wrapping_add(len as u32));
        self.send(pdu.emit(), &vec![0xda; len]);
    }

    fn r2t(&mut self, input: &mut Input<'_>) {
        let (itt, len) = (self.itt(input), u32::from(input.u16()));
        let numbers = self.numbers(self.stat_sn, input);
        let pdu = R2t {
            ttt: TargetTransferTag(u32::from(input.byte())),
            stat_sn: SerialNumber(Self::near(input, self.stat_sn.0)),
            r2t_sn: Self::near(input, self.data_sn),
            buffer_offset: Self::near(input, self.offset),
            desired_data_transfer_length: Self::near(input, len),
            ..numbers.r2t(itt, 0, 0, 0)
        };
        (self.data_sn, self.offset) = (self.data_sn.wrapping_add(1), self.offset.wrapping_add(len));
        self.send(pdu.emit(), &[]);
    }

    fn response(&mut self, input: &mut Input<'_>) {
        let (itt, stat_sn) = (self.itt(input), self.status(input));
        let numbers = self.numbers(stat_sn, input);
        let len = usize::from(input.byte() & 31);
        let pdu = ScsiResponse {
            response: ScsiResponseCode(input.byte() & 1),
            status: input.byte() & 0x1e,
            exp_data_sn: Self::near(input, 0),
            residual: Self::residual(input),
            bidi_read_residual: Self::residual(input),
            snack_tag: u32::from(input.byte() & 3),
            ..numbers.scsi_response(itt)
        };
        self.send(pdu.emit(), input.bytes(len));
    }

    fn nop_in(&mut self, input: &mut Input<'_>) {
        let numbers = self.numbers(self.stat_sn, input);
        let asks = input.byte() & 1 == 0;
        let pdu = if asks {
            numbers.ping(TargetTransferTag(3))
        } else {
            let itt = self.itt(input);
            NopIn { stat_sn: self.status(input), ..numbers.nop_in(itt) }
        };
        let len = usize::from(input.byte() & 7);
        self.send(pdu.emit(), if asks { &[] } else { input.bytes(len) });
    }

    fn text_response(&mut self, input: &mut Input<'_>) {
        let (itt, stat_sn, flags) = (self.itt(input), self.status(input), input.byte());
        let numbers = self.numbers(stat_sn, input);
        let len = usize::from(input.byte());
        let pdu = TextResponse {
            final_: flags & 1 != 0,
            continue_: flags & 3 == 2,
            ttt: if flags & 1 != 0 { TargetTransferTag::RESERVED } else { TargetTransferTag(1) },
            ..numbers.text_response(itt, 0)
        };
        let declares = flags & 4 != 0;
        self.send(pdu.emit(), if declares { b"MaxRecvDataSegmentLength=512\0" } else { input.bytes(len) });
    }

    fn task_management_response(&mut self, input: &mut Input<'_>) {
        let (itt, stat_sn) = (self.itt(input), self.status(input));
        let numbers = self.numbers(stat_sn, input);
        let response = TaskManagementResponseCode(input.byte() & 7);
        self.send(numbers.task_management_response(itt, response).emit(), &[]);
    }

    fn logout_response(&mut self, input: &mut Input<'_>) {
        let (itt, stat_sn) = (self.itt(input), self.status(input));
        let numbers = self.numbers(stat_sn, input);
        let response = LogoutResponseCode(input.byte() & 3);
        self.send(LogoutResponse { response, ..numbers.logout_response(itt) }.emit(), &[]);
    }

    fn news(&mut self, input: &mut Input<'_>) {
        let stat_sn = self.status(input);
        let numbers = self.numbers(stat_sn, input);
        let kind = input.byte();
        if kind & 8 != 0 {
            let reason = RejectReason(kind >> 4);
            let mut header = [0; BHS_LEN];
            header[16..20].copy_from_slice(&self.itt(input).0.to_be_bytes());
            return self.send(numbers.reject(reason).emit(), &header[..BHS_LEN - usize::from(kind & 1)]);
        }
        let pdu = AsyncMessage {
            lun: LunField([0, kind >> 6, 0, 0, 0, 0, 0, 0]),
            parameter1: u16::from(kind >> 5 & 1),
            parameter3: 1,
            ..numbers.async_message(AsyncEvent(kind & 7))
        };
        self.send(pdu.emit(), &[]);
    }

    fn request(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let session = &mut self.host.session;
        match kind & 7 {
            0..=3 => {
                let tag = self.tags.get(usize::from(kind >> 4)).copied();
                let function = TaskManagementFunction(1 + input.byte() % 12);
                session.manage_tasks(1, function, LunField([0, kind >> 6, 0, 0, 0, 0, 0, 0]), tag);
            }
            4 | 6 => drop(session.ping(2, self.host.cid, vec![7; usize::from(kind >> 4)])),
            5 if kind & 8 == 0 => drop(session.text(3, &[("SendTargets", "All")])),
            5 => {
                // In several parts, when the target takes short ones.
                let value = "1".repeat(250);
                session.text(3, &[("X-a", &value), ("X-b", &value), ("X-c", &value)]);
            }
            _ => drop(session.logout()),
        }
        self.host.feed(&[]);
    }

    /// A target that falls silent is given up; everything has come back then. Gives what [`play`] does.
    fn end(mut self) -> (usize, Vec<u8>, bool) {
        self.host.reading = true;
        self.host.feed(&[]);
        for _ in 0..3 {
            self.host.wait(Duration::from_secs(3600));
        }
        assert!(self.host.closed, "a session that does not end");
        let mut users = Vec::new();
        let mut completed = 0;
        for event in self.host.events {
            match event {
                Event::Completed { command, response } => {
                    let room = command.data_in.as_ref().map_or(0, |buffer| buffer.len());
                    assert!(response.data_in_len <= room);
                    users.push(command.user);
                    completed += 1;
                }
                Event::Aborted(command) => users.push(command.user),
                _ => {}
            }
        }
        users.extend(self.host.session.into_unfinished().iter().map(|command| command.user));
        users.sort_unstable();
        assert!(users.iter().copied().eq(0..self.submitted as u64), "each command comes back once");
        (completed, self.host.transcript, self.spoilt)
    }
}

/// Steps that follow each other well more often than not.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.byte() & 0xf7];
    for _ in 0..1 + random.below(40) {
        bytes.push(*random.choose(&[0, 0, 2, 2, 4, 4, 5, 6, 7, 8, 9, 10, 10, 11, 12, 13, 14, 15]));
        // Small numbers leave PDUs as they should be.
        for _ in 0..random.below(16) {
            let byte = random.byte();
            bytes.push(if random.below(6) == 0 { byte } else { byte & 3 });
        }
    }
    bytes
}

/// A seed of each kind that ends well.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let read = [0, 2, 0, 16];
    // Tag, flags, length, numbers, residual, StatSN, DataSN, offset.
    let data_in = [2, 0, 1, 0, 16, 0, 31, 0, 0, 0, 0];
    let write = [0, 1, 0, 16];
    // Tag, length, numbers, transfer tag, StatSN, R2TSN, offset, length.
    let r2t = [4, 0, 0, 16, 0, 31, 9, 0, 0, 0, 0];
    // Tag, StatSN, numbers, length, response, status, ExpDataSN, residuals.
    let good = [5, 0, 0, 0, 31, 0, 0, 0, 0, 0, 0];
    vec![
        ("read".into(), [&[0][..], &read, &data_in].concat()),
        ("write".into(), [&[4][..], &write, &r2t, &good].concat()),
        ("unasked_write".into(), [&[1][..], &write, &good].concat()),
        ("abort".into(), [&[0][..], &read, &[10, 0, 0, 8, 0, 0, 0, 31, 0]].concat()),
        ("text".into(), vec![8, 10, 5, 7, 0, 0, 1, 0, 31, 4, b'A', b'=', b'1', 0]),
        ("logout".into(), vec![0, 10, 7, 13, 0, 0, 0, 31, 0]),
        ("ping".into(), vec![0, 6, 0, 31, 0, 0]),
        ("news".into(), vec![0, 9, 0, 0, 31, 2, 15]),
        ("fast_abort".into(), [&[0x84][..], &write, &[10, 0, 4], &r2t, &[8, 0, 0, 0, 31, 0]].concat()),
        (
            "text_in_parts".into(),
            vec![0, 10, 5, 7, 0, 0, 5, 0, 31, 0, 10, 13, 7, 0, 0, 0, 0, 31, 0, 7, 0, 0, 1, 0, 31, 0],
        ),
        ("reject".into(), [&[0][..], &read, &[9, 0, 0, 31, 0x48, 0]].concat()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_do_what_their_names_say() {
        for (name, bytes) in seeds() {
            let expected = usize::from(matches!(name.as_str(), "read" | "write" | "unasked_write"));
            for level in [0, 1] {
                assert_eq!(
                    play(&bytes, &Recovery { level, ..Recovery::default() }).0,
                    expected,
                    "{name} at level {level}"
                );
            }
        }
    }
}
