//! Any bytes, read as a stream of a volume.

use lunette_pools::stream::{Header, Item, Reader, SentSnapshot, Since, Writer};

use crate::input::Random;

/// Bytes of the volume whose content is in the streams.
const SIZE_BYTES: u64 = 1 << 20;

/// The target. Records come in their order, within the volume, and a stream that ends is written the same way again.
pub fn run(data: &[u8]) {
    let (mut reader, mut writer, mut rest) = (Reader::default(), Writer::default(), data);
    let (mut again, mut size_bytes, mut next) = (Vec::new(), 0, 0);
    while reader.wanted() > 0 {
        let Some((now, later)) = rest.split_at_checked(reader.wanted()) else { return };
        rest = later;
        let Ok(item) = reader.feed(now) else { return };
        let range = match item {
            None => continue,
            Some(Item::Header(header)) => {
                again = Writer::preamble(&header);
                (size_bytes, next) = (header.size_bytes, header.from);
                continue;
            }
            Some(Item::Data(offset)) => {
                again.extend(writer.data(offset, now));
                again.extend(now);
                offset..offset + now.len() as u64
            }
            Some(Item::Zeroes(range)) => {
                again.extend(writer.zeroes(range.clone()));
                range
            }
            Some(Item::End) => break,
        };
        assert!(range.start >= next && range.start < range.end && range.end <= size_bytes);
        next = range.end;
    }
    again.extend(writer.end());
    // Another writer may put the header into other words.
    let records = |bytes: &[u8]| {
        let len = u32::from_be_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
        bytes[16 + len + 4..].to_vec()
    };
    assert_eq!(records(&again), records(&data[..data.len() - rest.len()]));
}

/// A stream, perhaps disturbed.
pub fn random(random: &mut Random) -> Vec<u8> {
    let mut bytes = Writer::preamble(&header());
    let (mut writer, mut next) = (Writer::default(), 0);
    for _ in 0..random.below(6) {
        let start = next + 512 * random.below(4) as u64;
        let len = 512 * (1 + random.below(4));
        next = start + len as u64;
        if random.below(2) == 0 {
            bytes.extend(writer.zeroes(start..next));
        } else {
            let data = vec![random.below(256) as u8; len];
            bytes.extend(writer.data(start, &data));
            bytes.extend(data);
        }
    }
    bytes.extend(writer.end());
    if random.below(3) > 0 {
        random.disturb(&mut bytes);
    }
    bytes
}

/// A stream with records of all kinds, and its parts.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut writer = Writer::default();
    let start = Writer::preamble(&header());
    let data = [&writer.data(512, &[7; 512])[..], &[7; 512]].concat();
    let zeroes = writer.zeroes(4096..SIZE_BYTES).to_vec();
    let whole = [&start[..], &data, &zeroes, &writer.end()].concat();
    let empty = [&start[..], &Writer::default().end()].concat();
    vec![("whole".into(), whole), ("empty".into(), empty), ("start".into(), start)]
}

fn header() -> Header {
    Header {
        volume: "tank/db".into(),
        serial: "0123456789abcdef".into(),
        labels: [("of".to_owned(), "us".to_owned())].into(),
        snapshot: SentSnapshot { name: name("tuesday"), id: "b2".into(), labels: [].into() },
        since: Some(Since { name: name("monday"), id: "a1".into() }),
        size_bytes: SIZE_BYTES,
        from: 0,
    }
}

fn name(text: &str) -> lunette_pools::Name {
    text.parse().expect("a name")
}
