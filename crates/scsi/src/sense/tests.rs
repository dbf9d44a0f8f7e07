use proptest::prelude::*;

use super::*;

#[test]
fn the_fixed_format_carries_information_and_the_field_pointer() {
    let sense = SenseData::invalid_field(FieldPointer::cdb(2).bit(5)).with_information(0x0102_0304);
    let bytes = sense.encode(SenseFormat::Fixed);
    assert_eq!(&bytes[..], [0xf0, 0, 0x05, 1, 2, 3, 4, 10, 0, 0, 0, 0, 0x24, 0x00, 0, 0x80 | 0x40 | 0x08 | 5, 0, 2]);
}

#[test]
fn information_beyond_32_bits_is_left_out_of_the_fixed_format() {
    let sense = SenseData::medium_error(AdditionalSense::WRITE_ERROR).with_information(1 << 32);
    let bytes = sense.encode(SenseFormat::Fixed);
    assert_eq!(bytes[0], 0x70);
    assert_eq!(SenseData::decode(&bytes).unwrap().information, None);
    assert_eq!(SenseData::decode(&sense.encode(SenseFormat::Descriptor)).unwrap(), sense);
}

#[test]
fn the_descriptor_format_counts_its_descriptors() {
    let sense = SenseData::invalid_field(FieldPointer::data(0x0102));
    let bytes = sense.encode(SenseFormat::Descriptor);
    assert_eq!(&bytes[..8], [0x72, 0x05, 0x26, 0x00, 0, 0, 0, 8]);
    assert_eq!(&bytes[8..], [0x02, 6, 0, 0, 0x80, 1, 2, 0]);
}

#[test]
fn progress_stands_where_the_field_pointer_would() {
    let sense = SenseData::not_ready(AdditionalSense::SANITIZE_IN_PROGRESS).with_progress(0x8001);
    assert_eq!(sense.encode(SenseFormat::Fixed)[12..], [0x04, 0x1b, 0, 0x80, 0x80, 0x01]);
    assert_eq!(sense.encode(SenseFormat::Descriptor)[8..], [0x02, 6, 0, 0, 0x80, 0x80, 0x01, 0]);
}

#[test]
fn deferred_and_unknown_sense_data_are_refused() {
    assert_eq!(SenseData::decode(&[]), Err(SenseError::Short { len: 0 }));
    assert_eq!(SenseData::decode(&[0x70, 0, 5]), Err(SenseError::Short { len: 3 }));
    assert_eq!(SenseData::decode(&[0x71; 18]), Err(SenseError::ResponseCode(0x71)));
}

fn any_field() -> impl Strategy<Value = FieldPointer> {
    (any::<bool>(), any::<u16>(), proptest::option::of(0..8u8)).prop_map(|(cdb, byte, bit)| FieldPointer {
        area: if cdb { PointedArea::Cdb } else { PointedArea::Data },
        byte,
        bit,
    })
}

proptest! {
    #[test]
    fn both_formats_round_trip(
        key in 0..16u8,
        asc: u8,
        ascq: u8,
        information in proptest::option::of(any::<u32>()),
        field in proptest::option::of(any_field()),
        progress in proptest::option::of(any::<u16>()),
    ) {
        let has_progress = matches!(key, 0 | 2);
        let sense = SenseData {
            key: SenseKey(key),
            code: AdditionalSense { asc, ascq },
            information: information.map(u64::from),
            field: field.filter(|_| !has_progress),
            progress: progress.filter(|_| has_progress),
        };
        prop_assert_eq!(SenseData::decode(&sense.encode(SenseFormat::Fixed)).unwrap(), sense);
        prop_assert_eq!(SenseData::decode(&sense.encode(SenseFormat::Descriptor)).unwrap(), sense);
    }

    #[test]
    fn decoding_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64), first in 0x70..0x74u8) {
        let mut bytes = bytes;
        let _ = SenseData::decode(&bytes);
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        let _ = SenseData::decode(&bytes);
    }
}

#[test]
fn resets_and_cleared_commands_are_distinguished() {
    for reset in
        [AdditionalSense::POWER_ON_OR_RESET, AdditionalSense::BUS_DEVICE_RESET, AdditionalSense::I_T_NEXUS_LOSS]
    {
        assert!(reset.is_reset() && !reset.is_commands_cleared());
    }
    assert!(AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR.is_commands_cleared());
    let other = AdditionalSense::SOME_COMMANDS_CLEARED_BY_ISCSI_PROTOCOL_EVENT;
    assert!(!other.is_reset() && !other.is_commands_cleared());
}
