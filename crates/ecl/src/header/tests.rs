use proptest::prelude::*;

use super::*;

fn headers() -> impl Strategy<Value = Header> {
    let acknowledged = (64_u64..u64::MAX, any::<u64>(), any::<u32>());
    let kind = (0..PacketType::ALL.len(), 0..16_u8, prop::sample::select(vec![0_u8, 9, 10, 11, 12]));
    let numbers = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u32>());
    (kind, acknowledged, numbers, any::<[u8; 32]>()).prop_map(|(kind, (largest, bits, delay_us), numbers, bytes)| {
        let mut bhs = [0; BHS_LEN];
        bhs[16..].copy_from_slice(&bytes);
        Header {
            packet_type: PacketType::ALL[kind.0],
            flags: Flags(kind.1),
            log2_quantum: kind.2,
            association: numbers.0,
            packet_number: numbers.1,
            acknowledged: Acknowledged { largest, bits, delay_us },
            credit: numbers.2,
            congestion_count: numbers.3,
            payload_check: numbers.4,
            stream_offset: numbers.5,
            pdu_offset: numbers.6,
            bhs,
        }
    })
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(header in headers()) {
        prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn what_is_parsed_is_emitted(bytes in prop::collection::vec(any::<u8>(), HEADER_LEN..HEADER_LEN + 9)) {
        let mut bytes = bytes;
        bytes[0] = VERSION << 4 | bytes[0] & 0x0f;
        bytes[1] &= 0x0f;
        bytes[2..4].fill(0);
        bytes[60..CHECK_AT].fill(0);
        if let Ok(header) = Header::parse(&bytes) {
            let mut expected = bytes[..HEADER_LEN].to_vec();
            expected[CHECK_AT..BHS_AT].fill(0);
            prop_assert_eq!(header.emit().to_vec(), expected);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Header::parse(&bytes);
    }
}

/// A rule of the header, broken in one byte.
#[test]
fn each_rule_of_the_header_is_checked() {
    let header = Header::new(PacketType::Stream, 7, 9).emit();
    assert!(Header::parse(&header).is_ok());
    let broken = |at: usize, value: u8| {
        let mut bytes = header;
        bytes[at] = value;
        Header::parse(&bytes)
    };
    let rules = [
        (0, 0x24, HeaderError::Version(2)),
        (0, 0x10, HeaderError::Type(0)),
        (0, 0x1b, HeaderError::Type(11)),
        (1, 0x10, HeaderError::Reserved(1)),
        (2, 8, HeaderError::Quantum(8)),
        (2, 13, HeaderError::Quantum(13)),
        (3, 1, HeaderError::Reserved(3)),
        (60, 1, HeaderError::Reserved(60)),
        (63, 1, HeaderError::Reserved(63)),
        (31, 1, HeaderError::Acknowledged),
    ];
    for (at, value, error) in rules {
        assert_eq!(broken(at, value), Err(error), "byte {at} is {value:#x}");
    }
    assert_eq!(Header::parse(&header[..127]), Err(HeaderError::Short(127)));
}

#[test]
fn acknowledgements_reach_back_to_packet_0_and_no_further() {
    let mut header = Header::new(PacketType::Ack, 7, 9);
    header.acknowledged = Acknowledged { largest: 3, bits: 0b111, delay_us: 0 };
    assert!(Header::parse(&header.emit()).is_ok());
    header.acknowledged.bits = 0b1111;
    assert_eq!(Header::parse(&header.emit()), Err(HeaderError::Acknowledged));
}

#[test]
fn types_are_found_by_their_numbers() {
    for (packet_type, number) in PacketType::ALL.into_iter().zip(1..) {
        assert_eq!(packet_type as u8, number);
        assert_eq!(PacketType::of(number), Some(packet_type));
    }
}
