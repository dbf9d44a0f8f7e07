//! START STOP UNIT (SBC-4 5.31).

use crate::context::{Cx, Reply};

const START: u8 = 0x01;
const NO_FLUSH: u8 = 0x04;

/// A store has nothing to spin down: starting does nothing, and stopping puts the data on stable storage, unless the
/// initiator says not to. The unit stays ready, for other initiators use it too. Power conditions and ejecting are not in
/// the usage bitmap.
pub(crate) async fn start_stop_unit(cx: Cx) -> Reply {
    if !cx.cdb.bit(4, START | NO_FLUSH) {
        cx.flush().await?;
    }
    Ok(None)
}
