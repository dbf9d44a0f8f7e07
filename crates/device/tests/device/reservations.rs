//! Reservations through commands: bytes in, bytes, statuses and unit attentions out.

use std::sync::Arc;

use lunette_device::{Nexus, Response};
use lunette_scsi::persistent::emit_transport_id;
use lunette_scsi::{AdditionalSense, FieldPointer, SenseKey, Status};
use lunette_state::{StateFile, StateStore};

use crate::atomic::SteppedTask;
use crate::fixture::{Fixture, THIN, TestState, cdb, code, name, sense};

const WRITE: &[u8] = &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1];
const READ: &[u8] = &[0x28, 0, 0, 0, 0, 0, 0, 0, 1];
const B: &str = "iqn.2026-11.host:b";
const WERO: u8 = 5;

/// PERSISTENT RESERVE OUT with a basic parameter list.
fn out(fixture: &Fixture, nexus: &Nexus, action: u8, kind: u8, keys: [u64; 2], flags: u8) -> Response {
    let mut list = [keys[0].to_be_bytes(), keys[1].to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    out_list(fixture, nexus, action, kind, &list)
}

fn out_list(fixture: &Fixture, nexus: &Nexus, action: u8, kind: u8, list: &[u8]) -> Response {
    let len = (list.len() as u32).to_be_bytes();
    let bytes = [0x5f, action, kind, 0, 0, len[0], len[1], len[2], len[3]];
    fixture.run_on(nexus, [0; 8], cdb(&bytes), list)
}

/// The list of a REGISTER AND MOVE to the second initiator on a port, which unregisters this one.
fn move_list(key: u8, new_key: u8, port: u8) -> Vec<u8> {
    let id = emit_transport_id(&name(B).initiator);
    let mut list = vec![0; 24];
    (list[7], list[15], list[17], list[19], list[23]) = (key, new_key, 2, port, id.len() as u8);
    list.extend(id);
    list
}

fn done(fixture: &Fixture, nexus: &Nexus, action: u8, kind: u8, keys: [u64; 2]) {
    assert_eq!(out(fixture, nexus, action, kind, keys, 0).status, Status::GOOD);
}

fn read_in(fixture: &Fixture, action: u8) -> Vec<u8> {
    fixture.read(&[0x5e, action, 0, 0, 0, 0, 0, 0x10, 0])
}

/// A second nexus that has taken its first unit attention.
fn attach(fixture: &Fixture, initiator: &str) -> Nexus {
    let nexus = fixture.device.attach(name(initiator));
    fixture.run_on(&nexus, [0; 8], [0; 16], &[]);
    nexus
}

fn status(fixture: &Fixture, nexus: &Nexus, bytes: &[u8]) -> Status {
    fixture.run_on(nexus, [0; 8], cdb(bytes), &[0; 512]).status
}

fn attention(fixture: &Fixture, nexus: &Nexus) -> Option<AdditionalSense> {
    let response = fixture.run_on(nexus, [0; 8], [0; 16], &[]);
    (response.status != Status::GOOD).then(|| sense(&response).code)
}

#[test]
fn a_reservation_keeps_others_from_the_medium() {
    let fixture = Fixture::new(THIN);
    let other = attach(&fixture, B);
    done(&fixture, &fixture.nexus, 0, 0, [0, 7]);
    done(&fixture, &fixture.nexus, 1, 1, [7, 0]);
    assert_eq!(status(&fixture, &other, READ), Status::GOOD);
    fixture.seen();
    assert_eq!(status(&fixture, &other, WRITE), Status::RESERVATION_CONFLICT);
    assert!(fixture.seen().is_empty(), "the store is not asked");
    assert_eq!(status(&fixture, &fixture.nexus, WRITE), Status::GOOD);
    for passes in
        [&[0x00][..], &[0x25], &[0x12, 0, 0, 0, 96], &[0x1b, 0, 0, 0, 1], &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 8]]
    {
        assert_eq!(status(&fixture, &other, passes), Status::GOOD, "{passes:x?}");
    }
    for conflicts in [&[0x1b, 0, 0, 0, 0][..], &[0x35], &[0x15, 0x10], &[0x16]] {
        assert_eq!(status(&fixture, &other, conflicts), Status::RESERVATION_CONFLICT, "{conflicts:x?}");
    }
}

#[test]
fn mode_pages_are_read_beside_write_exclusive_alone() {
    const WRITE_EXCLUSIVE: u8 = 1;
    const EXCLUSIVE_ACCESS: u8 = 3;
    for (kind, expected) in [(WRITE_EXCLUSIVE, Status::GOOD), (EXCLUSIVE_ACCESS, Status::RESERVATION_CONFLICT)] {
        let fixture = Fixture::new(THIN);
        let other = attach(&fixture, "iqn.2026-11.host:b");
        done(&fixture, &fixture.nexus, 0, 0, [0, 7]);
        done(&fixture, &fixture.nexus, 1, kind, [7, 0]);
        for sense in [&[0x1a, 0x08, 0x08, 0, 255, 0][..], &[0x5a, 0x08, 0x08, 0, 0, 0, 0, 1, 0, 0]] {
            assert_eq!(status(&fixture, &other, sense), expected);
        }
        let select = status(&fixture, &other, &[0x15, 0x10, 0, 0, 0, 0]);
        assert_eq!(select, Status::RESERVATION_CONFLICT);
    }
}

#[test]
fn registrations_and_reservations_can_be_read() {
    let fixture = Fixture::new(THIN);
    let other = attach(&fixture, B);
    done(&fixture, &fixture.nexus, 0, 0, [0, 7]);
    done(&fixture, &other, 6, 0, [99, 8]);
    done(&fixture, &other, 1, WERO, [8, 0]);
    assert_eq!(
        read_in(&fixture, 0),
        [&[0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 7][..], &[0, 0, 0, 0, 0, 0, 0, 8]].concat()
    );
    assert_eq!(read_in(&fixture, 1)[8..], [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, WERO, 0, 0]);
    assert_eq!(read_in(&fixture, 2), [0, 8, 0x1c, 0x80, 0xea, 1, 0, 0]);
    let full = read_in(&fixture, 3);
    let id = emit_transport_id("iqn.2026-11.host:a,i,0x400001370000");
    assert_eq!(full[8..32], [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, id.len() as u8]);
    assert_eq!(full[32..32 + id.len()], id);
    assert_eq!(full[32 + id.len()..][12..14], [1, WERO]);
    assert_eq!(read_in(&fixture, 0)[..8].len(), 8);
    assert_eq!(fixture.refused(&[0x5e, 4, 0, 0, 0, 0, 0, 0, 8], &[]).field, Some(FieldPointer::cdb(1).bit(4)));
}

#[test]
fn affected_nexuses_get_reservation_attentions() {
    let fixture = Fixture::new(THIN);
    let (other, third) = (attach(&fixture, B), attach(&fixture, "iqn.2026-11.host:c"));
    for (nexus, key) in [(&fixture.nexus, 1), (&other, 2), (&third, 3)] {
        done(&fixture, nexus, 0, 0, [0, key]);
    }
    done(&fixture, &fixture.nexus, 1, WERO, [1, 0]);
    done(&fixture, &fixture.nexus, 2, WERO, [1, 0]);
    assert_eq!(attention(&fixture, &other), Some(AdditionalSense::RESERVATIONS_RELEASED));
    assert_eq!(attention(&fixture, &third), Some(AdditionalSense::RESERVATIONS_RELEASED));
    done(&fixture, &fixture.nexus, 4, WERO, [1, 2]);
    assert_eq!(attention(&fixture, &other), Some(AdditionalSense::REGISTRATIONS_PREEMPTED));
    assert_eq!(attention(&fixture, &third), None);
    done(&fixture, &fixture.nexus, 3, 0, [1, 0]);
    assert_eq!(attention(&fixture, &third), Some(AdditionalSense::RESERVATIONS_PREEMPTED));
    assert_eq!(attention(&fixture, &fixture.nexus), None);
    assert!(fixture.aborted.lock().unwrap().is_empty());
}

#[test]
fn preempt_and_abort_ends_the_tasks_of_the_preempted() {
    let fixture = Fixture::new(THIN);
    let other = attach(&fixture, B);
    done(&fixture, &fixture.nexus, 0, 0, [0, 1]);
    done(&fixture, &other, 0, 0, [0, 2]);
    done(&fixture, &other, 1, 3, [2, 0]);
    done(&fixture, &fixture.nexus, 5, 3, [1, 2]);
    assert_eq!(*fixture.aborted.lock().unwrap(), [other.id()]);
    assert_eq!(attention(&fixture, &other), Some(AdditionalSense::REGISTRATIONS_PREEMPTED));
    assert_eq!(attention(&fixture, &other), Some(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR));
    assert_eq!(status(&fixture, &other, READ), Status::RESERVATION_CONFLICT);
}

/// Tasks of a nexus that has lost its registration would go on.
#[test]
fn a_preempt_and_abort_that_is_aborted_while_it_saves_ends_the_tasks_all_the_same() {
    let fixture = Fixture::after(THIN, &Arc::default());
    let other = attach(&fixture, B);
    assert_eq!(out(&fixture, &fixture.nexus, 0, 0, [0, 1], 1).status, Status::GOOD);
    done(&fixture, &other, 0, 0, [0, 2]);
    done(&fixture, &other, 1, 3, [2, 0]);
    let list = [1_u64.to_be_bytes(), 2_u64.to_be_bytes(), [0; 8]].concat();
    let bytes = cdb(&[0x5f, 5, 3, 0, 0, 0, 0, 0, list.len() as u8]);
    SteppedTask::new(&fixture, &fixture.nexus, bytes, list).until_it_saves(&fixture).abort();
    fixture.finish_background();
    assert_eq!(*fixture.aborted.lock().unwrap(), [other.id()]);
    assert_eq!(attention(&fixture, &other), Some(AdditionalSense::REGISTRATIONS_PREEMPTED));
    assert_eq!(attention(&fixture, &other), Some(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR));
    assert_eq!(status(&fixture, &other, READ), Status::RESERVATION_CONFLICT);
}

#[test]
fn ports_are_registered_for_others() {
    let fixture = Fixture::new(THIN);
    fixture.device.set_ports([("iqn.2026-11.lunette:disk,t,0x0002", 2)]);
    let ids = emit_transport_id("iqn.2026-11.host:B,i,0x400001370000");
    let mut list = vec![0; 24];
    list[15] = 9;
    list[20] = 0x0c;
    list.extend((ids.len() as u32).to_be_bytes());
    list.extend(&ids);
    assert_eq!(out_list(&fixture, &fixture.nexus, 0, 0, &list).status, Status::GOOD);
    assert_eq!(read_in(&fixture, 0)[4..8], [0, 0, 0, 32], "two initiator ports on two target ports");
    done(&fixture, &fixture.nexus, 1, 6, [9, 0]);
    let other = attach(&fixture, B);
    assert_eq!(status(&fixture, &other, WRITE), Status::GOOD, "registered before it came");
    list[7] = 9;
    let refused = sense(&out_list(&fixture, &fixture.nexus, 0, 0, &list));
    assert_eq!(refused.field, Some(FieldPointer::cdb(1).bit(4)));
    let refused = sense(&out_list(&fixture, &fixture.nexus, 6, 0, &list));
    assert_eq!(refused.field, Some(FieldPointer::data(20).bit(3)));
}

#[test]
fn a_reservation_moves_to_a_port_that_exists() {
    let fixture = Fixture::new(THIN);
    let other = attach(&fixture, B);
    done(&fixture, &fixture.nexus, 0, 0, [0, 1]);
    done(&fixture, &fixture.nexus, 1, 3, [1, 0]);
    let refused = sense(&out_list(&fixture, &fixture.nexus, 7, 0, &move_list(1, 5, 7)));
    assert_eq!(refused.field, Some(FieldPointer::data(18)));
    assert_eq!(out_list(&fixture, &fixture.nexus, 7, 0, &move_list(1, 5, 1)).status, Status::GOOD);
    assert_eq!(status(&fixture, &other, WRITE), Status::GOOD);
    assert_eq!(status(&fixture, &fixture.nexus, READ), Status::RESERVATION_CONFLICT);
}

#[test]
fn bad_fields_have_their_sense_codes() {
    let fixture = Fixture::new(THIN);
    done(&fixture, &fixture.nexus, 0, 0, [0, 1]);
    for len in [0, 23, 25] {
        let refused = sense(&out_list(&fixture, &fixture.nexus, 0, 0, &vec![0; len]));
        assert_eq!(refused.code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR, "{len}");
    }
    // A list that the initiator does not send completely.
    let short = fixture.run(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24], &[0; 23]);
    assert_eq!(sense(&short).code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let field = |action, kind, flags| sense(&out(&fixture, &fixture.nexus, action, kind, [1, 2], flags)).field;
    assert_eq!(field(1, 0x11, 0), Some(FieldPointer::cdb(2).bit(7)), "SCOPE");
    assert_eq!(field(1, 0x02, 0), Some(FieldPointer::cdb(2).bit(3)), "TYPE");
    assert_eq!(field(0, 0, 1), Some(FieldPointer::data(20).bit(0)), "APTPL without a state store");
    assert_eq!(field(8, 0, 0), Some(FieldPointer::cdb(1).bit(4)));
    assert_eq!(out(&fixture, &fixture.nexus, 1, 1, [9, 0], 0).status, Status::RESERVATION_CONFLICT);
}

#[test]
fn reserve_ends_with_a_reset_and_with_the_nexus() {
    let fixture = Fixture::new(THIN);
    let other = attach(&fixture, B);
    for opcode in [0x16, 0x56] {
        assert_eq!(status(&fixture, &fixture.nexus, &[opcode]), Status::GOOD);
        assert_eq!(status(&fixture, &other, &[opcode]), Status::RESERVATION_CONFLICT);
        assert_eq!(status(&fixture, &other, &[0x00]), Status::RESERVATION_CONFLICT);
        assert_eq!(status(&fixture, &other, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8]), Status::RESERVATION_CONFLICT);
        assert_eq!(status(&fixture, &fixture.nexus, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8]), Status::RESERVATION_CONFLICT);
        assert_eq!(status(&fixture, &other, &[opcode + 1]), Status::GOOD);
        assert_eq!(status(&fixture, &other, READ), Status::RESERVATION_CONFLICT);
        assert_eq!(status(&fixture, &fixture.nexus, &[opcode + 1]), Status::GOOD);
        assert_eq!(status(&fixture, &other, READ), Status::GOOD);
    }
    let third = attach(&fixture, "iqn.2026-11.host:c");
    assert_eq!(status(&fixture, &third, &[0x16]), Status::GOOD);
    drop(third);
    assert_eq!(status(&fixture, &other, &[0x16]), Status::GOOD);
    fixture.device.reset_unit([0; 8], &fixture.nexus);
    fixture.run(&[0; 6], &[]);
    assert_eq!(status(&fixture, &fixture.nexus, READ), Status::GOOD);
}

#[test]
fn registrations_survive_the_process_when_they_are_to() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("state"), folder.path().join("copy"));
    let state: Arc<dyn StateStore> = Arc::new(StateFile::open(&path).unwrap());
    let fixture = Fixture::with_state(THIN, Some(state));
    assert_eq!(read_in(&fixture, 2)[2..4], [0x1d, 0x80]);
    assert_eq!(out(&fixture, &fixture.nexus, 0, 0, [0, 7], 1).status, Status::GOOD);
    assert_eq!(read_in(&fixture, 2)[3], 0x81, "PTPL_A");
    done(&fixture, &fixture.nexus, 1, 3, [7, 0]);
    // The state that a killed process leaves.
    std::fs::copy(&path, &copy).unwrap();
    let after = Fixture::with_state(THIN, Some(Arc::new(StateFile::open(&copy).unwrap())));
    assert_eq!(status(&after, &after.nexus, WRITE), Status::GOOD);
    assert_eq!(read_in(&after, 1)[..24], [0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 3, 0, 0]);
    let other = attach(&after, B);
    assert_eq!(status(&after, &other, READ), Status::RESERVATION_CONFLICT);
    done(&after, &after.nexus, 0, 0, [7, 0]);
    drop((after, other));
    let again = Fixture::with_state(THIN, Some(Arc::new(StateFile::open(&copy).unwrap())));
    assert_eq!(read_in(&again, 0), [0; 8]);
}

#[test]
fn a_command_that_cannot_be_saved_changes_nothing() {
    const MOVE: u8 = 7;
    let state: Arc<TestState> = Arc::default();
    let fixture = Fixture::after(THIN, &state);
    let other = attach(&fixture, B);
    assert_eq!(out(&fixture, &fixture.nexus, 0, 0, [0, 7], 1).status, Status::GOOD);
    assert_eq!(out(&fixture, &other, 0, 0, [0, 8], 1).status, Status::GOOD);
    done(&fixture, &fixture.nexus, 1, 5, [7, 0]);
    let reports = || (0..3).map(|action| read_in(&fixture, action)).collect::<Vec<_>>();
    let before = reports();
    *state.broken.lock().unwrap() = true;
    let basic: [(u8, u8, [u64; 2]); 7] = [
        (0, 0, [7, 9]),
        (6, 0, [0, 9]),
        (1, 5, [7, 0]),
        (2, 5, [7, 0]),
        (3, 0, [7, 0]),
        (4, 5, [7, 8]),
        (5, 5, [7, 8]),
    ];
    let answers = basic.map(|(action, kind, keys)| out(&fixture, &fixture.nexus, action, kind, keys, 1));
    let answers = answers.into_iter().chain([out_list(&fixture, &fixture.nexus, MOVE, 0, &move_list(7, 9, 1))]);
    for (index, answer) in answers.enumerate() {
        let refused = code(sense(&answer));
        assert_eq!(refused, (SenseKey::HARDWARE_ERROR, AdditionalSense::INTERNAL_TARGET_FAILURE), "{index}");
    }
    assert_eq!(reports(), before);
    assert_eq!(attention(&fixture, &other), None);
    assert_eq!(*fixture.aborted.lock().unwrap(), []);
    *state.broken.lock().unwrap() = false;
    done(&fixture, &fixture.nexus, 4, 5, [7, 8]);
    assert_eq!(attention(&fixture, &other), Some(AdditionalSense::REGISTRATIONS_PREEMPTED));
}
