//! A stream cut into headers and what follows them, as the bytes come.

use lunette_crc32c::{crc32c, from_wire, to_wire};
use lunette_pdu::{BHS_LEN, Bhs, DIGEST_LEN, pad_len};

use crate::follower::Broken;

/// The digests of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) header: bool,
    pub(crate) data: bool,
}

/// A piece of a stream.
pub(crate) enum Piece<'a> {
    /// All of a header: basic and additional segments, and the digest.
    Header,
    /// Bytes behind the header: of the data segment, its pad and its digest. Whether they are the last of them.
    Body(&'a [u8], bool),
}

/// The place in a stream.
#[derive(Default)]
pub(crate) struct Framing {
    header: Vec<u8>,
    /// The header has been handed out, and this much of its body has not come yet.
    body_left: Option<usize>,
}

impl Framing {
    /// Takes bytes off the front of `bytes`, up to the end of a piece. `None` when there is none yet.
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &mut &'a [u8],
        digests: Digests,
    ) -> Result<Option<(Bhs, Piece<'a>)>, Broken> {
        if let (Some(left), Some(bhs)) = (self.body_left, self.bhs()) {
            if bytes.is_empty() && left > 0 {
                return Ok(None);
            }
            let body = take(bytes, left);
            self.body_left = Some(left - body.len()).filter(|left| *left > 0);
            let ends = self.body_left.is_none();
            if ends {
                self.header.clear();
            }
            return Ok(Some((bhs, Piece::Body(body, ends))));
        }
        let digest_len = if digests.header { DIGEST_LEN } else { 0 };
        loop {
            let wanted = self.bhs().map_or(BHS_LEN, |bhs| BHS_LEN + bhs.ahs_len() + digest_len);
            if let Some(bhs) = self.bhs().filter(|_| self.header.len() == wanted) {
                self.check(digests)?;
                self.body_left = Some(body_len(&bhs, digests));
                return Ok(Some((bhs, Piece::Header)));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            let missing = wanted - self.header.len();
            self.header.extend_from_slice(take(bytes, missing));
        }
    }

    /// The bytes of the header that was handed out, until its body has ended.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header
    }

    fn bhs(&self) -> Option<Bhs> {
        self.header.get(..BHS_LEN).and_then(Bhs::ref_from).copied()
    }

    fn check(&self, digests: Digests) -> Result<(), Broken> {
        match self.header.split_last_chunk() {
            Some((header, digest)) if digests.header && !matches(header, *digest) => Err(Broken::HeaderDigest),
            _ => Ok(()),
        }
    }
}

/// The content of a whole body, whose digest is checked.
pub(crate) fn content<'a>(bhs: &Bhs, body: &'a [u8], digests: Digests) -> Result<&'a [u8], Broken> {
    if let Some((padded, digest)) = body.split_last_chunk()
        && digests.data
        && !matches(padded, *digest)
    {
        return Err(Broken::DataDigest);
    }
    Ok(body.get(..bhs.data_segment_len()).unwrap_or_default())
}

/// Appends a PDU with the header of another one and `content`.
pub(crate) fn write(header: &[u8], content: &[u8], digests: Digests, out: &mut Vec<u8>) {
    let start = out.len();
    let digest_len = if digests.header { DIGEST_LEN } else { 0 };
    out.extend_from_slice(&header[..header.len() - digest_len]);
    // DataSegmentLength has 24 bits. No segment here is longer than `MAX_SEGMENT_BYTES` and what fits one of them.
    out[start + 5..start + 8].copy_from_slice(&(content.len() as u32).to_be_bytes()[1..]);
    if digests.header {
        let digest = to_wire(crc32c(&out[start..]));
        out.extend_from_slice(&digest);
    }
    let start = out.len();
    out.extend_from_slice(content);
    out.resize(out.len() + pad_len(content.len()), 0);
    if digests.data && !content.is_empty() {
        let digest = to_wire(crc32c(&out[start..]));
        out.extend_from_slice(&digest);
    }
}

/// The bytes behind a header.
fn body_len(bhs: &Bhs, digests: Digests) -> usize {
    match bhs.data_segment_len() {
        0 => 0,
        len => len + pad_len(len) + if digests.data { DIGEST_LEN } else { 0 },
    }
}

/// No fuzzer guesses digests, so all but one match there.
fn matches(bytes: &[u8], digest: [u8; DIGEST_LEN]) -> bool {
    (cfg!(fuzzing) && digest != [0xff; DIGEST_LEN]) || from_wire(digest) == crc32c(bytes)
}

fn take<'a>(bytes: &mut &'a [u8], at_most: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(at_most.min(bytes.len()));
    *bytes = rest;
    taken
}
