use proptest::prelude::*;

use super::*;
use crate::limits::{MAX_CHUNK_BYTES, MAX_STREAM_HEADER_BYTES};

const SIZE_BYTES: u64 = 1 << 20;

fn header() -> Header {
    Header {
        volume: "tank/db".into(),
        serial: "0123456789abcdef".into(),
        labels: [("of".to_owned(), "us".to_owned())].into(),
        snapshot: SentSnapshot { name: "tuesday".parse().unwrap(), id: "b2".into(), labels: [].into() },
        since: Some(Since { name: "monday".parse().unwrap(), id: "a1".into() }),
        size_bytes: SIZE_BYTES,
        from: 0,
    }
}

/// A stream with a record of each kind.
fn stream() -> Vec<u8> {
    let mut writer = Writer::default();
    let mut bytes = Writer::preamble(&header());
    bytes.extend(writer.data(512, &[7; 1024]));
    bytes.extend([7; 1024]);
    bytes.extend(writer.zeroes(4096..SIZE_BYTES));
    bytes.extend(writer.end());
    bytes
}

/// The items of a stream that ends where the bytes do, or before.
fn read(mut bytes: &[u8]) -> Result<Vec<Item>, StreamError> {
    let (mut reader, mut items) = (Reader::default(), Vec::new());
    while reader.wanted() > 0 {
        let Some((now, rest)) = bytes.split_at_checked(reader.wanted()) else { return Ok(items) };
        items.extend(reader.feed(now)?);
        bytes = rest;
    }
    Ok(items)
}

/// A record of this kind, with data of zeroes and right checksums, behind a header.
fn with_record(kind: u32, offset: u64, len: u64) -> Vec<u8> {
    let record = Record { kind, offset, len, data_crc: 0 };
    [Writer::preamble(&header()), record.to_bytes().to_vec()].concat()
}

#[test]
fn a_stream_is_read_as_it_was_written() {
    let items = [Item::Header(Box::new(header())), Item::Data(512), Item::Zeroes(4096..SIZE_BYTES), Item::End];
    assert_eq!(read(&stream()).unwrap(), items);
}

/// A stream of version 1 is read for ever.
#[test]
fn the_bytes_of_version_1_are_these() {
    let mut writer = Writer::default();
    let zeroes = writer.zeroes(512..1024);
    assert_eq!(zeroes[..24], [&[0, 0, 0, 2][..], &[0; 6], &[2, 0], &[0; 6], &[2, 0], &[0; 4]].concat());
    let end = writer.end();
    assert_eq!((end.len(), &end[..12]), (32, &[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1][..]));
    assert_eq!(end[28..], chained(0, &zeroes).to_be_bytes());
    assert_eq!(Writer::preamble(&header())[..12], *b"LunetteV\0\0\0\x01");
}

#[test]
fn no_bit_of_a_stream_may_change() {
    let whole = stream();
    for at in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        let ends = read(&bytes).is_ok_and(|items| items.last() == Some(&Item::End));
        assert!(!ends, "bit {at}");
    }
}

#[test]
fn a_stream_that_is_cut_has_no_end() {
    let whole = stream();
    for len in 0..whole.len() {
        assert!(!read(&whole[..len]).unwrap().contains(&Item::End), "{len} bytes");
    }
}

#[test]
fn records_that_are_missing_or_doubled_are_noticed() {
    let mut writer = Writer::default();
    let (first, second) = (writer.zeroes(0..512), writer.zeroes(512..1024));
    let (start, end) = (Writer::preamble(&header()), writer.end());
    let made = |records: &[&[u8]]| read(&[&[&start[..]], records, &[&end]].concat().concat());
    assert!(made(&[&first, &second]).is_ok());
    for wrong in [&[&first[..]][..], &[&second], &[]] {
        assert_eq!(made(wrong), Err(StreamError::Chain));
    }
    assert!(matches!(made(&[&first, &first, &second]), Err(StreamError::Record { .. })));
}

#[test]
fn records_are_of_whole_blocks_in_their_order_within_the_volume() {
    for (kind, offset, len, why) in [
        (DATA, 0, 0, "blocks"),
        (DATA, 1, 512, "blocks"),
        (ZEROES, 0, 513, "blocks"),
        (DATA, SIZE_BYTES, 512, "beyond"),
        (ZEROES, 512, u64::MAX, "beyond"),
        (4, 0, 512, "kind"),
        (END, 0, 5, "length"),
    ] {
        let Err(StreamError::Record { why: said, .. }) = read(&with_record(kind, offset, len)) else { panic!("{why}") };
        assert!(said.contains(why), "{why}: {said}");
    }
    let later = Header { from: 4096, ..header() };
    let early = [Writer::preamble(&later), Writer::default().zeroes(0..512).to_vec()].concat();
    assert!(matches!(read(&early), Err(StreamError::Record { .. })));
}

#[test]
fn every_length_of_a_stream_has_a_limit() {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend((MAX_STREAM_HEADER_BYTES as u32 + 1).to_be_bytes());
    assert!(matches!(read(&bytes), Err(StreamError::LongHeader(_))));
    let size_bytes = 4 * MAX_CHUNK_BYTES as u64;
    let long = Record { kind: DATA, offset: 0, len: MAX_CHUNK_BYTES as u64 + 512, data_crc: 0 };
    let bytes = [Writer::preamble(&Header { size_bytes, ..header() }), long.to_bytes().to_vec()].concat();
    assert!(matches!(read(&bytes), Err(StreamError::Record { why: "it is too long", .. })));
}

#[test]
fn other_versions_and_headers_are_refused() {
    let mut newer = stream();
    newer[11] = 2;
    assert_eq!(read(&newer), Err(StreamError::Version(2)));
    for wrong in [
        Header { size_bytes: 513, ..header() },
        Header { serial: String::new(), ..header() },
        Header { from: SIZE_BYTES + 512, ..header() },
        Header { from: 1, ..header() },
        Header { snapshot: SentSnapshot { id: "a b".into(), ..header().snapshot }, ..header() },
        Header { since: Some(Since { id: String::new(), ..header().since.unwrap() }), ..header() },
        Header { labels: [("a\n".to_owned(), String::new())].into(), ..header() },
    ] {
        assert!(matches!(read(&Writer::preamble(&wrong)), Err(StreamError::Header(_))), "{wrong:?}");
    }
}

proptest! {
    /// Whatever is fed, the reader neither panics nor wants more than its limits.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), from in 0usize..1400) {
        let whole = stream();
        let start = &whole[..from.min(whole.len())];
        let _ = read(&[start, &bytes].concat());
        let mut reader = Reader::default();
        for chunk in bytes.chunks(7) {
            prop_assert!(reader.wanted() <= MAX_CHUNK_BYTES.max(MAX_STREAM_HEADER_BYTES + 4));
            let _ = reader.feed(chunk);
        }
    }

    /// Any records come out as they went in.
    #[test]
    fn records_are_read_as_they_were_written(
        pieces in prop::collection::vec((0u64..8, 1u64..16, any::<Option<u8>>()), 0..40),
    ) {
        let mut writer = Writer::default();
        let mut bytes = Writer::preamble(&header());
        let (mut expected, mut next) = (vec![Item::Header(Box::new(header()))], 0);
        for (gap, blocks, byte) in pieces {
            let range = (next + gap * 512)..(next + (gap + blocks) * 512);
            next = range.end;
            if next > SIZE_BYTES {
                break;
            }
            if let Some(byte) = byte {
                let data = vec![byte; (blocks * 512) as usize];
                bytes.extend(writer.data(range.start, &data));
                bytes.extend(data);
                expected.push(Item::Data(range.start));
            } else {
                bytes.extend(writer.zeroes(range.clone()));
                expected.push(Item::Zeroes(range));
            }
        }
        bytes.extend(writer.end());
        expected.push(Item::End);
        prop_assert_eq!(read(&bytes).unwrap(), expected);
    }
}
