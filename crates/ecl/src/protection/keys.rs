//! The keys of one direction: header checks, sealing and opening.

use aegis::aegis128l::Aegis128L;
use lunette_crc32c::crc32c;
use lunette_pdu::BHS_LEN;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::OpenError;
use crate::header::{BHS_AT, CHECK_AT, CHECK_LEN, Flags, HEADER_LEN, Header, HeaderError};
use crate::limits::MAX_PACKETS_PER_KEY;

/// The length of a key of AEGIS-128L, and of its nonce.
const KEY_LEN: usize = 16;

/// Where the payload check stands.
const PAYLOAD_CHECK_AT: usize = 44;

/// The length that the check of an unsealed header covers: all of it but the check itself.
const COVERED_LEN: usize = HEADER_LEN - CHECK_LEN;

/// The keys of one direction of an association.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Keys {
    key: [u8; KEY_LEN],
    /// The packet number is added to it (modulo 2, bit by bit).
    initialization_vector: [u8; KEY_LEN],
}

impl Keys {
    /// The length of the secret that keys are made from.
    pub(super) const LEN: usize = 2 * KEY_LEN;

    /// Takes keys from a secret that serves no other purpose.
    pub(super) fn new(secret: &[u8; Self::LEN]) -> Self {
        let half = |at: usize| std::array::from_fn(|i| secret[at + i]);
        Self { key: half(0), initialization_vector: half(KEY_LEN) }
    }

    /// Writes the header check of a packet that is not sealed. The payload check must be in the header; the payload
    /// itself can be anywhere.
    pub fn check_header(&self, header: &mut [u8; HEADER_LEN]) {
        debug_assert!(!is_sealed(header), "a sealed packet's check covers its payload");
        let check = self.cipher(header).encrypt_in_place(&mut [], &covered(header));
        header[CHECK_AT..BHS_AT].copy_from_slice(&check);
    }

    /// Protects a whole packet in place: its header as [`Header::emit`] wrote it, and its payload behind it. Packets
    /// whose flags say *sealed* are encrypted. The payload check is computed here.
    ///
    /// # Panics
    ///
    /// When the packet is shorter than a header: a mistake of the caller.
    pub fn seal(&self, packet: &mut [u8]) {
        let (header, payload) = packet.split_first_chunk_mut::<HEADER_LEN>().expect("a packet has a header");
        if is_sealed(header) {
            header[PAYLOAD_CHECK_AT..PAYLOAD_CHECK_AT + 4].fill(0);
            let cipher = self.cipher(header);
            let (clear, message) = packet.split_at_mut(BHS_AT);
            let check = cipher.encrypt_in_place(message, &clear[..CHECK_AT]);
            clear[CHECK_AT..].copy_from_slice(&check);
        } else {
            header[PAYLOAD_CHECK_AT..PAYLOAD_CHECK_AT + 4].copy_from_slice(&crc32c(payload).to_be_bytes());
            self.check_header(header);
        }
    }

    /// Seals a packet whose payload lies in pieces, and must stay as it is: `payload` gets the encrypted bytes of
    /// `pieces`, one behind the other.
    ///
    /// # Panics
    ///
    /// When `payload` is not as long as all pieces together: a mistake of the caller.
    pub fn seal_pieces<'a>(
        &self,
        header: &mut [u8; HEADER_LEN],
        pieces: impl IntoIterator<Item = &'a [u8]>,
        payload: &mut [u8],
    ) {
        debug_assert!(is_sealed(header), "the flags are authenticated, so they must say what was done");
        header[PAYLOAD_CHECK_AT..PAYLOAD_CHECK_AT + 4].fill(0);
        let cipher = self.cipher(header);
        let (clear, bhs) = header.split_at_mut(BHS_AT);
        let mut encryptor = cipher.encryptor(&clear[..CHECK_AT]);
        encryptor.update_in_place(bhs);
        let mut rest = payload;
        for piece in pieces {
            let (place, behind) = rest.split_at_mut(piece.len());
            encryptor.update(piece, place);
            rest = behind;
        }
        assert!(rest.is_empty(), "the pieces fill the payload");
        clear[CHECK_AT..].copy_from_slice(&encryptor.finalize());
    }

    /// Verifies a packet, and decrypts it in place when it is sealed.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when the packet is not as the peer sent it. Its bytes are then undefined.
    pub fn open(&self, packet: &mut [u8]) -> Result<Header, OpenError> {
        let header = self.open_header(packet)?;
        if !header.flags.contains(Flags::SEALED) && crc32c(&packet[HEADER_LEN..]) != header.payload_check {
            return Err(OpenError::Payload);
        }
        Ok(header)
    }

    /// [`open`](Self::open) without the payload check of an unsealed packet: for a caller that copies the payload to
    /// its place, and computes its CRC32C on the way. It must be that of the header, or what was copied does not count.
    ///
    /// # Errors
    ///
    /// [`OpenError`], but never [`OpenError::Payload`].
    pub fn open_header(&self, packet: &mut [u8]) -> Result<Header, OpenError> {
        // The header's form first: it costs less than its check.
        let mut header = Header::parse(packet)?;
        if !header.packet_type.is_protected() {
            return Err(OpenError::Handshake);
        }
        if header.packet_number >= MAX_PACKETS_PER_KEY {
            return Err(OpenError::Exhausted(header.packet_number));
        }
        if header.flags.contains(Flags::SEALED) && header.payload_check != 0 {
            return Err(HeaderError::Reserved(PAYLOAD_CHECK_AT).into());
        }
        let bytes = packet.first_chunk::<HEADER_LEN>().ok_or(HeaderError::Short(packet.len()))?;
        let cipher = self.cipher(bytes);
        let check: [u8; CHECK_LEN] = std::array::from_fn(|i| bytes[CHECK_AT + i]);
        if header.flags.contains(Flags::SEALED) {
            let (clear, message) = packet.split_at_mut(BHS_AT);
            cipher.decrypt_in_place(message, &check, &clear[..CHECK_AT]).map_err(|_| OpenError::Check)?;
            header.bhs.copy_from_slice(&message[..BHS_LEN]);
        } else {
            cipher.decrypt_in_place(&mut [], &check, &covered(bytes)).map_err(|_| OpenError::Check)?;
        }
        Ok(header)
    }

    /// The cipher for the packet with that header.
    fn cipher(&self, header: &[u8; HEADER_LEN]) -> Aegis128L<CHECK_LEN> {
        let mut nonce = self.initialization_vector;
        for (byte, number) in nonce[8..].iter_mut().zip(&header[8..16]) {
            *byte ^= number;
        }
        Aegis128L::new(&self.key, &nonce)
    }
}

fn is_sealed(header: &[u8; HEADER_LEN]) -> bool {
    Flags(header[1]).contains(Flags::SEALED)
}

/// The header without its check, in one piece.
fn covered(header: &[u8; HEADER_LEN]) -> [u8; COVERED_LEN] {
    let mut covered = [0; COVERED_LEN];
    covered[..CHECK_AT].copy_from_slice(&header[..CHECK_AT]);
    covered[CHECK_AT..].copy_from_slice(&header[BHS_AT..]);
    covered
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}
