//! Targets, logical units and admission that change under open sessions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use lunette_device::{GroupAccess, LogicalUnit, PortGroup, PortGroupsConfig, TargetDevice};
use lunette_pdu::{AsyncEvent, LoginStatus, Stage, TargetPdu};
use lunette_scsi::Lun;
use lunette_scsi::port_groups::AccessState;
use lunette_session::iscsi_target::Moved;
use lunette_session::{Authentication, ChapAlgorithms, Credentials, Secret};
use lunette_store::filters::{Delay, PowerLoss};
use lunette_store::{Capabilities, Completion, FileIo, Geometry, MemoryStore, Op, Store};
use lunette_target::{Growth, Host, PortalConfig, TargetConfig, UnitChange, Update, UpdateError};

use crate::common::{Initiator, Port, STORE_LEN, TARGET, Target, blocks, device, memory, start_held_write, unit};

const OTHER: &str = "iqn.2026-11.org.example:other";
const THERE: Port = Port { target: OTHER, ..Port::A };

const NEW: (u8, u8, u8) = (6, 0x29, 0);
const LUNS_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x0e);
const INQUIRY_CHANGED: (u8, u8, u8) = (6, 0x3f, 0x03);
const CAPACITY_CHANGED: (u8, u8, u8) = (6, 0x2a, 0x09);
const NOT_SUPPORTED: (u8, u8, u8) = (5, 0x25, 0);
const ACCESS_CHANGED: (u8, u8, u8) = (6, 0x2a, 0x06);
const STANDBY: (u8, u8, u8) = (2, 0x04, 0x0b);

/// Two targets, each with one logical unit over memory unless said otherwise.
struct Served {
    target: Target,
    devices: Vec<Arc<TargetDevice>>,
}

impl Served {
    fn new(store: Arc<dyn Store>) -> Self {
        let devices = vec![device(TARGET, vec![store]), device(OTHER, vec![memory()])];
        Self { target: Target::of(devices.clone(), |_| {}), devices }
    }

    /// The update that serves the present targets.
    fn same(&self) -> Update {
        Update {
            portals: vec![PortalConfig::new("127.0.0.1:0".parse().unwrap(), 1)],
            datagram_portals: Vec::new(),
            leaves_closed: false,
            required_portals: Vec::new(),
            targets: self.devices.iter().cloned().map(TargetConfig::open).collect(),
            discovery: Authentication::None,
            port_groups: Vec::new(),
            units: Vec::new(),
            growth: Vec::new(),
        }
    }

    fn apply(&self, change: impl FnOnce(&mut Update)) {
        let mut update = self.same();
        change(&mut update);
        self.target.control.apply(update).unwrap();
    }

    /// Puts a unit, or nothing, in a place of the first target.
    fn assign(&self, lun: u16, unit: Option<Arc<LogicalUnit>>) {
        let change = UnitChange { device: Arc::clone(&self.devices[0]), lun: Lun::new(lun).unwrap(), unit };
        self.apply(|update| update.units = vec![change]);
    }

    /// Waits until the store is let go of.
    fn wait_until_dropped<T: ?Sized>(&self, store: &Weak<T>) {
        self.target.wait_until("the end of the store", |_| store.strong_count() == 0);
    }
}

#[test]
fn a_change_of_nothing_disturbs_nobody() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    served.apply(|_| {});
    here.is_undisturbed();
    assert!(here.test_unit_ready(0).good().is_empty());
}

#[test]
fn a_unit_that_comes_is_told_of_and_served() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    let mut there = Initiator::attach(&served.target, THERE);
    served.assign(3, Some(unit(memory(), "three")));
    assert_eq!(here.news(), (0, LUNS_CHANGED));
    assert_eq!(here.test_unit_ready(0).sense(), LUNS_CHANGED);
    assert_eq!(here.test_unit_ready(3).sense(), NEW);
    here.write(3, 0, blocks(8, 1)).good();
    assert_eq!(here.read(3, 0, 8).good(), blocks(8, 1));
    there.is_undisturbed();
    assert!(there.test_unit_ready(0).good().is_empty());
}

#[test]
fn a_unit_that_goes_is_flushed_and_let_go_of() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let served = Served::new(disk.clone());
    served.assign(1, Some(unit(memory(), "one")));
    let mut here = Initiator::attach(&served.target, Port::A);
    here.test_unit_ready(1).sense();
    here.write(0, 0, blocks(8, 1)).good();
    assert_ne!(disk.unflushed(), 0);
    served.assign(0, None);
    assert_eq!(here.news(), (1, LUNS_CHANGED), "on the first that is left");
    assert_eq!(here.test_unit_ready(1).sense(), LUNS_CHANGED);
    assert_eq!(here.write(0, 0, blocks(8, 2)).sense(), NOT_SUPPORTED);
    served.target.wait_until("the flush", |_| disk.unflushed() == 0);
    let disk = Arc::downgrade(&{ disk });
    served.wait_until_dropped(&disk);
}

#[test]
fn the_last_unit_may_go() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    served.assign(0, None);
    assert_eq!(here.news(), (0, LUNS_CHANGED));
    assert_eq!(here.test_unit_ready(0).sense(), NOT_SUPPORTED);
}

#[test]
fn a_command_that_a_store_works_on_ends_well_before_its_unit_is_gone() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let delay = Arc::new(Delay::new(disk.clone()));
    let served = Served::new(delay.clone());
    let mut here = Initiator::attach(&served.target, Port::A);
    let write = start_held_write(&mut here, &delay);
    served.assign(0, None);
    here.news();
    assert_eq!(here.test_unit_ready(0).sense(), NOT_SUPPORTED);
    assert!(!here.has_answer(write));
    delay.release();
    here.finish(write).good();
    served.target.wait_until("the flush", |_| disk.unflushed() == 0);
}

#[test]
fn a_command_that_waits_for_its_initiator_ends_with_its_unit() {
    let served = Served::new(memory());
    let store = Arc::downgrade(served.devices[0].units()[0].1.store());
    let mut here = Initiator::attach(&served.target, Port::A);
    here.answers_r2ts = false;
    let write = here.start_write(0, 0, blocks(8, 1), 0);
    here.round_trip();
    let r2t = here.r2ts.pop().expect("data is asked for");
    served.assign(0, None);
    served.wait_until_dropped(&store);
    here.answer_r2t(&r2t);
    assert_eq!(here.finish(write).sense(), NOT_SUPPORTED);
    let statistics = served.target.wait_until("an idle target", |now| now.tasks == 0);
    assert_eq!(statistics.buffer_bytes, 0);
}

#[test]
fn a_unit_in_place_of_another_is_told_of() {
    let served = Served::new(memory());
    served.assign(1, Some(unit(memory(), "one")));
    let mut here = Initiator::attach(&served.target, Port::A);
    assert_eq!(here.test_unit_ready(1).sense(), NEW);
    here.write(1, 0, blocks(1, 1)).good();
    served.assign(1, Some(unit(memory(), "another")));
    assert_eq!(here.news(), (1, INQUIRY_CHANGED));
    assert_eq!(here.test_unit_ready(1).sense(), NEW);
    assert_eq!(here.test_unit_ready(1).sense(), INQUIRY_CHANGED);
    assert!(here.test_unit_ready(0).good().is_empty());
    assert_eq!(here.read(1, 0, 1).good(), vec![0; 512]);
}

/// Memory that becomes longer.
struct Growing {
    inner: MemoryStore,
    len_bytes: AtomicU64,
}

impl Store for Growing {
    fn geometry(&self) -> Geometry {
        Geometry { len_bytes: self.len_bytes.load(Ordering::Acquire), ..self.inner.geometry() }
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        self.inner.submit(op, io, done);
    }
}

#[test]
fn growth_is_told_of_to_those_who_see_the_unit() {
    let inner = MemoryStore::new(STORE_LEN).unwrap();
    let growing = Arc::new(Growing { inner, len_bytes: AtomicU64::new(STORE_LEN / 2) });
    let served = Served::new(growing.clone());
    let (_, grown) = served.devices[0].units().remove(0);
    let mut a = Initiator::attach(&served.target, Port::A);
    let mut b = Initiator::attach(&served.target, Port::B);
    let mut there = Initiator::attach(&served.target, THERE);
    let last = (STORE_LEN / 512) as u32 - 1;
    assert_eq!(a.read(0, last, 1).sense(), (5, 0x21, 0));
    let grow = Box::new(move || growing.len_bytes.store(STORE_LEN, Ordering::Release));
    served.apply(|update| update.growth = vec![Growth { unit: grown, grow }]);
    for initiator in [&mut a, &mut b] {
        assert_eq!(initiator.news(), (0, CAPACITY_CHANGED));
        assert_eq!(initiator.test_unit_ready(0).sense(), CAPACITY_CHANGED);
        assert_eq!(initiator.read(0, last, 1).good(), vec![0; 512]);
    }
    there.is_undisturbed();
}

#[test]
fn a_length_that_changes_alone_is_told_of_too() {
    let inner = MemoryStore::new(STORE_LEN).unwrap();
    let changing = Arc::new(Growing { inner, len_bytes: AtomicU64::new(STORE_LEN / 2) });
    let served = Served::new(changing.clone());
    let (_, unit) = served.devices[0].units().remove(0);
    let mut here = Initiator::attach(&served.target, Port::A);
    let mut there = Initiator::attach(&served.target, THERE);
    for len in [STORE_LEN, STORE_LEN / 4] {
        let (changing, unit) = (changing.clone(), Arc::clone(&unit));
        let grow = Box::new(move || changing.len_bytes.store(len, Ordering::Release));
        served.target.control.grow(vec![Growth { unit, grow }]).unwrap();
        assert_eq!(here.news(), (0, CAPACITY_CHANGED));
        assert_eq!(here.test_unit_ready(0).sense(), CAPACITY_CHANGED);
        let last = (len / 512) as u32 - 1;
        assert_eq!(here.read(0, last, 1).good(), vec![0; 512]);
        assert_eq!(here.read(0, last + 1, 1).sense(), (5, 0x21, 0));
    }
    there.is_undisturbed();
}

#[test]
fn a_target_that_comes_is_served() {
    let mut served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    let third = "iqn.2026-11.org.example:third";
    served.devices.push(device(third, vec![memory()]));
    served.apply(|_| {});
    let mut new = Initiator::attach(&served.target, Port { target: third, ..Port::A });
    new.write(0, 0, blocks(8, 1)).good();
    here.is_undisturbed();
}

#[test]
fn a_target_that_goes_asks_its_sessions_to_log_out_and_serves_them_until_then() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let mut served = Served::new(disk.clone());
    let mut here = Initiator::attach(&served.target, Port::A);
    let mut there = Initiator::attach(&served.target, THERE);
    served.devices.remove(0);
    served.apply(|_| {});
    here.wait_for_logout_request();
    here.write(0, 0, blocks(8, 1)).good();
    assert_ne!(disk.unflushed(), 0);
    let mut late = Initiator::connect(served.target.address);
    late.send_login(Port::B, &[]);
    assert_eq!(late.login_status(), LoginStatus::NOT_FOUND);
    here.send_logout();
    here.wait_for_end();
    served.target.wait_until("the flush", |_| disk.unflushed() == 0);
    there.is_undisturbed();
}

#[test]
fn a_session_that_stays_in_a_target_that_is_gone_is_ended() {
    let mut served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    served.devices.remove(0);
    served.apply(|_| {});
    here.wait_for_logout_request();
    here.wait_for_end();
}

#[test]
fn an_initiator_that_is_not_admitted_any_more_is_asked_to_log_out() {
    let served = Served::new(memory());
    let mut a = Initiator::attach(&served.target, Port::A);
    let mut b = Initiator::attach(&served.target, Port::B);
    served.apply(|update| {
        update.targets[0].hosts[0].host = Host::of_initiators(Some(vec!["iqn.2026-11.org.example:b".into()]));
    });
    a.wait_for_logout_request();
    a.send_logout();
    a.wait_for_end();
    let mut again = Initiator::connect(served.target.address);
    again.send_login(Port::A, &[]);
    assert_eq!(again.login_status(), LoginStatus::AUTHORIZATION_FAILURE);
    b.is_undisturbed();
    assert!(b.test_unit_ready(0).good().is_empty());
}

fn chap() -> Authentication {
    let secret = Secret::new(b"a secret of one".to_vec());
    let initiators = vec![Credentials { user: "user".into(), secret }];
    Authentication::Chap { initiators, target: None, algorithms: ChapAlgorithms::ALL }
}

#[test]
fn a_proof_that_is_asked_for_from_now_on_leaves_sessions_alone() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    served.apply(|update| update.targets[0].authentication = chap());
    here.is_undisturbed();
    let mut late = Initiator::connect(served.target.address);
    late.send_login(Port::B, &[]);
    assert_eq!(late.login_status(), LoginStatus::AUTHENTICATION_FAILURE);
}

/// A login that has passed its first stage.
fn half_way(served: &Served) -> Initiator {
    let mut initiator = Initiator::connect(served.target.address);
    let (security, operational) = (Stage::SecurityNegotiation, Stage::LoginOperationalNegotiation);
    initiator.send_login_step(security, operational, Port::A, &[("AuthMethod", "None")]);
    assert!(initiator.login_status().is_success());
    initiator
}

#[test]
fn a_login_on_its_way_ends_as_one_that_begins_after_the_change() {
    for (expected, change) in [
        (LoginStatus::SUCCESS, (|_| {}) as fn(&mut Update)),
        (LoginStatus::SUCCESS, |update| update.targets[0].alias = Some("alias".into())),
        (LoginStatus::NOT_FOUND, |update| drop(update.targets.remove(0))),
        (LoginStatus::AUTHORIZATION_FAILURE, |update| update.targets[0].hosts.clear()),
        (LoginStatus::AUTHENTICATION_FAILURE, |update| update.targets[0].authentication = chap()),
    ] {
        let served = Served::new(memory());
        let mut initiator = half_way(&served);
        served.apply(change);
        initiator.send_login(Port::A, &[]);
        assert_eq!(initiator.login_status(), expected);
        if expected.is_success() {
            assert_eq!(initiator.test_unit_ready(0).sense(), NEW);
        }
    }
}

#[test]
fn a_login_that_waits_for_a_store_ends_with_its_target() {
    let delay = Arc::new(Delay::new(memory()));
    let mut served = Served::new(delay.clone());
    let mut lost = Initiator::attach(&served.target, Port::A);
    start_held_write(&mut lost, &delay);
    drop(lost);
    served.target.wait_until("the loss", |now| now.connections == 0);
    let mut again = Initiator::connect(served.target.address);
    again.send_login(Port::A, &[]);
    served.target.wait_until("the login", |now| now.sessions == 1);
    served.devices.remove(0);
    served.apply(|_| {});
    again.wait_for_end();
    let store = Arc::downgrade(&delay);
    delay.release();
    drop(delay);
    served.wait_until_dropped(&store);
}

/// A store that only its unit and its requests refer to.
struct Own(Arc<Delay>);

impl Store for Own {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn submit(&self, op: Op, io: &dyn FileIo, done: Completion) {
        self.0.submit(op, io, done);
    }
}

#[test]
fn a_store_that_leaves_can_be_found_until_it_is_flushed() {
    let delay = Arc::new(Delay::new(memory()));
    let own = Arc::new(Own(delay.clone()));
    let store = Arc::downgrade(&own);
    let served = Served::new(own);
    let mut there = Initiator::attach(&served.target, THERE);
    delay.hold();
    served.assign(0, None);
    delay.wait_until_held(1);
    there.round_trip();
    assert!(store.upgrade().is_some(), "while it is flushed");
    delay.release();
    served.wait_until_dropped(&store);
}

#[test]
fn other_port_groups_are_told_of_with_all_that_changes() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    let mut there = Initiator::attach(&served.target, THERE);
    let standby = GroupAccess { state: AccessState::Standby, preferred: false };
    let groups = vec![PortGroup { access: standby, ..PortGroup::default() }];
    let config = PortGroupsConfig { groups, ..PortGroupsConfig::default() };
    let change = || served.devices[0].prepare_port_groups(config.clone()).unwrap();
    let mut refused = served.same();
    refused.targets.push(TargetConfig::open(device(TARGET, vec![memory()])));
    refused.port_groups = vec![change()];
    served.target.control.apply(refused).unwrap_err();
    here.is_undisturbed();
    assert!(here.test_unit_ready(0).good().is_empty());
    served.apply(|update| update.port_groups = vec![change()]);
    assert_eq!(here.news(), (0, ACCESS_CHANGED));
    assert_eq!(here.test_unit_ready(0).sense(), ACCESS_CHANGED);
    assert_eq!(here.test_unit_ready(0).sense(), STANDBY);
    there.is_undisturbed();
}

#[test]
fn a_unit_that_is_being_sanitized_stays() {
    let delay = Arc::new(Delay::new(memory()));
    let mut served = Served::new(delay.clone());
    let mut here = Initiator::attach(&served.target, Port::A);
    delay.hold();
    here.command(0, &[0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0], Vec::new(), 0).good();
    delay.wait_until_held(1);
    let mut without_unit = served.same();
    without_unit.units = vec![UnitChange { device: Arc::clone(&served.devices[0]), lun: Lun::ZERO, unit: None }];
    let mut without_target = served.same();
    without_target.targets.remove(0);
    for update in [without_unit, without_target] {
        let error = served.target.control.apply(update).unwrap_err();
        assert!(matches!(error, UpdateError::Sanitizing { lun: Lun::ZERO, .. }), "{error}");
    }
    here.is_undisturbed();
    delay.release();
    while here.test_unit_ready(0).status != 0 {}
    served.devices.remove(0);
    served.apply(|_| {});
    here.wait_for_logout_request();
}

#[test]
fn targets_that_contradict_each_other_change_nothing() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    let mut update = served.same();
    update.targets.push(TargetConfig::open(device(TARGET, vec![memory()])));
    update.units = vec![UnitChange { device: Arc::clone(&served.devices[0]), lun: Lun::ZERO, unit: None }];
    assert!(matches!(served.target.control.apply(update), Err(UpdateError::Refused(_))));
    here.is_undisturbed();
}

#[test]
fn a_stop_waits_for_what_leaves() {
    let disk = Arc::new(PowerLoss::new(1 << 20).unwrap());
    let mut served = Served::new(disk.clone());
    let mut here = Initiator::attach(&served.target, Port::A);
    here.write(0, 0, blocks(8, 1)).good();
    served.devices.remove(0);
    served.apply(|_| {});
    served.target.begin_stop();
    here.wait_for_logout_request();
    here.send_logout();
    served.target.end().unwrap();
    assert_eq!(disk.unflushed(), 0);
}

#[test]
fn nothing_is_changed_in_a_server_that_has_ended() {
    let served = Served::new(memory());
    served.target.stop().unwrap();
    assert!(matches!(served.target.control.apply(served.same()), Err(UpdateError::Stopping)));
}

#[test]
fn sessions_of_a_target_that_moves_are_asked_to_go_and_sent_on() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    let mut there = Initiator::attach(&served.target, THERE);
    let moved = Moved { addresses: vec!["192.0.2.9:3260,1".into()], permanent: true };
    served.apply(|update| update.targets[0].moved = Some(moved.clone()));
    here.wait_for_logout_request();
    here.send_logout();
    here.wait_for_end();
    there.is_undisturbed();
    let mut again = Initiator::connect(served.target.address);
    again.send_login(Port::A, &[]);
    let (pdu, data) = again.receive().unwrap();
    let TargetPdu::LoginResponse(response) = pdu else { panic!("{pdu:?} answers a login") };
    assert_eq!(response.status, LoginStatus::TARGET_MOVED_PERMANENTLY);
    assert_eq!(data, b"TargetAddress=192.0.2.9:3260,1\0");
}

#[test]
fn another_segment_length_is_negotiated_with_open_sessions() {
    let served = Served::new(memory());
    let mut here = Initiator::attach(&served.target, Port::A);
    let mut there = Initiator::attach(&served.target, THERE);
    served.apply(|update| update.targets[0].offer.recv_data_segment_len = 400_000);
    assert_eq!(here.message(AsyncEvent::NEGOTIATION_REQUEST).parameter3, 10);
    there.is_undisturbed();
    assert_eq!(here.text(&[]), b"MaxRecvDataSegmentLength=400000\0");
    // It is the same for what comes next.
    served.apply(|update| update.targets[0].offer.recv_data_segment_len = 400_000);
    here.is_undisturbed();
}
