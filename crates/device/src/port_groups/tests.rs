//! The state machine, without locks and nexuses.

use lunette_scsi::port_groups::{Management, parse_set};
use lunette_scsi::{FieldPointer, SenseKey};

use super::*;

fn lun_1() -> Lun {
    Lun::new(1).unwrap()
}

fn group(id: u16, ports: &[u16], state: AccessState) -> PortGroup {
    let access = GroupAccess { state, preferred: id == 1 };
    PortGroup { id, ports: ports.to_vec(), access, ..PortGroup::default() }
}

/// Two groups: ports 1 and 3, and port 2.
fn config(management: Management) -> PortGroupsConfig {
    let groups = vec![group(1, &[1, 3], AccessState::ActiveOptimized), group(2, &[2], AccessState::Standby)];
    PortGroupsConfig { management, groups, ..PortGroupsConfig::default() }
}

fn machine(config: PortGroupsConfig) -> PortGroups {
    let saved_states = SavedAccessStates::open(&config, "t").unwrap();
    PortGroups::new(config, saved_states)
}

/// SET TARGET PORT GROUPS to LUN 0 with descriptors of a state and a group.
fn set(groups: &mut PortGroups, descriptors: &[(u8, u16)]) -> Result<(), SenseData> {
    let mut list = vec![0; 4];
    for (state, group) in descriptors {
        list.extend([*state, 0]);
        list.extend(group.to_be_bytes());
    }
    let changes = groups.select(Lun::ZERO, &parse_set(&list)?)?;
    groups.apply(Lun::ZERO, &changes);
    Ok(())
}

/// Group, state and status of each group in the report.
fn report(groups: &PortGroups, lun: Lun) -> Vec<(u16, u8, u8)> {
    let report = groups.report(lun, &BTreeSet::from([1, 2, 3]));
    report.iter().map(|group| (group.group, group.state.code(), group.status as u8)).collect()
}

#[test]
fn without_configuration_there_is_one_active_group_of_all_ports() {
    let groups = machine(PortGroupsConfig::default());
    let report = groups.report(Lun::ZERO, &BTreeSet::from([1, 7]));
    let [only] = report.as_slice() else { panic!("{report:?}") };
    assert_eq!((only.group, only.ports.as_slice()), (1, &[1, 7][..]));
    assert_eq!((only.state, only.preferred), (AccessState::ActiveOptimized, false));
    assert_eq!(groups.access(Lun::ZERO, 9), PortAccess { state: AccessState::ActiveOptimized, explicit: false });
}

#[test]
fn configured_states_hold_for_ports_and_single_units() {
    let mut config = config(Management::Both);
    let preferred = GroupAccess { state: AccessState::ActiveNonOptimized, preferred: true };
    config.groups[1].units.insert(lun_1(), preferred);
    let groups = machine(config);
    assert_eq!(report(&groups, Lun::ZERO), [(1, 0, 0), (2, 2, 0)]);
    assert_eq!(report(&groups, lun_1()), [(1, 0, 0), (2, 1, 0)]);
    assert!(groups.report(lun_1(), &BTreeSet::from([2]))[0].preferred);
    assert_eq!(groups.access(lun_1(), 2), PortAccess { state: AccessState::ActiveNonOptimized, explicit: true });
    assert_eq!(groups.access(Lun::ZERO, 3).state, AccessState::ActiveOptimized);
}

#[test]
fn groups_are_reported_with_their_existing_ports() {
    let groups = machine(config(Management::Implicit));
    let report = groups.report(Lun::ZERO, &BTreeSet::from([3, 4]));
    assert_eq!(report.len(), 1, "group 2 has no port, and port 4 no group");
    assert_eq!((report[0].group, report[0].ports.as_slice()), (1, &[3][..]));
}

#[test]
fn offline_ports_are_in_their_group_and_in_the_secondary_one() {
    let mut config = config(Management::Implicit);
    config.groups[0].offline = true;
    let groups = machine(config);
    assert_eq!(report(&groups, Lun::ZERO), [(1, 0, 0), (2, 2, 0), (OFFLINE_GROUP, 0xe, 2)]);
    assert_eq!(groups.access(Lun::ZERO, 1).state, AccessState::Offline);
    assert_eq!(groups.access(Lun::ZERO, 2).state, AccessState::Standby);
}

#[test]
fn initiators_change_one_unit() {
    let mut groups = machine(config(Management::Both));
    set(&mut groups, &[(2, 1), (0, 2)]).unwrap();
    assert_eq!(report(&groups, Lun::ZERO), [(1, 2, 1), (2, 0, 1)]);
    assert_eq!(report(&groups, lun_1()), [(1, 0, 0), (2, 2, 0)]);
    set(&mut groups, &[]).unwrap();
    assert_eq!(report(&groups, Lun::ZERO), [(1, 2, 1), (2, 0, 1)]);
}

#[test]
fn setting_the_current_state_changes_nothing() {
    let mut groups = machine(config(Management::Both));
    set(&mut groups, &[(0, 1)]).unwrap();
    groups.set(&[Lun::ZERO], 2, AccessState::Standby).unwrap();
    assert_eq!(report(&groups, Lun::ZERO), [(1, 0, 0), (2, 2, 0)]);
}

#[test]
fn a_bad_list_changes_nothing() {
    let mut groups = machine(config(Management::Both));
    for (descriptors, field) in [
        (&[(1, 1), (1, 3)][..], FieldPointer::data(10)),
        (&[(1, 1), (2, 1)], FieldPointer::data(10)),
        (&[(1, 1), (0xe, 2)], FieldPointer::data(8).bit(3)),
        (&[(1, 1), (0xf, 2)], FieldPointer::data(8).bit(3)),
        (&[(1, OFFLINE_GROUP)], FieldPointer::data(6)),
    ] {
        assert_eq!(set(&mut groups, descriptors), Err(field.into()), "{descriptors:?}");
        assert_eq!(report(&groups, Lun::ZERO), [(1, 0, 0), (2, 2, 0)]);
    }
}

#[test]
fn implicit_changes_are_limited_to_what_management_permits() {
    let mut groups = machine(config(Management::Both));
    groups.set(&[Lun::ZERO, lun_1()], 1, AccessState::Unavailable).unwrap();
    assert_eq!(report(&groups, lun_1()), [(1, 3, 2), (2, 2, 0)]);
    let error = groups.set(&[lun_1()], 5, AccessState::Standby);
    assert_eq!(error, Err(PortGroupsError::Unknown(5)));
    let error = groups.set(&[lun_1()], 1, AccessState::Offline);
    assert_eq!(error, Err(PortGroupsError::State { group: 1, state: AccessState::Offline }));
    let mut theirs = machine(config(Management::Explicit));
    assert_eq!(theirs.set(&[lun_1()], 1, AccessState::Standby), Err(PortGroupsError::ExplicitOnly));
}

#[test]
fn a_transition_keeps_others_from_its_group_until_it_ends() {
    let mut groups = machine(config(Management::Both));
    groups.set(&[Lun::ZERO], 2, AccessState::Transitioning).unwrap();
    assert_eq!(report(&groups, Lun::ZERO)[1], (2, 0xf, 2));
    let sense = set(&mut groups, &[(2, 1), (0, 2)]).unwrap_err();
    assert_eq!((sense.key, sense.code), (SenseKey::NOT_READY, AdditionalSense::ACCESS_STATE_TRANSITION));
    set(&mut groups, &[(1, 1)]).unwrap();
    groups.set(&[Lun::ZERO], 2, AccessState::ActiveOptimized).unwrap();
    assert_eq!(groups.fail_transition(2), []);
    assert_eq!(report(&groups, Lun::ZERO), [(1, 1, 1), (2, 0, 2)]);
}

#[test]
fn a_failed_transition_ends_unavailable() {
    let mut groups = machine(config(Management::Implicit));
    groups.set(&[lun_1()], 2, AccessState::Transitioning).unwrap();
    assert_eq!(groups.fail_transition(1), []);
    assert_eq!(groups.fail_transition(2), [lun_1()]);
    assert_eq!(report(&groups, lun_1())[1], (2, 3, 2));
    assert_eq!(report(&groups, Lun::ZERO)[1], (2, 2, 0));
}

#[test]
fn a_new_configuration_changes_only_the_states_that_it_changes() {
    let mut groups = machine(config(Management::Both));
    set(&mut groups, &[(3, 1), (3, 2)]).unwrap();
    let mut next = config(Management::Both);
    next.groups[1].access.state = AccessState::ActiveNonOptimized;
    next.groups.push(group(9, &[9], AccessState::Standby));
    groups.configure(next, None, &[Lun::ZERO, lun_1()]);
    assert_eq!(report(&groups, Lun::ZERO), [(1, 3, 1), (2, 1, 2)], "group 1 is left as the initiator wanted it");
    assert_eq!(report(&groups, lun_1()), [(1, 0, 0), (2, 1, 2)]);
    groups.configure(PortGroupsConfig::default(), None, &[Lun::ZERO, lun_1()]);
    assert_eq!(report(&groups, Lun::ZERO), [(1, 3, 1)]);
}

#[test]
fn a_new_configuration_keeps_the_states_under_explicit_management() {
    let mut groups = machine(config(Management::Explicit));
    set(&mut groups, &[(0, 2)]).unwrap();
    let mut next = config(Management::Explicit);
    next.groups[0].access.state = AccessState::Unavailable;
    next.groups[1].access.state = AccessState::Unavailable;
    groups.configure(next, None, &[Lun::ZERO]);
    assert_eq!(report(&groups, Lun::ZERO), [(1, 0, 0), (2, 0, 1)]);
}

#[test]
fn only_states_set_by_initiators_are_saved() {
    let mut groups = machine(config(Management::Both));
    assert_eq!(saved::encode(&groups.changed), None);
    groups.set(&[Lun::ZERO], 1, AccessState::Unavailable).unwrap();
    assert_eq!(saved::encode(&groups.changed), None);
    set(&mut groups, &[(1, 2)]).unwrap();
    let bytes = saved::encode(&groups.changed).unwrap();
    assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1]);
    let saved_states = SavedAccessStates { slot: None, changed: saved::decode(&bytes).unwrap() };
    let mut after = PortGroups::new(config(Management::Explicit), saved_states);
    assert_eq!(report(&after, Lun::ZERO), [(1, 0, 0), (2, 1, 1)]);
    after.configure(PortGroupsConfig::default(), None, &[]);
    assert_eq!(saved::encode(&after.changed), None, "the group is gone");
    for bad in [&[][..], &[2], &bytes[..11], &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 7]] {
        assert_eq!(saved::decode(bad), None, "{bad:?}");
    }
}

#[test]
fn contradictions_are_refused() {
    let of = |groups: Vec<PortGroup>| PortGroupsConfig { groups, ..PortGroupsConfig::default() }.check();
    let active = |id, ports: &[u16]| group(id, ports, AccessState::ActiveOptimized);
    assert_eq!(of(vec![]), Err(PortGroupsError::Count(0)));
    assert_eq!(of(vec![active(1, &[1]), active(1, &[2])]), Err(PortGroupsError::Number(1)));
    assert_eq!(of(vec![active(OFFLINE_GROUP, &[1])]), Err(PortGroupsError::Number(OFFLINE_GROUP)));
    assert_eq!(of(vec![active(1, &[1]), active(2, &[])]), Err(PortGroupsError::PortCount { group: 2, count: 0 }));
    assert_eq!(of(vec![active(1, &[1, 2]), active(2, &[2])]), Err(PortGroupsError::PortTwice(2)));
    let state = AccessState::Transitioning;
    assert_eq!(of(vec![group(1, &[1], state)]), Err(PortGroupsError::State { group: 1, state }));
    assert_eq!(of(vec![active(0, &[])]), Ok(()));
}

#[test]
fn a_unit_of_several_servers_moves_to_the_group_that_is_to_be_active() {
    const ACTIVE: u8 = 0;
    const NON_OPTIMIZED: u8 = 1;
    const STANDBY: u8 = 2;
    let mut groups = machine(config(Management::Both));
    let select = |groups: &PortGroups, descriptors: &[(u8, u16)]| {
        let list = descriptors.iter().flat_map(|(state, group)| [[*state, 0], group.to_be_bytes()].concat());
        let list: Vec<u8> = [0; 4].into_iter().chain(list).collect();
        groups.select_owner(Lun::ZERO, &parse_set(&list).unwrap())
    };
    assert_eq!(select(&groups, &[(ACTIVE, 2)]), Ok(Some(2)));
    assert_eq!(select(&groups, &[(STANDBY, 1), (ACTIVE, 2)]), Ok(Some(2)));
    // It is there.
    assert_eq!(select(&groups, &[(ACTIVE, 1)]), Ok(None));
    assert_eq!(select(&groups, &[(STANDBY, 2)]), Ok(None));
    let bad_state = |at| Err(SenseData::from(FieldPointer::data(at).bit(3)));
    for (descriptors, at) in [
        (&[(NON_OPTIMIZED, 2)][..], 4),
        (&[(ACTIVE, 1), (ACTIVE, 2)], 8),
        // One group has to have it.
        (&[(STANDBY, 1)], 4),
        (&[(STANDBY, 2), (STANDBY, 1)], 8),
    ] {
        assert_eq!(select(&groups, descriptors), bad_state(at), "{descriptors:?}");
    }
    assert!(select(&groups, &[(ACTIVE, 9)]).is_err());
    groups.set(&[Lun::ZERO], 2, AccessState::Transitioning).unwrap();
    let moving = SenseData::not_ready(AdditionalSense::ACCESS_STATE_TRANSITION);
    assert_eq!(select(&groups, &[(ACTIVE, 2)]), Err(moving));
}
