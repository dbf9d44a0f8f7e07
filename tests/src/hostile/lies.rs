//! The changes that a hostile target makes to the answers of a correct one.

use lunette_pdu::{AsyncEvent, AsyncMessage, InitiatorTaskTag, NopIn, ScsiResponse, TargetTransferTag};
use lunette_testkit::{Connection, PduBytes, sense_segment};

use super::dice::Dice;

/// A lie, or an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// Replaces a word of a header, at random or nearly right: tags, numbers, offsets, lengths of transfers.
    Word,
    /// Replaces one of the first four bytes: opcode, flags, response, status.
    FirstBytes,
    /// Flips a bit of the header.
    Bit,
    /// Changes bytes of the data segment.
    Data,
    /// Makes the data segment longer, up to the maximum, or removes it.
    DataLen,
    /// Leaves out a PDU.
    Drop,
    /// Leaves out the whole answer.
    Silence,
    /// Sends a PDU twice.
    Twice,
    /// Changes the order of PDUs.
    Order,
    /// Sends something unrequested first.
    Uncalled,
    /// Spoils the digest, or the last byte.
    Digest,
    /// Sends the bytes one by one.
    Slow,
    /// Stops in the middle of a PDU, and sends no more.
    Stop,
    /// Stops in the middle of a PDU, and closes the connection.
    Close,
}

pub(super) const LIES: [Lie; 16] = [
    Lie::Word,
    Lie::Word,
    Lie::Word,
    Lie::FirstBytes,
    Lie::Bit,
    Lie::Data,
    Lie::DataLen,
    Lie::Drop,
    Lie::Silence,
    Lie::Twice,
    Lie::Order,
    Lie::Uncalled,
    Lie::Digest,
    Lie::Slow,
    Lie::Stop,
    Lie::Close,
];

/// Changes PDUs that are about to be sent, as far as the lie concerns PDUs rather than bytes.
pub(super) fn lie(lie: Lie, pdus: &mut Vec<PduBytes>, answers: &mut Connection, dice: &mut Dice) {
    if lie == Lie::Uncalled {
        return drop(pdus.splice(0..0, uncalled(answers, dice)));
    }
    if pdus.is_empty() {
        return;
    }
    let at = dice.below(pdus.len());
    let (header, data) = &mut pdus[at];
    match lie {
        Lie::Word => {
            let place = 4 * dice.pick(&[2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 10, 11]);
            let word = &mut header[place..place + 4];
            let old = u32::from_be_bytes(word.try_into().expect("four bytes"));
            let near = old.wrapping_add(dice.word() % 5).wrapping_sub(2);
            let new = dice.pick(&[near, near, 0, 1, 512, u32::MAX, 0x8000_0000, old.wrapping_add(4096), old ^ 1]);
            word.copy_from_slice(&new.to_be_bytes());
        }
        Lie::FirstBytes => {
            let place = dice.below(4);
            header[place] = dice.next() as u8;
        }
        Lie::Bit => header[dice.below(48)] ^= 1 << dice.below(8),
        Lie::Data if !data.is_empty() => {
            for _ in 0..=dice.below(8) {
                let place = dice.below(data.len());
                data[place] = dice.pick(&[0, 0xff, 0x1b, b'=', b',', b'0', 0x80]);
            }
        }
        Lie::DataLen => {
            let new_len = dice.pick(&[0, data.len() / 2, data.len() + 1, data.len() * 2 + 4096, 70_000, 1 << 20]);
            data.resize(new_len, 0);
            header[5..8].copy_from_slice(&(new_len as u32).to_be_bytes()[1..]);
        }
        Lie::Drop => drop(pdus.remove(at)),
        Lie::Silence => pdus.clear(),
        Lie::Twice => pdus.insert(at, pdus[at].clone()),
        Lie::Order => pdus.rotate_left(at),
        _ => {}
    }
}

/// PDUs that the client has not asked for: messages, floods of pings, requests for data of nonexistent tasks, ends of
/// nonexistent tasks.
fn uncalled(answers: &mut Connection, dice: &mut Dice) -> Vec<PduBytes> {
    const CHECK_CONDITION: u8 = 2;
    let (itt, none) = (InitiatorTaskTag(dice.pick(&[0, 1, 2, 3, 0x0001_0000, u32::MAX])), Vec::new);
    match dice.below(6) {
        0 => (0..dice.pick(&[1, 100, 2000]))
            .map(|n| (answers.unused().ping(TargetTransferTag(n)).emit(), none()))
            .collect(),
        1 => {
            let ping = answers.unused().ping(TargetTransferTag::RESERVED);
            vec![(NopIn { data_segment_len: 100, ..ping }.emit(), vec![0; 100])]
        }
        2 => vec![(answers.unused().r2t(itt, 0, dice.word() % 100_000, dice.word()).emit(), none())],
        3 => {
            let status = dice.pick(&[0, CHECK_CONDITION, 8, 0x18, 0x28, 0x40, 0xff]);
            let sense = if status == CHECK_CONDITION { INVALID_OPCODE } else { &[] };
            let segment = sense_segment(sense);
            let response = answers.used().scsi_response(itt);
            vec![(ScsiResponse { status, data_segment_len: segment.len(), ..response }.emit(), segment)]
        }
        _ => {
            let message = AsyncMessage {
                parameter1: dice.word() as u16 % 4,
                parameter2: dice.word() as u16 % 4,
                parameter3: dice.word() as u16 % 4,
                ..answers.used().async_message(AsyncEvent(dice.pick(&[0, 1, 2, 3, 4, 5, 6, 255])))
            };
            vec![(message.emit(), none())]
        }
    }
}

/// Fixed format: ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
const INVALID_OPCODE: &[u8] = &[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0];
