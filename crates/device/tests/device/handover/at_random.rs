//! Random commands and events, with handovers at random moments: no answer differs from what it is without them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lunette_device::{InitiatorBytes, Nexus, STORE_FAILURES, UnitCounts};
use lunette_state::StateStore;
use lunette_store::{Space, StoreError};
use proptest::prelude::*;

use crate::fixture::{Fixture, Medium, THIN, TestState, cdb, name};
use crate::handover::Successor;

/// The events of a unit.
#[derive(Debug, Clone)]
enum Event {
    Command {
        nexus: usize,
        cdb: [u8; 16],
        data: Vec<u8>,
    },
    /// The initiator leaves, or comes back.
    Toggle(usize),
    Resize,
    Load,
    Eject,
    LunReset(usize),
    TargetReset,
    Space(u64),
    /// The store fails the next request.
    Failure,
    Time(u64),
}

/// A unit with some nexuses, of which only the first is always there.
struct World {
    fixture: Fixture,
    others: Vec<Option<Nexus>>,
}

/// All that an initiator can tell of an answer.
type Told = (u8, u16, Option<Vec<u8>>, Vec<u8>);

const RECEIVE_COPY_STATUS: [u8; 14] = [0x84, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0];
const INITIATORS: [&str; 2] = ["iqn.2026-11.host:b", "iqn.2026-11.host:c"];

impl World {
    fn new(has_state: bool) -> Self {
        let state = has_state.then(|| Arc::new(TestState::default()) as Arc<dyn StateStore>);
        let medium = Medium { removable: true, soft_threshold_bytes: Some(10 << 20), ..THIN };
        Self { fixture: Fixture::with_state(medium, state), others: vec![None, None] }
    }

    fn nexus(&self, index: usize) -> Option<&Nexus> {
        match index.checked_sub(1) {
            None => Some(&self.fixture.nexus),
            Some(other) => self.others[other].as_ref(),
        }
    }

    fn happens(&mut self, event: &Event) -> Option<Told> {
        let (unit, store) = (&self.fixture.unit, &self.fixture.store);
        match event {
            Event::Command { nexus, cdb, data } => {
                let response = self.fixture.run_on(self.nexus(*nexus)?, [0; 8], *cdb, data);
                let sense = response.sense.as_ref().map(|sense| sense.to_vec());
                return Some((response.status.0, response.status_qualifier, sense, response.data_in.to_vec()));
            }
            Event::Toggle(other) => {
                let there = self.others[*other].take();
                let come = || self.fixture.device.attach(name(INITIATORS[*other]));
                self.others[*other] = if there.is_some() { None } else { Some(come()) };
            }
            Event::Resize => {
                store.len_bytes.fetch_xor(4096, Ordering::Relaxed);
                unit.capacity_changed();
            }
            Event::Load => unit.load(),
            // Whether an initiator prevents it is the same, too.
            Event::Eject => return unit.eject().err().map(|error| (0, 0, None, error.to_string().into_bytes())),
            Event::LunReset(nexus) => {
                self.fixture.device.reset_unit([0; 8], self.nexus(*nexus)?);
            }
            Event::TargetReset => self.fixture.device.reset_target(),
            Event::Space(free_bytes) => {
                let space = Some(Space { used_bytes: 3 << 20, free_bytes: *free_bytes });
                *store.space.lock().unwrap() = space;
                unit.observe_space(space);
            }
            Event::Failure => *store.fails.lock().unwrap() = Some(StoreError::NoSpace),
            Event::Time(ms) => drop(self.fixture.now_ms.fetch_add(*ms, Ordering::Relaxed)),
        }
        None
    }

    fn hand_over(&mut self) {
        let others: Vec<&Nexus> = self.others.iter().flatten().collect();
        let (fixture, mut come) = Successor::of(&self.fixture).take_over(&self.fixture, &others);
        // The nexuses of the predecessor are dropped with it: no change of theirs may reach the successor.
        for other in self.others.iter_mut().rev().filter(|other| other.is_some()) {
            *other = come.pop();
        }
        self.fixture = fixture;
    }

    /// All that monitors show.
    fn counts(&self) -> (UnitCounts, BTreeMap<Arc<str>, InitiatorBytes>, [u64; STORE_FAILURES.len()]) {
        let Fixture { unit, device, .. } = &self.fixture;
        (unit.counts(), device.initiator_bytes(), unit.store_failures())
    }
}

fn reserve_out() -> impl Strategy<Value = ([u8; 16], Vec<u8>)> {
    let types = proptest::sample::select(&[1u8, 3, 5, 6, 7, 8][..]);
    (0..7u8, types, 0..3u64, 0..3u64, 0..8u8).prop_map(|(action, kind, key, new_key, flags)| {
        let mut list = [key.to_be_bytes(), new_key.to_be_bytes(), [0; 8]].concat();
        list[20] = flags & 5;
        (cdb(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24]), list)
    })
}

/// MODE SELECT of D_SENSE and SWP, or of WCE.
fn mode_select() -> impl Strategy<Value = ([u8; 16], Vec<u8>)> {
    let control = (any::<bool>(), any::<bool>()).prop_map(|(sense, protect)| {
        let mut page = vec![0; 16];
        let fixed = Fixture::new(THIN).read(&[0x1a, 0x08, 0x0a, 0, 255])[4..].to_vec();
        page[4..].copy_from_slice(&fixed);
        page[4] &= 0x7f;
        page[6] = page[6] & !0x04 | if sense { 0x04 } else { 0 };
        page[8] = page[8] & !0x08 | if protect { 0x08 } else { 0 };
        page
    });
    let caching = any::<bool>().prop_map(|cache| {
        let mut page = vec![0; 24];
        (page[4], page[5], page[6]) = (0x08, 0x12, if cache { 0x04 } else { 0 });
        page
    });
    let saves = proptest::sample::select(&[0x10u8, 0x11][..]);
    (saves, prop_oneof![control, caching]).prop_map(|(saves, list)| (cdb(&[0x15, saves, 0, 0, list.len() as u8]), list))
}

/// EXTENDED COPY without a segment, or RECEIVE COPY STATUS.
fn copy() -> impl Strategy<Value = ([u8; 16], Vec<u8>)> {
    (any::<bool>(), 0..3u8).prop_map(|(begins, list_id)| {
        let bytes = if begins { [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16] } else { RECEIVE_COPY_STATUS };
        let mut cdb = cdb(&bytes);
        if !begins {
            cdb[2] = list_id;
        }
        (cdb, [&[list_id][..], &[0; 15]].concat())
    })
}

fn any_command() -> impl Strategy<Value = ([u8; 16], Vec<u8>)> {
    const FIXED: &[&[u8]] = &[
        &[0x00],
        &[0x03, 0, 0, 0, 252],
        &[0x03, 1, 0, 0, 252],
        &[0x12, 0, 0, 0, 96],
        &[0x16],
        &[0x17],
        &[0x1a, 0x08, 0x3f, 0xff, 255],
        &[0x1a, 0x08, 0xff, 0xff, 255],
        &[0x1b, 0, 0, 0, 0x00],
        &[0x1b, 0, 0, 0, 0x02],
        &[0x1b, 0, 0, 0, 0x03],
        &[0x1e, 0, 0, 0, 0],
        &[0x1e, 0, 0, 0, 1],
        &[0x25],
        &[0x28, 0, 0, 0, 0, 0, 0, 0, 2],
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x2f, 2, 0, 0, 0, 0, 0, 0, 1],
        &[0x35],
        &[0x42, 0, 0, 0, 0, 0, 0, 0, 24],
        &[0x4c, 0x02, 0x40],
        &[0x4d, 0, 0x42, 0, 0, 0, 0, 1, 0],
        &[0x4d, 0, 0x43, 0, 0, 0, 0, 1, 0],
        &[0x4d, 0, 0x4c, 0, 0, 0, 0, 1, 0],
        &[0x4d, 0, 0x4e, 0, 0, 0, 0, 1, 0],
        &[0x4d, 0, 0x55, 0, 0, 0, 0, 1, 0],
        &[0x4d, 0, 0x59, 0, 0, 0, 0, 1, 0],
        &[0x5e, 0, 0, 0, 0, 0, 0, 0x10, 0],
        &[0x5e, 1, 0, 0, 0, 0, 0, 0x10, 0],
        &[0x5e, 2, 0, 0, 0, 0, 0, 0x10, 0],
        &[0x5e, 3, 0, 0, 0, 0, 0, 0x10, 0],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0xa3, 0x05, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 1, 0],
        &[0xa4, 0x06, 0, 0, 0, 0, 0, 0, 0, 16],
        &[0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12],
    ];
    let fixed = (proptest::sample::select(FIXED), 0..=255u8).prop_map(|(bytes, byte)| (cdb(bytes), vec![byte; 1024]));
    let wild = any::<[u8; 16]>().prop_map(|cdb| (cdb, vec![0; 9000]));
    prop_oneof![8 => fixed, 5 => reserve_out(), 2 => mode_select(), 1 => copy(), 1 => wild]
}

fn any_event() -> impl Strategy<Value = Event> {
    let command = (0..3usize, any_command()).prop_map(|(nexus, (cdb, data))| Event::Command { nexus, cdb, data });
    prop_oneof![
        24 => command,
        3 => (0..2usize).prop_map(Event::Toggle),
        1 => Just(Event::Resize),
        1 => Just(Event::Load),
        1 => Just(Event::Eject),
        1 => (0..3usize).prop_map(Event::LunReset),
        1 => Just(Event::TargetReset),
        1 => (0..20u64).prop_map(|mib| Event::Space(mib << 20)),
        1 => Just(Event::Failure),
        1 => (0..100_000u64).prop_map(Event::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_answer_tells_of_a_handover(
        has_state: bool,
        events in proptest::collection::vec(any_event(), 1..60),
        handovers in proptest::collection::btree_set(0..60usize, 1..4),
    ) {
        let (mut handed_over, mut stays) = (World::new(has_state), World::new(has_state));
        for (at, event) in events.iter().enumerate() {
            if handovers.contains(&at) {
                handed_over.hand_over();
                prop_assert_eq!(handed_over.counts(), stays.counts(), "at {}", at);
            }
            let told = stays.happens(event);
            prop_assert_eq!(handed_over.happens(event), told, "at {}: {:?}", at, event);
        }
        prop_assert_eq!(handed_over.counts(), stays.counts());
    }
}
