//! The bytes of a stream beside its data.

use std::ops::Range;

use super::header::Header;
use super::{DATA, END, MAGIC, RECORD_BYTES, Record, VERSION, ZEROES, chained};

/// The writer of a stream, which counts its records.
#[derive(Debug, Default)]
pub struct Writer {
    chain: u32,
    count: u64,
}

impl Writer {
    /// The bytes with which a stream begins.
    pub fn preamble(header: &Header) -> Vec<u8> {
        let text = serde_json::to_vec(header).expect("texts and numbers");
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_be_bytes());
        bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(text);
        bytes.extend(lunette_crc32c::crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// The bytes before the data of this offset.
    pub fn data(&mut self, offset: u64, data: &[u8]) -> [u8; RECORD_BYTES] {
        let data_crc = lunette_crc32c::crc32c(data);
        self.record(Record { kind: DATA, offset, len: data.len() as u64, data_crc })
    }

    /// The record of zeroes.
    pub fn zeroes(&mut self, range: Range<u64>) -> [u8; RECORD_BYTES] {
        self.record(Record { kind: ZEROES, offset: range.start, len: range.end - range.start, data_crc: 0 })
    }

    /// The bytes with which a stream ends.
    pub fn end(self) -> Vec<u8> {
        let chain = self.chain.to_be_bytes();
        let data_crc = lunette_crc32c::crc32c(&chain);
        let record = Record { kind: END, offset: self.count, len: chain.len() as u64, data_crc };
        [&record.to_bytes()[..], &chain].concat()
    }

    fn record(&mut self, record: Record) -> [u8; RECORD_BYTES] {
        let bytes = record.to_bytes();
        self.chain = chained(self.chain, &bytes);
        self.count += 1;
        bytes
    }
}
