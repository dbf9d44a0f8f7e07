//! A target that breaks the rules of the full feature phase: each one ends the connection with the section that it
//! broke, and the commands come back.

use lunette_pdu::{
    DataIn, InitiatorTaskTag, NopIn, R2t, Reject, RejectReason, Residual, ScsiResponse, SerialNumber,
    TargetTransferTag, TaskManagementResponseCode,
};

use crate::harness::{ScriptedTarget, config};

const UNKNOWN: InitiatorTaskTag = InitiatorTaskTag(0x0005_0005);

/// A lie about a read of 4096 bytes, and the section that it breaks.
fn read_lie(section: &str, says: &str, lie: impl FnOnce(&mut ScriptedTarget, InitiatorTaskTag)) {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.read(4096);
    lie(&mut target, itt);
    let what = target.broken(section);
    assert!(what.contains(says), "{what}");
    assert_eq!(target.session.room(), 0);
    assert_eq!(target.session.into_unfinished().len(), 1);
}

/// A lie about a write of 20,000 bytes, none of which goes unasked.
fn write_lie(section: &str, says: &str, lie: impl FnOnce(&mut ScriptedTarget, InitiatorTaskTag)) {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.write(20_000);
    lie(&mut target, itt);
    let what = target.broken(section);
    assert!(what.contains(says), "{what}");
    assert_eq!(target.session.into_unfinished().len(), 1);
}

#[test]
fn data_in_must_be_the_next_bytes_of_a_known_read() {
    type Lie = fn(DataIn) -> DataIn;
    let lies: [(&str, &str, Lie); 8] = [
        ("11.2.1.8", "names no command", |pdu| DataIn { itt: UNKNOWN, ..pdu }),
        ("11.2.1.8", "names no command", |pdu| DataIn { itt: InitiatorTaskTag::RESERVED, ..pdu }),
        ("11.2.1.8", "names no command", |pdu| DataIn { itt: InitiatorTaskTag(pdu.itt.0 + 1), ..pdu }),
        ("11.7.5", "DataSN 1", |pdu| DataIn { data_sn: 1, ..pdu }),
        ("11.7.6", "leaves a gap", |pdu| DataIn { buffer_offset: 512, ..pdu }),
        ("11.7.6", "leaves a gap", |pdu| DataIn { buffer_offset: u32::MAX, ..pdu }),
        ("11.7.6", "byte 4100 of a buffer of 4096", |pdu| DataIn { data_segment_len: 4100, ..pdu }),
        ("4.2.2.1", "not sent yet", |pdu| DataIn { exp_cmd_sn: pdu.exp_cmd_sn.next(), ..pdu }),
    ];
    for (section, says, lie) in lies {
        read_lie(section, says, |target, itt| {
            let pdu = lie(target.data_in(itt, 0, 0, 1024));
            target.send_data(pdu);
        });
    }
}

#[test]
fn data_in_does_not_come_twice() {
    read_lie("11.7.6", "overlaps", |target, itt| {
        target.send_data(target.data_in(itt, 0, 0, 1024));
        target.send_data(target.data_in(itt, 1, 512, 1024));
    });
}

#[test]
fn a_write_gets_no_data_in() {
    write_lie("11.7", "reads nothing", |target, itt| target.send_data(target.data_in(itt, 0, 0, 512)));
}

#[test]
fn a_segment_longer_than_declared_is_refused_at_its_header() {
    read_lie("13.12", "300000", |target, itt| {
        let header = DataIn { data_segment_len: 300_000, ..target.data_in(itt, 0, 0, 0) }.emit();
        target.raw(&header);
    });
}

#[test]
fn a_sequence_of_data_in_keeps_to_max_burst_length() {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.read(20_000);
    for n in 0..2 {
        target.send_data(DataIn { final_: false, ..target.data_in(itt, n, n * 5000, 5000) });
    }
    target.broken("13.13");
}

#[test]
fn status_numbers_neither_go_back_nor_leave_a_gap() {
    for (offset, says) in [(u32::MAX, "goes back"), (1, "leaves a gap"), (1 << 31, "goes back")] {
        read_lie("4.2.2.2", says, |target, itt| {
            let response = target.response(itt);
            let stat_sn = response.stat_sn.add(offset);
            target.send(ScsiResponse { stat_sn, residual: Residual::Underflow(4096), ..response }.emit(), &[]);
        });
        read_lie("4.2.2.2", says, |target, itt| {
            let mut status = target.status(Residual::None);
            status.stat_sn = status.stat_sn.add(offset);
            target.send_data(DataIn { status: Some(status), ..target.data_in(itt, 0, 0, 4096) });
        });
    }
    read_lie("4.2.2.2", "reported as the next one", |target, _| {
        let ping = NopIn { stat_sn: target.stat_sn.next(), ..target.nop_in() };
        target.send(ping.emit(), &[]);
    });
}

#[test]
fn a_good_read_is_whole_or_says_what_is_missing() {
    for (received, residual) in [
        (1024, Residual::None),
        (1024, Residual::Underflow(3000)),
        (1024, Residual::Underflow(3073)),
        (4096, Residual::Underflow(1)),
        (1024, Residual::Overflow(1)),
        (0, Residual::None),
        (0, Residual::Underflow(u32::MAX)),
    ] {
        read_lie("11.4.5", "of 4096 bytes", |target, itt| {
            if received > 0 {
                target.send_data(target.data_in(itt, 0, 0, received));
            }
            let response = ScsiResponse { residual, ..target.response(itt) };
            target.send(response.emit(), &[]);
        });
        read_lie("11.4.5", "of 4096 bytes", |target, itt| {
            let status = Some(target.status(residual));
            target.send_data(DataIn { status, ..target.data_in(itt, 0, 0, received) });
        });
    }
}

#[test]
fn a_response_counts_the_data_in_that_came() {
    read_lie("11.4.8", "after 1", |target, itt| {
        target.send_data(target.data_in(itt, 0, 0, 4096));
        let response = ScsiResponse { exp_data_sn: 2, ..target.response(itt) };
        target.send(response.emit(), &[]);
    });
}

#[test]
fn sense_data_lies_inside_its_segment() {
    read_lie("11.4.7.1", "needs 20 bytes", |target, itt| {
        let response = ScsiResponse { status: 2, data_segment_len: 4, ..target.response(itt) };
        target.send(response.emit(), &[0, 18, 0x70, 0]);
    });
}

#[test]
fn an_r2t_asks_for_the_next_bytes_of_a_known_write() {
    type Lie = fn(R2t) -> R2t;
    let lies: [(&str, &str, Lie); 10] = [
        ("11.2.1.8", "names no command", |pdu| R2t { itt: UNKNOWN, ..pdu }),
        ("11.8.5", "reserved", |pdu| R2t { ttt: TargetTransferTag::RESERVED, ..pdu }),
        ("11.8.2", "R2TSN 1", |pdu| R2t { r2t_sn: 1, ..pdu }),
        ("11.8.4", "no bytes", |pdu| R2t { desired_data_transfer_length: 0, ..pdu }),
        ("11.8.4", "MaxBurstLength=8192", |pdu| R2t { desired_data_transfer_length: 8193, ..pdu }),
        ("11.8.4", "MaxBurstLength", |pdu| R2t { desired_data_transfer_length: u32::MAX, ..pdu }),
        ("11.8.4", "offset 512", |pdu| R2t { buffer_offset: 512, ..pdu }),
        ("11.8.4", "offset 4294967295", |pdu| R2t { buffer_offset: u32::MAX, ..pdu }),
        ("4.2.2.1", "not sent yet", |pdu| R2t { exp_cmd_sn: pdu.exp_cmd_sn.add(9), ..pdu }),
        ("4.2.2.2", "reported", |pdu| R2t { stat_sn: pdu.stat_sn.next(), ..pdu }),
    ];
    for (section, says, lie) in lies {
        write_lie(section, says, |target, itt| {
            let pdu = lie(target.r2t(itt, 0, 0, 4096));
            target.send(pdu.emit(), &[]);
        });
    }
}

#[test]
fn an_r2t_does_not_reach_beyond_the_buffer() {
    write_lie("11.8.4", "byte 24576 of 20000", |target, itt| {
        for n in 0..3 {
            target.send(target.r2t(itt, n, n * 8192, 8192).emit(), &[]);
        }
    });
}

#[test]
fn a_read_gets_no_r2t() {
    read_lie("11.8", "writes nothing", |target, itt| target.send(target.r2t(itt, 0, 0, 512).emit(), &[]));
}

#[test]
fn no_more_r2ts_are_outstanding_than_agreed() {
    // All in one piece: none of them can have been answered yet.
    write_lie("13.17", "MaxOutstandingR2T=2", |target, itt| {
        let r2ts: Vec<u8> = (0..3).flat_map(|n| target.r2t(itt, n, n * 1000, 1000).emit()).collect();
        target.raw(&r2ts);
    });
}

#[test]
fn a_status_waits_for_the_data_that_was_asked_for() {
    write_lie("11.4.2", "still being sent", |target, itt| {
        let r2t = target.r2t(itt, 0, 0, 8192).emit();
        let response = ScsiResponse { status: 2, ..target.response(itt) }.emit();
        target.raw(&[r2t, response].concat());
    });
}

#[test]
fn a_good_write_has_taken_every_byte() {
    for residual in [Residual::None, Residual::Underflow(100), Residual::Underflow(20_001), Residual::Overflow(5)] {
        write_lie("11.4.5", "8192 of 20000", |target, itt| {
            target.send(target.r2t(itt, 0, 0, 8192).emit(), &[]);
            let response = ScsiResponse { residual, ..target.response(itt) };
            target.send(response.emit(), &[]);
        });
    }
}

#[test]
fn answers_name_a_request_of_their_kind() {
    for itt in [UNKNOWN, InitiatorTaskTag(0x8000_0000), InitiatorTaskTag(0xfffe_fffe)] {
        let section = "11.2.1.8";
        read_lie(section, "", |target, _| {
            let response = target.response(itt);
            target.send(response.emit(), &[]);
        });
        read_lie(section, "", |target, _| {
            let pong = NopIn { itt, stat_sn: target.next_stat_sn(), ..target.nop_in() };
            target.send(pong.emit(), &[]);
        });
        read_lie(section, "", |target, _| {
            let pdu = target.task_management_response(itt, TaskManagementResponseCode::FUNCTION_COMPLETE);
            target.send(pdu.emit(), &[]);
        });
        read_lie(section, "", |target, _| {
            let pdu = target.used().text_response(itt, 0);
            target.send(pdu.emit(), &[]);
        });
        read_lie(section, "", |target, _| {
            let pdu = target.used().logout_response(itt);
            target.send(pdu.emit(), &[]);
        });
    }
}

#[test]
fn an_answered_command_is_not_answered_again() {
    let mut target = ScriptedTarget::asked_only();
    let (_, itt) = target.read(0);
    let response = target.response(itt).emit();
    target.send(response, &[]);
    assert!(matches!(target.event(), lunette_session::iscsi_initiator::Event::Completed { .. }));
    let response = target.response(itt).emit();
    target.send(response, &[]);
    target.broken("11.2.1.8");
}

#[test]
fn requests_and_unknown_opcodes_do_not_come_from_a_target() {
    for first in [0x00, 0x01, 0x03, 0x05, 0x2b, 0x3e, 0x1c] {
        read_lie("7.7", "", |target, _| {
            let mut header = [0; 48];
            header[0] = first;
            header[1] = 0x80;
            target.raw(&header);
        });
    }
    read_lie("6.3", "after the login", |target, _| {
        let mut header = [0; 48];
        header[0] = 0x23;
        target.raw(&header);
    });
}

#[test]
fn a_ping_of_the_target_carries_no_data() {
    read_lie("11.19.1", "data", |target, _| {
        let ping = NopIn { data_segment_len: 4, ..target.nop_in() };
        target.send(ping.emit(), &[1, 2, 3, 4]);
    });
}

#[test]
fn a_target_that_pings_and_does_not_read_is_given_up() {
    let mut target = ScriptedTarget::logged_in(config(), &[]);
    let ping = target.nop_in().emit();
    for _ in 0..100_000 {
        // Nothing of what the initiator has to say is read.
        let mut input = &ping[..];
        if let Some(event) = target.session.next_event(target.cid, &mut input, target.now) {
            target.events.push_back(event);
            break;
        }
    }
    target.broken("11.19");
}

#[test]
fn a_reject_quotes_what_it_refuses() {
    let reject = |target: &mut ScriptedTarget, len| Reject {
        data_segment_len: len,
        ..target.used().reject(RejectReason::PROTOCOL_ERROR)
    };
    read_lie("11.17", "without the header", |target, _| {
        let pdu = reject(target, 4);
        target.send(pdu.emit(), &[0; 4]);
    });
}

#[test]
fn stale_command_numbers_change_nothing() {
    let mut target = ScriptedTarget::asked_only();
    let room = target.session.room();
    let stale = NopIn {
        ttt: TargetTransferTag::RESERVED,
        exp_cmd_sn: SerialNumber(target.exp_cmd_sn.0.wrapping_sub(3)),
        max_cmd_sn: SerialNumber(target.exp_cmd_sn.0.wrapping_sub(2)),
        ..target.nop_in()
    };
    target.send(stale.emit(), &[]);
    assert_eq!((target.session.room(), target.events.len()), (room, 0));
}
