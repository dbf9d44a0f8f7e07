//! How often the protocol had to recover.

use std::ops::AddAssign;

/// The counts of losses on the way and recoveries since the session began. All zero at recovery level 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recoveries {
    /// Headers of the target with a wrong digest, behind which a marker named the next one (RFC 3720 appendix A).
    pub lost_headers: u64,
    /// PDUs of the target that were discarded because their data digest was wrong.
    pub damaged_pdus: u64,
    /// Status SNACKs: responses that were asked for again.
    pub status_snacks: u64,
    /// Data/R2T SNACKs: runs of Data-In PDUs or R2Ts that were asked for again.
    pub data_snacks: u64,
    /// Commands and other requests that were sent again.
    pub retries: u64,
    /// R2Ts that asked for data a second time.
    pub recovery_r2ts: u64,
    /// Connections that were lost, and whose tasks went on over others.
    pub connections: u64,
    /// Tasks that went on over another connection (TASK REASSIGN).
    pub reassignments: u64,
}

impl Recoveries {
    /// All kinds with their names, for reports.
    pub fn kinds(&self) -> [(&'static str, u64); 8] {
        [
            ("lost headers", self.lost_headers),
            ("damaged PDUs", self.damaged_pdus),
            ("status SNACKs", self.status_snacks),
            ("data SNACKs", self.data_snacks),
            ("retries", self.retries),
            ("recovery R2Ts", self.recovery_r2ts),
            ("connections", self.connections),
            ("reassignments", self.reassignments),
        ]
    }

    /// Whether there was nothing to recover from.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Recoveries {
    fn add_assign(&mut self, rhs: Self) {
        // One by one, so that none is forgotten.
        let Self {
            lost_headers,
            damaged_pdus,
            status_snacks,
            data_snacks,
            retries,
            recovery_r2ts,
            connections,
            reassignments,
        } = rhs;
        self.lost_headers += lost_headers;
        self.damaged_pdus += damaged_pdus;
        self.status_snacks += status_snacks;
        self.data_snacks += data_snacks;
        self.retries += retries;
        self.recovery_r2ts += recovery_r2ts;
        self.connections += connections;
        self.reassignments += reassignments;
    }
}
