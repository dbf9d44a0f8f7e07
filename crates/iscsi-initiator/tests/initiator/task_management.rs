//! Task management functions as methods.

use std::sync::Arc;

use lunette_initiator::{Error, Options, Request, wait};
use lunette_pdu::TaskManagementResponseCode;
use lunette_scsi::{AdditionalSense, Lun, SenseKey, requests};
use lunette_store::filters::Delay;

use crate::fixture::{Target, connect, memory, options};

fn modern() -> Options {
    let mut options = options();
    options.offer.protocol_level = 2;
    options
}

fn test_unit_ready() -> Request {
    Request::new(Lun::ZERO, requests::test_unit_ready())
}

#[test]
fn a_waiting_event_is_found_and_stays() {
    let target = Target::new();
    let session = connect(target.address, modern());
    let found = wait(session.query_asynchronous_event(Lun::ZERO)).unwrap().unwrap();
    assert_eq!((found.key, found.code), (SenseKey::UNIT_ATTENTION, AdditionalSense::POWER_ON_OR_RESET));
    assert_eq!(found.is_only_one, Some(true));
    assert_eq!(wait(session.execute(test_unit_ready())).result.unwrap().sense_data().unwrap().code, found.code);
    assert_eq!(wait(session.query_asynchronous_event(Lun::ZERO)).unwrap(), None);
}

#[test]
fn tasks_are_there_until_they_have_ended() {
    let delay = Arc::new(Delay::new(memory()));
    let target = Target::over(delay.clone());
    let session = connect(target.address, modern());
    wait(session.execute(test_unit_ready())).result.unwrap();
    assert!(!wait(session.query_task_set(Lun::ZERO)).unwrap());
    delay.hold();
    let read = Request::new(Lun::ZERO, requests::read(0, 1, false)).with_data_in(session.buffer(512).unwrap());
    let pending = session.execute(read);
    delay.wait_until_held(1);
    assert!(wait(pending.query()).unwrap());
    assert!(wait(session.query_task_set(Lun::ZERO)).unwrap());
    delay.release();
    wait(pending).result.unwrap();
    assert!(!wait(session.query_task_set(Lun::ZERO)).unwrap());
}

#[test]
fn resets_do_what_they_say() {
    let target = Target::new();
    let session = connect(target.address, modern());
    let attention = || {
        let reply = wait(session.execute(test_unit_ready())).result.unwrap();
        reply.sense_data().map(|sense| sense.code)
    };
    attention();
    wait(session.reset_logical_unit(Lun::ZERO)).unwrap();
    assert_eq!(attention(), Some(AdditionalSense::BUS_DEVICE_RESET));
    wait(session.reset_target()).unwrap();
    assert_eq!(attention(), Some(AdditionalSense::BUS_DEVICE_RESET));
    wait(session.abort_task_set(Lun::ZERO)).unwrap();
    wait(session.clear_task_set(Lun::ZERO)).unwrap();
    assert_eq!(attention(), None);
    let nowhere = wait(session.abort_task_set(Lun::new(9).unwrap())).unwrap_err();
    let expected = TaskManagementResponseCode::LUN_DOES_NOT_EXIST;
    assert!(matches!(nowhere, Error::TaskManagement { response, .. } if response == expected), "{nowhere}");
}

#[test]
fn a_nexus_reset_is_followed_by_a_new_session() {
    let target = Target::new();
    let session = connect(target.address, modern());
    wait(session.execute(test_unit_ready())).result.unwrap();
    // The answer may be lost with the connection.
    let _ = wait(session.reset_nexus());
    let request = || test_unit_ready().with_repeat(lunette_initiator::Repeat::Always);
    wait(session.execute(request())).result.unwrap().ok().unwrap();
    assert_eq!(wait(session.query_asynchronous_event(Lun::ZERO)).unwrap(), None, "the loss of the nexus was told");
}

#[test]
fn what_the_target_has_not_agreed_to_is_not_asked() {
    let target = Target::new();
    let session = connect(target.address, options());
    let error = wait(session.reset_nexus()).unwrap_err();
    assert!(matches!(error, Error::NotAgreed { .. }), "{error}");
}
