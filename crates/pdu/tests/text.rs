//! Lists of keys, and the values in them.

use lunette_pdu::text::*;
use proptest::prelude::*;

fn read(list: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    pairs(list).collect()
}

#[test]
fn lists_are_read_in_order() {
    assert_eq!(read(b""), Ok(vec![]));
    assert_eq!(
        read(b"InitiatorAlias=\0X-com.example.Key+1@x_y=a=b\0X#Registered=\xc3\xa9t\xc3\xa9 2~3\0"),
        Ok(vec![("InitiatorAlias", ""), ("X-com.example.Key+1@x_y", "a=b"), ("X#Registered", "été 2~3")])
    );
}

#[test]
fn nuls_are_taken_as_pad_at_the_end_only() {
    assert_eq!(read(b"A=1\0\0\0"), Ok(vec![("A", "1")]));
    assert_eq!(read(b"\0\0\0\0"), Ok(vec![]));
    assert_eq!(read(b"A=1\0\0B=2\0"), Err(TextError::EmptyPair { offset: 4 }));
    assert_eq!(read(b"\0B=2\0"), Err(TextError::EmptyPair { offset: 0 }));
}

#[test]
fn malformed_pairs_are_refused() {
    let offset = 4;
    for (pair, error) in [
        (&b"B=2"[..], TextError::Unterminated { offset }),
        (b"B\0", TextError::NoEquals { offset }),
        (b"=2\0", TextError::KeyLength { offset, len: 0 }),
        (b"B 1=2\0", TextError::KeyCharacter { offset, character: ' ' }),
        (b"B#1=2\0", TextError::KeyCharacter { offset, character: '#' }),
        (b"X##=2\0", TextError::KeyCharacter { offset, character: '#' }),
        (b"\xc3\xa9=2\0", TextError::KeyCharacter { offset, character: 'é' }),
        (b"B=2\n\0", TextError::ValueCharacter { offset, character: '\n' }),
        (b"B=\x1b[2J\0", TextError::ValueCharacter { offset, character: '\x1b' }),
        (b"B=\xff\0", TextError::NotUtf8 { offset }),
    ] {
        assert_eq!(read(&[b"A=1\0", pair].concat()), Err(error));
    }
}

#[test]
fn keys_and_values_have_a_longest_length() {
    let list = |key: usize, value: usize| [vec![b'K'; key], vec![b'='], vec![b'v'; value], vec![0]].concat();
    assert!(read(&list(MAX_KEY_LEN, MAX_VALUE_LEN)).is_ok());
    assert_eq!(read(&list(64, 1)), Err(TextError::KeyLength { offset: 0, len: 64 }));
    assert_eq!(read(&list(1, 8193)), Err(TextError::ValueLength { offset: 0, len: 8193 }));
}

#[test]
fn reading_ends_after_the_first_error() {
    let mut list = pairs(b"A=1\0B\0C=3\0");
    assert_eq!(list.next(), Some(Ok(("A", "1"))));
    assert!(matches!(list.next(), Some(Err(TextError::NoEquals { .. }))));
    assert_eq!(list.next(), None);
}

#[test]
fn the_writer_refuses_what_the_reader_would() {
    let mut list = TextWriter::new();
    list.push("A", "1").unwrap();
    assert_eq!(list.push("B", "two\0C=3"), Err(TextError::ValueCharacter { offset: 4, character: '\0' }));
    assert_eq!(list.push("B=C", "2"), Err(TextError::KeyCharacter { offset: 4, character: '=' }));
    assert_eq!(list.into_bytes(), b"A=1\0");
}

#[test]
fn numbers() {
    for (value, number) in
        [("0", 0), ("42", 42), ("0x2A", 42), ("0X2a", 42), ("0x0002a", 42), ("18446744073709551615", u64::MAX)]
    {
        assert_eq!(parse_number(value), Ok(number), "{value}");
    }
    for value in ["", "-1", "+1", "042", "00", "0x", "0xg", "0x+1", "1 ", "1_0", "0b1", "4k", "٣"] {
        assert_eq!(parse_number(value), Err(ValueError::NotANumber), "{value}");
    }
    for value in ["18446744073709551616", "0x10000000000000000"] {
        assert_eq!(parse_number(value), Err(ValueError::NumberTooLarge), "{value}");
    }
}

#[test]
fn ranges() {
    assert_eq!(parse_range("512~0x400"), Ok(512..=1024));
    assert_eq!(parse_range("7~7"), Ok(7..=7));
    for value in ["2~1", "12"] {
        assert_eq!(parse_range(value), Err(ValueError::NotARange), "{value}");
    }
    for value in ["~", "1~", "1~2~3"] {
        assert_eq!(parse_range(value), Err(ValueError::NotANumber), "{value}");
    }
}

#[test]
fn booleans_count_case() {
    assert_eq!(parse_boolean("Yes"), Ok(true));
    assert_eq!(parse_boolean("No"), Ok(false));
    assert_eq!(parse_boolean("yes"), Err(ValueError::NotABoolean));
    assert_eq!([true, false].map(format_boolean), ["Yes", "No"]);
}

#[test]
fn lists_of_values() {
    assert!(parse_list("CHAP,None").eq(["CHAP", "None"]));
    assert!(parse_list("None").eq(["None"]));
    assert!(parse_list("A,,B,").eq(["A", "", "B", ""]));
    assert_eq!(parse_list("").next(), None);
}

#[test]
fn binary_values() {
    for (value, bytes) in [
        ("0x0", &[0][..]),
        ("0xAbC", &[0x0a, 0xbc]),
        ("0X00ff", &[0x00, 0xff]),
        // The test vectors of RFC 4648, section 10.
        ("0bZg==", b"f"),
        ("0bZm8=", b"fo"),
        ("0bZm9v", b"foo"),
        ("0BZm9vYg==", b"foob"),
        ("0bZm9vYg", b"foob"),
        ("0b+/+/", &[0xfb, 0xff, 0xbf]),
    ] {
        assert_eq!(parse_binary(value, 8).as_deref(), Ok(bytes), "{value}");
    }
    for value in [
        "", "0", "0x", "0b", "12", "0xg", "0x1 ", "0xé", "0é", "0bZ", "0bZg=", "0bZg===", "0bZ===", "0b====", "0bZ=g=",
        "0bZm9vZ", "0bZh==", "0bZm9=", "0b-_-_",
    ] {
        assert_eq!(parse_binary(value, 8), Err(ValueError::NotBinary), "{value}");
    }
}

#[test]
fn binary_values_have_a_longest_length() {
    let too_long = |len, max| Err(ValueError::BinaryTooLong { len, max });
    assert_eq!(parse_binary("0x010203", 2), too_long(3, 2));
    assert_eq!(parse_binary("0x10203", 2), too_long(3, 2));
    assert_eq!(parse_binary("0bZm9v", 2), too_long(3, 2));
    assert_eq!(parse_binary("0bZm8=", 2).as_deref(), Ok(&b"fo"[..]));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        list in prop::collection::vec(("(X#)?[A-Za-z0-9.+@_-]{1,60}", "[^\\p{Cc}]{0,40}"), 0..8),
    ) {
        let mut writer = TextWriter::new();
        for (key, value) in &list {
            writer.push(key, value).unwrap();
        }
        prop_assert_eq!(writer.len(), writer.as_bytes().len());
        let read = read(writer.as_bytes()).unwrap();
        prop_assert!(read.into_iter().eq(list.iter().map(|(key, value)| (key.as_str(), value.as_str()))));
    }

    #[test]
    fn any_bytes_are_read_to_an_end(list in prop::collection::vec(prop::sample::select(b"AX#.= \0\0\n\xff\xc3\xa9".to_vec()), 0..40)) {
        let read: Vec<_> = pairs(&list).collect();
        prop_assert!(read.iter().rev().skip(1).all(Result::is_ok), "nothing follows an error");
        if read.iter().all(Result::is_ok) {
            prop_assert!(list.last().is_none_or(|&last| last == 0));
        }
    }

    #[test]
    fn numbers_come_back(number: u64) {
        prop_assert_eq!(parse_number(&number.to_string()), Ok(number));
        prop_assert_eq!(parse_number(&format!("{number:#x}")), Ok(number));
    }

    #[test]
    fn ranges_come_back(a: u64, b: u64) {
        let range = a.min(b)..=a.max(b);
        prop_assert_eq!(parse_range(&format_range(&range)), Ok(range));
    }

    #[test]
    fn binary_values_come_back(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
        prop_assert_eq!(parse_binary(&format_binary(&bytes), bytes.len()), Ok(bytes));
    }

    #[test]
    fn any_string_is_a_value_or_not(value in "(0[xXbB])?[0-9a-zA-Z+/=~,é]{0,12}", max_len in 0usize..12) {
        let _ = (parse_number(&value), parse_range(&value), parse_list(&value).count());
        if let Ok(bytes) = parse_binary(&value, max_len) {
            prop_assert!(!bytes.is_empty() && bytes.len() <= max_len);
        }
    }
}
