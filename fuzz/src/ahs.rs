//! Any bytes, read as additional header segments. The segments are written and read again.

use lunette_pdu::{Ahs, MAX_AHS_LEN};

use crate::input::Random;

/// The target.
pub fn run(data: &[u8]) {
    let mut seen = 0;
    for segment in Ahs::iter(data) {
        seen += 1;
        assert!(seen <= data.len(), "more segments than bytes");
        let Ok(segment) = segment else { continue };
        assert!(segment.wire_len() <= data.len());
        let mut wire = [0xff; MAX_AHS_LEN];
        let Ok(len) = segment.emit(&mut wire) else {
            assert!(segment.wire_len() > MAX_AHS_LEN, "a segment that was read cannot be written: {segment:?}");
            continue;
        };
        assert_eq!(len % 4, 0);
        assert!(Ahs::iter(&wire[..len]).eq([Ok(segment)]));
    }
}

/// A few segments, mostly well-formed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(5) {
        let content = random.some_bytes(40);
        let len = match random.below(8) {
            0 => random.number() as u16,
            _ => content.len() as u16,
        };
        bytes.extend(len.to_be_bytes());
        bytes.push(random.below(4) as u8 | random.byte() & 0xc0);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    random.disturb(&mut bytes);
    bytes
}

/// The two segments that the RFC defines, and both together.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let emit = |segments: &[Ahs<'_>]| {
        let mut bytes = Vec::new();
        for segment in segments {
            let mut wire = [0; MAX_AHS_LEN];
            let len = segment.emit(&mut wire).expect("the segment is short");
            bytes.extend_from_slice(&wire[..len]);
        }
        bytes
    };
    let cdb = Ahs::ExtendedCdb(&[0x5a; 16]);
    let bidi = Ahs::BidiReadLength(4096);
    vec![
        ("extended_cdb".into(), emit(&[cdb])),
        ("bidi_read_length".into(), emit(&[bidi])),
        ("both".into(), emit(&[cdb, bidi])),
    ]
}
