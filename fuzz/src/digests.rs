//! Segment lists cut at random: every kernel against the bitwise one, and copies that arrive.

use lunette_crc32c::{Crc32c, Kernel, Segment, SegmentMut, force, unforce};

use crate::input::{Input, Random};

/// Segments of one list.
const MAX_SEGMENTS: usize = 16;

/// Bytes that one input spreads over its segments: past every kernel's switch between its loops.
const MAX_BYTES: usize = 8192;

/// The target. The first bytes cut the rest twice, once for the source and once for the destination.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (source_cuts, place_cuts) = (cuts(&mut input), cuts(&mut input));
    let bytes: Vec<u8> = input.rest().iter().copied().cycle().take(total_len(data)).collect();
    let expected = Kernel::named("bitwise").map(|oracle| oracle.crc32c(&bytes)).expect("any CPU runs it");
    let whole = outcome(&bytes, &source_cuts, &place_cuts);
    for kernel in Kernel::all() {
        let name = kernel.name();
        assert_eq!(kernel.crc32c(&bytes), expected, "{name}: digest");
        let mut place = vec![0xee; bytes.len()];
        let mut digest = Crc32c::new();
        kernel.copy(&mut digest, &mut place, &bytes);
        assert_eq!((digest.finish(), &place), (expected, &bytes), "{name}: copy");
        force(kernel);
        assert_eq!(outcome(&bytes, &source_cuts, &place_cuts), whole, "{name}: segments");
    }
    unforce();
}

/// Each cut: how long the segment is, and whether it is digested.
fn cuts(input: &mut Input<'_>) -> Vec<(usize, bool)> {
    let count = usize::from(input.byte()) % MAX_SEGMENTS;
    (0..count).map(|_| (usize::from(input.u16()) % MAX_BYTES, !input.one_in(3))).collect()
}

fn total_len(data: &[u8]) -> usize {
    data.iter().map(|byte| usize::from(*byte)).sum::<usize>() % MAX_BYTES
}

/// Copies the bytes from one list to the other and digests them on the way.
fn outcome(bytes: &[u8], source_cuts: &[(usize, bool)], place_cuts: &[(usize, bool)]) -> (u32, Vec<u8>) {
    let mut sources = Vec::new();
    let mut rest = bytes;
    for (len, digested) in source_cuts {
        let (piece, after) = rest.split_at((*len).min(rest.len()));
        sources.push(Segment { bytes: piece, digested: *digested });
        rest = after;
    }
    sources.push(Segment::digested(rest));
    let mut destination = vec![0xee; bytes.len()];
    let mut places = Vec::new();
    let mut room = &mut destination[..];
    for (len, digested) in place_cuts {
        let (piece, after) = room.split_at_mut((*len).min(room.len()));
        places.push(SegmentMut { bytes: piece, digested: *digested });
        room = after;
    }
    places.push(SegmentMut::digested(room));
    let mut digest = Crc32c::new();
    digest.copy_segments(&mut places, &sources);
    assert_eq!(destination, bytes, "every byte arrives, digested or not");
    (digest.finish(), destination)
}

/// Cuts and bytes.
pub fn random(random: &mut Random) -> Vec<u8> {
    (0..random.below(200)).map(|_| random.number() as u8).collect()
}

/// One cut, many cuts, none.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let header_and_pad = [2, 0, 48, 0, 1, 0, 2, 1, 0, 49, 0, 0x5a, 0xa5, 0xff, 0xff, 0xff];
    let empty_segments = [3, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    vec![
        ("header_and_pad".into(), header_and_pad.to_vec()),
        ("empty_segments".into(), empty_segments.to_vec()),
        ("no_cut".into(), vec![0, 0, 1, 2, 3]),
    ]
}
