//! A small initiator: one connection, blocking. It keeps to the rules unless a test asks it not to.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lunette_crc32c::{crc32c, to_wire};
use lunette_pdu::sense::split_sense;
use lunette_pdu::text::{format_binary, parse_binary};
use lunette_pdu::{
    BHS_LEN, Bhs, Cid, DIGEST_LEN, DataOut, InitiatorTaskTag, Isid, LoginRequest, LoginResponse, LunField, NopOut, R2t,
    ScsiCommand, SerialNumber, Stage, TargetPdu, TargetTransferTag, TaskAttribute, Tsih, pad_len,
};
use lunette_scsi::Lun;
use sha2::{Digest, Sha256};

use crate::server::Server;

/// The longest wait for any answer.
const LIMIT: Duration = Duration::from_secs(30);

/// The longest Data-Out PDU, even if the target takes longer ones.
const DATA_OUT_LEN: usize = 8192;

const BLOCK_LEN: usize = 512;

/// The part of the ISID that differs between sessions of one process.
static NEXT_QUALIFIER: AtomicU32 = AtomicU32::new(1);

/// The keys that a login offers beside the names.
pub type LoginKeys<'a> = &'a [(&'a str, &'a str)];

/// A PDU with its data segment.
pub type Pdu = (TargetPdu, Vec<u8>);

/// A connection to a target.
pub struct Initiator {
    stream: TcpStream,
    /// The ISID of its initiator port.
    pub isid: Isid,
    /// The session that its login asks to join, and then the one that it belongs to.
    pub tsih: Tsih,
    /// Its connection ID in the session.
    pub cid: Cid,
    header_digest: bool,
    data_digest: bool,
    cmd_sn: SerialNumber,
    next_itt: u32,
    tasks: HashMap<InitiatorTaskTag, Task>,
    /// Received PDUs that are neither pings nor belong to a task.
    pub others: Vec<Pdu>,
}

#[derive(Default)]
struct Task {
    data_out: Vec<u8>,
    data_in: Vec<u8>,
    outcome: Option<Outcome>,
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The SCSI status.
    pub status: u8,
    /// The sense data; empty when there is none.
    pub sense: Vec<u8>,
    /// The data that was read.
    pub data: Vec<u8>,
}

impl Outcome {
    /// The data of a command, which must have ended with GOOD.
    pub fn good(self) -> Vec<u8> {
        assert!(self.status == 0, "{self:02x?}");
        self.data
    }
}

impl Initiator {
    /// Connects without logging in.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let qualifier = NEXT_QUALIFIER.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            stream,
            isid: Isid::random(std::process::id(), qualifier as u16),
            tsih: Tsih::NEW,
            cid: Cid(0),
            header_digest: false,
            data_digest: false,
            cmd_sn: SerialNumber(1),
            next_itt: 1,
            tasks: HashMap::new(),
            others: Vec::new(),
        })
    }

    /// Connects and logs in to the first target of `server`.
    pub fn log_in(server: &Server, keys: LoginKeys<'_>) -> io::Result<Self> {
        let target = server.url(0).split('/').nth(3).expect("iscsi://HOST:PORT/IQN/LUN").to_owned();
        let mut initiator = Self::connect(server.address())?;
        let names = [("SessionType", "Normal"), ("TargetName", &target)];
        let (response, _) = initiator.login_request(&[&names[..], keys].concat())?;
        if !response.status.is_success() {
            return Err(io::Error::other(format!("login refused: {}", response.status)));
        }
        Ok(initiator)
    }

    /// Connects, logs in, and takes the unit attention that a new nexus gets.
    pub fn attach(server: &Server, keys: LoginKeys<'_>) -> io::Result<Self> {
        let mut initiator = Self::log_in(server, keys)?;
        initiator.command(0, &[0; 6], Vec::new(), 0)?;
        Ok(initiator)
    }

    /// Sends one login request, from the operational stage to the full feature phase. Digests that it offers are in use
    /// from then on, when the target agrees.
    pub fn login_request(&mut self, keys: LoginKeys<'_>) -> io::Result<(LoginResponse, String)> {
        let name = ("InitiatorName", "iqn.2026-11.org.example:raw");
        let keys = [&[name], keys].concat();
        let (response, answer) =
            self.login_step(Stage::LoginOperationalNegotiation, Some(Stage::FullFeaturePhase), &keys)?;
        self.header_digest = answer.contains("HeaderDigest=CRC32C");
        self.data_digest = answer.contains("DataDigest=CRC32C");
        Ok((response, answer))
    }

    /// Sends any login request: its stage, the stage that it wants to enter, its keys.
    pub fn login_step(
        &mut self,
        stage: Stage,
        next: Option<Stage>,
        keys: LoginKeys<'_>,
    ) -> io::Result<(LoginResponse, String)> {
        let text: String = keys.iter().flat_map(|(key, value)| [*key, "=", *value, "\0"]).collect();
        let request = LoginRequest {
            transit: next.is_some(),
            continue_: false,
            csg: stage,
            nsg: next.unwrap_or(stage),
            version_max: 0,
            version_min: 0,
            isid: self.isid,
            tsih: self.tsih,
            itt: InitiatorTaskTag(0),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: SerialNumber(0),
            data_segment_len: text.len(),
        };
        self.send(request.emit(), text.as_bytes())?;
        let (pdu, answer) = self.receive()?;
        let TargetPdu::LoginResponse(response) = pdu else { panic!("{pdu:?} answers a login") };
        Ok((response, String::from_utf8_lossy(&answer).into_owned()))
    }

    /// Logs in to `target` with CHAP (SHA-256), with `keys` in the operational stage. Returns the final response.
    pub fn chap_login(
        &mut self,
        target: &str,
        (user, secret): (&str, &str),
        keys: LoginKeys<'_>,
    ) -> io::Result<LoginResponse> {
        let security = Stage::SecurityNegotiation;
        let names = [("InitiatorName", "iqn.2026-11.org.example:raw"), ("TargetName", target), ("AuthMethod", "CHAP")];
        self.login_step(security, None, &names)?;
        let (_, said) = self.login_step(security, None, &[("CHAP_A", "7")])?;
        let value = |key: &str| {
            let mut pairs = said.split('\0').filter_map(|pair| pair.split_once('='));
            pairs.find(|(known, _)| *known == key).map(|(_, value)| value).expect("a challenge")
        };
        let identifier: u8 = value("CHAP_I").parse().expect("a number of one byte");
        let challenge = parse_binary(value("CHAP_C"), 1024).expect("a binary value");
        let answer = format_binary(&Sha256::digest([&[identifier], secret.as_bytes(), &challenge].concat()));
        let proof = [("CHAP_N", user), ("CHAP_R", &answer)];
        let (proven, _) = self.login_step(security, Some(Stage::LoginOperationalNegotiation), &proof)?;
        if !proven.status.is_success() {
            return Ok(proven);
        }
        let (response, _) = self.login_step(Stage::LoginOperationalNegotiation, Some(Stage::FullFeaturePhase), keys)?;
        self.tsih = response.tsih;
        Ok(response)
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
    pub fn send(&mut self, header: [u8; BHS_LEN], data: &[u8]) -> io::Result<()> {
        let mut wire = header.to_vec();
        if self.header_digest {
            wire.extend(to_wire(crc32c(&header)));
        }
        if !data.is_empty() {
            let start = wire.len();
            wire.extend_from_slice(data);
            wire.resize(wire.len() + pad_len(data.len()), 0);
            if self.data_digest {
                wire.extend(to_wire(crc32c(&wire[start..])));
            }
        }
        self.send_bytes(&wire)
    }

    /// Sends bytes unchanged.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Receives the next PDU and verifies its digests.
    pub fn receive(&mut self) -> io::Result<Pdu> {
        let bhs = Bhs::from(self.array::<BHS_LEN>()?);
        if self.header_digest {
            let digest = self.array::<DIGEST_LEN>()?;
            assert_eq!(digest, to_wire(crc32c(bhs.as_array())), "header digest of {:?}", bhs.opcode());
        }
        let len = bhs.data_segment_len();
        let mut data = vec![0; len + pad_len(len)];
        self.stream.read_exact(&mut data)?;
        if self.data_digest && len > 0 {
            let digest = self.array::<DIGEST_LEN>()?;
            assert_eq!(digest, to_wire(crc32c(&data)), "data digest of {:?}", bhs.opcode());
        }
        data.truncate(len);
        let pdu = TargetPdu::parse(&bhs).unwrap_or_else(|error| panic!("the target sent a bad header: {error}"));
        Ok((pdu, data))
    }

    /// Reads until the target ends the connection, and returns what came before. Panics when the end does not come within
    /// `limit`.
    pub fn wait_for_end(mut self, limit: Duration) -> Vec<Pdu> {
        self.stream.set_read_timeout(Some(limit)).expect("a time limit that is not zero");
        let mut before = Vec::new();
        loop {
            match self.receive() {
                Ok(pdu) => before.push(pdu),
                Err(error) if is_timeout(&error) => panic!("the connection is open after {limit:?}; got {before:?}"),
                Err(_) => return before,
            }
        }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    // Commands

    /// Sends a command, with all its data when `immediate` is set; otherwise the target has to ask for the data.
    pub fn start(
        &mut self,
        lun: u16,
        cdb: &[u8],
        data_out: Vec<u8>,
        data_in_len: u32,
        immediate: bool,
    ) -> io::Result<InitiatorTaskTag> {
        let itt = self.next_itt();
        let write = !data_out.is_empty();
        let mut whole_cdb = [0; 16];
        whole_cdb[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            immediate: false,
            final_: true,
            read: data_in_len > 0,
            write,
            attr: TaskAttribute::SIMPLE,
            priority: 0,
            lun: LunField(Lun::new(lun).expect("a LUN that can be addressed").encode()),
            itt,
            expected_data_transfer_length: if write { data_out.len() as u32 } else { data_in_len },
            cmd_sn: self.next_cmd_sn(),
            exp_stat_sn: SerialNumber(0),
            cdb: whole_cdb,
            ahs_len: 0,
            data_segment_len: if immediate { data_out.len() } else { 0 },
        };
        self.send(command.emit(), if immediate { &data_out } else { &[] })?;
        self.tasks.insert(itt, Task { data_out, ..Task::default() });
        Ok(itt)
    }

    /// Waits for the end of a command, and serves other tasks meanwhile.
    pub fn finish(&mut self, itt: InitiatorTaskTag) -> io::Result<Outcome> {
        loop {
            let task = self.tasks.get_mut(&itt).expect("a command that was started and not finished");
            if let Some(outcome) = task.outcome.take() {
                self.tasks.remove(&itt);
                return Ok(outcome);
            }
            let pdu = self.receive()?;
            self.dispatch(pdu)?;
        }
    }

    fn dispatch(&mut self, (pdu, data): Pdu) -> io::Result<()> {
        let unknown = |itt| panic!("{pdu:?} for {itt:?}, which is not under way");
        match pdu {
            TargetPdu::NopIn(ping) if !ping.ttt.is_reserved() => self.answer_ping(ping.ttt)?,
            TargetPdu::R2t(r2t) => self.answer_r2t(&r2t)?,
            TargetPdu::DataIn(pdu) => {
                let task = self.tasks.get_mut(&pdu.itt).unwrap_or_else(|| unknown(pdu.itt));
                assert_eq!(task.data_in.len(), pdu.buffer_offset as usize, "data comes in order");
                task.data_in.extend(data);
                if let Some(status) = pdu.status {
                    let data = std::mem::take(&mut task.data_in);
                    task.outcome = Some(Outcome { status: status.status, sense: Vec::new(), data });
                }
            }
            TargetPdu::ScsiResponse(pdu) => {
                let task = self.tasks.get_mut(&pdu.itt).unwrap_or_else(|| unknown(pdu.itt));
                let (sense, _) = split_sense(&data).expect("sense data with its length");
                let data = std::mem::take(&mut task.data_in);
                task.outcome = Some(Outcome { status: pdu.status, sense: sense.to_vec(), data });
            }
            _ => self.others.push((pdu, data)),
        }
        Ok(())
    }

    fn answer_ping(&mut self, ttt: TargetTransferTag) -> io::Result<()> {
        let pong = NopOut {
            immediate: true,
            lun: LunField([0; 8]),
            itt: InitiatorTaskTag::RESERVED,
            ttt,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: SerialNumber(0),
            data_segment_len: 0,
        };
        self.send(pong.emit(), &[])
    }

    /// Sends the data that the target has asked for.
    pub fn answer_r2t(&mut self, r2t: &R2t) -> io::Result<()> {
        let task = self.tasks.get(&r2t.itt).unwrap_or_else(|| panic!("{r2t:?} for no task"));
        let start = r2t.buffer_offset as usize;
        let data = task.data_out[start..start + r2t.desired_data_transfer_length as usize].to_vec();
        let count = data.len().div_ceil(DATA_OUT_LEN);
        for (index, piece) in data.chunks(DATA_OUT_LEN).enumerate() {
            let pdu = DataOut {
                final_: index + 1 == count,
                lun: r2t.lun,
                itt: r2t.itt,
                ttt: r2t.ttt,
                exp_stat_sn: SerialNumber(0),
                data_sn: index as u32,
                buffer_offset: (start + index * DATA_OUT_LEN) as u32,
                data_segment_len: piece.len(),
            };
            self.send(pdu.emit(), piece)?;
        }
        Ok(())
    }

    /// Runs a command; data is sent as the target asks for it.
    pub fn command(&mut self, lun: u16, cdb: &[u8], data_out: Vec<u8>, data_in_len: u32) -> io::Result<Outcome> {
        let itt = self.start(lun, cdb, data_out, data_in_len, false)?;
        self.finish(itt)
    }

    /// READ (10) of LUN 0.
    pub fn read(&mut self, lba: u32, blocks: u16) -> io::Result<Vec<u8>> {
        let outcome = self.command(0, &cdb_10(0x28, lba, blocks), Vec::new(), u32::from(blocks) * BLOCK_LEN as u32)?;
        Ok(outcome.good())
    }

    /// Sends a WRITE (10) to LUN 0 without waiting for it.
    pub fn start_write(&mut self, lba: u32, data: Vec<u8>, immediate: bool) -> io::Result<InitiatorTaskTag> {
        let blocks = u16::try_from(data.len() / BLOCK_LEN).expect("a length that WRITE (10) can have");
        self.start(0, &cdb_10(0x2a, lba, blocks), data, 0, immediate)
    }

    /// WRITE (10) to LUN 0.
    pub fn write(&mut self, lba: u32, data: Vec<u8>) -> io::Result<()> {
        let itt = self.start_write(lba, data, false)?;
        self.finish(itt)?.good();
        Ok(())
    }

    /// SYNCHRONIZE CACHE (10) of all of LUN 0.
    pub fn synchronize_cache(&mut self) -> io::Result<()> {
        self.command(0, &cdb_10(0x35, 0, 0), Vec::new(), 0)?.good();
        Ok(())
    }
}

fn cdb_10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = blocks.to_be_bytes();
    [opcode, 0, a, b, c, d, 0, high, low, 0]
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
