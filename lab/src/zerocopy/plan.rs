//! Which cells there are, and which of them a campaign measures.

use super::load::Way;
use super::spec::{Blocks, Spec, With};
use crate::experiment::Size;

/// The figures' lengths of requests.
pub(super) const LENS: [u32; 10] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];
/// The length of requests in the tables.
pub(super) const TABLE_LEN: u32 = 8192;
pub(super) const LONGEST: u32 = 262_144;
pub(super) const MTUS: [u16; 2] = [1500, 9000];

/// Ways for the bytes of a file, and lengths of requests.
pub(super) const WAYS: [Way; 4] = [Way::Read, Way::Memory, Way::Pages, Way::Flag];
pub(super) const WAY_LENS: [u32; 3] = [8192, 65_536, LONGEST];

/// Payloads that are received: an MTU, and bytes of a PDU's data.
pub(super) const REMAPPED: [(u16, u32); 6] =
    [(1500, 8192), (4148, 4096), (9000, 4096), (9000, 8192), (9000, 65_536), (8244, 65_536)];

const BOTH: [bool; 2] = [true, false];

/// Requests of all lengths.
pub(super) fn loads() -> Vec<Spec> {
    let kinds = BOTH.into_iter().flat_map(|write| MTUS.map(|mtu| (write, mtu)));
    let lines = kinds.flat_map(|(write, mtu)| With::ALL.map(|with| (write, mtu, with)));
    lines.flat_map(|(write, mtu, with)| LENS.map(|len| Spec::Load { write, len, mtu, with })).collect()
}

/// Writes of a file's bytes.
pub(super) fn ways() -> Vec<Spec> {
    WAYS.into_iter().flat_map(|way| WAY_LENS.map(|len| Spec::File { way, len })).collect()
}

/// The cells of the product, beside the laboratory's client.
pub(super) fn shipping() -> Vec<Spec> {
    BOTH.map(|write| Spec::Shipping { write, len: TABLE_LEN }).into()
}

pub(super) fn remaps() -> Vec<Spec> {
    REMAPPED.into_iter().flat_map(|(mtu, len)| BOTH.map(|copy| Spec::Remap { mtu, len, copy })).collect()
}

/// Pages that are rewritten: without copies, then as everything that ships does it.
pub(super) fn rewrites(size: Size) -> Vec<Spec> {
    let seconds = match size {
        Size::Full => 60,
        Size::Quick => 5,
        Size::Smallest => 1,
    };
    let from_pages = [Blocks::Plain, Blocks::Digested, Blocks::Quanta].map(|blocks| (true, blocks));
    let copied = [Blocks::Plain, Blocks::Digested].map(|blocks| (false, blocks));
    from_pages.into_iter().chain(copied).map(|(pages, blocks)| Spec::Rewrite { pages, blocks, seconds }).collect()
}

/// The cells that a campaign of that size measures.
pub(super) fn chosen(size: Size) -> Vec<Spec> {
    let all = [loads(), ways(), shipping(), remaps()].concat().into_iter();
    all.filter(|spec| is_chosen(spec, size)).chain(rewrites(size)).collect()
}

fn is_chosen(spec: &Spec, size: Size) -> bool {
    match (size, *spec) {
        (Size::Full, _) | (Size::Quick, Spec::Shipping { .. } | Spec::Rewrite { .. }) => true,
        (Size::Quick, Spec::Load { len, .. }) => len == TABLE_LEN || len == LONGEST,
        (Size::Quick, Spec::File { len, .. }) => len == LONGEST,
        (Size::Quick, Spec::Remap { mtu, len, .. }) => (mtu, len) == (9000, TABLE_LEN) || mtu == 8244,
        (Size::Smallest, Spec::Load { len, mtu, with, .. }) => {
            len == TABLE_LEN && mtu == 9000 && with != With::Segments
        }
        (Size::Smallest, Spec::File { way, len }) => way == Way::Pages && len == LONGEST,
        (Size::Smallest, Spec::Remap { mtu, len, .. }) => (mtu, len) == (9000, TABLE_LEN),
        (Size::Smallest, Spec::Shipping { .. } | Spec::Rewrite { .. }) => false,
    }
}

/// Whether figures of this cell are quoted: it is measured three times in a full campaign.
pub(super) fn is_key(spec: &Spec) -> bool {
    match *spec {
        Spec::Load { len, .. } => len == TABLE_LEN,
        Spec::Remap { .. } | Spec::File { .. } => true,
        Spec::Shipping { .. } | Spec::Rewrite { .. } => false,
    }
}
