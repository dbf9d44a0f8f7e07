//! Any bytes, read as a list of keys, and every value as each kind of value.

use lunette_pdu::text::{
    TextAssembler, TextWriter, format_binary, format_range, pairs, parse_binary, parse_boolean, parse_list,
    parse_number, parse_range, split_text,
};

use crate::input::Random;

/// More than any binary value of a login may have.
const MAX_BINARY_LEN: usize = 1024;

/// The target.
pub fn run(data: &[u8]) {
    let mut writer = TextWriter::new();
    let mut whole = true;
    let mut read = Vec::new();
    for pair in pairs(data) {
        let Ok((key, value)) = pair else {
            whole = false;
            break;
        };
        writer.push(key, value).expect("a pair that was read can be written");
        read.push((key, value));
        one_value(value);
    }
    assert!(writer.len() <= data.len());
    assert!(pairs(writer.as_bytes()).map(|pair| pair.expect("written by us")).eq(read));
    if whole {
        assert_eq!(writer.as_bytes(), &data[..writer.len()]);
        assert!(data[writer.len()..].iter().all(|byte| *byte == 0));
    }
    continued(data);
}

fn one_value(value: &str) {
    if let Ok(bytes) = parse_binary(value, MAX_BINARY_LEN) {
        assert!(bytes.len() <= MAX_BINARY_LEN);
        assert_eq!(parse_binary(&format_binary(&bytes), MAX_BINARY_LEN), Ok(bytes));
    }
    if let Ok(range) = parse_range(value) {
        assert_eq!(parse_range(&format_range(&range)), Ok(range));
    }
    if let Ok(number) = parse_number(value) {
        assert_eq!(parse_number(&number.to_string()), Ok(number));
    }
    if let Ok(boolean) = parse_boolean(value) {
        assert_eq!(value == "Yes", boolean);
    }
    assert!(parse_list(value).count() <= value.len() + 1);
}

/// The first byte says how the rest is cut over several PDUs.
fn continued(data: &[u8]) {
    let Some((&cut, text)) = data.split_first() else { return };
    let pieces: Vec<&[u8]> = split_text(text, usize::from(cut) + 1).collect();
    let mut assembler = TextAssembler::new(text.len());
    let (last, first) = pieces.split_last().expect("an empty text is one piece");
    for piece in first {
        assert_eq!(assembler.push(piece, true), Ok(None));
    }
    assert_eq!(assembler.push(last, false), Ok(Some(text.to_vec())));
    if !text.is_empty() {
        let mut too_small = TextAssembler::new(text.len() - 1);
        assert!(pieces.iter().any(|piece| too_small.push(piece, true).is_err()));
    }
}

const WORDS: [&str; 24] = [
    "HeaderDigest",
    "CHAP_C",
    "X-lunette.org",
    "X#NodeArchitecture",
    "MaxBurstLength",
    "=",
    "=",
    "=",
    "\0",
    "\0",
    "0x",
    "0X",
    "0b",
    "0B",
    "~",
    ",",
    "Yes",
    "No",
    "None,CRC32C",
    "18446744073709551616",
    "qrs=",
    "ü",
    "\u{7f}",
    "%s%n",
];

/// Words and digits that keys and values are made of.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(30) {
        match random.below(4) {
            0 => bytes.extend(random.number().to_string().bytes().take(random.below(20))),
            _ => bytes.extend(random.choose(&WORDS).bytes()),
        }
    }
    random.disturb(&mut bytes);
    bytes
}

/// Lists as they are seen in logins.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let lists = [
        ("discovery", "InitiatorName=iqn.2026-11.example:i\0SessionType=Discovery\0AuthMethod=None\0"),
        ("operational", "HeaderDigest=CRC32C,None\0MaxRecvDataSegmentLength=262144\0ImmediateData=Yes\0"),
        ("chap_hex", "CHAP_A=5\0CHAP_I=17\0CHAP_C=0x0102030405060708090a0b0c0d0e0f10\0"),
        ("chap_base64", "CHAP_N=user\0CHAP_R=0bAQIDBAUGBwgJCgsMDQ4PEA==\0"),
        ("markers", "OFMarkInt=2048~8192\0IFMarker=No\0"),
        ("pad_counted", "SendTargets=All\0\0\0"),
    ];
    lists.map(|(name, list)| (name.into(), list.into())).to_vec()
}
