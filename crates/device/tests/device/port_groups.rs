//! Target port groups through commands: access states, how they are set, and their unit attentions.

use std::sync::Arc;

use lunette_device::{
    GroupAccess, Nexus, NexusName, PortGroup, PortGroupsConfig, PortGroupsError, Response, TargetDevice,
};
use lunette_scsi::port_groups::{AccessState, Management};
use lunette_scsi::{AdditionalSense, FieldPointer, Lun, SenseData, SenseKey, Status};
use lunette_state::StateStore;

use crate::fixture::{Fixture, THIN, TestState, cdb, code, sense};

const LUN_1: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];
const REPORT: &[u8] = &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 4, 0];
const TARGET: &str = "iqn.2026-11.lunette:disk";

/// A device with two ports in groups of their own, and a nexus through each.
struct Paths {
    fixture: Fixture,
    device: Arc<TargetDevice>,
    first: Nexus,
    second: Nexus,
}

fn through(device: &Arc<TargetDevice>, initiator: &str, port: u16) -> Nexus {
    device.attach(NexusName {
        initiator: format!("iqn.2026-11.host:{initiator},i,0x400001370000"),
        target_port: format!("{TARGET},t,0x{port:04x}"),
        relative_port: port,
    })
}

/// Group 1 of port 1, active/optimized and preferred; group 2 of port 2 in `second`.
fn config(management: Management, second: AccessState) -> PortGroupsConfig {
    let group = |id, state, preferred| PortGroup {
        id,
        ports: vec![id],
        access: GroupAccess { state, preferred },
        ..PortGroup::default()
    };
    let groups = vec![group(1, AccessState::ActiveOptimized, true), group(2, second, false)];
    PortGroupsConfig { management, transition_time_s: 60, groups, ..PortGroupsConfig::default() }
}

impl Paths {
    fn new(config: PortGroupsConfig) -> Self {
        let fixture = Fixture::new(THIN);
        let device = Arc::new(TargetDevice::with_port_groups(TARGET, config).unwrap());
        device.add(Lun::ZERO, Arc::clone(&fixture.unit)).unwrap();
        let (first, second) = (through(&device, "a", 1), through(&device, "a", 2));
        let paths = Self { fixture, device, first, second };
        for nexus in [&paths.first, &paths.second] {
            assert_eq!(paths.attentions(nexus), [AdditionalSense::POWER_ON_OR_RESET]);
        }
        paths
    }

    fn run(&self, nexus: &Nexus, bytes: &[u8], data_out: &[u8]) -> Response {
        self.fixture.run_on(nexus, [0; 8], cdb(bytes), data_out)
    }

    fn read(&self, nexus: &Nexus, bytes: &[u8]) -> Vec<u8> {
        let response = self.run(nexus, bytes, &[]);
        assert_eq!(response.status, Status::GOOD, "{response:?}");
        response.data_in.to_vec()
    }

    /// The pending unit attentions, which REQUEST SENSE takes in every access state.
    fn attentions(&self, nexus: &Nexus) -> Vec<AdditionalSense> {
        let next = || SenseData::decode(&self.read(nexus, &[0x03, 0, 0, 0, 18])).unwrap();
        std::iter::repeat_with(next).take_while(|sense| sense.key == SenseKey::UNIT_ATTENTION).map(|s| s.code).collect()
    }

    /// SET TARGET PORT GROUPS with descriptors of a state and a group.
    fn set(&self, nexus: &Nexus, descriptors: &[(u8, u8)]) -> Response {
        let list: Vec<u8> = [0; 4].into_iter().chain(descriptors.iter().flat_map(|(s, g)| [*s, 0, 0, *g])).collect();
        self.run(nexus, &[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, list.len() as u8], &list)
    }

    /// Group, state and status of each group.
    fn report(&self, nexus: &Nexus) -> Vec<(u8, u8, u8)> {
        let data = self.read(nexus, REPORT);
        data[4..].chunks(12).map(|group| (group[3], group[0] & 0x0f, group[5])).collect()
    }
}

#[test]
fn without_configuration_one_active_group_is_reported() {
    let fixture = Fixture::new(THIN);
    fixture.device.set_ports([("iqn.2026-11.lunette:disk,t,0x0007", 7)]);
    let group = [0, 0xcf, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7];
    assert_eq!(fixture.read(REPORT), [&[0, 0, 0, 16][..], &group].concat());
    let extended = [0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 4, 0];
    assert_eq!(fixture.read(&extended), [&[0, 0, 0, 20, 0x10, 0, 0, 0][..], &group].concat());
    assert_eq!(fixture.refused(&[0xa3, 0x4a, 0, 0, 0, 0, 0, 0, 4, 0], &[]), FieldPointer::cdb(1).bit(7).into());
    assert_eq!(fixture.read(&[0x12, 0, 0, 0, 96])[5] >> 4 & 3, 1, "TPGS: implicit");
}

#[test]
fn an_undeclared_port_is_reported_while_it_is_used() {
    let fixture = Fixture::new(THIN);
    let here = fixture.nexus.name().relative_port;
    let ports =
        |fixture: &Fixture| fixture.read(REPORT)[12..].chunks(4).map(|port| u16::from(port[3])).collect::<Vec<_>>();
    fixture.device.set_ports([("iqn.2026-11.lunette:disk,t,0x0007", 7), ("iqn.2026-11.lunette:disk,t,0x0008", 8)]);
    let there = through(&fixture.device, "a", 8);
    fixture.device.set_ports([("iqn.2026-11.lunette:disk,t,0x0007", 7)]);
    assert_eq!(ports(&fixture), [here, 7, 8]);
    drop(there);
    assert_eq!(ports(&fixture), [here, 7]);
}

#[test]
fn set_target_port_groups_is_supported_under_explicit_management() {
    let supported = [0xa3, 0x0c, 3, 0xa4, 0, 0x0a, 0, 0, 0, 32];
    let fixture = Fixture::new(THIN);
    assert_eq!(fixture.refused(&[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0], &[]), FieldPointer::cdb(1).bit(4).into());
    assert_eq!(fixture.read(&supported)[1] & 7, 1);
    for (management, tpgs) in [(Management::Explicit, 2), (Management::Both, 3)] {
        let paths = Paths::new(config(management, AccessState::ActiveNonOptimized));
        assert_eq!(paths.read(&paths.first, &supported)[1] & 7, 3);
        assert_eq!(paths.read(&paths.first, &[0x12, 0, 0, 0, 96])[5] >> 4 & 3, tpgs);
    }
}

#[test]
fn each_group_is_reported_with_its_state_and_port() {
    let paths = Paths::new(config(Management::Both, AccessState::Standby));
    let groups = [0x80, 0xcf, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x02, 0xcf, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    for nexus in [&paths.first, &paths.second] {
        assert_eq!(paths.read(nexus, REPORT), [&[0, 0, 0, 24][..], &groups].concat());
        let extended = paths.read(nexus, &[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 4, 0]);
        assert_eq!(extended, [&[0, 0, 0, 28, 0x10, 60, 0, 0][..], &groups].concat());
    }
}

#[test]
fn identification_has_the_group_and_the_ports_page_all_ports() {
    let paths = Paths::new(config(Management::Both, AccessState::Standby));
    let page = paths.read(&paths.second, &[0x12, 1, 0x83, 4, 0]);
    let designator = [0x51, 0x95, 0, 4, 0, 0, 0, 2];
    assert!(page.windows(8).any(|window| window == designator), "{page:02x?}");
    let ports = paths.read(&paths.second, &[0x12, 1, 0x88, 4, 0]);
    for port in [1, 2] {
        let name = format!("{TARGET},t,0x000{port}");
        assert!(ports.windows(name.len()).any(|window| window == name.as_bytes()), "{ports:02x?}");
    }
}

#[test]
fn access_states_let_their_commands_pass_and_no_others() {
    let standby = [
        &[0x1a, 0, 0x3f, 0, 255][..],
        &[0x4d, 0, 0x40, 0, 0, 0, 0, 0, 255],
        &[0x4c],
        &[0x15, 0x10],
        &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8],
        &[0x25],
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32],
        &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 32],
    ];
    let unavailable = [&[0xa4, 0x0a][..]];
    let always = [&[0x12, 0, 0, 0, 96][..], &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16], REPORT, &[0x03, 0, 0, 0, 18]];
    let active = [
        &[0x00][..],
        &[0x28, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x35],
        &[0x16],
        &[0x1b],
        &[0x9e, 0x12],
        &[0x89],
    ];
    let columns = [&active[..], &standby, &unavailable, &always];
    for (state, first_passing, expected) in [
        (AccessState::ActiveNonOptimized, 0, None),
        (AccessState::Standby, 1, Some(AdditionalSense::PORT_IN_STANDBY_STATE)),
        (AccessState::Unavailable, 2, Some(AdditionalSense::PORT_IN_UNAVAILABLE_STATE)),
        (AccessState::Transitioning, 3, Some(AdditionalSense::ACCESS_STATE_TRANSITION)),
    ] {
        let paths = Paths::new(config(Management::Both, AccessState::Standby));
        paths.device.set_access_state(None, 2, state).unwrap();
        paths.attentions(&paths.second);
        for (index, commands) in columns.iter().enumerate() {
            for command in *commands {
                paths.fixture.seen();
                let response = paths.run(&paths.second, command, &[0; 512]);
                let not_ready = expected.map(|expected| (SenseKey::NOT_READY, expected));
                let refused = response.sense.is_some().then(|| code(sense(&response)));
                assert_eq!(
                    refused.is_some_and(|code| Some(code) == not_ready),
                    index < first_passing,
                    "{state:?}: {command:x?}"
                );
                assert!(index >= first_passing || paths.fixture.seen().is_empty(), "the store is not asked");
            }
        }
    }
}

#[test]
fn inquiry_reports_an_unreachable_unit() {
    let paths = Paths::new(config(Management::Both, AccessState::Unavailable));
    assert_eq!(paths.read(&paths.second, &[0x12, 0, 0, 0, 96])[0], 0x20);
    assert_eq!(paths.read(&paths.second, &[0x12, 1, 0x83, 4, 0])[0], 0x20);
    assert_eq!(paths.read(&paths.first, &[0x12, 0, 0, 0, 96])[0], 0);
    let told = SenseData::decode(&paths.read(&paths.second, &[0x03, 0, 0, 0, 18])).unwrap();
    assert_eq!(code(told), (SenseKey::NOT_READY, AdditionalSense::PORT_IN_UNAVAILABLE_STATE));
}

#[test]
fn set_target_port_groups_raises_an_attention_for_all_other_nexuses() {
    let paths = Paths::new(config(Management::Both, AccessState::Standby));
    let other = through(&paths.device, "b", 1);
    paths.attentions(&other);
    assert_eq!(paths.set(&paths.second, &[(2, 1), (0, 2)]).status, Status::GOOD);
    assert_eq!(paths.report(&paths.second), [(1, 2, 1), (2, 0, 1)]);
    assert_eq!(paths.attentions(&paths.second), [], "it did it itself");
    for nexus in [&paths.first, &other] {
        assert_eq!(paths.attentions(nexus), [AdditionalSense::ACCESS_STATE_CHANGED]);
    }
    assert_eq!(paths.run(&paths.second, &[0x00], &[]).status, Status::GOOD);
    let refused = sense(&paths.run(&other, &[0x00], &[]));
    assert_eq!(code(refused), (SenseKey::NOT_READY, AdditionalSense::PORT_IN_STANDBY_STATE));
    // Repeated, the command changes nothing and raises no unit attention.
    assert_eq!(paths.set(&paths.second, &[(2, 1), (0, 2)]).status, Status::GOOD);
    assert_eq!(paths.attentions(&other), []);
}

#[test]
fn groups_can_be_set_through_an_unavailable_port() {
    let paths = Paths::new(config(Management::Both, AccessState::Unavailable));
    assert_eq!(paths.set(&paths.second, &[(0, 2)]).status, Status::GOOD);
    assert_eq!(paths.run(&paths.second, &[0x00], &[]).status, Status::GOOD);
}

#[test]
fn the_change_is_that_of_one_unit() {
    let paths = Paths::new(config(Management::Both, AccessState::Standby));
    paths.device.add(Lun::decode(LUN_1), Arc::clone(&paths.fixture.unit)).unwrap();
    paths.attentions(&paths.first);
    assert_eq!(paths.set(&paths.first, &[(0, 2)]).status, Status::GOOD);
    assert_eq!(paths.attentions(&paths.second).last(), Some(&AdditionalSense::ACCESS_STATE_CHANGED));
    let ready = |lun| paths.fixture.run_on(&paths.second, lun, [0; 16], &[]);
    assert_eq!(sense(&ready(LUN_1)).code, AdditionalSense::POWER_ON_OR_RESET);
    assert_eq!(sense(&ready(LUN_1)).code, AdditionalSense::PORT_IN_STANDBY_STATE);
    assert_eq!(ready([0; 8]).status, Status::GOOD);
}

#[test]
fn the_access_state_of_a_unit_may_come_before_the_unit() {
    let paths = Paths::new(config(Management::Implicit, AccessState::Standby));
    let lun = Lun::decode(LUN_1);
    paths.device.set_access_state(Some(lun), 2, AccessState::ActiveOptimized).unwrap();
    assert_eq!(paths.attentions(&paths.second), [], "of the other unit nothing has changed");
    paths.device.add(lun, Arc::clone(&paths.fixture.unit)).unwrap();
    let ready = |lun| paths.fixture.run_on(&paths.second, lun, [0; 16], &[]);
    assert_eq!(sense(&ready(LUN_1)).code, AdditionalSense::POWER_ON_OR_RESET);
    assert_eq!(ready(LUN_1).status, Status::GOOD);
    paths.attentions(&paths.second);
    assert_eq!(sense(&ready([0; 8])).code, AdditionalSense::PORT_IN_STANDBY_STATE);
}

#[test]
fn bad_lists_have_their_sense_codes() {
    let paths = Paths::new(config(Management::Both, AccessState::Standby));
    let with_len = |len: u32, list: &[u8]| {
        let len = len.to_be_bytes();
        paths.run(&paths.first, &[0xa4, 0x0a, 0, 0, 0, 0, len[0], len[1], len[2], len[3]], list)
    };
    for len in [1, 3, 5, 7, 10, 4 + 64 * 4 + 4, u32::MAX] {
        assert_eq!(sense(&with_len(len, &[0; 512])), FieldPointer::cdb(6).into(), "{len}");
    }
    assert_eq!(sense(&with_len(8, &[0; 7])).code, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    for (list, field) in [
        ([0, 1, 0, 0, 0, 0, 0, 2], FieldPointer::data(1)),
        ([0, 0, 0, 0, 0, 1, 0, 2], FieldPointer::data(5)),
        ([0, 0, 0, 0, 4, 0, 0, 2], FieldPointer::data(4).bit(3)),
        ([0, 0, 0, 0, 0xe, 0, 0, 2], FieldPointer::data(4).bit(3)),
        ([0, 0, 0, 0, 0, 0, 0, 3], FieldPointer::data(6)),
    ] {
        assert_eq!(sense(&with_len(8, &list)), field.into(), "{list:x?}");
    }
    for len in [0, 4] {
        assert_eq!(with_len(len, &[0; 4]).status, Status::GOOD);
    }
    assert_eq!(paths.report(&paths.first), [(1, 0, 0), (2, 2, 0)]);
}

#[test]
fn an_implicit_change_raises_an_attention_for_all_nexuses() {
    let paths = Paths::new(config(Management::Implicit, AccessState::Standby));
    paths.device.set_access_state(Some(Lun::ZERO), 2, AccessState::ActiveOptimized).unwrap();
    for nexus in [&paths.first, &paths.second] {
        assert_eq!(paths.attentions(nexus), [AdditionalSense::ACCESS_STATE_CHANGED]);
    }
    assert_eq!(paths.report(&paths.first), [(1, 0, 0), (2, 0, 2)]);
    assert_eq!(paths.run(&paths.second, &[0x00], &[]).status, Status::GOOD);
    let unknown = paths.device.set_access_state(None, 3, AccessState::Standby);
    assert_eq!(unknown, Err(PortGroupsError::Unknown(3)));
    assert_eq!(paths.attentions(&paths.first), []);
}

#[test]
fn a_failed_transition_raises_an_attention_and_leaves_the_group_unavailable() {
    let paths = Paths::new(config(Management::Both, AccessState::Standby));
    paths.device.set_access_state(None, 2, AccessState::Transitioning).unwrap();
    let refused = sense(&paths.set(&paths.first, &[(0, 2)]));
    assert_eq!(code(refused), (SenseKey::UNIT_ATTENTION, AdditionalSense::ACCESS_STATE_CHANGED));
    let refused = sense(&paths.set(&paths.first, &[(0, 2)]));
    assert_eq!(code(refused), (SenseKey::NOT_READY, AdditionalSense::ACCESS_STATE_TRANSITION));
    paths.attentions(&paths.second);
    paths.device.fail_access_transition(2);
    let failed = AdditionalSense::IMPLICIT_ACCESS_STATE_TRANSITION_FAILED;
    for nexus in [&paths.first, &paths.second] {
        assert!(paths.attentions(nexus).contains(&failed));
    }
    assert_eq!(paths.report(&paths.first), [(1, 0, 0), (2, 3, 2)]);
}

#[test]
fn another_configuration_is_an_implicit_change() {
    let paths = Paths::new(config(Management::Implicit, AccessState::Standby));
    let mut next = config(Management::Both, AccessState::Standby);
    let changed = paths.device.prepare_port_groups(next.clone()).unwrap().apply();
    assert_eq!(changed, []);
    assert_eq!(paths.attentions(&paths.first), [], "no state has changed");
    assert_eq!(paths.set(&paths.first, &[]).status, Status::GOOD, "now it is supported");
    next.groups[1].offline = true;
    let change = paths.device.prepare_port_groups(next.clone()).unwrap();
    assert_eq!(paths.attentions(&paths.first), [], "nothing is in force yet");
    assert_eq!(change.apply(), [Lun::ZERO]);
    assert_eq!(paths.attentions(&paths.first), [AdditionalSense::ACCESS_STATE_CHANGED]);
    assert_eq!(paths.report(&paths.first), [(1, 0, 0), (2, 2, 0), (0xff, 0xe, 2)]);
    paths.attentions(&paths.second);
    for command in [&[0x00][..], &[0xa4, 0x0a], &[0x1a, 0, 0x3f, 0, 255]] {
        let refused = sense(&paths.run(&paths.second, command, &[]));
        assert_eq!(code(refused), (SenseKey::NOT_READY, AdditionalSense::OFFLINE), "{command:x?}");
    }
    next.groups[1].ports.push(1);
    assert_eq!(paths.device.prepare_port_groups(next).err(), Some(PortGroupsError::PortTwice(1)));
    assert_eq!(paths.attentions(&paths.first), []);
}

#[test]
fn states_under_explicit_management_survive_a_restart() {
    let state = Arc::new(TestState::default());
    let config = || PortGroupsConfig {
        state: Some(Arc::clone(&state) as Arc<dyn StateStore>),
        ..config(Management::Explicit, AccessState::Standby)
    };
    let paths = Paths::new(config());
    assert_eq!(paths.set(&paths.first, &[(2, 1), (0, 2)]).status, Status::GOOD);
    let after = Paths::new(config());
    assert_eq!(after.report(&after.first), [(1, 2, 1), (2, 0, 1)]);
    assert_eq!(after.run(&after.second, &[0x00], &[]).status, Status::GOOD);
    after.device.reset_target();
    for nexus in [&after.first, &after.second] {
        assert_eq!(after.attentions(nexus), [AdditionalSense::BUS_DEVICE_RESET]);
        assert_eq!(after.report(nexus), [(1, 2, 1), (2, 0, 1)]);
    }
    *state.broken.lock().unwrap() = true;
    let failed = sense(&after.set(&after.first, &[(0, 1)]));
    assert_eq!(code(failed), (SenseKey::HARDWARE_ERROR, AdditionalSense::SET_TARGET_PORT_GROUPS_FAILED));
    assert_eq!(after.attentions(&after.second), [], "nothing has changed");
    assert_eq!(after.report(&after.first), [(1, 2, 1), (2, 0, 1)]);
    let both = PortGroupsConfig { management: Management::Both, ..config() };
    let restarted = Paths::new(both);
    assert_eq!(restarted.report(&restarted.first), [(1, 0, 0), (2, 2, 0)], "the configuration holds");
}

#[test]
fn reservations_of_others_keep_groups_from_being_set_but_not_from_being_read() {
    let paths = Paths::new(config(Management::Both, AccessState::ActiveNonOptimized));
    let mut list = [0; 24];
    list[15] = 7;
    assert_eq!(paths.run(&paths.first, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24], &list).status, Status::GOOD);
    list[7] = 7;
    assert_eq!(paths.run(&paths.first, &[0x5f, 1, 3, 0, 0, 0, 0, 0, 24], &list).status, Status::GOOD);
    assert_eq!(paths.set(&paths.second, &[(0, 2)]).status, Status::RESERVATION_CONFLICT);
    assert_eq!(paths.report(&paths.second), [(1, 0, 0), (2, 1, 0)]);
}
