//! A login that always succeeds, then PDUs and mishaps as the input says.
//!
//! The first bytes choose what is negotiated. Each of the following steps starts with a byte that says what happens.

use std::collections::VecDeque;
use std::time::Duration;

use lunette_pdu::{
    Ahs, BHS_LEN, Cid, DIGEST_LEN, DataOut, InitiatorTaskTag, Isid, LogoutReason, LogoutRequest, NopOut, ScsiCommand,
    SerialNumber, SnackRequest, SnackType, TargetTransferTag, TaskManagementFunction, TaskManagementRequest,
    TextRequest,
};
use lunette_scsi::OpCode;
use lunette_session::Authentication;
use lunette_session::keys::{Digest, Offer};
use lunette_testkit::{Format, requests};

use crate::input::{Input, Random};
use crate::toy::{Played, Rival, Server, TARGET, Toy, block_cdb, command, login_request};

/// Steps of one input.
const MAX_STEPS: usize = 400;

/// Bit of the first byte: the session is for discovery.
const DISCOVERY: u8 = 0x10;

/// Blocks of a command whose lengths agree: it can be answered while it is read, or is a bit too long for that.
const MAX_FITTING_BLOCKS: u32 = 40;

/// Kinds of steps.
const STEPS: u8 = 27;

/// The target.
pub fn run(data: &[u8]) {
    play(data, &Recovery::default());
}

/// The recovery that makes damage bearable.
#[derive(Default)]
pub(crate) struct Recovery {
    /// Markers in both directions, at this interval.
    pub(crate) marker_interval: Option<u32>,
    /// 0, 1 or 2.
    pub(crate) level: u32,
    /// No command is answered while it is read, as none is between markers.
    pub(crate) all_are_tasks: bool,
}

/// Plays an input to its end.
pub(crate) fn play(data: &[u8], recovery: &Recovery) -> Played {
    let mut input = Input::new(data);
    let mut initiator = Initiator::login(&mut input, recovery);
    for _ in 0..MAX_STEPS {
        if input.is_empty() || initiator.toy.is_closed() {
            break;
        }
        initiator.step(&mut input);
    }
    initiator.toy.finish()
}

struct Initiator {
    toy: Toy,
    format: Format,
    next_cmd_sn: SerialNumber,
    /// The next PDU is changed before it is sent: bits of one byte flip, or the header digest is one that is never
    /// right.
    spoil: Option<(u8, u8)>,
    /// The data segment of the next PDU that has one is damaged.
    damage: bool,
    exp_stat_sn: SerialNumber,
    /// Commands as they were sent last, for repetitions.
    commands: VecDeque<Sent>,
}

/// A header, its additional segments, and its data.
type Sent = ([u8; BHS_LEN], Vec<u8>, Vec<u8>);

/// Commands that may come again.
const MAX_REPEATED: usize = 8;

impl Initiator {
    fn login(input: &mut Input<'_>, recovery: &Recovery) -> Self {
        let choice = input.byte();
        let level = if recovery.level > 0 { recovery.level } else { u32::from(choice >> 5 & 3).min(2) };
        let keys = login_keys(choice, level, recovery.marker_interval, input);
        let offer =
            Offer { marker_interval: recovery.marker_interval, error_recovery_level: level, ..Offer::default() };
        let mut toy = Toy::new(Authentication::None, None, false, offer);
        toy.feed(&login_request(Isid([0x40, 0, 1, 0x37, 0, 1]), SerialNumber(u32::MAX - 2), &keys));
        assert!(toy.is_admitted(), "the login is refused");
        if recovery.all_are_tasks {
            toy.answer_later();
        }
        let parameters = toy.parameters();
        assert_eq!(parameters.of_marker, parameters.if_marker);
        let mut initiator = Self {
            format: Format {
                header_digest: parameters.header_digest == Digest::Crc32c,
                data_digest: parameters.data_digest == Digest::Crc32c,
            },
            next_cmd_sn: toy.exp_cmd_sn(),
            spoil: None,
            damage: false,
            exp_stat_sn: toy.stat_sn(),
            commands: VecDeque::new(),
            toy,
        };
        if choice & DISCOVERY == 0 {
            // The unit attention of a new nexus ends the first command.
            initiator.send(command(201, initiator.next_cmd_sn, [0; 16], 0), &[], &[]);
            initiator.next_cmd_sn = initiator.next_cmd_sn.next();
        }
        initiator
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % STEPS {
            0..=5 => self.scsi_command(input),
            6..=9 => self.answer_r2t(input),
            10 => self.data_out(input),
            11 => self.nop_out(input),
            12 => self.text(input),
            13 => self.task_management(input),
            14 => self.toy.happens(|server| server.store.release(usize::from(input.byte()), input.one_in(4))),
            15 => self.toy.happens(|server| server.store.release_all()),
            16 => self.snack(input),
            17 => self.toy.chunk_len = usize::from(input.u16()).max(1),
            18 => self.toy.set_reading(!self.toy.is_reading()),
            19 => self.toy.wait(Duration::from_secs(input.byte().into())),
            20 => self.spoil = Some((input.byte(), input.byte())),
            21 => self.raw(input),
            22 => self.logout(input),
            24 => self.toy.renegotiate(512 + u32::from(input.u16()) * 4),
            25 => self.toy.rival_does(Rival::reset),
            // The target stops waiting for the data of tasks that were ended.
            26 => self.toy.wait(Duration::from_secs(1)),
            _ => match input.byte() % 8 {
                0 => self.toy.happens(Server::stop),
                1 => self.toy.happens(Server::remove),
                2 => self.exp_stat_sn = SerialNumber(self.toy.stat_sn().0.wrapping_sub(u32::from(input.byte() % 8))),
                3 => self.toy.rival_does(Rival::take_buffer),
                4..=5 => self.damage = true,
                6 => self.repeat(input),
                _ => {
                    let bits = input.array();
                    self.toy.markers.iter_mut().for_each(|markers| markers.spoil = Some(bits));
                }
            },
        }
    }

    /// A command comes again.
    fn repeat(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.byte()) % self.commands.len().max(1);
        if let Some((header, ahs, data)) = self.commands.get(at).cloned() {
            self.send(header, &ahs, &data);
        }
    }

    /// The number of a PDU that carries one. Sometimes it is a wrong one.
    fn cmd_sn(&mut self, immediate: bool, input: &mut Input<'_>) -> SerialNumber {
        if input.one_in(32) {
            return self.next_cmd_sn.add(input.byte().into());
        }
        let cmd_sn = self.next_cmd_sn;
        if !immediate {
            self.next_cmd_sn = cmd_sn.next();
        }
        cmd_sn
    }

    fn scsi_command(&mut self, input: &mut Input<'_>) {
        let flags = input.byte();
        let immediate = flags >> 3 & 7 == 7;
        let (read, write) = (flags & 1 != 0, flags & 2 != 0);
        // Whole blocks, as many as the CDB names, all of them with the command.
        let fits = flags >> 3 & 7 == 6;
        let length = u32::from(input.u16()) << (flags >> 6);
        let length = if fits { length / 512 % MAX_FITTING_BLOCKS * 512 } else { length };
        let unsolicited = write && flags & 4 != 0;
        let data_len = match (write, fits) {
            (false, _) => 0,
            (true, true) => length as usize,
            (true, false) => usize::from(input.u16()).min(length as usize),
        };
        let mut data = vec![0xda; data_len];
        let parameters = self.toy.parameters();
        // Mostly within the rules; the rest breaks them.
        if !input.one_in(16) {
            data.truncate(if parameters.immediate_data { parameters.effective_first_burst_len() as usize } else { 0 });
            data.truncate(parameters.recv_data_segment_len as usize);
        }
        let unsolicited = unsolicited && (!parameters.initial_r2t || input.one_in(16));
        let mut ahs = [0; 64];
        let mut ahs_len = 0;
        if read && write {
            ahs_len += Ahs::BidiReadLength(length).emit(&mut ahs).expect("8 bytes");
        }
        if input.one_in(8) {
            let cdb = [input.byte(); 16];
            ahs_len += Ahs::ExtendedCdb(&cdb).emit(&mut ahs[ahs_len..]).expect("20 bytes");
        }
        let command = ScsiCommand {
            immediate,
            final_: !unsolicited,
            read,
            write,
            itt: InitiatorTaskTag(u32::from(input.byte() % 64)),
            expected_data_transfer_length: if read || write { length } else { 0 },
            cmd_sn: self.cmd_sn(immediate, input),
            cdb: if fits { fitting_cdb(read, length, input.byte()) } else { cdb(input.array(), length) },
            ahs_len,
            data_segment_len: data.len(),
            ..requests::command(0)
        };
        self.commands.truncate(MAX_REPEATED - 1);
        self.commands.push_front((command.emit(), ahs[..ahs_len].to_vec(), data.clone()));
        self.send(command.emit(), &ahs[..ahs_len], &data);
        if unsolicited {
            self.unsolicited(&command, input);
        }
    }

    /// The Data-Out PDUs that a command announced; sometimes the last one is missing.
    fn unsolicited(&mut self, command: &ScsiCommand, input: &mut Input<'_>) {
        let limit = self.toy.parameters().effective_first_burst_len().min(command.expected_data_transfer_length);
        let piece = u32::from(input.u16()).clamp(64, 8192);
        let (mut offset, mut data_sn) = (command.data_segment_len as u32, 0);
        while offset < limit {
            let len = piece.min(limit - offset);
            let final_ = offset + len == limit;
            if final_ && input.one_in(8) {
                return;
            }
            self.send_data(command.itt, TargetTransferTag::RESERVED, data_sn, offset, len, final_);
            offset += len;
            data_sn += 1;
        }
    }

    /// All of what an R2T asked for, in pieces.
    fn answer_r2t(&mut self, input: &mut Input<'_>) {
        let waiting = self.toy.r2ts();
        if waiting.is_empty() {
            return;
        }
        let at = usize::from(input.byte()) % waiting.len();
        let r2t = waiting.swap_remove(at);
        let end = r2t.buffer_offset + r2t.desired_data_transfer_length;
        let piece = u32::from(input.u16()).clamp(512, 32_768);
        let (mut offset, mut data_sn) = (r2t.buffer_offset, 0);
        while offset < end {
            let len = piece.min(end - offset);
            self.send_data(r2t.itt, r2t.ttt, data_sn, offset, len, offset + len == end);
            offset += len;
            data_sn += 1;
        }
    }

    fn send_data(&mut self, itt: InitiatorTaskTag, ttt: TargetTransferTag, sn: u32, offset: u32, len: u32, last: bool) {
        let pdu = requests::data_out(itt.0, offset);
        let pdu = DataOut { final_: last, ttt, data_sn: sn, data_segment_len: len as usize, ..pdu };
        self.send(pdu.emit(), &[], &vec![0xda; len as usize]);
    }

    /// A Data-Out of which nothing needs to be true.
    fn data_out(&mut self, input: &mut Input<'_>) {
        let known = self.toy.r2ts().first().map(|r2t| (r2t.itt, r2t.ttt));
        let (itt, ttt) = match known.filter(|_| input.one_in(2)) {
            Some(known) => known,
            None => (InitiatorTaskTag(u32::from(input.byte() % 64)), TargetTransferTag(input.u32())),
        };
        let shift = input.byte() % 32;
        let len = u32::from(input.u16() % 8192);
        self.send_data(itt, ttt, input.byte().into(), input.u32() >> shift, len, input.one_in(2));
    }

    fn nop_out(&mut self, input: &mut Input<'_>) {
        let flags = input.byte();
        let data = vec![0xec; usize::from(input.u16() % 4096)];
        let immediate = flags & 1 != 0;
        let pdu = NopOut {
            immediate,
            itt: if flags & 6 == 6 { InitiatorTaskTag::RESERVED } else { InitiatorTaskTag(flags.into()) },
            ttt: if flags & 8 == 8 { TargetTransferTag(input.u32()) } else { TargetTransferTag::RESERVED },
            cmd_sn: self.cmd_sn(immediate, input),
            data_segment_len: data.len(),
            ..requests::nop_out(0)
        };
        // A PDU that the parser refuses is a test as well, so nothing is tidied up here.
        self.send(pdu.emit(), &[], &data);
    }

    fn text(&mut self, input: &mut Input<'_>) {
        const TEXTS: [&[u8]; 8] = [
            b"SendTargets=All\0",
            b"SendTargets=\0",
            b"SendTargets=iqn.2026-11.lunette:disk\0",
            b"SendTargets",
            b"=All\0",
            b"MaxRecvDataSegmentLength=8192\0",
            b"",
            b"X-example.key=%n%s\0SessionType=Normal\0",
        ];
        let flags = input.byte();
        let text = if flags & 8 != 0 { input.bytes(64) } else { TEXTS[usize::from(flags & 7)] };
        let immediate = flags & 0x10 != 0;
        let continue_ = flags >> 5 & 3 == 3;
        let pdu = TextRequest {
            immediate,
            final_: flags >> 5 & 3 < 2,
            continue_,
            itt: InitiatorTaskTag(u32::from(input.byte() & 1)),
            ttt: if flags & 0x80 == 0 { TargetTransferTag::RESERVED } else { TargetTransferTag(0x0007_e870) },
            cmd_sn: self.cmd_sn(immediate, input),
            data_segment_len: text.len(),
            ..requests::text(0)
        };
        self.send(pdu.emit(), &[], text);
    }

    fn task_management(&mut self, input: &mut Input<'_>) {
        let immediate = input.one_in(2);
        let pdu = TaskManagementRequest {
            immediate,
            function: TaskManagementFunction(input.byte() % 16),
            itt: InitiatorTaskTag(u32::from(input.byte())),
            referenced_task_tag: InitiatorTaskTag(u32::from(input.byte() % 64)),
            cmd_sn: self.cmd_sn(immediate, input),
            ref_cmd_sn: SerialNumber(input.u32()),
            ..requests::task_management(0, TaskManagementFunction::ABORT_TASK)
        };
        self.send(pdu.emit(), &[], &[]);
    }

    fn snack(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        // One of the last statuses, or the first data.
        let recent = self.toy.stat_sn().0.wrapping_sub(u32::from(input.byte() % 16));
        let run = if kind & 0x10 == 0 {
            let beg_run = if kind % 8 == SnackType::STATUS.0 { recent } else { u32::from(input.byte() % 16) };
            (beg_run, u32::from(input.byte() % 8))
        } else {
            (input.u32(), input.u32())
        };
        let pdu = SnackRequest {
            ttt: TargetTransferTag(recent),
            beg_run: if kind % 8 == SnackType::R_DATA.0 { 0 } else { run.0 },
            run_length: if kind % 8 == SnackType::R_DATA.0 { 0 } else { run.1 },
            ..requests::snack(InitiatorTaskTag(u32::from(input.byte() % 64)), SnackType(kind % 8))
        };
        self.send(pdu.emit(), &[], &[]);
    }

    fn logout(&mut self, input: &mut Input<'_>) {
        let pdu = LogoutRequest {
            immediate: false,
            reason: LogoutReason(input.byte() % 5),
            cid: Cid(u16::from(input.one_in(4))),
            cmd_sn: self.cmd_sn(false, input),
            ..requests::logout(200, LogoutReason::CLOSE_SESSION)
        };
        self.send(pdu.emit(), &[], &[]);
    }

    /// A header of which everything comes from the input, with the segments that it announces.
    fn raw(&mut self, input: &mut Input<'_>) {
        let mut header: [u8; BHS_LEN] = input.array();
        (header[4], header[5]) = (header[4] % 16, 0);
        let ahs = input.bytes(usize::from(header[4]) * 4);
        let mut padded = vec![0; usize::from(header[4]) * 4];
        padded[..ahs.len()].copy_from_slice(ahs);
        let data = vec![0x11; usize::from(u16::from_be_bytes([header[6], header[7]]))];
        self.send(header, &padded, &data);
    }

    /// Puts a PDU on the wire, with the digests that were negotiated.
    fn send(&mut self, mut header: [u8; BHS_LEN], ahs: &[u8], data: &[u8]) {
        header[28..32].copy_from_slice(&self.exp_stat_sn.0.to_be_bytes());
        let mut wire = self.format.encode(&header, ahs, data);
        if self.format.data_digest && !data.is_empty() && std::mem::take(&mut self.damage) {
            // It is wrong to a fuzzer's target, too.
            wire.last_chunk_mut::<DIGEST_LEN>().expect("a digest").fill(0xff);
        }
        if let Some((at, bits)) = self.spoil.take() {
            self.toy.spoilt = true;
            let header_len = BHS_LEN + ahs.len();
            match wire.get_mut(header_len..header_len + DIGEST_LEN) {
                Some(digest) if bits == 0 && self.format.header_digest => digest.fill(0xff),
                _ => {
                    let at = usize::from(at) % wire.len();
                    wire[at] ^= bits;
                }
            }
        }
        self.toy.feed(&wire);
    }
}

/// A read, or a write, of all blocks of the expected length. Every fourth one waits.
fn fitting_cdb(read: bool, length: u32, mode: u8) -> [u8; 16] {
    block_cdb(if read { OpCode::READ_16 } else { OpCode::WRITE_16 }, mode.is_multiple_of(4), length / 512)
}

/// The command of the device: a write, a write of the next bytes, a read, or a read or write that waits.
fn cdb([mode, code, high, low, rest @ ..]: [u8; 16], data_len: u32) -> [u8; 16] {
    let wish = u32::from(u16::from_be_bytes([high, low])) * 2;
    match mode % 4 {
        0 => block_cdb(OpCode::WRITE_16, mode & 8 != 0, wish.min(data_len) / 512),
        1 => {
            let mut cdb = [0; 16];
            (cdb[0], cdb[1], cdb[2]) = (code, high, low);
            cdb[3..15].copy_from_slice(&rest);
            cdb
        }
        2 => block_cdb(OpCode::READ_16, mode & 8 != 0, wish / 512),
        _ => block_cdb(if mode & 8 == 0 { OpCode::READ_16 } else { OpCode::WRITE_16 }, true, wish.min(data_len) / 512),
    }
}

/// The offer, as the bits of `choice` and the next bytes of the input say.
fn login_keys(choice: u8, level: u32, marker_interval: Option<u32>, input: &mut Input<'_>) -> String {
    let yes = |bit: u8| if choice >> bit & 1 == 1 { "Yes" } else { "No" };
    let digest = |bit: u8| if choice >> bit & 1 == 1 { "CRC32C" } else { "None" };
    let length = |byte: u8| 512_u32 << (byte % 10);
    let mut keys = format!(
        "InitiatorName=iqn.2026-11.example:i\0HeaderDigest={}\0DataDigest={}\0ErrorRecoveryLevel={level}\0\
         MaxRecvDataSegmentLength={}\0MaxOutstandingR2T={}\0",
        digest(0),
        digest(1),
        length(input.byte()),
        1 + input.byte() % 8,
    );
    if choice & DISCOVERY == 0 {
        keys += &format!(
            "SessionType=Normal\0TargetName={TARGET}\0InitialR2T={}\0ImmediateData={}\0\
             MaxBurstLength={}\0FirstBurstLength={}\0",
            yes(2),
            yes(3),
            length(input.byte()),
            length(input.byte()),
        );
        if choice & 0x80 != 0 {
            keys += "TaskReporting=FastAbort\0iSCSIProtocolLevel=2\0";
        }
    } else {
        keys += "SessionType=Discovery\0";
    }
    if let Some(words) = marker_interval {
        keys += &format!("OFMarker=Yes\0OFMarkInt={words}\0IFMarker=Yes\0IFMarkInt={words}\0");
    }
    keys
}

/// The step that is a command whose lengths agree; `flags` say in which direction.
fn short(flags: u8, blocks: u8, itt: u8) -> [u8; 9] {
    [0, flags, blocks * 2, 0, 0, 0, itt, 0, 1]
}

/// Steps that mostly make sense.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.bytes(5);
    if random.below(4) > 0 {
        bytes[0] &= 0xef;
    }
    // Nothing breaks a rule in some, so that much goes well.
    let is_calm = random.below(8) == 0;
    if is_calm {
        bytes = vec![0x0c | random.below(4) as u8, 4, 1, 6, 6];
    }
    for _ in 0..random.below(60) {
        if random.below(4) == 0 || is_calm {
            // A read or a write whose lengths agree.
            bytes.extend(short(0x30 | 1 << random.below(2), random.below(32) as u8, random.below(64) as u8));
        }
        if is_calm {
            continue;
        }
        let step = match random.below(4) {
            0 => random.below(usize::from(STEPS)),
            _ => *random.choose(&[0, 1, 6, 6, 6, 14]),
        };
        bytes.push(step as u8);
        let len = random.below(30);
        bytes.extend(random.bytes(len));
    }
    bytes
}

/// A write with R2Ts, a read, one that is sent again in part, a ping, a text exchange, an abort, a logout.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let with = |steps: &[u8]| [&[0x0c, 4, 1, 6, 6][..], steps].concat();
    let mut write = vec![0, 0x02, 0x40, 0, 0x02, 0, 0, 0, 5, 0, 0, 0, 0x20, 0];
    write.resize(25, 0);
    write.extend([6, 0, 0x10, 0, 6, 0, 0x10, 0, 6, 0, 0x10, 0]);
    let mut read = vec![0, 0x01, 0x40, 0, 0, 0, 5, 0, 2, 0, 0x10, 0];
    read.resize(24, 0);
    // Four KiB each: two are answered while they are read, as far as the store goes.
    let short = [short(0x32, 8, 1), short(0x31, 8, 2), short(0x32, 8, 3), short(0x31, 8, 4)].concat();
    vec![
        ("short".into(), with(&short)),
        ("write".into(), with(&write)),
        ("read".into(), with(&read)),
        ("ping".into(), with(&[11, 0, 0, 100, 0])),
        ("send_targets".into(), [&[0x10, 4, 1][..], &[12, 0, 0, 0]].concat()),
        ("abort".into(), with(&[13, 1, 1, 9, 5, 0, 0, 0, 0, 0, 15])),
        ("snack".into(), [&[0x2c, 4, 1, 6, 6][..], &read, &[16, 0, 1, 0, 0, 5][..]].concat()),
        ("silence".into(), with(&[19, 40, 19, 40])),
        ("logout".into(), with(&[22, 0, 0, 0])),
        ("fast_abort".into(), [&[0x8c, 4, 1, 6, 6], &write[..25], &[0, 25, 11, 7, 0, 0, 26]].concat()),
        // Half a list, the other half, and an empty request for more.
        ("text_in_parts".into(), with(&[24, 2, 0, 12, 0x65, 0, 0, 12, 0xc5, 0, 0, 12, 0x86, 0, 0])),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lunette_pdu::Opcode;

    use super::*;

    #[test]
    fn random_inputs_get_every_answer_that_a_target_has() {
        let (mut seen, mut asked_at_once) = (HashSet::new(), 0);
        for seed in 0..2000 {
            let played = play(&random(&mut Random::new(seed)), &Recovery::default());
            seen.extend(played.answers);
            asked_at_once += played.asked_at_once;
        }
        assert!(asked_at_once > 100, "{asked_at_once} requests could be answered at once");
        for opcode in [
            Opcode::NOP_IN,
            Opcode::SCSI_RESPONSE,
            Opcode::TASK_MANAGEMENT_RESPONSE,
            Opcode::LOGIN_RESPONSE,
            Opcode::TEXT_RESPONSE,
            Opcode::SCSI_DATA_IN,
            Opcode::LOGOUT_RESPONSE,
            Opcode::R2T,
            Opcode::ASYNC_MESSAGE,
            Opcode::REJECT,
        ] {
            assert!(seen.contains(&opcode), "{opcode} never came");
        }
    }

    #[test]
    fn the_seeds_do_what_their_names_say() {
        let answers = [
            ("short", Opcode::SCSI_DATA_IN),
            ("write", Opcode::R2T),
            ("read", Opcode::SCSI_DATA_IN),
            ("ping", Opcode::NOP_IN),
            ("send_targets", Opcode::TEXT_RESPONSE),
            ("abort", Opcode::TASK_MANAGEMENT_RESPONSE),
            ("snack", Opcode::SCSI_DATA_IN),
            ("silence", Opcode::NOP_IN),
            ("logout", Opcode::LOGOUT_RESPONSE),
            ("fast_abort", Opcode::ASYNC_MESSAGE),
            ("text_in_parts", Opcode::TEXT_RESPONSE),
        ];
        for ((name, bytes), (of, opcode)) in seeds().into_iter().zip(answers) {
            assert_eq!(name, of);
            let played = play(&bytes, &Recovery::default());
            assert!(played.answers.contains(&opcode), "{name}: no {opcode}");
            assert_eq!(played.asked_at_once, if name == "short" { 4 } else { 0 }, "{name}: answered at once");
        }
    }
}
