//! Records of TLS 1.3 (RFC 8446 section 5): how bytes are sealed into them, and opened again.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;

use crate::channel::ChannelError;
use crate::sealed::Sealed;

/// Bytes of a record's header: type, version and length.
pub(crate) const HEADER_LEN: usize = 5;

/// The most bytes of content in a record.
pub(crate) const MAX_CONTENT_BYTES: usize = 1 << 14;

/// Bytes of the tag of all ciphers.
const TAG_LEN: usize = 16;

/// The byte with the type of the content, which stands behind it.
const TYPE_LEN: usize = 1;

/// The most bytes behind a header (RFC 8446 section 5.2).
const MAX_BODY_BYTES: usize = MAX_CONTENT_BYTES + 256;

/// Types of content (RFC 8446 section 5.1).
pub(crate) mod content {
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const APPLICATION_DATA: u8 = 23;
}

/// The version in the header of every record.
const VERSION: [u8; 2] = [3, 3];

/// One direction of a connection: its key, and the number of its next record.
pub(crate) struct Cipher {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    number: u64,
}

impl Cipher {
    pub(crate) fn new((number, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, ChannelError> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(ChannelError::Cipher),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| ChannelError::Cipher)?;
        let iv = iv.as_ref().try_into().map_err(|_| ChannelError::Cipher)?;
        Ok(Self { key: LessSafeKey::new(key), iv, number })
    }

    /// The number of the next record.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The nonce of the next record (RFC 8446 section 5.3).
    fn next_nonce(&mut self) -> Result<Nonce, ChannelError> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        self.number = self.number.checked_add(1).ok_or(ChannelError::Cipher)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Appends a record with `content`, at most [`MAX_CONTENT_BYTES`], which is read once.
    pub(crate) fn seal(&mut self, kind: u8, content: &[u8], out: &mut Sealed) -> Result<(), ChannelError> {
        let (nonce, content_len) = (self.next_nonce()?, content.len());
        let room = out.room(HEADER_LEN + content.len() + TYPE_LEN + TAG_LEN);
        let (header, body) = room.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&header_of(body.len()));
        let (cipher, rest) = body.split_at_mut(content.len());
        self.key
            .seal_out_of_place_scatter(nonce, Aad::from(&*header), content, cipher, &[kind], rest)
            .map_err(|_| ChannelError::Cipher)?;
        if kind == self::content::APPLICATION_DATA {
            out.end_record(content_len);
        }
        Ok(())
    }

    /// Opens a whole record where it stands. Gives the type of its content, and the content.
    pub(crate) fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<(u8, &'a mut [u8]), ChannelError> {
        let nonce = self.next_nonce()?;
        let (header, body) = record.split_at_mut_checked(HEADER_LEN).ok_or(ChannelError::Damaged)?;
        let inner = self.key.open_in_place(nonce, Aad::from(&*header), body).map_err(|_| ChannelError::Damaged)?;
        without_padding(inner)
    }

    /// Opens a whole record into the front of `place`, which has room for [`inner_len`] bytes.
    pub(crate) fn open_into<'a>(
        &mut self,
        record: &[u8],
        place: &'a mut [u8],
    ) -> Result<(u8, &'a mut [u8]), ChannelError> {
        let nonce = self.next_nonce()?;
        let (header, body) = record.split_at_checked(HEADER_LEN).ok_or(ChannelError::Damaged)?;
        let (cipher, tag) = body.split_last_chunk::<TAG_LEN>().ok_or(ChannelError::Damaged)?;
        let inner = place.get_mut(..cipher.len()).ok_or(ChannelError::Damaged)?;
        let opened = self.key.open_separate_gather(nonce, Aad::from(header), cipher, tag, inner);
        opened.map_err(|_| ChannelError::Damaged)?;
        without_padding(inner)
    }
}

/// The bytes that opening a whole record gives: content, type and padding.
pub(crate) fn inner_len(record: &[u8]) -> usize {
    record.len().saturating_sub(HEADER_LEN + TAG_LEN)
}

/// The length of the record at the front of `bytes`, with its header. `None`: the header is not all there.
pub(crate) fn record_len(bytes: &[u8]) -> Result<Option<usize>, ChannelError> {
    let Some([kind, _, _, high, low]) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let body = usize::from(u16::from_be_bytes([*high, *low]));
    if *kind != content::APPLICATION_DATA {
        return Err(ChannelError::Unexpected("a record that is not encrypted"));
    }
    if body > MAX_BODY_BYTES {
        return Err(ChannelError::TooLong(body));
    }
    Ok(Some(HEADER_LEN + body))
}

fn header_of(body_len: usize) -> [u8; HEADER_LEN] {
    // A body has MAX_BODY_BYTES at most.
    let [.., high, low] = body_len.to_be_bytes();
    [content::APPLICATION_DATA, VERSION[0], VERSION[1], high, low]
}

/// Cuts the type and the zeroes behind it off (RFC 8446 section 5.4).
fn without_padding(inner: &mut [u8]) -> Result<(u8, &mut [u8]), ChannelError> {
    let at = inner.iter().rposition(|byte| *byte != 0);
    let at = at.ok_or(ChannelError::Unexpected("a record without content"))?;
    if at > MAX_CONTENT_BYTES {
        return Err(ChannelError::TooLong(at));
    }
    let (content, rest) = inner.split_at_mut(at);
    Ok((rest[0], content))
}
