//! The settings of a user: the session's parameters and the load in flight.

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// Data-In.
    Read,
    /// Data-Out.
    Write,
}

/// The settings of a session and of the load on it, with the names of RFC 7143 chapter 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of one request.
    pub request_len: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Connections of the session.
    pub connections: u32,
    /// InitialR2T: no unsolicited Data-Out PDUs.
    pub initial_r2t: bool,
    /// ImmediateData.
    pub immediate_data: bool,
    /// FirstBurstLength, in bytes.
    pub first_burst_len: u64,
    /// MaxBurstLength, in bytes.
    pub max_burst_len: u64,
    /// MaxOutstandingR2T.
    pub max_outstanding_r2t: u32,
    /// MaxRecvDataSegmentLength of the receiver of data, in bytes.
    pub max_data_segment_len: u64,
    /// Bytes of digests per PDU with data: 0, 4 or 8.
    pub digest_len: u32,
}

impl Default for Settings {
    /// The defaults of RFC 7143, 64 KiB in each of 32 requests.
    fn default() -> Self {
        Self {
            request_len: 64 << 10,
            depth: 32,
            connections: 1,
            initial_r2t: true,
            immediate_data: true,
            first_burst_len: 64 << 10,
            max_burst_len: 256 << 10,
            max_outstanding_r2t: 1,
            max_data_segment_len: 8 << 10,
            digest_len: 0,
        }
    }
}

/// Bytes of a basic header segment.
const HEADER_LEN: u64 = 48;

impl Settings {
    /// Bytes of one write that need no R2T.
    pub fn unsolicited_len(&self) -> u64 {
        let immediate = if self.immediate_data { self.first_burst_len.min(self.max_data_segment_len) } else { 0 };
        let unsolicited = if self.initial_r2t { immediate } else { self.first_burst_len };
        unsolicited.min(self.request_len)
    }

    /// Round trips of one request.
    pub fn trips(&self, transfer: Transfer) -> u32 {
        1 + match transfer {
            Transfer::Read => 0,
            Transfer::Write => {
                let round_len = self.max_burst_len.max(1).saturating_mul(self.max_outstanding_r2t.max(1).into());
                let rounds = (self.request_len - self.unsolicited_len()).div_ceil(round_len);
                u32::try_from(rounds).unwrap_or(u32::MAX - 1)
            }
        }
    }

    /// Bytes of TCP payload of one request in the direction of its data. A write whose command carries no data has a
    /// PDU more.
    pub fn payload_len(&self, transfer: Transfer) -> u64 {
        let data_pdus = self.request_len.div_ceil(self.max_data_segment_len.max(1)).max(1);
        let command_pdus = u64::from(transfer == Transfer::Write && !self.immediate_data);
        self.request_len + data_pdus * (HEADER_LEN + u64::from(self.digest_len)) + command_pdus * HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_of_r2ts_costs_a_trip() {
        let settings = Settings { request_len: 256 << 10, ..Settings::default() };
        for (settings, trips) in [
            (Settings { immediate_data: false, max_burst_len: 128 << 10, ..settings }, 3),
            (Settings { immediate_data: false, max_burst_len: 128 << 10, max_outstanding_r2t: 2, ..settings }, 2),
            (Settings { immediate_data: false, max_burst_len: 256 << 10, ..settings }, 2),
            (Settings { initial_r2t: false, first_burst_len: 64 << 10, max_burst_len: 128 << 10, ..settings }, 3),
            (Settings { initial_r2t: false, first_burst_len: 256 << 10, ..settings }, 1),
            (Settings { request_len: 8 << 10, ..settings }, 1),
        ] {
            assert_eq!(settings.trips(Transfer::Write), trips, "{settings:?}");
            assert_eq!(settings.trips(Transfer::Read), 1);
        }
    }

    #[test]
    fn each_pdu_has_a_header() {
        let settings = Settings { request_len: 64 << 10, max_data_segment_len: 8 << 10, ..Settings::default() };
        assert_eq!(settings.payload_len(Transfer::Read), (64 << 10) + 8 * 48);
        assert_eq!(settings.payload_len(Transfer::Write), (64 << 10) + 8 * 48, "the command carries data");
        assert_eq!(Settings { digest_len: 8, ..settings }.payload_len(Transfer::Read), (64 << 10) + 8 * 56);
        let solicited = Settings { immediate_data: false, ..settings };
        assert_eq!(solicited.payload_len(Transfer::Write), (64 << 10) + 9 * 48);
    }
}
