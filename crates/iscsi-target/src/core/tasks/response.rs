//! The response of a device task in the session's words.

use lunette_device::Response as DeviceResponse;
use lunette_session::iscsi_target::Response;

pub(super) fn encode(response: DeviceResponse, aborted_others: bool) -> Response {
    Response {
        status: response.status.0,
        status_qualifier: response.status_qualifier,
        sense: response.sense.map(|sense| sense.to_vec()).unwrap_or_default(),
        data_in: response.data_in,
        data_out_transfer_len: response.data_out_transfer_len,
        aborted_others,
    }
}
