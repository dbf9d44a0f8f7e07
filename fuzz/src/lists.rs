//! Parameter lists: any bytes, read as the list of one command after the other.
//!
//! Whatever the bytes, the parsers end in time and memory that the bytes bound, and a field that they call bad lies
//! within the list.

use lunette_scsi::copy::CopyLimits;
use lunette_scsi::copy::extended::{self, CopyListForm as CopyForm};
use lunette_scsi::copy::tokens::{PopulateList, TOKEN_LEN, WriteList, zero_token};
use lunette_scsi::mode::select;
use lunette_scsi::persistent::{BASIC_LIST_LEN, RegisterAndMoveList, ReserveOutList, emit_transport_id};
use lunette_scsi::unmap::{self, UnmapRange};
use lunette_scsi::{PointedArea, SenseData};

use crate::input::Random;

/// Bytes of a CSCD descriptor.
const CSCD_LEN: usize = 32;

/// A seed by the name of its file.
type Seed = (String, Vec<u8>);

fn seed(name: &str, bytes: Vec<u8>) -> Seed {
    (name.into(), bytes)
}

/// A field in error is one of the list's.
fn check<T>(list: &[u8], parsed: Result<T, SenseData>) -> Option<T> {
    parsed
        .map_err(|sense| {
            let field = sense.field.filter(|field| field.area == PointedArea::Data);
            assert!(
                field.is_none_or(|field| usize::from(field.byte) < list.len()),
                "{field:?} of {} bytes",
                list.len()
            );
        })
        .ok()
}

/// A seed with a few bytes changed.
fn disturbed(random: &mut Random, seeds: fn() -> Vec<Seed>) -> Vec<u8> {
    let seeds = seeds();
    let (_, mut bytes) = random.choose(&seeds).clone();
    random.disturb(&mut bytes);
    bytes
}

const LIMITS: CopyLimits = CopyLimits {
    max_cscds: 8,
    max_segments: 8,
    max_descriptors_len: 1024,
    max_segment_len: 1 << 20,
    max_copies: 1,
    max_ranges: 8,
    max_token_blocks: 1 << 20,
    max_inactivity_timeout_s: 600,
    default_inactivity_timeout_s: 60,
};

/// EXTENDED COPY.
pub mod extended_copy {
    use super::*;

    /// The target.
    pub fn run(list: &[u8]) {
        for form in [CopyForm::Lid1, CopyForm::Lid4] {
            if let Some(parsed) = check(list, extended::parse(list, form, &LIMITS)) {
                let needed = form.header_len() + parsed.cscds.len() * CSCD_LEN;
                assert!(parsed.cscds.len() <= 8 && parsed.segments.len() <= 8 && needed <= list.len());
            }
        }
    }

    /// A list of either form, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// One list of each form.
    pub fn seeds() -> Vec<Seed> {
        let mut target = vec![0xe4, 0, 0, 0, 1, 3, 0, 8, 0x31, 2, 3, 4, 5, 6, 7, 8];
        target.resize(28, 0);
        target.extend([0, 0, 2, 0]);
        let mut copy = vec![0x02, 0x02, 0, 24, 0, 0, 0xff, 0xff, 0, 0, 0, 8];
        copy.resize(28, 1);
        let verify = vec![0x07, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0];
        let mut lid1 = vec![0; 16];
        (lid1[0], lid1[3], lid1[11]) = (1, 64, 40);
        let mut lid4 = vec![0; 48];
        (lid4[0], lid4[3], lid4[16], lid4[43], lid4[45]) = (1, 32, 0xff, 64, 40);
        let list = |header: Vec<u8>| [header, target.repeat(2), copy.clone(), verify.clone()].concat();
        vec![seed("lid1", list(lid1)), seed("lid4", list(lid4))]
    }
}

/// POPULATE TOKEN and WRITE USING TOKEN.
pub mod token_lists {
    use super::*;

    /// The target.
    pub fn run(list: &[u8]) {
        let populate = check(list, PopulateList::parse(list, &LIMITS)).map(|list| list.ranges);
        let write = check(list, WriteList::parse(list, &LIMITS)).map(|list| list.ranges);
        for ranges in [populate, write].into_iter().flatten() {
            assert!(ranges.ranges.len() <= 8 && ranges.blocks() <= LIMITS.max_token_blocks);
        }
    }

    /// A list of either command, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// One list of each command.
    pub fn seeds() -> Vec<Seed> {
        let range = |lba: u8| [0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, 8, 0, 0, 0, 0];
        let mut populate = vec![0, 46, 2, 0, 0, 0, 0, 60, 0, 0x80, 0, 1, 0, 0, 0, 32];
        let mut write = vec![0; 536];
        write[..2].copy_from_slice(&(534_u16 + 32).to_be_bytes());
        write[16..16 + TOKEN_LEN].copy_from_slice(&zero_token());
        write[535] = 32;
        for list in [&mut populate, &mut write] {
            list.extend(range(0));
            list.extend(range(8));
        }
        vec![seed("populate", populate), seed("write", write)]
    }
}

/// MODE SELECT.
pub mod mode_select {
    use super::*;

    /// The target.
    pub fn run(list: &[u8]) {
        for form in [select::SelectListForm::Six, select::SelectListForm::Ten] {
            if let Some(parsed) = check(list, select::parse(list, form)) {
                let parameters: usize = parsed.pages.iter().map(|page| page.parameters.len()).sum();
                assert!(parameters <= list.len());
            }
        }
    }

    /// A list of either form, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// One list of each form.
    pub fn seeds() -> Vec<Seed> {
        let caching = [&[0x08, 18, 0x04][..], &[0; 17]].concat();
        let extension = [&[0x4a, 0x01, 0, 28][..], &[0; 28]].concat();
        let six = [&[0, 0, 0, 8][..], &[0, 0, 4, 0, 0, 0, 2, 0], &caching, &extension].concat();
        let ten = [&[0, 0, 0, 0, 1, 0, 0, 16][..], &[0; 12], &[0, 0, 2, 0], &caching].concat();
        vec![seed("six", six), seed("ten", ten)]
    }
}

/// UNMAP.
pub mod unmap_list {
    use super::*;

    /// The target.
    pub fn run(list: &[u8]) {
        if let Ok(ranges) = unmap::parse(list) {
            assert!(unmap::HEADER_LEN + ranges.len() * unmap::DESCRIPTOR_LEN <= list.len());
            let ranges: Vec<_> = ranges.collect();
            let again: Vec<_> = unmap::parse(&unmap::emit(&ranges)).expect("our own list").collect();
            assert_eq!(again, ranges);
        }
    }

    /// A list, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// No range, and several.
    pub fn seeds() -> Vec<Seed> {
        let range = UnmapRange { lba: 1 << 40, blocks: 7 };
        vec![seed("none", unmap::emit(&[])), seed("three", unmap::emit(&[range; 3]))]
    }
}

/// PERSISTENT RESERVE OUT.
pub mod reserve_out {
    use super::*;

    /// The target.
    pub fn run(list: &[u8]) {
        if let Some(parsed) = check(list, ReserveOutList::parse(list)) {
            let named: usize = parsed.initiators.iter().map(String::len).sum();
            assert!(named <= list.len());
        }
        if let Some(parsed) = check(list, RegisterAndMoveList::parse(list)) {
            assert!(parsed.initiator.len() <= list.len());
        }
    }

    /// A list of either form, disturbed.
    pub fn random(random: &mut Random) -> Vec<u8> {
        disturbed(random, seeds)
    }

    /// A basic list, one that names initiators, and one that moves.
    pub fn seeds() -> Vec<Seed> {
        let id = emit_transport_id("iqn.2026-11.host:a,i,0x400001370000");
        let mut basic = vec![0; BASIC_LIST_LEN];
        (basic[7], basic[15], basic[20]) = (1, 2, 0x05);
        let mut named = basic.clone();
        named[20] = 0x08;
        named.extend((2 * id.len() as u32).to_be_bytes());
        named.extend(id.repeat(2));
        let mut moved = vec![0; BASIC_LIST_LEN];
        (moved[7], moved[15], moved[17], moved[19], moved[23]) = (1, 2, 1, 1, id.len() as u8);
        moved.extend(id);
        vec![seed("basic", basic), seed("initiators", named), seed("move", moved)]
    }
}
