use proptest::prelude::*;

use super::*;

const LIMITS: CopyLimits = CopyLimits {
    max_cscds: 1,
    max_segments: 1,
    max_descriptors_len: 1,
    max_segment_len: 1,
    max_copies: 1,
    max_ranges: 2,
    max_token_blocks: 100,
    max_inactivity_timeout_s: 60,
    default_inactivity_timeout_s: 30,
};

fn with_ranges(mut header: Vec<u8>, ranges: &[(u64, u32)]) -> Vec<u8> {
    let len = (ranges.len() * RANGE_LEN) as u16;
    let at = header.len();
    header[at - 2..].copy_from_slice(&len.to_be_bytes());
    header[..2].copy_from_slice(&(at as u16 - 2 + len).to_be_bytes());
    for (lba, blocks) in ranges {
        header.extend(lba.to_be_bytes());
        header.extend(blocks.to_be_bytes());
        header.extend([0; 4]);
    }
    header
}

fn populate(ranges: &[(u64, u32)]) -> Vec<u8> {
    with_ranges(vec![0; POPULATE_HEADER_LEN], ranges)
}

fn write(ranges: &[(u64, u32)]) -> Vec<u8> {
    with_ranges(vec![0; WRITE_HEADER_LEN], ranges)
}

fn refused(list: &[u8]) -> (AdditionalSense, Option<(u16, Option<u8>)>) {
    let sense = PopulateList::parse(list, &LIMITS).unwrap_err();
    (sense.code, sense.field.map(|field| (field.byte, field.bit)))
}

#[test]
fn lists_are_read() {
    let mut list = populate(&[(5, 10), (100, 20)]);
    list[2] = 0x03;
    list[7] = 60;
    list[8..12].copy_from_slice(&[0, 0x80, 0, 1]);
    let parsed = PopulateList::parse(&list, &LIMITS).unwrap();
    assert_eq!(parsed.inactivity_timeout_s, Some(60));
    assert_eq!(parsed.rod_type, Some(RodType::POINT_IN_TIME_CHANGE_VULNERABLE));
    assert_eq!((parsed.ranges.blocks(), parsed.ranges.ranges[1]), (30, BlockRange { lba: 100, blocks: 20 }));
    let mut list = write(&[(5, 10)]);
    list[2] = 0x02;
    list[15] = 3;
    list[16..16 + TOKEN_LEN].copy_from_slice(&zero_token());
    let parsed = WriteList::parse(&list, &LIMITS).unwrap();
    assert!(parsed.delete_token);
    assert_eq!((parsed.offset, rod_type(&parsed.token)), (3, Ok(RodType::BLOCK_DEVICE_ZERO)));
    assert_eq!(parsed.ranges.lba_field(0), FieldPointer::data(536));
}

#[test]
fn the_field_in_error_is_pointed_at() {
    use AdditionalSense as Code;
    let field = Code::INVALID_FIELD_IN_PARAMETER_LIST;
    let good = populate(&[(5, 10)]);
    assert_eq!(refused(&good[..15]), (Code::PARAMETER_LIST_LENGTH_ERROR, None));
    assert_eq!(refused(&good[..31]), (Code::PARAMETER_LIST_LENGTH_ERROR, None));
    for (at, value, expected) in [
        (1, 29, (0, None)),
        (2, 4, (2, Some(2))),
        (7, 61, (4, None)),
        (12, 1, (12, Some(0))),
        (15, 15, (14, None)),
        (15, 0, (14, None)),
        (28, 1, (28, Some(0))),
    ] {
        let mut list = good.clone();
        list[at] = value;
        assert_eq!(refused(&list), (field, Some(expected)), "byte {at}");
    }
    assert_eq!(refused(&populate(&[(0, 1), (2, 1), (4, 1)])), (Code::TOO_MANY_SEGMENT_DESCRIPTORS, Some((14, None))));
    assert_eq!(refused(&populate(&[(0, 2), (1, 1)])), (field, Some((32, None))));
    assert_eq!(refused(&populate(&[(u64::MAX, 2), (u64::MAX, 1)])), (field, Some((32, None))));
    assert_eq!(refused(&populate(&[(0, 50), (50, 51)])), (field, Some((14, None))));
    assert!(PopulateList::parse(&populate(&[(0, 50), (10, 0)]), &LIMITS).is_ok(), "no blocks overlap nothing");
}

#[test]
fn a_token_has_its_fields() {
    let unit = Designator::naa_local(1);
    let (rod_type_, secret) = (RodType::POINT_IN_TIME_CHANGE_VULNERABLE, [9; SECRET_LEN]);
    let token =
        RodToken { rod_type: rod_type_, id: 7, unit, len_bytes: 0x1000, block_len: 512, physical_exponent: 3, secret };
    let token = token.emit();
    assert_eq!(token[..16], [0, 0x80, 0, 1, 0, 0, 1, 0xf8, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(token[16..26], [0xe4, 0, 0, 0, 1, 3, 0, 8, 0x30, 0]);
    assert_eq!(
        (&token[44..48], &token[62..64], &token[96..102]),
        (&[0, 0, 2, 0][..], &[0x10, 0][..], &[0, 0, 2, 0, 0, 3][..])
    );
    assert_eq!((&token[128..160], token[160]), (&[9; 32][..], 0));
    assert_eq!(rod_type(&token), Ok(rod_type_));
    let mut short = token;
    short[7] = 0;
    assert_eq!(rod_type(&short).unwrap_err().code, AdditionalSense::INVALID_TOKEN_LENGTH);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        for found in [PopulateList::parse(&bytes, &LIMITS).map(|list| list.ranges), WriteList::parse(&bytes, &LIMITS).map(|list| list.ranges)] {
            prop_assert!(found.is_err() || found.is_ok_and(|ranges| ranges.blocks() <= 100));
        }
    }
}
