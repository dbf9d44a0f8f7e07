//! Parity groups: what is repaired, and what is refused.

use lunette_quanta::{
    Cipher, Codec, Condition, DataKey, Group, Holes, KeyRing, Members, Parity, Part, QuantumSize, Reason, RepairError,
    Repaired, SLOT_LEN, Sealing, Seed, VolumeId, check,
};
use proptest::prelude::*;

const SIZE: QuantumSize = QuantumSize::B512;
const LEN: usize = SIZE.edu_len();
/// The position of the first quantum of the groups, and that of their first parity EDU.
const POSITION: u64 = 40;
const PARITY_POSITION: u64 = 1000;

fn codec(holes: Holes) -> Codec {
    let ring = KeyRing::new(Cipher::Aegis256, 1, &DataKey::new([7; 32])).expect("epochs begin with 1");
    Codec::new(VolumeId([1; 16]), SIZE, holes, ring)
}

/// An EDU of quantum `index` of the group, whose content and nonce come from `version`.
fn sealed(index: usize, version: u64) -> Vec<u8> {
    let mut edu = vec![0; LEN];
    let seed = Seed::new(std::array::from_fn(|at| (version as usize * 37 + index * 11 + at) as u8));
    let sealing = Sealing { position: POSITION + index as u64, version, seed };
    codec(Holes::Allowed).seal(sealing, &[version as u8; SIZE.bytes()], &mut edu);
    edu
}

/// A group as a unit has it.
#[derive(Clone, PartialEq, Debug)]
struct Stored {
    edus: Vec<u8>,
    parity: Vec<u8>,
}

struct Groups(Parity);

impl Groups {
    fn new(data: u16, parity: u16, holes: Holes) -> Self {
        Self(Parity::new(Group { data, parity }, SIZE, holes).expect("within the bounds"))
    }

    /// A group of these EDUs with its parity.
    fn stored(&mut self, edus: &[Vec<u8>]) -> Stored {
        let mut stored = Stored { edus: edus.concat(), parity: vec![0xee; usize::from(self.0.group().parity) * LEN] };
        self.0.encode(&stored.edus, PARITY_POSITION, &mut stored.parity);
        stored
    }

    fn written(&mut self, count: usize) -> Stored {
        self.stored(&(0..count).map(|index| sealed(index, 1)).collect::<Vec<_>>())
    }

    fn repair(&mut self, stored: &mut Stored) -> Result<Repaired, RepairError> {
        let data = Part { position: POSITION, edus: &mut stored.edus[..], unread: Members::default() };
        self.0.repair(data, Part { position: PARITY_POSITION, edus: &stored.parity, unread: Members::default() })
    }
}

/// Flips a bit of the EDU `index`.
fn damage(edus: &mut [u8], index: usize) {
    edus[index * LEN + index * 97 % LEN] ^= 1 << (index % 8);
}

/// Damages the EDUs of a group whose bits are set in `losses`: data EDUs first, then parity EDUs. Returns the number of
/// each.
fn lose(stored: &mut Stored, losses: u32, data: usize, parity: usize) -> (usize, usize) {
    (0..data).filter(|index| losses >> index & 1 == 1).for_each(|index| damage(&mut stored.edus, index));
    (0..parity).filter(|index| losses >> (data + index) & 1 == 1).for_each(|index| damage(&mut stored.parity, index));
    let count = |mask: u32| (losses & mask).count_ones() as usize;
    (count((1 << data) - 1), count(((1 << parity) - 1) << data))
}

#[test]
fn every_combination_of_losses_is_repaired_as_far_as_parity_goes() {
    for (data, parity) in [(1_u16, 1_u16), (1, 2), (2, 1), (3, 2), (4, 2), (4, 3), (2, 4), (5, 1)] {
        let mut groups = Groups::new(data, parity, Holes::Allowed);
        let (data, parity) = (usize::from(data), usize::from(parity));
        let whole = groups.written(data);
        for losses in 0..1_u32 << (data + parity) {
            let mut stored = whole.clone();
            let (lost, rotten) = lose(&mut stored, losses, data, parity);
            let before = stored.clone();
            let outcome = groups.repair(&mut stored);
            if lost + rotten <= parity || lost == 0 {
                let edus = (0..data).filter(|index| losses >> index & 1 == 1).collect();
                let confirmed = lost == 0 || 2 * lost + rotten <= parity;
                assert_eq!(outcome, Ok(Repaired { edus, confirmed }), "{data}+{parity}, {losses:b}");
                assert_eq!(stored.edus, whole.edus, "{data}+{parity}, {losses:b}");
            } else {
                let damaged = (0..data).filter(|index| losses >> index & 1 == 1).collect();
                assert_eq!(outcome, Err(RepairError::TooMany { damaged, intact: parity - rotten }));
                assert_eq!(stored, before, "bytes stay what they were");
            }
        }
    }
}

#[test]
fn parity_edus_are_checked_as_all_edus_are() {
    let mut groups = Groups::new(3, 2, Holes::Allowed);
    let stored = groups.written(3);
    for (index, edu) in stored.parity.chunks_exact(LEN).enumerate() {
        let (data, slot): (_, &[u8; SLOT_LEN]) = edu.split_last_chunk().unwrap();
        assert_eq!(check(PARITY_POSITION + index as u64, data, slot), Condition::Intact);
        assert_eq!(check(PARITY_POSITION + index as u64 + 1, data, slot), Condition::Damaged);
    }
    let holes = groups.stored(&[vec![0; LEN], vec![0; LEN], vec![0; LEN]]);
    assert!(holes.parity.iter().all(|byte| *byte == 0), "the parity of holes is a hole");
}

#[test]
fn a_hole_is_repaired_to_a_hole_and_a_short_group_like_a_whole_one() {
    let mut groups = Groups::new(4, 2, Holes::Allowed);
    let whole = groups.stored(&[sealed(0, 1), vec![0; LEN], sealed(2, 1)]);
    let mut stored = whole.clone();
    damage(&mut stored.edus, 1);
    damage(&mut stored.edus, 2);
    let edus = [1, 2].into_iter().collect();
    assert_eq!(groups.repair(&mut stored), Ok(Repaired { edus, confirmed: false }));
    assert_eq!(stored, whole);
}

#[test]
fn an_erased_edu_is_repaired_where_there_are_no_holes() {
    for (holes, repaired) in [(Holes::Refused, true), (Holes::Allowed, false)] {
        let mut groups = Groups::new(3, 2, holes);
        let whole = groups.written(3);
        let mut stored = whole.clone();
        stored.edus[LEN..2 * LEN].fill(0);
        groups.repair(&mut stored).unwrap();
        assert_eq!(stored == whole, repaired, "{holes:?}");
    }
}

#[test]
fn what_could_not_be_read_is_repaired() {
    let mut groups = Groups::new(3, 2, Holes::Allowed);
    let whole = groups.written(3);
    let mut edus = whole.edus.clone();
    edus[..LEN].fill(0);
    let data = Part { position: POSITION, edus: &mut edus[..], unread: [0].into_iter().collect() };
    let parity = Part { position: PARITY_POSITION, edus: &whole.parity[..], unread: [1].into_iter().collect() };
    let repaired = groups.0.repair(data, parity);
    assert_eq!(repaired, Ok(Repaired { edus: [0].into_iter().collect(), confirmed: false }));
    assert_eq!(edus, whole.edus);
}

/// A writer stopped when it had written the data EDUs of `written` and the parity EDUs of `parities`.
fn interrupted(groups: &mut Groups, whole: &Stored, written: u32, parities: u32) -> Stored {
    let mut edus = whole.edus.chunks_exact(LEN).map(<[u8]>::to_vec).collect::<Vec<_>>();
    for (index, edu) in edus.iter_mut().enumerate().filter(|(index, _)| written >> index & 1 == 1) {
        *edu = sealed(index, 2);
    }
    let mut stored = groups.stored(&edus);
    for index in (0..groups.0.group().parity.into()).filter(|index| parities >> index & 1 == 0) {
        let edu = index * LEN..(index + 1) * LEN;
        stored.parity[edu.clone()].copy_from_slice(&whole.parity[edu]);
    }
    stored
}

/// Damages data EDUs of an interrupted group, and checks what a repair says of the bytes it made. Returns whether it
/// was confirmed.
fn check_repair(groups: &mut Groups, interrupted: &Stored, written: u32, losses: u32) -> bool {
    let mut stored = interrupted.clone();
    let data = stored.edus.len() / LEN;
    lose(&mut stored, losses, data, 0);
    let Ok(repaired) = groups.repair(&mut stored) else { return false };
    for index in repaired.edus.iter() {
        let edu = &stored.edus[index * LEN..][..LEN];
        let genuine = edu == sealed(index, 1) || (written >> index & 1 == 1 && edu == sealed(index, 2));
        assert!(genuine || !repaired.confirmed, "confirmed, though never written: {:?}", groups.0.group());
        let opened = codec(Holes::Allowed).open(POSITION + index as u64, edu, &mut [0; SIZE.bytes()]);
        assert_eq!(opened.is_ok(), genuine, "{opened:?}");
    }
    repaired.confirmed
}

#[test]
fn stale_parity_repairs_nothing_that_was_not_written() {
    for (data, parity) in [(1, 1), (3, 1), (1, 2), (4, 2), (3, 3), (4, 4)] {
        let mut groups = Groups::new(data, parity, Holes::Allowed);
        let whole = groups.written(data.into());
        let mut confirmed = 0;
        for (written, parities) in (0..data).flat_map(|index| (0..1 << parity).map(move |mask| (1 << index, mask))) {
            let interrupted = interrupted(&mut groups, &whole, written, parities);
            let losses = 1..1_u32 << data;
            confirmed += losses.filter(|losses| check_repair(&mut groups, &interrupted, written, *losses)).count();
        }
        assert_eq!(confirmed > 0, parity > 1, "{data}+{parity}: there are repairs without a key");
    }
}

#[test]
fn nothing_is_repaired_from_void_parity() {
    for parity in 1..=4 {
        let mut groups = Groups::new(4, parity, Holes::Allowed);
        let mut stored = groups.written(4);
        // Bytes without a rule.
        (0_u64..).zip(&mut stored.parity).for_each(|(at, byte)| *byte = (at * at * 7 + at / 5 + at % 11) as u8);
        groups.0.void(PARITY_POSITION, &mut stored.parity);
        assert!(!check_repair(&mut groups, &stored, 0, 0b0010));
        assert!(!check_repair(&mut groups, &stored, 0, 0b0110));
    }
}

/// Why a repair without a spare needs the tag: the bytes that one stale parity EDU gives have a right CRC.
#[test]
fn a_crc_does_not_tell_stale_parity() {
    let mut groups = Groups::new(3, 1, Holes::Allowed);
    let whole = groups.written(3);
    let mut stored = interrupted(&mut groups, &whole, 1, 0);
    damage(&mut stored.edus, 1);
    let edus = [1].into_iter().collect();
    assert_eq!(groups.repair(&mut stored), Ok(Repaired { edus, confirmed: false }));
    let (data, slot) = stored.edus[LEN..2 * LEN].split_last_chunk().unwrap();
    assert_eq!(check(POSITION + 1, data, slot), Condition::Intact);
    let opened = codec(Holes::Allowed).open(POSITION + 1, &stored.edus[LEN..2 * LEN], &mut [0; SIZE.bytes()]);
    assert_eq!(opened.map_err(|error| error.reason), Err(Reason::NotAuthentic));
}

#[test]
fn groups_have_bounds() {
    for (data, parity) in [(0, 1), (1, 0), (129, 1), (1, 17)] {
        assert!(Parity::new(Group { data, parity }, SIZE, Holes::Allowed).is_err(), "{data}+{parity}");
    }
    assert!(Parity::new(Group { data: 128, parity: 16 }, QuantumSize::B4096, Holes::Allowed).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Writes to several EDUs, in groups of many shapes.
    #[test]
    fn several_interrupted_writes_are_told((data, parity) in (1..=24_u16, 1..=8_u16), masks in any::<[u32; 3]>()) {
        let mut groups = Groups::new(data, parity, Holes::Allowed);
        let whole = groups.written(data.into());
        let [written, parities, losses] = masks.map(|mask| mask & ((1 << data) - 1));
        let interrupted = interrupted(&mut groups, &whole, written, parities);
        // Few losses, so that they can be repaired.
        let losses = (0..24).filter(|bit| losses >> bit & 1 == 1).take(usize::from(parity.div_ceil(2)));
        let losses = losses.fold(0, |mask, bit| mask | 1 << bit);
        check_repair(&mut groups, &interrupted, written, losses);
    }

    /// Large groups, short ones, and one codec for many of them.
    #[test]
    fn random_losses_of_large_groups_are_repaired(
        (data, parity) in (1..=128_u16, 1..=16_u16),
        short in 0..4_usize,
        order in any::<prop::sample::Index>(),
        step in any::<prop::sample::Index>(),
        losses in 0..18_usize,
    ) {
        let mut groups = Groups::new(data, parity, Holes::Allowed);
        let there = usize::from(data).saturating_sub(short).max(1);
        let all = there + usize::from(parity);
        let whole = groups.written(there);
        for round in 0..3 {
            let mut stored = whole.clone();
            // Different EDUs from a random place on.
            let first = order.index(all) + round * (1 + step.index(all));
            let lost = (0..losses.min(all)).map(|at| (first + at) % all).collect::<Vec<_>>();
            for index in &lost {
                match index.checked_sub(there) {
                    None => damage(&mut stored.edus, *index),
                    Some(index) => damage(&mut stored.parity, index),
                }
            }
            let data_lost = lost.iter().filter(|index| **index < there).count();
            match groups.repair(&mut stored) {
                Ok(repaired) => {
                    prop_assert_eq!(repaired.edus.count(), data_lost);
                    prop_assert_eq!(&stored.edus, &whole.edus);
                }
                Err(error) => {
                    let intact = usize::from(parity) - (lost.len() - data_lost);
                    let damaged = lost.iter().copied().filter(|index| *index < there).collect();
 prop_assert_eq!(error, RepairError::TooMany { damaged, intact });
                    prop_assert!(data_lost > intact);
                }
            }
        }
    }
}
