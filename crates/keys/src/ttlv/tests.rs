use proptest::prelude::*;

use super::limits::{MAX_DEPTH, MAX_ITEMS, MAX_MESSAGE_BYTES};
use super::*;
use crate::hex;

fn bytes(digits: &str) -> Vec<u8> {
    hex::decode(&digits.replace([' ', '|'], "").to_lowercase()).unwrap()
}

/// The examples of KMIP 1.4, section 9.1.2, which all have the tag 42 00 20.
#[test]
fn the_examples_of_the_standard_are_read_and_written() {
    let examples = [
        ("42 00 20 | 02 | 00 00 00 04 | 00 00 00 08 00 00 00 00", Value::Integer(8)),
        ("42 00 20 | 03 | 00 00 00 08 | 01 B6 9B 4B A5 74 92 00", Value::LongInteger(123_456_789_000_000_000)),
        (
            "42 00 20 | 04 | 00 00 00 10 | 00 00 00 00 03 FD 35 EB 6B C2 DF 46 18 08 00 00",
            Value::BigInteger(bytes("00 00 00 00 03 FD 35 EB 6B C2 DF 46 18 08 00 00")),
        ),
        ("42 00 20 | 05 | 00 00 00 04 | 00 00 00 FF 00 00 00 00", Value::Enumeration(255)),
        ("42 00 20 | 06 | 00 00 00 08 | 00 00 00 00 00 00 00 01", Value::Boolean(true)),
        (
            "42 00 20 | 07 | 00 00 00 0B | 48 65 6C 6C 6F 20 57 6F 72 6C 64 00 00 00 00 00",
            Value::TextString("Hello World".into()),
        ),
        ("42 00 20 | 08 | 00 00 00 03 | 01 02 03 00 00 00 00 00", Value::ByteString(vec![1, 2, 3].into())),
        ("42 00 20 | 09 | 00 00 00 08 | 00 00 00 00 47 DA 67 F8", Value::DateTime(0x47da_67f8)),
        ("42 00 20 | 0A | 00 00 00 04 | 00 0D 2F 00 00 00 00 00", Value::Interval(864_000)),
        (
            "42 00 20 | 01 | 00 00 00 20 | 42 00 04 | 05 | 00 00 00 04 | 00 00 00 FE 00 00 00 00 | \
             42 00 05 | 02 | 00 00 00 04 | 00 00 00 FF 00 00 00 00",
            Value::Structure(vec![Item::enumeration(Tag(0x42_0004), 254), Item::integer(Tag(0x42_0005), 255)]),
        ),
    ];
    for (digits, value) in examples {
        let (bytes, item) = (bytes(digits), Item::new(Tag(0x42_0020), value));
        assert_eq!(encode(&item), bytes);
        assert_eq!(decode(&bytes), Ok(item));
    }
}

#[test]
fn lengths_types_and_values_that_do_not_fit_are_refused() {
    let cases = [
        ("", TtlvError::Truncated(0)),
        ("42 00 20 02 00 00 00", TtlvError::Truncated(0)),
        ("42 00 20 02 00 00 00 04 00 00 00 08", TtlvError::Truncated(0)),
        ("42 00 20 02 00 00 00 04 00 00 00 08 00 00 00 01", TtlvError::WrongValue(0)),
        ("42 00 20 02 00 00 00 08 00 00 00 08 00 00 00 01", TtlvError::WrongLength(0)),
        ("42 00 20 03 00 00 00 04 00 00 00 08 00 00 00 00", TtlvError::WrongLength(0)),
        ("42 00 20 04 00 00 00 00", TtlvError::WrongLength(0)),
        ("42 00 20 04 00 00 00 04 00 00 00 08 00 00 00 00", TtlvError::WrongLength(0)),
        ("42 00 20 06 00 00 00 08 00 00 00 00 00 00 00 02", TtlvError::WrongValue(0)),
        ("42 00 20 07 00 00 00 01 FF 00 00 00 00 00 00 00", TtlvError::WrongValue(0)),
        ("42 00 20 08 00 00 00 01 FF 00 00 00 00 00 00 01", TtlvError::WrongValue(0)),
        ("42 00 20 0B 00 00 00 04 00 00 00 08 00 00 00 00", TtlvError::UnknownType(0)),
        ("42 00 20 00 00 00 00 04 00 00 00 08 00 00 00 00", TtlvError::UnknownType(0)),
        ("42 00 20 01 00 00 00 04 00 00 00 08 00 00 00 00", TtlvError::WrongLength(0)),
        ("42 00 20 01 00 00 00 08 42 00 20 02 00 00 00 04 00 00 00 08 00 00 00 00", TtlvError::Truncated(8)),
        ("42 00 20 08 FF FF FF FF 00 00 00 00 00 00 00 00", TtlvError::Truncated(0)),
        ("42 00 20 01 00 00 00 00 00 00 00 00 00 00 00 00", TtlvError::Trailing(8)),
    ];
    for (digits, error) in cases {
        assert_eq!(decode(&bytes(digits)), Err(error), "{digits}");
    }
}

#[test]
fn depth_items_and_length_are_bounded() {
    let nested =
        |depth| (0..depth).fold(Item::integer(Tag::STATE, 1), |item, _| Item::structure(Tag::ATTRIBUTE, vec![item]));
    assert!(decode(&encode(&nested(MAX_DEPTH))).is_ok());
    assert_eq!(decode(&encode(&nested(MAX_DEPTH + 1))), Err(TtlvError::TooDeep(8 * MAX_DEPTH)));

    let many = |items| Item::structure(Tag::ATTRIBUTE, vec![Item::bytes(Tag::NAME, []); items]);
    assert!(decode(&encode(&many(MAX_ITEMS - 1))).is_ok());
    assert_eq!(decode(&encode(&many(MAX_ITEMS))), Err(TtlvError::TooMany));

    let long = |len: usize| encode(&Item::bytes(Tag::NAME, vec![0; len]));
    assert!(decode(&long(MAX_MESSAGE_BYTES - HEADER_LEN)).is_ok());
    assert_eq!(decode(&long(MAX_MESSAGE_BYTES)), Err(TtlvError::TooLong(MAX_MESSAGE_BYTES + HEADER_LEN)));
}

#[test]
fn the_length_of_a_message_is_known_by_its_header() {
    let message = encode(&Item::structure(Tag::REQUEST_MESSAGE, vec![Item::text(Tag::NAME_VALUE, "abc")]));
    assert_eq!(message_len(message.first_chunk().unwrap()), Ok(message.len()));
    assert!(message_len(&[0x42, 0, 0x78, 1, 0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(message_len(&[0x42, 0, 0x78, 1, 0, 0x10, 0, 0]).is_err());
}

#[test]
fn bytes_are_not_shown_by_debug() {
    let shown = format!("{:?}", Item::bytes(Tag::KEY_MATERIAL, *b"AAAA"));
    assert!(shown.contains("KEY_MATERIAL") && shown.contains("4 bytes") && !shown.contains("65"), "{shown}");
}

fn any_item() -> impl Strategy<Value = Item> {
    let leaf = prop_oneof![
        any::<i32>().prop_map(Value::Integer),
        any::<i64>().prop_map(Value::LongInteger),
        proptest::collection::vec(any::<[u8; 8]>(), 1..4).prop_map(|words| Value::BigInteger(words.concat())),
        any::<u32>().prop_map(Value::Enumeration),
        any::<bool>().prop_map(Value::Boolean),
        proptest::collection::vec(any::<char>(), 0..9).prop_map(|text| Value::TextString(text.into_iter().collect())),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Value::ByteString(bytes.into())),
        any::<i64>().prop_map(Value::DateTime),
        any::<u32>().prop_map(Value::Interval),
    ];
    let tag = || (0..1u32 << 24).prop_map(Tag);
    let leaf = (tag(), leaf).prop_map(|(tag, value)| Item { tag, value });
    leaf.prop_recursive(6, 64, 8, move |inner| {
        (tag(), proptest::collection::vec(inner, 0..8)).prop_map(|(tag, items)| Item::structure(tag, items))
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(item in any_item()) {
        let bytes = encode(&item);
        prop_assert_eq!(bytes.len() % 8, 0);
        prop_assert_eq!(decode(&bytes), Ok(item));
    }

    #[test]
    fn what_is_read_would_be_written_with_the_same_bytes(item in any_item(), flips in proptest::collection::vec(any::<(usize, u8)>(), 0..3)) {
        let mut bytes = encode(&item);
        let len = bytes.len();
        for (at, flip) in flips {
            bytes[at % len] ^= flip;
        }
        if let Ok(item) = decode(&bytes) {
            prop_assert_eq!(encode(&item), bytes);
        }
    }

    #[test]
    fn an_item_that_is_cut_is_refused(item in any_item(), at in any::<proptest::sample::Index>()) {
        let bytes = encode(&item);
        prop_assert!(decode(&bytes[..at.index(bytes.len())]).is_err());
    }
}
