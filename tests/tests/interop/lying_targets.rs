//! The client's commands with a target that lies in one field at a time: each ends with the right exit code and names
//! the field, and nothing that controls a terminal is printed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lunette_pdu::{LoginStatus, Residual};
use lunette_scsi::OpCode;
use lunette_scsi::vpd::{PageCode, page};
use lunette_testkit::{Answer, DISK_LEN, LoginAnswer, Script, ScriptedTarget};
use lunette_tests::{Ran, Server, lunette, random_bytes, run_at_most};

/// No lie may keep a command running for this long.
const LIMIT: Duration = Duration::from_secs(10);

/// A lie, the arguments of the command, its exit code, and the words that it must print.
type Row = (&'static str, Script, &'static [&'static str], i32, &'static [&'static str]);

const INFO: &[&str] = &["info", "URL"];
const LIST: &[&str] = &["ls", "PORTAL"];
const FROM: &[&str] = &["cp", "URL", "COPY"];
const TO: &[&str] = &["cp", "DATA", "URL"];
const ZEROES_TO: &[&str] = &["cp", "ZEROES", "URL"];
const READS: &[&str] = &["bench", "--rw", "read", "--time", "1", "--depth", "4", "URL"];
const WRITES: &[&str] = &["bench", "--rw", "randwrite", "--time", "1", "--depth", "4", "URL"];
const VERIFY: &[&str] = &["bench", "--rw", "verify", "--time", "1", "--depth", "4", "--size", "64k", "URL"];
const NBD: &[&str] = &["nbd", "URL", "--socket", "SOCKET"];

const READ_CAPACITY: OpCode = OpCode::SERVICE_ACTION_IN_16;

/// Text that controls terminals: ANSI escapes, C1 controls, a line break, the direction of writing, no width.
const NASTY: &str = "x\u{1b}[2J\r\n\u{9b}31m\u{202e}\u{2066}\u{200b}\u{2028}y";

/// A nasty text without the characters that iSCSI text cannot have.
const NASTY_TEXT: &str = "x\u{202e}\u{2066}\u{200b}\u{2028}\u{feff}y";

// Script

/// A lie about each command with this operation code.
fn on(opcode: OpCode, change: impl Fn(&mut Answer) + Send + Sync + 'static) -> Script {
    let command = move |command: &lunette_pdu::ScsiCommand, answer: &mut Answer| {
        if OpCode(command.cdb[0]) == opcode {
            change(answer);
        }
    };
    Script { command: Box::new(command), ..Script::default() }
}

/// A lie about READ CAPACITY(16).
fn capacity(last_lba: u64, block_len: u32) -> Script {
    let data = [&last_lba.to_be_bytes()[..], &block_len.to_be_bytes(), &[0; 20]].concat();
    on(READ_CAPACITY, move |answer| answer.data.clone_from(&data))
}

/// A lie about the block length of a disk, whose length in bytes stays true. Reads return as much as was asked for.
fn blocks(block_len: u32) -> Script {
    let last_lba = (DISK_LEN as u32 / block_len - 1).into();
    let capacity = capacity(last_lba, block_len).command;
    let command = move |command: &lunette_pdu::ScsiCommand, answer: &mut Answer| {
        capacity(command, answer);
        if matches!(OpCode(command.cdb[0]), OpCode::READ_10 | OpCode::READ_16) {
            let data = vec![b'7'; command.expected_data_transfer_length as usize];
            *answer = Answer { data, ..Answer::default() };
        }
    };
    Script { command: Box::new(command), ..Script::default() }
}

/// A lie about a VPD page.
fn vpd(code: PageCode, data: Vec<u8>) -> Script {
    let command = move |command: &lunette_pdu::ScsiCommand, answer: &mut Answer| {
        if command.cdb[..3] == [OpCode::INQUIRY.0, 1, code.0] {
            *answer = Answer { data: data.clone(), ..Answer::default() };
        }
    };
    Script { command: Box::new(command), ..Script::default() }
}

fn block_limits(body: &[u8]) -> Script {
    vpd(PageCode::BLOCK_LIMITS, page(PageCode::BLOCK_LIMITS, body))
}

/// A lie about one field of the Block Limits page.
fn block_limit(at: usize, value: u32) -> Script {
    let mut body = [0; 60];
    body[at - 4..at].copy_from_slice(&value.to_be_bytes());
    block_limits(&body)
}

fn inquiry(at: usize, bytes: &'static [u8]) -> Script {
    on(OpCode::INQUIRY, move |answer| {
        // VPD pages are shorter.
        if answer.data.len() == 96 {
            answer.put(at, bytes);
        }
    })
}

fn login(change: impl Fn(&mut LoginAnswer) + Send + Sync + 'static) -> Script {
    Script { login: Box::new(change), ..Script::default() }
}

/// A lie about one operational key.
fn key(key: &'static str, value: &'static str) -> Script {
    login(move |answer| {
        if answer.keys.iter().any(|(known, _)| known == "MaxBurstLength") {
            answer.set(key, value);
        }
    })
}

fn redirect(to: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Script {
    login(move |answer| {
        answer.response.status = LoginStatus::TARGET_MOVED_TEMPORARILY;
        answer.response.transit = false;
        answer.keys = to().into_iter().map(|address| ("TargetAddress".into(), address)).collect();
    })
}

fn text(bytes: &'static [u8]) -> Script {
    Script { text: Box::new(move |text| *text = bytes.to_vec()), ..Script::default() }
}

// Checks

fn steers_terminals(c: char) -> bool {
    let is_format =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    (c.is_control() && c != '\n') || is_format
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::write(folder.path("DATA"), random_bytes(5, 300_000)).unwrap();
        std::fs::write(folder.path("ZEROES"), vec![0; DISK_LEN]).unwrap();
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().into()
    }

    /// Runs the command. Words in capital letters stand for the target and files.
    fn run(&self, target: &ScriptedTarget, arguments: &[&str]) -> Ran {
        let arguments = arguments.iter().map(|argument| match *argument {
            "URL" => target.url(),
            "PORTAL" => target.portal_url(),
            "DATA" | "ZEROES" | "COPY" | "SOCKET" => self.path(argument),
            other => other.into(),
        });
        run_at_most(LIMIT, lunette().args(arguments))
    }
}

/// Runs all rows, and reports all faults together.
fn check(rows: impl IntoIterator<Item = Row>) {
    let folder = Folder::new();
    let wrong: Vec<String> = rows
        .into_iter()
        .filter_map(|(name, lies, arguments, code, says)| {
            let ran = folder.run(&ScriptedTarget::start(lies), arguments);
            wrong(&ran, code, says).map(|why| format!("{name}: {why}: {ran}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} rows went wrong\n\n{}", wrong.len(), wrong.join("\n"));
}

/// The fault in the end of a command.
fn wrong(ran: &Ran, code: i32, says: &[&str]) -> Option<String> {
    let output = format!("{}{}", ran.stdout, ran.stderr);
    if let Some(c) = output.chars().find(|c| steers_terminals(*c)) {
        return Some(format!("{c:?} got out"));
    }
    if ran.code != Some(code) || output.contains("panicked") {
        return Some(format!("exit code {code} was due"));
    }
    let missing = says.iter().find(|text| !output.contains(**text));
    missing.map(|text| format!("{text:?} is not said"))
}

fn check_one(folder: &Folder, target: &ScriptedTarget, arguments: &[&str], code: i32, says: &[&str]) {
    let ran = folder.run(target, arguments);
    assert_eq!(wrong(&ran, code, says), None, "{ran}");
}

#[test]
fn a_target_that_tells_the_truth_is_served_well() {
    check([
        (
            "info",
            Script::default(),
            INFO,
            0,
            &["SCRIPTED DISK 1", "serial-1", "1.00 MiB (1048576 bytes), blocks of 512"] as &[&str],
        ),
        ("ls", Script::default(), LIST, 0, &["iqn.2026-11.org.example:disk", "LUN 0: disk, 1.00 MiB (1048576 bytes)"]),
        ("cp of zeroes", Script::default(), ZEROES_TO, 0, &["flushed"]),
        ("bench", Script::default(), READS, 0, &["IOPS"]),
        ("verify", Script::default(), VERIFY, 0, &["all right"]),
    ]);
    let folder = Folder::new();
    let target = ScriptedTarget::start(Script::default());
    check_one(&folder, &target, TO, 0, &["flushed"]);
    let data = std::fs::read(folder.path("DATA")).unwrap();
    assert!(target.content().starts_with(&data));
    check_one(&folder, &target, FROM, 0, &["flushed"]);
    assert!(std::fs::read(folder.path("COPY")).unwrap() == target.content());
}

#[test]
fn an_impossible_capacity_is_named() {
    const HUGE: &str = "a logical block length of 33554432 bytes; at most 1048576";
    let empty: &[&str] = &[];
    let rows: Vec<Row> = vec![
        ("u64::MAX", capacity(u64::MAX, 512), INFO, 5, &["READ CAPACITY", "last logical block 18446744073709551615"]),
        ("product", capacity(1 << 60, 512), INFO, 5, &["last logical block 1152921504606846976 of 512 bytes"]),
        ("product", capacity(1 << 60, 512), FROM, 5, &["READ CAPACITY"]),
        ("no block", capacity(7, 0), INFO, 5, &["READ CAPACITY", "a logical block length of 0 bytes"]),
        ("no block", capacity(7, 0), FROM, 5, &["a logical block length of 0 bytes"]),
        ("2^25", capacity(63, 1 << 25), INFO, 5, &[HUGE]),
        ("2^25", capacity(63, 1 << 25), LIST, 0, &[HUGE]),
        ("2^25", capacity(63, 1 << 25), FROM, 5, &[HUGE]),
        ("2^25", capacity(63, 1 << 25), TO, 5, &[HUGE]),
        ("2^25", capacity(63, 1 << 25), READS, 5, &[HUGE]),
        ("2^25", capacity(63, 1 << 25), NBD, 5, &[HUGE]),
        ("u32::MAX", capacity(63, u32::MAX), TO, 5, &["a logical block length of 4294967295 bytes"]),
        ("cut", on(READ_CAPACITY, |answer| answer.data.truncate(8)), INFO, 5, &["8 bytes of data"]),
        ("empty", on(READ_CAPACITY, |answer| answer.data.clear()), TO, 5, &["0 bytes of data"]),
        ("exponent", on(READ_CAPACITY, |answer| answer.put(13, &[0xff])), INFO, 0, &["16777216 bytes"]),
    ];
    check(rows);
    let odd: Vec<Row> = vec![
        ("513", blocks(513), INFO, 0, &["blocks of 513"]),
        ("513", blocks(513), FROM, 0, &["flushed"]),
        ("513", blocks(513), &["cp", "--bs", "16M", "URL", "COPY"], 0, &["flushed"]),
        ("513", blocks(513), &["cp", "URL", "-"], 0, empty),
        ("513", blocks(513), READS, 2, &["multiples of 513"]),
        ("513", blocks(513), NBD, 5, &["blocks of 513 bytes cannot be served"]),
        ("2^20", blocks(1 << 20), FROM, 0, &["flushed"]),
        ("2^20", blocks(1 << 20), &["cp", "URL", "-"], 0, empty),
        ("2^20", blocks(1 << 20), NBD, 5, &["blocks of 1048576 bytes cannot be served"]),
        ("longer", capacity(255, 4096), FROM, 6, &["READ(10): GOOD status, but only", "bytes were sent by the target"]),
        (
            "shorter",
            capacity(2047, 1),
            FROM,
            6,
            &["READ(10): GOOD status, but", "bytes beyond the 2048 of the request"],
        ),
    ];
    check(odd);
}

#[test]
fn text_from_a_target_does_not_control_the_terminal() {
    let nasty = |code| vpd(code, page(code, NASTY.as_bytes()));
    let name = [&[2, 1, 0, NASTY.len() as u8], NASTY.as_bytes()].concat();
    let name = || vpd(PageCode::DEVICE_IDENTIFICATION, page(PageCode::DEVICE_IDENTIFICATION, &name));
    let rows: Vec<Row> = vec![
        ("vendor", inquiry(8, b"\x1b[2J\r\n\x9b\x07"), INFO, 0, &["\u{fffd}[2J\u{fffd}"]),
        ("vendor", inquiry(8, b"\x1b[2J\r\n\x9b\x07"), &["info", "--json", "URL"], 0, &["\u{fffd}[2J\u{fffd}"]),
        ("product", inquiry(16, b"\xe2\x80\xaegpj\x1b]0;x\x07"), INFO, 0, &["gpj"]),
        ("revision", inquiry(32, b"\x1bc\xff\x7f"), INFO, 0, &["\u{fffd}c\u{fffd}\u{fffd}"]),
        ("serial number", nasty(PageCode::UNIT_SERIAL_NUMBER), INFO, 0, &["x\u{fffd}[2J"]),
        ("serial number", nasty(PageCode::UNIT_SERIAL_NUMBER), FROM, 0, &["flushed"]),
        ("unit name", name(), INFO, 0, &["t10.x\u{fffd}[2J"]),
        ("alias", key("TargetAlias", NASTY_TEXT), INFO, 0, &["target alias", "x\u{fffd}"]),
        ("alias", key("TargetAlias", NASTY), INFO, 5, &["section 6.1", "contains '\\u{1b}'"]),
        ("number", key("MaxBurstLength", NASTY_TEXT), INFO, 5, &["MaxBurstLength=x\u{fffd}"]),
        ("group", key("TargetPortalGroupTag", NASTY_TEXT), INFO, 5, &["TargetPortalGroupTag=x\u{fffd}"]),
        (
            "names",
            text("TargetName=iqn.a\u{202e}b\0TargetAddress=h\u{2028}:1,1\0".as_bytes()),
            LIST,
            0,
            &["iqn.a\u{fffd}b"],
        ),
        (
            "names",
            text("TargetName=iqn.a\u{202e}b\0".as_bytes()),
            &["ls", "--no-luns", "--json", "PORTAL"],
            0,
            &["iqn.a\u{fffd}b"],
        ),
        ("control", text(b"TargetName=iqn.a\x1b[2J\0"), LIST, 5, &["contains '\\u{1b}'"]),
        ("not UTF-8", text(b"TargetName=iqn.\xff\xfe\0"), LIST, 5, &["not UTF-8"]),
        ("no end", text(b"TargetName=iqn.a"), LIST, 5, &["no NUL"]),
        ("nothing", text(b""), LIST, 0, &[]),
        ("redirection", redirect(|| vec![NASTY_TEXT.into()]), INFO, 5, &["redirected to \"x\\u{202e}"]),
    ];
    check(rows);
}

#[test]
fn data_that_was_not_moved_is_an_error() {
    const NONE_TAKEN: &str = "WRITE(10): GOOD status, but only 0 of";
    let untaken = |opcode, bytes: u32| on(opcode, move |answer| answer.solicited = answer.solicited.min(bytes));
    let residual = |opcode, residual| on(opcode, move |answer| answer.residual = Some(residual));
    let cut = |opcode, len| on(opcode, move |answer| answer.data.truncate(len));
    let silent = on(OpCode::WRITE_10, |answer| (answer.solicited, answer.residual) = (0, Some(Residual::None)));
    let flipped = on(OpCode::READ_10, |answer| answer.data.iter_mut().for_each(|byte| *byte ^= 0x10));
    let failed = on(OpCode::SYNCHRONIZE_CACHE_10, |answer| answer.status = 0x02);
    let rows: Vec<Row> = vec![
        ("no write", untaken(OpCode::WRITE_10, 0), TO, 6, &["cannot write bytes", NONE_TAKEN, "taken by the target"]),
        ("half a write", untaken(OpCode::WRITE_10, 4096), TO, 6, &["but only 4096 of"]),
        ("no write", untaken(OpCode::WRITE_10, 0), WRITES, 6, &[NONE_TAKEN]),
        ("no write", untaken(OpCode::WRITE_10, 0), VERIFY, 6, &[NONE_TAKEN]),
        ("no write, no residual", silent, TO, 6, &["section 11.4.5"]),
        ("more than a write", residual(OpCode::WRITE_10, Residual::Overflow(9)), TO, 6, &["9 bytes beyond the"]),
        (
            "no zeroes",
            untaken(OpCode::WRITE_SAME_16, 0),
            ZEROES_TO,
            6,
            &["WRITE SAME(16): GOOD status, but only 0 of 512"],
        ),
        ("no read", cut(OpCode::READ_10, 0), FROM, 6, &["READ(10): GOOD status, but only 0 of"]),
        ("half a read", cut(OpCode::READ_10, 2048), READS, 6, &["but only 2048 of 4096 bytes were sent"]),
        ("more than a read", residual(OpCode::READ_10, Residual::Overflow(1)), READS, 6, &["1 bytes beyond the 4096"]),
        ("other data", flipped, VERIFY, 7, &["wrong data"]),
        ("no flush", failed, TO, 6, &["not safe on stable storage"]),
        ("odd status", on(OpCode::READ_10, |answer| answer.status = 0x77), READS, 6, &["READ(10)"]),
    ];
    check(rows);
}

#[test]
fn a_write_in_pieces_that_the_target_did_not_take_is_an_error() {
    let limit = block_limit(8, 1).command;
    let command = move |command: &lunette_pdu::ScsiCommand, answer: &mut Answer| {
        limit(command, answer);
        if OpCode(command.cdb[0]) == OpCode::WRITE_10 {
            answer.solicited = 0;
        }
    };
    let lies = Script { command: Box::new(command), ..Script::default() };
    check([("pieces", lies, TO, 6, &["but only 0 of 512 bytes were taken by the target"] as &[&str])]);
}

const NBD_WRITE: u8 = 1;
const NBD_TRIM: u8 = 4;

/// A minimal client: one command on the first 512 bytes. Returns the error of the reply.
fn nbd_error(address: SocketAddr, command: u8) -> u32 {
    const OPTION: u64 = 0x4948_4156_454f_5054;
    const REQUEST: u32 = 0x2560_9513;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    // Fixed newstyle, no zeroes; EXPORT_NAME without a name.
    let chosen = [&3_u32.to_be_bytes()[..], &OPTION.to_be_bytes(), &1_u32.to_be_bytes(), &[0; 4]].concat();
    stream.write_all(&chosen).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    let header = [&REQUEST.to_be_bytes()[..], &[0, 0, 0, command], &[0; 16], &512_u32.to_be_bytes()].concat();
    let payload: &[u8] = if command == NBD_WRITE { &[7; 512] } else { &[] };
    stream.write_all(&[&header, payload].concat()).unwrap();
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(*reply[4..].first_chunk().unwrap())
}

#[test]
fn an_nbd_client_gets_an_error_for_data_that_the_target_did_not_take() {
    const EIO: u32 = 5;
    for (command, opcode, taken, error) in [
        (NBD_WRITE, OpCode::WRITE_10, 512, 0),
        (NBD_WRITE, OpCode::WRITE_10, 0, EIO),
        (NBD_TRIM, OpCode::UNMAP, 24, 0),
        (NBD_TRIM, OpCode::UNMAP, 8, EIO),
    ] {
        let target = ScriptedTarget::start(on(opcode, move |answer| answer.solicited = taken));
        let server = Server::spawn(lunette().args(["nbd", &target.url(), "--listen", "127.0.0.1:0"]), 1);
        let address = server.url(0).trim_start_matches("nbd://").trim_end_matches('/').parse().unwrap();
        assert_eq!(nbd_error(address, command), error, "{taken} bytes were taken of command {command}");
        server.stop();
    }
}

#[test]
fn false_limits_and_pages_of_a_disk_are_refused() {
    let empty: &[&str] = &[];
    let mode = |data: &'static [u8]| on(OpCode::MODE_SENSE_6, move |answer| answer.data = data.to_vec());
    let rows: Vec<Row> = vec![
        ("limits of all ones", block_limits(&[0xff; 60]), INFO, 0, empty),
        ("limits of all ones", block_limits(&[0xff; 60]), TO, 0, empty),
        ("limits of all ones", block_limits(&[0xff; 60]), ZEROES_TO, 0, empty),
        ("limits of zero", block_limits(&[0; 60]), ZEROES_TO, 0, empty),
        ("no limits", block_limits(&[]), FROM, 0, empty),
        ("transfers of 1", block_limit(8, 1), FROM, 0, empty),
        ("transfers of 1", block_limit(8, 1), READS, 2, &["multiples of 512 up to 512"]),
        ("optimal transfers", block_limit(12, u32::MAX), FROM, 0, empty),
        ("granularity", block_limit(28, u32::MAX), INFO, 0, empty),
        ("zeroes one by one", block_limit(40, 1), ZEROES_TO, 0, empty),
        ("another page", vpd(PageCode::BLOCK_LIMITS, page(PageCode(0x80), &[0xff; 60])), INFO, 0, empty),
        ("a page without end", vpd(PageCode::BLOCK_LIMITS, vec![0, 0xb0, 0xff, 0xff, 1]), INFO, 0, empty),
        ("no page", vpd(PageCode::BLOCK_LIMITS, vec![]), INFO, 0, empty),
        ("no list of pages", vpd(PageCode::SUPPORTED_PAGES, vec![]), INFO, 0, empty),
        ("a list of no pages", vpd(PageCode::SUPPORTED_PAGES, vec![0]), INFO, 0, &["serial number           -"]),
        (
            "designators",
            vpd(PageCode::DEVICE_IDENTIFICATION, vec![0, 0x83, 0xff, 0xff, 2, 1, 0, 255, 65]),
            INFO,
            0,
            empty,
        ),
        (
            "commands",
            on(OpCode::MAINTENANCE_IN, |answer| {
                *answer = Answer { data: vec![0xff; 4096], ..Answer::default() };
            }),
            INFO,
            0,
            &["0xff/0xffff"],
        ),
        (
            "no inquiry",
            on(OpCode::INQUIRY, |answer| answer.data.truncate(10)),
            INFO,
            5,
            &["INQUIRY", "shorter than 36"],
        ),
        ("a tape", inquiry(0, &[1]), INFO, 5, &["device type 0x01"]),
        ("no unit", inquiry(0, &[0x7f]), INFO, 5, &["no logical unit"]),
        ("descriptors", mode(&[3, 0, 0, 255]), INFO, 0, &["volatile cache          yes"]),
        ("no mode page", mode(&[]), INFO, 0, &["volatile cache          yes"]),
        ("another mode page", mode(&[7, 0, 0, 0, 0x3f, 255, 0, 0]), INFO, 0, &["volatile cache          yes"]),
        ("write protection", mode(&[3, 0, 0x80, 0]), TO, 6, &["read only"]),
        ("write protection", mode(&[3, 0, 0x80, 0]), WRITES, 2, &["the disk is read only"]),
    ];
    check(rows);
}

#[test]
fn false_lists_and_statuses_of_a_target_are_refused() {
    let empty: &[&str] = &[];
    let status = |entries: &'static [(u64, u32, u8)]| {
        let list = entries.iter().flat_map(|(lba, blocks, kind)| {
            [&lba.to_be_bytes()[..], &blocks.to_be_bytes(), &[*kind, 0, 0, 0]].concat()
        });
        let list: Vec<u8> = list.collect();
        let data = [&(list.len() as u32 + 4).to_be_bytes()[..], &[0; 4], &list].concat();
        on(READ_CAPACITY, move |answer| {
            // READ CAPACITY(16) has this operation code too, and 32 bytes.
            if answer.data.len() != 32 {
                answer.data.clone_from(&data);
            }
        })
    };
    let luns = |data: &'static [u8]| on(OpCode::REPORT_LUNS, move |answer| answer.data = data.to_vec());
    let rows: Vec<Row> = vec![
        ("no units", luns(&[0, 0, 0, 0, 0, 0, 0, 0]), LIST, 0, empty),
        ("no list", luns(&[]), LIST, 1, &["REPORT LUNS", "shorter than its header"]),
        ("a list cut off", luns(&[0, 0, 0, 64, 0, 0, 0, 0]), LIST, 1, &["LUN LIST LENGTH announces 72 bytes, 8 came"]),
        ("a long list", luns(&[0xff; 16]), LIST, 1, &["number of LUNs of the target exceeds the limit"]),
        (
            "an odd unit",
            luns(&[0, 0, 0, 8, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]),
            LIST,
            0,
            &["0xffffffffffffffff"],
        ),
        (
            "a broken rule",
            on(READ_CAPACITY, |answer| answer.residual = Some(Residual::Underflow(9))),
            LIST,
            1,
            &["section 11.4.5", "1 of 1 targets"],
        ),
        ("a large disk", capacity((1 << 54) - 2, 512), INFO, 0, &["9223372036854775296 bytes"]),
        ("a large disk", capacity((1 << 54) - 2, 512), TO, 0, empty),
        (
            "a large disk",
            capacity((1 << 54) - 2, 512),
            &["bench", "--rw", "randread", "--time", "1", "URL"],
            6,
            &["READ(16)"],
        ),
        ("a map of nothing", status(&[(0, 0, 0)]), FROM, 0, empty),
        ("a map of another place", status(&[(9, 9, 0)]), FROM, 0, empty),
        ("a map beyond the end", status(&[(0, u32::MAX, 1)]), FROM, 0, empty),
        ("a map beyond counting", status(&[(u64::MAX, u32::MAX, 1)]), FROM, 0, empty),
        (
            "a status without sense",
            on(OpCode::TEST_UNIT_READY, |answer| answer.status = 2),
            INFO,
            6,
            &["TEST UNIT READY"],
        ),
        (
            "broken sense",
            on(OpCode::TEST_UNIT_READY, |answer| {
                (answer.status, answer.sense) = (2, vec![0xff; 300]);
            }),
            INFO,
            6,
            &["TEST UNIT READY"],
        ),
    ];
    check(rows);
}

/// A disk of 2^24 blocks, for which a target reports one by one whether they have space: the answer is bounded.
#[test]
fn requests_for_a_block_by_block_map_are_bounded() {
    let asked = AtomicUsize::new(0);
    let lies = Script {
        command: Box::new(move |command, answer| {
            let lba = u64::from_be_bytes(*command.cdb[2..].first_chunk().unwrap());
            match (OpCode(command.cdb[0]), command.cdb[1] & 0x1f) {
                (READ_CAPACITY, 0x10) => answer.put(0, &((1_u64 << 24) - 1).to_be_bytes()),
                (READ_CAPACITY, _) => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let entry = [&lba.to_be_bytes()[..], &1_u32.to_be_bytes(), &[0; 4]].concat();
                    answer.data = [&20_u32.to_be_bytes()[..], &[0; 4], &entry].concat();
                }
                (OpCode::READ_10, _) => answer.status = 0x18,
                _ => {}
            }
        }),
        ..Script::default()
    };
    check([("blocks", lies, FROM, 6, &["cannot read bytes 0 to"] as &[&str])]);
}

#[test]
fn logins_that_agree_on_nonsense_name_the_key() {
    let status = |class: u8, detail: u8| login(move |answer| answer.response.status = LoginStatus { class, detail });
    let rows: Vec<Row> = vec![
        ("no burst", key("MaxBurstLength", "0"), INFO, 5, &["MaxBurstLength=0 is no answer"]),
        ("a long burst", key("MaxBurstLength", "99999999"), INFO, 5, &["MaxBurstLength=99999999"]),
        ("no segment", key("MaxRecvDataSegmentLength", "0"), INFO, 5, &["MaxRecvDataSegmentLength=0"]),
        ("no connections", key("MaxConnections", "0"), INFO, 5, &["MaxConnections=0"]),
        ("a level", key("ErrorRecoveryLevel", "3"), INFO, 5, &["ErrorRecoveryLevel=3"]),
        ("a digest", key("HeaderDigest", "MD5"), INFO, 5, &["HeaderDigest=MD5"]),
        ("a wait", key("DefaultTime2Wait", "99999"), INFO, 5, &["DefaultTime2Wait=99999"]),
        ("a session", login(|answer| answer.response.tsih = lunette_pdu::Tsih(0)), INFO, 5, &["TSIH 0"]),
        ("a status", status(9, 9), INFO, 5, &["the target refused"]),
    ];
    check(rows);
}

#[test]
fn redirections_to_nowhere_name_the_address() {
    let to = |address: &'static str| redirect(move || vec![address.into()]);
    let rows: Vec<Row> = vec![
        ("port 0", to("127.0.0.1:0,1"), INFO, 5, &["redirected to \"127.0.0.1:0,1\"", "its port is no number"]),
        ("empty", to(""), INFO, 5, &["redirected to \"\"", "it has no host"]),
        ("no address", to("no host here"), INFO, 5, &["redirected to \"no host here\"", "neither a domain name"]),
        ("unspecified", to("0.0.0.0:3260"), INFO, 5, &["redirected to \"0.0.0.0:3260\"", "the unspecified address"]),
        ("brackets", to("[::1"), INFO, 5, &["redirected to \"[::1\"", "brackets"]),
        (
            "unreachable",
            to("127.0.0.1:1"),
            INFO,
            5,
            &["cannot connect to 127.0.0.1:1", "redirected there by 127.0.0.1:"],
        ),
        ("in discovery", to("127.0.0.1:0"), LIST, 5, &["redirected to \"127.0.0.1:0\""]),
        ("none", redirect(Vec::new), INFO, 5, &["a redirection without TargetAddress"]),
    ];
    check(rows);
    let folder = Folder::new();
    let itself = ScriptedTarget::start_with(|here| redirect(move || vec![format!("{here},1")]));
    check_one(&folder, &itself, INFO, 5, &["it is the portal that redirects"]);
    let circle = ScriptedTarget::start_with(|here| {
        let turn = AtomicUsize::new(0);
        redirect(move || {
            let host = if turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { "localhost" } else { "127.0.0.1" };
            vec![format!("{host}:{}", here.port())]
        })
    });
    let says = ["redirected more than 8 times, at last to localhost:", ", then 127.0.0.1:", ", then localhost:"];
    check_one(&folder, &circle, INFO, 5, &says);
}
