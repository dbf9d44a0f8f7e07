//! The response of a device task in the session's words.

use lunette_device::{Response as DeviceResponse, StoredDigests};
use lunette_session::iscsi_target::{KnownDigests, Response};

pub(super) fn encode(response: DeviceResponse, aborted_others: bool) -> Response {
    Response {
        status: response.status.0,
        status_qualifier: response.status_qualifier,
        sense: response.sense.map(|sense| sense.to_vec()).unwrap_or_default(),
        data_in: response.data_in,
        digests: response.digests.map(known),
        block_len: response.edu_len,
        data_out_transfer_len: response.data_out_transfer_len,
        aborted_others,
    }
}

fn known(StoredDigests { block_len, first_lba }: StoredDigests) -> KnownDigests {
    KnownDigests { block_len, first_block: first_lba, crc32c: StoredDigests::crc32c }
}
