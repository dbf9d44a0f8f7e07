//! Answers that the initiator has not acknowledged when their connection is lost.

use lunette_pdu::{Cid, LunField, ScsiCommand, SerialNumber, TaskManagementFunction, TaskManagementRequest};
use lunette_session::iscsi_target::Response;

use super::{cut, first, is_gone, join, knows, log_out, reassign, setup, tag};
use crate::harness::{Peer, command, pattern, read, task_management};

/// A read of three bursts that was answered in PDUs of 4096 bytes; the connection is lost before the initiator said
/// anything.
fn with_an_answered_read() -> (Peer, Vec<u8>) {
    let mut setup = setup();
    setup.keys.push(("MaxRecvDataSegmentLength", "4096"));
    let mut a = Peer::logged_in(setup).manual();
    // What comes after an answer acknowledges it.
    a.command(read(1, 12288), &[]);
    let first = tag(&a);
    a.command(command(2), &[]);
    let second = tag(&a);
    a.driver.give_data(first, 12288);
    a.driver.complete(second, Response::default());
    assert_eq!(a.rest().len(), 4);
    cut(&mut a);
    (a, pattern(12288))
}

#[test]
fn an_answer_comes_again_from_where_the_initiator_has_it() {
    // The new connection takes 8192 bytes in one PDU.
    let all = [(0, 8192), (8192, 12288)];
    for (exp_data_sn, pieces) in [(0, &all[..]), (1, &[(4096, 12288)]), (3, &[]), (4, &all)] {
        let (mut a, data) = with_an_answered_read();
        assert_eq!(a.driver.act(|c| c.answer_bytes()), 16384, "a buffer counts as a whole");
        let mut b = join(&mut a, Cid(7));
        assert_eq!(reassign(&mut a, &mut b, 1, exp_data_sn), None);
        let first = if exp_data_sn == 4 { 0 } else { exp_data_sn };
        for ((from, to), data_sn) in pieces.iter().copied().zip(first..) {
            let (pdu, bytes) = b.data_in();
            assert_eq!((pdu.data_sn, pdu.buffer_offset as usize), (data_sn, from), "ExpDataSN {exp_data_sn}");
            assert_eq!(bytes, data[from..to]);
            assert_eq!(pdu.status.is_some(), to == 12288);
        }
        if pieces.is_empty() {
            let (response, _) = b.scsi_response();
            assert_eq!((response.status, response.exp_data_sn, response.snack_tag), (0, 3, 0));
        }
        assert_eq!(a.driver.act(|c| c.answer_bytes()), 0);
        b.silence();
    }
}

#[test]
fn what_was_acknowledged_does_not_exist_any_more() {
    let (mut a, _) = with_an_answered_read();
    let mut b = join(&mut a, Cid(7));
    assert!(knows(&mut b, 1));
    let received = a.checker.stat_sn.unwrap();
    log_out(&mut a, &mut b, received);
    for itt in [1, 2] {
        assert!(!knows(&mut b, itt));
    }
    assert!(a.driver.gone);
}

#[test]
fn requests_that_cover_answered_tasks_forget_their_answers() {
    let (mut a, _) = with_an_answered_read();
    let mut b = join(&mut a, Cid(7));
    let second = a.driver.commands[1].order.cmd_sn;
    reset_unit(&mut b, command(1).lun, second);
    assert!(!knows(&mut b, 1));
    assert!(knows(&mut b, 2), "it was sent after the request");
    assert_eq!(a.driver.act(|c| c.answer_bytes()), 0);
    reset_unit(&mut b, LunField([0, 4, 0, 0, 0, 0, 0, 0]), second.next());
    assert!(knows(&mut b, 2), "of another logical unit");
}

fn reset_unit(by: &mut Peer, lun: LunField, cmd_sn: SerialNumber) {
    let request = task_management(0x7000_0004, TaskManagementFunction::LOGICAL_UNIT_RESET);
    let next = std::mem::replace(&mut by.cmd_sn, cmd_sn);
    by.task_management(TaskManagementRequest { lun, ..request });
    by.cmd_sn = next;
    by.driver.done(request.itt);
    by.task_management_response();
}

#[test]
fn data_that_is_not_kept_any_more_ends_its_task() {
    let mut a = first();
    let len = 16 << 20;
    a.driver.pool = lunette_buffer::Pool::new(128 << 20);
    for itt in 0..5 {
        a.command(read(itt, len), &[]);
    }
    for at in 0..5 {
        let task = a.driver.commands[at].task;
        a.driver.give_data(task, len as usize);
    }
    a.rest();
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    b.checker.strict = false;
    reassign(&mut a, &mut b, 0, 1);
    let (response, sense) = b.scsi_response();
    assert_eq!((response.status, &sense[2..][..14]), (2, &[0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0x13][..]));
    reassign(&mut a, &mut b, 4, 0);
    assert_eq!(b.data_in().0.itt.0, 4, "the youngest is kept");
}

#[test]
fn answers_of_immediate_commands_do_not_move() {
    let mut a = first();
    a.command(ScsiCommand { immediate: true, ..command(1) }, &[]);
    let task = tag(&a);
    a.driver.complete(task, Response::default());
    a.scsi_response();
    cut(&mut a);
    let mut b = join(&mut a, Cid(7));
    assert!(!knows(&mut b, 1));
    assert!(is_gone(&mut a, &mut b));
}
