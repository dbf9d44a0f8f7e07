//! Task management by hosts that see a part of a target, by numbers of their own.

use std::sync::Arc;

use lunette_pdu::{TaskManagementFunction as Function, TaskManagementResponseCode as Answer};
use lunette_scsi::Lun;
use lunette_session::iscsi_target::Host;
use lunette_store::filters::Delay;
use lunette_target::{HostConfig, LunMap, Place};

use crate::common::{Initiator, Port, TARGET, Target, device, memory, start_held_write};

const RESET: (u8, u8, u8) = (6, 0x29, 3);
const MASKED: &str = "iqn.2026-11.org.example:a";

/// Initiator A sees the second of two units only, as LUN 0. Initiator B sees both.
fn masked() -> (Target, [Arc<Delay>; 2]) {
    let stores = [(); 2].map(|()| Arc::new(Delay::new(memory())));
    let device = device(TARGET, stores.iter().map(|store| store.clone() as _).collect());
    let lun = |number| Lun::new(number).unwrap();
    let luns = LunMap::only([(lun(1), Place { lun: lun(0), read_only: false })], false).unwrap();
    let target = Target::of(vec![device], |config| {
        let host = Host { name: "masked".into(), ..Host::of_initiators(Some(vec![MASKED.into()])) };
        config.targets[0].hosts.insert(0, HostConfig { host, luns });
    });
    (target, stores)
}

#[test]
fn a_reset_ends_the_commands_to_the_unit_and_none_to_another_of_that_number() {
    let (target, [first, second]) = masked();
    let mut a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    assert_eq!(b.test_unit_ready(1).sense(), (6, 0x29, 0));
    let kept = start_held_write(&mut b, &first);
    second.hold();
    let ended = b.start_read(1, 0, 8);
    second.wait_until_held(1);
    let reset = a.start_management(Function::LOGICAL_UNIT_RESET, 0, None);
    a.round_trip();
    a.round_trip();
    assert!(!a.has_answer(reset), "the store still works on a command to the unit");
    second.release();
    assert_eq!(a.finish_management(reset), Answer::FUNCTION_COMPLETE);
    assert_eq!(a.test_unit_ready(0).sense(), RESET);
    assert_eq!(b.test_unit_ready(1).sense(), RESET);
    first.release();
    b.finish(kept).good();
    assert!(!b.has_answer(ended), "an aborted command has no response");
}

#[test]
fn a_reset_of_the_target_is_for_those_that_see_all_of_it() {
    let (target, _) = masked();
    let mut a = Initiator::attach(&target, Port::A);
    let mut b = Initiator::attach(&target, Port::B);
    for function in [Function::TARGET_WARM_RESET, Function::TARGET_COLD_RESET] {
        let reset = a.start_management(function, 0, None);
        assert_eq!(a.finish_management(reset), Answer::AUTHORIZATION_FAILED);
    }
    b.test_unit_ready(0).good();
    a.test_unit_ready(0).good();
    let reset = b.start_management(Function::TARGET_WARM_RESET, 0, None);
    assert_eq!(b.finish_management(reset), Answer::FUNCTION_COMPLETE);
    assert_eq!(a.test_unit_ready(0).sense(), RESET);
}

#[test]
fn a_reset_is_not_for_a_host_that_may_only_read() {
    let target = Target::of(vec![device(TARGET, vec![memory()])], |config| {
        let host = Host { name: "reader".into(), ..Host::of_initiators(Some(vec![MASKED.into()])) };
        config.targets[0].hosts.insert(0, HostConfig { host, luns: LunMap::all(true) });
    });
    let mut reader = Initiator::attach(&target, Port::A);
    let mut writer = Initiator::attach(&target, Port::B);
    writer.test_unit_ready(0);
    for function in [Function::LOGICAL_UNIT_RESET, Function::TARGET_WARM_RESET, Function::TARGET_COLD_RESET] {
        let reset = reader.start_management(function, 0, None);
        assert_eq!(reader.finish_management(reset), Answer::AUTHORIZATION_FAILED, "{function}");
        writer.test_unit_ready(0).good();
    }
}
