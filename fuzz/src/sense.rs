//! Any bytes, read as sense data and as a data segment that holds sense data.

use lunette_pdu::sense::split_sense;
use lunette_scsi::{SenseData, SenseFormat};

use crate::input::Random;

/// The target.
pub fn run(data: &[u8]) {
    if let Ok((sense, rest)) = split_sense(data) {
        assert!(sense.len() + rest.len() <= data.len());
    }
    let Ok(sense) = SenseData::decode(data) else { return };
    let again = SenseData::decode(&sense.encode(SenseFormat::Descriptor));
    assert_eq!(again, Ok(sense), "the descriptor format holds everything");
    let fixed = SenseData::decode(&sense.encode(SenseFormat::Fixed)).expect("our own encoding");
    assert_eq!((fixed.key, fixed.code, fixed.field), (sense.key, sense.code, sense.field));
}

/// A response code that exists, before random bytes.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = random.some_bytes(40);
    if let Some(first) = bytes.first_mut() {
        *first = 0x70 | random.byte() & 0x83;
    }
    if let Some(len) = bytes.get_mut(7).filter(|_| random.below(3) > 0) {
        *len %= 40;
    }
    bytes
}

/// The seeds of both formats.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let sense = SenseData::illegal_request(lunette_scsi::AdditionalSense::LBA_OUT_OF_RANGE)
        .with_field(lunette_scsi::FieldPointer::cdb(2).bit(7))
        .with_information(0x1234);
    vec![
        ("fixed".into(), sense.encode(SenseFormat::Fixed).to_vec()),
        ("descriptor".into(), sense.encode(SenseFormat::Descriptor).to_vec()),
    ]
}
