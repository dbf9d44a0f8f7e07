//! A unit that several servers offer: what they have in common. The gateways are one value in memory here.

use std::sync::{Arc, Mutex, Weak};
use std::thread;

use lunette_device::{Answered, LogicalUnit, Nexus, Response};
use lunette_gateway::{Answer, Entry, Request, Value};
use lunette_scsi::{AdditionalSense, SenseKey, Status};

use crate::fixture::{Fixture, cdb, code, name_on, sense};

const WRITE: &[u8] = &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1];
const WERO: u8 = 5;
const B: &str = "iqn.2026-11.host:b";
const UNKNOWN: (SenseKey, AdditionalSense) =
    (SenseKey::ABORTED_COMMAND, AdditionalSense::LOGICAL_UNIT_COMMUNICATION_FAILURE);

/// The common value, and the units to which it is published.
pub(crate) struct Gateways {
    state: Mutex<State>,
}

pub(crate) struct State {
    value: Value,
    pub(crate) units: Vec<Weak<LogicalUnit>>,
    /// Units that learn nothing for the time being.
    pub(crate) deaf: Vec<usize>,
    /// The answers of the next updates, which are not made.
    refuse: Vec<Answer>,
}

impl Gateways {
    /// Servers with a port of their own each, which know the first value.
    pub(crate) fn of(servers: &[&Fixture]) -> Arc<Self> {
        let value = Value { version: 1, members: [].into(), owner: None, wanted: None, entries: [].into() };
        let units = servers.iter().map(|server| Arc::downgrade(&server.unit)).collect();
        let state = Mutex::new(State { value, units, deaf: Vec::new(), refuse: Vec::new() });
        let gateways = Arc::new(Self { state });
        for (at, server) in servers.iter().enumerate() {
            server.resume_background();
            server
                .device
                .set_ports([("iqn.2026-11.lunette:disk,t,0x0001", 1), ("iqn.2026-11.lunette:disk,t,0x0002", 2)]);
            gateways.join(at, &server.unit);
        }
        gateways
    }

    /// Lets this unit be the one of a server, which knows the value at once.
    pub(crate) fn join(self: &Arc<Self>, at: usize, unit: &Arc<LogicalUnit>) {
        self.change(|state| state.units[at] = Arc::downgrade(unit));
        let asked = Arc::clone(self);
        assert!(unit.set_gateway(Box::new(move |request, answered| asked.ask(at, request, answered))));
        self.publish(|unit| unit == at, Box::new(|| ()));
    }

    fn ask(&self, by: usize, request: Request, answered: Answered) {
        match request {
            Request::Confirm => self.publish(|unit| unit == by, Box::new(move || answered(Answer::Done))),
            Request::Update { base, name, entry } => match self.update(base, name, entry) {
                Err(answer) => answered(answer),
                Ok(()) => self.publish(|_| true, Box::new(move || answered(Answer::Done))),
            },
            Request::Move { .. } | Request::Leave => answered(Answer::Refused),
        }
    }

    fn update(&self, base: u64, name: Arc<str>, entry: Option<Entry>) -> Result<(), Answer> {
        let mut state = self.state.lock().unwrap();
        if let Some(answer) = state.refuse.pop() {
            return Err(answer);
        }
        if state.value.version != base {
            return Err(Answer::Changed);
        }
        state.value.version += 1;
        match entry {
            Some(entry) => drop(state.value.entries.insert(name, entry)),
            None => drop(state.value.entries.remove(&name)),
        }
        Ok(())
    }

    /// Publishes the value to some units, then calls `done`.
    pub(crate) fn publish(&self, to: impl Fn(usize) -> bool, done: Box<dyn FnOnce() + Send>) {
        let (value, units) = {
            let state = self.state.lock().unwrap();
            let hears = |at: &usize| to(*at) && !state.deaf.contains(at);
            let units: Vec<_> =
                (0..state.units.len()).filter(hears).filter_map(|at| state.units[at].upgrade()).collect();
            (state.value.clone(), units)
        };
        let last = Arc::new(Last(Mutex::new(Some(done))));
        for unit in units {
            let last = Arc::clone(&last);
            unit.publish(&value, Box::new(move || drop(last)));
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }
}

/// Calls when the last one is dropped.
struct Last(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(done) = self.0.get_mut().unwrap().take() {
            done();
        }
    }
}

fn out(server: &Fixture, nexus: &Nexus, action: u8, kind: u8, keys: [u64; 2], flags: u8) -> Response {
    let mut list = [keys[0].to_be_bytes(), keys[1].to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    server.run_on(nexus, [0; 8], cdb(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24]), &list)
}

pub(crate) fn done(server: &Fixture, nexus: &Nexus, action: u8, kind: u8, keys: [u64; 2]) {
    let response = out(server, nexus, action, kind, keys, 0);
    assert_eq!(response.status, Status::GOOD, "{response:?}");
}

pub(crate) fn attention(server: &Fixture, nexus: &Nexus) -> Option<AdditionalSense> {
    let response = server.run_on(nexus, [0; 8], [0; 16], &[]);
    (response.status != Status::GOOD).then(|| sense(&response).code)
}

fn attach(server: &Fixture, initiator: &str, group: u16) -> Nexus {
    let nexus = server.device.attach(name_on(initiator, group));
    attention(server, &nexus);
    nexus
}

fn status(server: &Fixture, nexus: &Nexus, bytes: &[u8]) -> Status {
    server.run_on(nexus, [0; 8], cdb(bytes), &[0; 512]).status
}

/// The keys of READ KEYS, behind PRGENERATION.
pub(crate) fn keys(server: &Fixture) -> (u32, Vec<u64>) {
    let data = server.read(&[0x5e, 0, 0, 0, 0, 0, 0, 0x10, 0]);
    let generation = u32::from_be_bytes(data[..4].try_into().unwrap());
    (generation, data[8..].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect())
}

#[test]
fn a_reservation_through_one_server_holds_at_the_other() {
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let _gateways = Gateways::of(&[&first, &second]);
    let other = attach(&second, B, 2);
    done(&first, &first.nexus, 0, 0, [0, 7]);
    done(&first, &first.nexus, 1, WERO, [7, 0]);
    assert_eq!(status(&second, &other, WRITE), Status::RESERVATION_CONFLICT);
    // The same initiator is another nexus through the other port.
    assert_eq!(status(&second, &second.nexus, WRITE), Status::RESERVATION_CONFLICT);
    done(&second, &other, 0, 0, [0, 8]);
    assert_eq!(status(&second, &other, WRITE), Status::GOOD);
    assert_eq!(keys(&first), (2, vec![7, 8]));
    assert_eq!(keys(&first), keys(&second));
    done(&first, &first.nexus, 2, WERO, [7, 0]);
    assert_eq!(attention(&second, &other), Some(AdditionalSense::RESERVATIONS_RELEASED));
    assert_eq!(attention(&first, &first.nexus), None);
}

#[test]
fn full_status_names_the_ports_of_all_servers() {
    const ALL_TG_PT: u8 = 4;
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let _gateways = Gateways::of(&[&first, &second]);
    assert_eq!(out(&first, &first.nexus, 0, 0, [0, 7], ALL_TG_PT).status, Status::GOOD);
    done(&second, &second.nexus, 1, WERO, [7, 0]);
    for server in [&first, &second] {
        let data = server.read(&[0x5e, 3, 0, 0, 0, 0, 0, 0x10, 0]);
        let id_len = usize::from(data[8 + 23]);
        let ports =
            [8, 8 + 24 + id_len].map(|at| (data[at + 12] & 1, u16::from_be_bytes([data[at + 18], data[at + 19]])));
        assert_eq!(ports, [(0, 1), (1, 2)], "R_HOLDER and RELATIVE TARGET PORT IDENTIFIER");
    }
}

#[test]
fn a_preemption_ends_tasks_at_the_other_server_before_it_is_answered() {
    const PREEMPT_AND_ABORT: u8 = 5;
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let _gateways = Gateways::of(&[&first, &second]);
    done(&first, &first.nexus, 0, 0, [0, 7]);
    done(&first, &first.nexus, 1, WERO, [7, 0]);
    done(&second, &second.nexus, 0, 0, [0, 8]);
    thread::scope(|scope| {
        let preempts = scope.spawn(|| done(&second, &second.nexus, PREEMPT_AND_ABORT, WERO, [8, 7]));
        while first.aborted.lock().unwrap().is_empty() {
            assert!(!preempts.is_finished(), "it was answered before the tasks had ended");
            first.step_background();
            thread::yield_now();
        }
        first.step_background();
    });
    assert_eq!(*first.aborted.lock().unwrap(), [first.nexus.id()]);
    assert!(second.aborted.lock().unwrap().is_empty());
    assert_eq!(attention(&first, &first.nexus), Some(AdditionalSense::REGISTRATIONS_PREEMPTED));
    assert_eq!(attention(&first, &first.nexus), Some(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR));
    assert_eq!(status(&first, &first.nexus, WRITE), Status::RESERVATION_CONFLICT);
    assert_eq!(status(&second, &second.nexus, WRITE), Status::GOOD);
}

#[test]
fn a_nexus_that_preempts_itself_loses_its_other_tasks_and_not_the_command() {
    const PREEMPT_AND_ABORT: u8 = 5;
    let server = Fixture::shared(1);
    let _gateways = Gateways::of(&[&server]);
    let other = attach(&server, B, 1);
    done(&server, &server.nexus, 0, 0, [0, 7]);
    done(&server, &other, 0, 0, [0, 8]);
    done(&server, &server.nexus, 1, WERO, [7, 0]);
    done(&server, &other, PREEMPT_AND_ABORT, WERO, [8, 8]);
    assert_eq!(*server.aborted.lock().unwrap(), [other.id()]);
    assert_eq!(keys(&server).1, [7]);
}

#[test]
fn a_decision_on_an_old_value_is_made_again() {
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let gateways = Gateways::of(&[&first, &second]);
    gateways.change(|state| state.refuse = vec![Answer::Changed; 3]);
    done(&first, &first.nexus, 0, 0, [0, 7]);
    assert_eq!(keys(&second).1, [7]);
}

#[test]
fn an_unknown_outcome_is_no_conflict() {
    let server = Fixture::shared(1);
    let gateways = Gateways::of(&[&server]);
    gateways.change(|state| state.refuse = vec![Answer::Refused]);
    assert_eq!(code(sense(&out(&server, &server.nexus, 0, 0, [0, 7], 0))), UNKNOWN);
    gateways.change(|state| state.refuse = vec![Answer::TooLong]);
    let full = (SenseKey::ILLEGAL_REQUEST, AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES);
    assert_eq!(code(sense(&out(&server, &server.nexus, 0, 0, [0, 7], 0))), full);
    // A unit that has no gateway yet.
    let alone = Fixture::shared(1);
    assert_eq!(code(sense(&out(&alone, &alone.nexus, 0, 0, [0, 7], 0))), UNKNOWN);
    assert_eq!(code(alone.refused(&[0x5e, 0, 0, 0, 0, 0, 0, 0x10, 0], &[])), UNKNOWN);
}

#[test]
fn a_server_that_was_away_learns_of_what_is_gone() {
    const CLEAR: u8 = 3;
    const MAX_COMMON_CHANGES: usize = 16;
    for changes in [1, MAX_COMMON_CHANGES + 1] {
        let (first, second) = (Fixture::shared(1), Fixture::shared(2));
        let gateways = Gateways::of(&[&first, &second]);
        done(&second, &second.nexus, 0, 0, [0, 8]);
        gateways.change(|state| state.deaf = vec![1]);
        let other = attach(&first, B, 1);
        for _ in 0..changes {
            // Each of them has news for a nexus.
            done(&first, &first.nexus, 0, 0, [0, 7]);
            done(&first, &other, 0, 0, [0, 9]);
            done(&first, &first.nexus, CLEAR, 0, [7, 0]);
            assert_eq!(attention(&first, &other), Some(AdditionalSense::RESERVATIONS_PREEMPTED));
        }
        gateways.change(|state| state.deaf.clear());
        // The registration counts as preempted when its history is lost.
        let expected = if changes == 1 {
            AdditionalSense::RESERVATIONS_PREEMPTED
        } else {
            AdditionalSense::REGISTRATIONS_PREEMPTED
        };
        gateways.publish(|unit| unit == 1, Box::new(|| ()));
        assert_eq!(attention(&second, &second.nexus), Some(expected), "{changes}");
        while second.step_background() {}
        assert_eq!(second.aborted.lock().unwrap().len(), usize::from(changes > 1));
    }
}

#[test]
fn an_entry_survives_where_aptpl_says_so() {
    const APTPL: u8 = 1;
    let server = Fixture::shared(1);
    let gateways = Gateways::of(&[&server]);
    let survives = || gateways.state.lock().unwrap().value.entries["reservations"].survives;
    done(&server, &server.nexus, 0, 0, [0, 7]);
    assert!(!survives());
    assert_eq!(out(&server, &server.nexus, 0, 0, [7, 8], APTPL).status, Status::GOOD);
    assert!(survives());
    // PTPL_C and PTPL_A.
    assert_eq!(
        server.read(&[0x5e, 2, 0, 0, 0, 0, 0, 0, 8])[2..4].iter().map(|byte| byte & 1).collect::<Vec<_>>(),
        [1, 1]
    );
    done(&server, &server.nexus, 0, 0, [8, 0]);
    assert!(!survives());
}

#[test]
fn an_entry_of_another_version_is_not_taken_for_known() {
    let server = Fixture::shared(1);
    let gateways = Gateways::of(&[&server]);
    done(&server, &server.nexus, 0, 0, [0, 7]);
    gateways.change(|state| {
        let entry = Entry { bytes: [2].into(), survives: true };
        state.value.entries.insert("reservations".into(), entry);
        state.value.version += 1;
    });
    let value = gateways.state.lock().unwrap().value.clone();
    server.unit.publish(&value, Box::new(|| panic!("it was acknowledged")));
}

#[test]
fn mode_parameters_are_those_of_all_servers() {
    const SWP: u8 = 0x08;
    let (first, second) = (Fixture::shared(1), Fixture::shared(2));
    let gateways = Gateways::of(&[&first, &second]);
    let page = |server: &Fixture| server.read(&[0x1a, 8, 0x0a, 0, 0xff])[4..].to_vec();
    let mut control = page(&first);
    control[0] &= 0x3f;
    control[4] |= SWP;
    let list = [&[0; 4][..], &control].concat();
    let select = |server: &Fixture| server.run(&[0x15, 0x10, 0, 0, list.len() as u8], &list);
    assert_eq!(select(&first).status, Status::GOOD);
    assert_eq!(attention(&second, &second.nexus), Some(AdditionalSense::MODE_PARAMETERS_CHANGED));
    assert_eq!(attention(&first, &first.nexus), None);
    assert_eq!(page(&second), page(&first));
    let protected = (SenseKey::DATA_PROTECT, AdditionalSense::SOFTWARE_WRITE_PROTECTED);
    assert_eq!(code(second.refused(WRITE, &[0; 512])), protected);
    // Again: nothing changes, and no nexus is told.
    assert_eq!(select(&second).status, Status::GOOD);
    assert_eq!(attention(&first, &first.nexus), None);
    // A reset reaches one server, so it changes nothing that they have in common.
    first.device.reset_unit([0; 8], &first.nexus);
    assert_eq!(attention(&first, &first.nexus), Some(AdditionalSense::BUS_DEVICE_RESET));
    assert_eq!(code(first.refused(WRITE, &[0; 512])), protected);
    // They last as long as there is a server, and cannot be saved.
    assert!(!gateways.state.lock().unwrap().value.entries["mode-pages"].survives);
    assert_eq!(code(first.refused(&[0x15, 0x11, 0, 0, 4], &[0; 4])).1, AdditionalSense::INVALID_FIELD_IN_CDB);
}
