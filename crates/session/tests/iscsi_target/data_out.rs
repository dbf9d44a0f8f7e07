//! Data for commands: immediate, unsolicited, solicited (RFC 7143 sections 4.2.5.2, 11.7 and 11.8).

use lunette_pdu::{DataOut, R2t, RejectReason, Residual, ScsiCommand, SerialNumber, TargetPdu, TargetTransferTag};
use lunette_session::iscsi_target::{Response, TaskTag};
use lunette_session::keys::Offer;
use lunette_session::limits::{COMMAND_WINDOW, MAX_DRAINING_TASKS};

use crate::harness::{Cut, Peer, Setup, command, data_out, nop_out, pattern, solicited, write};

const FIRST_BURST: usize = 1024;
const MAX_BURST: usize = 4096;

const NO: &str = "No";
const YES: &str = "Yes";

/// Small bursts, so that small writes meet every limit.
fn setup(immediate: bool, initial_r2t: bool, outstanding: &'static str) -> Setup {
    let bool = |yes| if yes { YES } else { NO };
    Setup::keys(&[
        ("ImmediateData", bool(immediate)),
        ("InitialR2T", bool(initial_r2t)),
        ("FirstBurstLength", "1024"),
        ("MaxBurstLength", "4096"),
        ("MaxOutstandingR2T", outstanding),
    ])
}

/// Everything that may be sent unasked is allowed.
fn unsolicited() -> Peer {
    Peer::logged_in(setup(true, false, "1")).manual()
}

/// Only R2Ts bring data.
fn asked_only(outstanding: &'static str) -> Peer {
    Peer::logged_in(setup(false, true, outstanding)).manual()
}

/// A write of which `unasked` bytes follow in Data-Out PDUs after `immediate` bytes.
fn start_write(peer: &mut Peer, itt: u32, data: &[u8], immediate: usize, unasked: usize, pdu_len: usize) {
    let request = ScsiCommand { final_: unasked == 0, ..write(itt, data.len() as u32) };
    peer.command(request, &data[..immediate]);
    for (data_sn, from) in (immediate..immediate + unasked).step_by(pdu_len).enumerate() {
        let to = (from + pdu_len).min(immediate + unasked);
        let final_ = to == immediate + unasked;
        let pdu = DataOut { final_, data_sn: data_sn as u32, ..data_out(itt, from as u32) };
        peer.data_out(pdu, &data[from..to]);
    }
}

fn answer_all(peer: &mut Peer, data: &[u8], pdu_len: usize) {
    loop {
        match peer.next().pdu {
            TargetPdu::R2t(r2t) => peer.answer(&r2t, data, pdu_len),
            TargetPdu::ScsiResponse(response) => {
                return assert_eq!((response.status, response.residual), (0, Residual::None));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_way_to_send_every_size_brings_the_same_bytes() {
    let sizes = [1, 511, 512, 1023, 1024, 1025, 1536, 4095, 4096, 4097, 5119, 5120, 5121, 9217, 20_000];
    for (immediate, initial_r2t) in [(false, false), (false, true), (true, false), (true, true)] {
        for outstanding in ["1", "3"] {
            for size in sizes {
                for pdu_len in [300, 512, 8192] {
                    for cut in [Cut::WHOLE, Cut { piece: 53, direct: false }] {
                        let mut peer = Peer::logged_in(setup(immediate, initial_r2t, outstanding)).cut(cut);
                        let data = pattern(size);
                        let first = size.min(FIRST_BURST);
                        let with_command = if immediate { first.min(pdu_len) } else { 0 };
                        let unasked = if initial_r2t { 0 } else { first - with_command };
                        start_write(&mut peer, 1, &data, with_command, unasked, pdu_len);
                        answer_all(&mut peer, &data, pdu_len);
                        assert_eq!(peer.driver.data_out.len(), 1);
                        assert_eq!(peer.driver.data_out[0].1, data, "{size} bytes by {pdu_len}");
                        peer.silence();
                    }
                }
            }
        }
    }
}

#[test]
fn large_segments_are_received_in_place() {
    for data_digest in ["None", "CRC32C"] {
        for piece in [1000, 20_000, usize::MAX] {
            let setup = Setup::keys(&[("InitialR2T", YES), ("DataDigest", data_digest), ("MaxBurstLength", "262144")]);
            let mut peer = Peer::logged_in(setup).cut(Cut { piece, direct: true });
            let data = pattern(300_001);
            start_write(&mut peer, 1, &data, 40_000, 0, 1);
            answer_all(&mut peer, &data, 262_144);
            assert_eq!(peer.driver.data_out[0].1, data);
        }
    }
}

#[test]
fn r2ts_outstanding_are_as_many_as_agreed_and_fill_up() {
    let mut peer = asked_only("3");
    let data = pattern(5 * MAX_BURST + 100);
    start_write(&mut peer, 1, &data, 0, 0, 1);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, data.len());
    let mut open: Vec<R2t> = (0..3).map(|_| peer.r2t().0).collect();
    peer.silence();
    let mut offset = 0;
    while !open.is_empty() {
        let r2t = open.remove(0);
        assert_eq!(r2t.buffer_offset as usize, offset);
        offset += r2t.desired_data_transfer_length as usize;
        peer.answer(&r2t, &data, 1000);
        open.extend(peer.rest().into_iter().map(|got| match got.pdu {
            TargetPdu::R2t(r2t) => r2t,
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(offset, data.len());
    assert_eq!(peer.driver.data_out, [(task, data)]);
}

#[test]
fn sequences_of_several_r2ts_may_be_interleaved() {
    let mut peer = asked_only("3");
    let data = pattern(3 * MAX_BURST);
    start_write(&mut peer, 1, &data, 0, 0, 1);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, data.len());
    let sequences: Vec<Vec<DataOut>> = (0..3).map(|_| solicited(&peer.r2t().0, 1000)).collect();
    let [first, second, third] = &sequences[..] else { panic!("three R2Ts") };
    for ((a, b), c) in first.iter().zip(second).zip(third) {
        for pdu in [c, a, b] {
            let from = pdu.buffer_offset as usize;
            peer.data_out(*pdu, &data[from..from + pdu.data_segment_len]);
        }
    }
    assert_eq!(peer.driver.data_out, [(task, data)]);
}

#[test]
fn tasks_take_their_data_side_by_side() {
    let mut peer = asked_only("1");
    let mut r2ts = Vec::new();
    for itt in 0..20 {
        start_write(&mut peer, itt, &vec![itt as u8; 2000], 0, 0, 1);
        let task = peer.driver.commands[itt as usize].task;
        peer.driver.want_data(task, 2000);
        r2ts.push(peer.r2t().0);
    }
    for r2t in r2ts.iter().rev() {
        peer.answer(r2t, &vec![r2t.itt.0 as u8; 2000], 700);
    }
    for (at, (task, bytes)) in peer.driver.data_out.iter().enumerate() {
        let itt = 19 - at;
        assert_eq!((*task, bytes), (peer.driver.commands[itt].task, &vec![itt as u8; 2000]));
    }
}

#[test]
fn a_device_may_want_less_than_announced() {
    for (immediate, unasked) in [(0, 0), (500, 0), (500, 524), (0, 1024)] {
        for wanted in [0, 100, 500, 700, 1024, 3000] {
            let mut peer = unsolicited();
            let data = pattern(5000);
            let request = ScsiCommand { final_: unasked == 0, ..write(1, 5000) };
            peer.command(request, &data[..immediate]);
            let task = peer.driver.commands[0].task;
            peer.driver.want_data(task, wanted);
            if unasked > 0 {
                peer.data_out(data_out(1, immediate as u32), &data[immediate..immediate + unasked]);
            }
            let mut asked_until = immediate + unasked;
            for got in peer.rest() {
                let TargetPdu::R2t(r2t) = got.pdu else { panic!("{got:?}") };
                assert_eq!(r2t.buffer_offset as usize, asked_until);
                asked_until += r2t.desired_data_transfer_length as usize;
                peer.answer(&r2t, &data, 8192);
            }
            assert_eq!(asked_until, wanted.max(immediate + unasked), "nothing beyond is asked for");
            assert_eq!(peer.driver.data_out, [(task, data[..wanted].to_vec())], "{immediate} {unasked} {wanted}");
            let response = Response { data_out_transfer_len: wanted as u64, ..Response::default() };
            peer.driver.complete(task, response);
            assert_eq!(peer.scsi_response().0.residual, Residual::Underflow(5000 - wanted as u32));
        }
    }
}

#[test]
fn a_device_may_want_more_than_announced() {
    let mut peer = asked_only("1");
    let data = pattern(700);
    start_write(&mut peer, 1, &data, 0, 0, 1);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 1024);
    let (r2t, _) = peer.r2t();
    assert_eq!(r2t.desired_data_transfer_length, 700);
    peer.answer(&r2t, &data, 8192);
    assert_eq!(peer.driver.data_out[0].1.len(), 1024);
    assert_eq!(peer.driver.data_out[0].1[..700], data);
    let response = Response { data_out_transfer_len: 1024, ..Response::default() };
    peer.driver.complete(task, response);
    assert_eq!(peer.scsi_response().0.residual, Residual::Overflow(324));
}

const CHECK_CONDITION: u8 = 2;

fn refuse(peer: &mut Peer, task: TaskTag) {
    let response = Response { status: CHECK_CONDITION, sense: vec![0x70; 18], ..Response::default() };
    peer.driver.complete(task, response);
}

#[test]
fn a_refusal_waits_for_the_end_of_unsolicited_data() {
    for wanted in [false, true] {
        let mut peer = unsolicited();
        let data = pattern(1024);
        peer.command(ScsiCommand { final_: false, ..write(1, 5000) }, &data[..200]);
        let task = peer.driver.commands[0].task;
        if wanted {
            peer.driver.want_data(task, 5000);
        }
        refuse(&mut peer, task);
        peer.silence();
        peer.data_out(DataOut { final_: false, ..data_out(1, 200) }, &data[200..700]);
        peer.silence();
        peer.data_out(DataOut { data_sn: 1, ..data_out(1, 700) }, &data[700..]);
        assert_eq!(peer.scsi_response().0.status, CHECK_CONDITION);
        peer.silence();
    }
}

#[test]
fn a_refusal_waits_for_the_end_of_solicited_data() {
    let mut peer = asked_only("2");
    let data = pattern(3 * MAX_BURST);
    start_write(&mut peer, 1, &data, 0, 0, 1);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, data.len());
    let (first, second) = (peer.r2t().0, peer.r2t().0);
    refuse(&mut peer, task);
    peer.silence();
    peer.answer(&first, &data, 1000);
    peer.silence();
    peer.answer(&second, &data, 1000);
    assert_eq!(peer.scsi_response().0.status, CHECK_CONDITION);
    assert!(peer.driver.data_out.is_empty());
    peer.silence();
}

#[test]
fn a_refusal_waits_for_the_pdu_that_is_arriving() {
    let mut peer = Peer::logged_in(setup(true, true, "1")).manual();
    let data = pattern(1000);
    let request = ScsiCommand { data_segment_len: 1000, cmd_sn: peer.cmd_sn, ..write(1, 1000) };
    peer.cmd_sn = peer.cmd_sn.next();
    peer.checker.task_sent(request.itt, false);
    let bytes = peer.frame(request.emit(), &[], &data);
    peer.raw(&bytes[..100]);
    let task = peer.driver.commands[0].task;
    refuse(&mut peer, task);
    peer.silence();
    peer.raw(&bytes[100..1047]);
    peer.silence();
    peer.raw(&bytes[1047..]);
    assert_eq!(peer.scsi_response().0.status, CHECK_CONDITION);
}

#[test]
fn a_refused_command_keeps_its_place_until_it_is_answered() {
    let mut peer = unsolicited();
    for round in 0..3 {
        for itt in 0..=COMMAND_WINDOW {
            let before = peer.driver.commands.len();
            peer.command(ScsiCommand { final_: false, ..write(itt, 4096) }, &[]);
            if peer.driver.commands.len() == before {
                peer.cmd_sn = SerialNumber(peer.cmd_sn.0.wrapping_sub(1));
                break;
            }
            let task = peer.driver.commands[before].task;
            refuse(&mut peer, task);
        }
        peer.silence();
        peer.nop_out(nop_out(5000), &[]);
        let (nop, _) = peer.nop_in();
        let open = nop.max_cmd_sn.distance_from(nop.exp_cmd_sn) + 1;
        assert!(open <= 1, "round {round}: the window is open for {open} more");
        let itts: Vec<u32> = (0..peer.driver.commands.len() as u32).collect();
        for itt in &itts {
            peer.data_out(data_out(*itt, 0), &[0; 1024]);
        }
        assert_eq!(peer.rest().len(), itts.len());
        peer.driver.commands.clear();
    }
}

#[test]
fn data_of_an_aborted_task_is_dropped_in_silence() {
    let mut peer = Peer::logged_in(setup(true, false, "2")).manual();
    let data = pattern(9000);
    // Unsolicited.
    peer.command(ScsiCommand { final_: false, ..write(1, 9000) }, &data[..100]);
    let task = peer.driver.commands[0].task;
    peer.driver.act(|c| c.abort(task));
    peer.data_out(data_out(1, 100), &data[100..1024]);
    peer.silence();
    // Solicited.
    start_write(&mut peer, 2, &data, 0, 0, 1);
    let task = peer.driver.commands[1].task;
    peer.driver.want_data(task, 9000);
    let (first, second) = (peer.r2t().0, peer.r2t().0);
    peer.answer(&first, &data, 8192);
    let (third, _) = peer.r2t();
    peer.driver.act(|c| c.abort(task));
    peer.answer(&second, &data, 1000);
    peer.answer(&third, &data, 1000);
    peer.silence();
    // In the middle of a PDU.
    start_write(&mut peer, 3, &data, 0, 0, 1);
    let task = peer.driver.commands[2].task;
    peer.driver.want_data(task, 9000);
    let (first, _) = (peer.r2t().0, peer.r2t().0);
    let pdu = solicited(&first, 4096)[0];
    let bytes = peer.frame(pdu.emit(), &[], &data[..4096]);
    peer.raw(&bytes[..1000]);
    peer.driver.act(|c| c.abort(task));
    peer.raw(&bytes[1000..]);
    peer.silence();
    assert!(peer.driver.data_out.is_empty());
    assert_eq!(peer.driver.pool.used_bytes(), 0, "an aborted task gives its buffer back");
    peer.command(command(4), &[]);
    peer.silence();
    assert_eq!(peer.driver.commands.len(), 4);
}

#[test]
fn data_of_nobody_is_dropped_in_silence() {
    let mut peer = unsolicited();
    peer.data_out(data_out(99, 0), &[1; 512]);
    peer.data_out(DataOut { ttt: TargetTransferTag(5), ..data_out(99, 0) }, &[1; 512]);
    peer.data_out(DataOut { ttt: TargetTransferTag(u32::MAX - 1), ..data_out(99, 0) }, &[]);
    peer.silence();
}

#[test]
fn any_number_of_aborted_tasks_may_leave_data_behind() {
    let mut peer = unsolicited();
    let many = 4 * MAX_DRAINING_TASKS as u32;
    for itt in 0..many {
        peer.command(ScsiCommand { final_: false, ..write(itt, 4096) }, &[]);
        let task = peer.driver.commands.last().unwrap().task;
        peer.driver.act(|c| c.abort(task));
    }
    for itt in 0..many {
        peer.data_out(data_out(itt, 0), &[0; 1024]);
    }
    peer.silence();
    assert_eq!(peer.driver.commands.len() as u32, many);
    // The tag of a task whose data never came is free again.
    peer.command(ScsiCommand { final_: false, ..write(1, 4096) }, &[]);
    let task = peer.driver.commands.last().unwrap().task;
    peer.driver.act(|c| c.abort(task));
    peer.command(command(1), &[]);
    peer.silence();
    assert_eq!(peer.driver.commands.len() as u32, many + 2);
}

type Spoil = fn(&mut DataOut);

const LOST: Option<[u8; 2]> = Some([0x47, 0x05]);
const WRONG_AMOUNT: Option<[u8; 2]> = Some([0x0c, 0x0d]);
const UNEXPECTED: Option<[u8; 2]> = Some([0x0c, 0x0c]);

/// The task is answered with ABORTED COMMAND and this additional sense, the device forgets it, what else comes for it
/// is dropped, and the connection goes on.
fn failed_alone(peer: &mut Peer, itt: u32, code: [u8; 2], late: DataOut) {
    let (response, sense) = peer.scsi_response();
    assert_eq!((response.itt.0, response.status), (itt, 0x02));
    assert_eq!((sense[2 + 2], &sense[2 + 12..2 + 14]), (0x0b, &code[..]));
    assert_eq!(peer.driver.aborted.len(), 1);
    assert!(peer.driver.data_out.is_empty());
    peer.data_out(late, &[0; 8]);
    peer.silence();
    peer.command(command(77), &[]);
    assert_eq!(peer.driver.commands.last().map(|command| command.data_out_len), Some(0));
}

#[test]
fn a_broken_sequence_ends_its_task_and_a_wrong_tag_the_connection() {
    let cases: &[(&str, Spoil, usize, Option<[u8; 2]>)] = &[
        ("DataSN ahead", |pdu| pdu.data_sn = 1, 1000, LOST),
        ("DataSN far off", |pdu| pdu.data_sn = u32::MAX, 1000, LOST),
        ("offset behind", |pdu| pdu.buffer_offset -= 4, 1000, LOST),
        ("offset ahead", |pdu| pdu.buffer_offset += 4, 1000, LOST),
        ("offset at the end of the world", |pdu| pdu.buffer_offset = u32::MAX, 1000, LOST),
        ("one byte too many", |_| {}, 1001, WRONG_AMOUNT),
        ("one byte too few", |_| {}, 999, WRONG_AMOUNT),
        ("nothing, and the F bit", |_| {}, 0, WRONG_AMOUNT),
        ("no F bit", |pdu| pdu.final_ = false, 1000, WRONG_AMOUNT),
        ("no F bit and too many", |pdu| pdu.final_ = false, 2000, WRONG_AMOUNT),
        ("no transfer tag", |pdu| pdu.ttt = TargetTransferTag::RESERVED, 1000, UNEXPECTED),
        ("unknown transfer tag", |pdu| pdu.ttt.0 ^= 1, 1000, None),
        ("transfer tag of no slot", |pdu| pdu.ttt.0 = 0xffff_fffe, 1000, None),
        ("tag of another task", |pdu| pdu.itt.0 = 2, 1000, None),
        ("tag of no task", |pdu| pdu.itt.0 = 3, 1000, None),
    ];
    for (what, spoil, len, task_ends) in cases {
        println!("{what}");
        let mut peer = asked_only("1");
        start_write(&mut peer, 2, &[0; 64], 0, 0, 1);
        start_write(&mut peer, 1, &pattern(5096), 0, 0, 1);
        let task = peer.driver.commands[1].task;
        peer.driver.want_data(task, 5096);
        let (first, _) = peer.r2t();
        peer.answer(&first, &pattern(5096), 4096);
        let (second, _) = peer.r2t();
        assert_eq!(second.desired_data_transfer_length, 1000);
        let mut pdu = solicited(&second, 1000)[0];
        spoil(&mut pdu);
        peer.data_out(pdu, &vec![0; *len]);
        if let Some(code) = task_ends {
            failed_alone(&mut peer, 1, *code, solicited(&second, 1000)[0]);
        } else {
            assert!(matches!(peer.reject().0.reason, RejectReason::PROTOCOL_ERROR | RejectReason::INVALID_PDU_FIELD));
            peer.broken();
            assert!(peer.driver.data_out.is_empty(), "{what}");
        }
    }
}

#[test]
fn broken_unsolicited_data_ends_its_task() {
    let cases: &[(&str, Spoil, usize, Option<[u8; 2]>)] = &[
        ("DataSN", |pdu| pdu.data_sn = 1, 100, LOST),
        ("offset", |pdu| pdu.buffer_offset = 0, 100, LOST),
        ("past FirstBurstLength", |_| {}, 825, WRONG_AMOUNT),
        ("no F bit at FirstBurstLength", |pdu| pdu.final_ = false, 824, WRONG_AMOUNT),
    ];
    for decided in [true, false] {
        for (what, spoil, len, code) in cases {
            println!("{what}");
            let mut peer = unsolicited();
            peer.command(ScsiCommand { final_: false, ..write(1, 5000) }, if decided { &[7; 200] } else { &[] });
            if decided {
                let task = peer.driver.commands[0].task;
                peer.driver.want_data(task, 5000);
            }
            let immediate = if decided { 200 } else { 0 };
            let mut pdu = data_out(1, immediate);
            spoil(&mut pdu);
            pdu.buffer_offset += if !decided && *what == "offset" { 4 } else { 0 };
            peer.data_out(pdu, &vec![0; *len + if decided { 0 } else { 200 * usize::from(*code == WRONG_AMOUNT) }]);
            failed_alone(&mut peer, 1, code.unwrap(), data_out(1, immediate));
        }
    }
}

#[test]
fn data_where_none_is_expected_ends_its_task() {
    let mut peer = unsolicited();
    peer.command(write(2, 100), &[]);
    peer.data_out(data_out(2, 0), &[0; 100]);
    failed_alone(&mut peer, 2, UNEXPECTED.unwrap(), data_out(2, 0));
}

#[test]
fn data_after_all_data_is_there_ends_its_task() {
    let mut peer = unsolicited();
    peer.command(write(1, 100), &[0; 100]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 100);
    peer.driver.pump();
    peer.driver.data_out.clear();
    peer.data_out(data_out(1, 0), &[0; 100]);
    failed_alone(&mut peer, 1, UNEXPECTED.unwrap(), data_out(1, 0));
}

#[test]
fn unsolicited_data_may_end_before_its_limit() {
    let mut peer = unsolicited();
    let data = pattern(3000);
    peer.command(ScsiCommand { final_: false, ..write(1, 3000) }, &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 3000);
    peer.silence();
    peer.data_out(data_out(1, 0), &data[..400]);
    let (r2t, _) = peer.r2t();
    assert_eq!((r2t.buffer_offset, r2t.desired_data_transfer_length), (400, 2600));
    peer.answer(&r2t, &data, 8192);
    assert_eq!(peer.driver.data_out, [(task, data)]);
}

#[test]
fn data_that_was_not_allowed_with_a_command_ends_the_connection() {
    let read = ScsiCommand { read: true, write: false, ..write(1, 512) };
    let announced = |len| ScsiCommand { final_: false, ..write(1, len) };
    let cases: &[(&str, bool, bool, ScsiCommand, usize)] = &[
        ("ImmediateData=No", false, false, write(1, 512), 1),
        ("more than FirstBurstLength", true, false, write(1, 5000), 1025),
        ("more than expected", true, false, write(1, 512), 513),
        ("with a read", true, false, read, 1),
        ("with nothing", true, false, command(1), 1),
        ("InitialR2T=Yes", true, true, announced(5000), 0),
    ];
    for (what, immediate, initial_r2t, request, len) in cases {
        println!("{what}");
        let mut peer = Peer::logged_in(setup(*immediate, *initial_r2t, "1"));
        peer.command(*request, &vec![0; *len]);
        peer.cut_off(RejectReason::PROTOCOL_ERROR);
        assert!(peer.driver.commands.is_empty());
    }
}

#[test]
fn a_first_burst_is_no_longer_than_a_burst() {
    let setup = Setup::keys(&[("FirstBurstLength", "8192"), ("MaxBurstLength", "1024"), ("ImmediateData", YES)]);
    let mut peer = Peer::logged_in(setup);
    peer.command(write(1, 8192), &[0; 1025]);
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}

#[test]
fn segments_longer_than_we_declared_end_the_connection() {
    let offer = Offer { recv_data_segment_len: 1024, ..Offer::default() };
    let mut peer = Peer::logged_in(Setup { offer, ..setup(false, true, "1") }).manual();
    let data = pattern(2000);
    start_write(&mut peer, 1, &data, 0, 0, 1);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 2000);
    let (r2t, _) = peer.r2t();
    peer.answer(&r2t, &data, 1025);
    peer.cut_off(RejectReason::PROTOCOL_ERROR);
}

#[test]
fn a_device_that_decides_late_holds_the_stream_at_every_cut() {
    let data = pattern(700);
    let mut bytes = Vec::new();
    {
        let peer = unsolicited();
        let first = ScsiCommand { data_segment_len: 200, cmd_sn: SerialNumber(1), final_: false, ..write(1, 700) };
        bytes.extend(peer.frame(first.emit(), &[], &data[..200]));
        let second = DataOut { data_segment_len: 500, ..data_out(1, 200) };
        bytes.extend(peer.frame(second.emit(), &[], &data[200..]));
        let third = lunette_pdu::NopOut { cmd_sn: SerialNumber(2), ..nop_out(8) };
        bytes.extend(peer.frame(third.emit(), &[], &[]));
    }
    for at in 0..=bytes.len() {
        let mut peer = unsolicited();
        peer.checker.task_sent(write(1, 0).itt, false);
        peer.cmd_sn = SerialNumber(2);
        peer.raw(&bytes[..at]);
        if let Some(task) = peer.driver.commands.first().map(|command| command.task) {
            assert!(!peer.driver.wants_input());
            peer.silence();
            peer.driver.want_data(task, 700);
            peer.raw(&bytes[at..]);
        } else {
            assert!(peer.driver.wants_input());
            peer.raw(&bytes[at..]);
            assert!(!peer.driver.wants_input());
            let task = peer.driver.commands[0].task;
            peer.driver.want_data(task, 700);
        }
        peer.collect();
        assert_eq!(peer.driver.data_out.len(), 1, "cut at {at}");
        assert_eq!(peer.driver.data_out[0].1, data, "cut at {at}");
        assert_eq!(peer.nop_in().0.itt.0, 8);
        assert_eq!(peer.driver.unread(), 0);
    }
}

#[test]
fn a_refusal_lets_a_held_stream_go_on() {
    let mut peer = unsolicited();
    peer.command(write(1, 700), &pattern(700));
    peer.nop_out(nop_out(8), &[]);
    peer.silence();
    let task = peer.driver.commands[0].task;
    refuse(&mut peer, task);
    assert_eq!(peer.scsi_response().0.status, CHECK_CONDITION);
    assert_eq!(peer.nop_in().0.itt.0, 8);
}

#[test]
fn a_zero_length_write_needs_no_data() {
    let mut peer = unsolicited();
    peer.command(write(1, 0), &[]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 0);
    peer.collect();
    assert_eq!(peer.driver.data_out, [(task, Vec::new())]);
}

#[test]
fn a_task_runs_only_when_its_last_pdu_has_arrived() {
    // The device wants less than the command carries: the rest is awaited all the same.
    let mut peer = unsolicited();
    peer.command(ScsiCommand { final_: false, ..write(1, 1000) }, &[7; 500]);
    let task = peer.driver.commands[0].task;
    peer.driver.want_data(task, 100);
    peer.collect();
    assert!(peer.driver.data_out.is_empty());
    peer.data_out(data_out(1, 500), &[7; 500]);
    assert_eq!(peer.driver.data_out, [(task, vec![7; 100])]);
}
