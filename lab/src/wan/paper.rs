//! The paper's values and the parameters of its systems, from the data file.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::experiment::paper;

/// The numbers that the paper has printed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Paper {
    #[serde(rename = "table")]
    pub(super) tables: Vec<PaperTable>,
    pub(super) parameters: Parameters,
    /// Cells that a closed form does not reach, and why.
    missed: Vec<Missed>,
}

/// Why cells are not what a closed form says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Missed {
    /// The author of the cells: "paper" or "ours".
    whose: Whose,
    /// Tables, loads, KiB of requests, windows, round trips; each list has all when it is empty.
    #[serde(default)]
    tables: Vec<u8>,
    #[serde(default)]
    loads: Vec<Load>,
    #[serde(default)]
    request_kb: Vec<u64>,
    #[serde(default)]
    windows: Vec<u32>,
    #[serde(default)]
    round_trips_ms: Vec<u32>,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Whose {
    Paper,
    Ours,
}

impl Missed {
    fn is_about(&self, cell: &PaperCell) -> bool {
        has(&self.tables, &cell.table)
            && has(&self.loads, &cell.load)
            && has(&self.request_kb, &(cell.request_len >> 10))
            && has(&self.windows, &cell.window)
            && has(&self.round_trips_ms, &cell.round_trip_ms)
    }
}

/// Whether a list has a value, as an empty one has all.
fn has<T: PartialEq>(list: &[T], value: &T) -> bool {
    list.is_empty() || list.contains(value)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaperTable {
    pub(super) number: u8,
    pub(super) caption: String,
    pub(super) link: LinkKind,
    pub(super) round_trips_ms: Vec<u32>,
    pub(super) rows: Vec<PaperRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaperRow {
    pub(super) load: Load,
    /// KiB of a request. `None` for TCP alone.
    pub(super) request_kb: Option<u32>,
    /// Commands in flight, or bytes of the windows of TCP alone.
    pub(super) window: u32,
    /// MB/s for each round trip.
    pub(super) cells: Vec<f64>,
}

/// The two networks of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LinkKind {
    /// 155 Mb/s.
    Oc3,
    /// Gigabit Ethernet.
    Lan,
}

/// The load of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Load {
    /// TCP from the initiator to the target.
    StreamThere,
    /// TCP from the target to the initiator.
    StreamBack,
    /// Writes whose data is all asked for by R2Ts.
    Solicited,
    /// Writes that send as much as FirstBurstLength allows at once.
    Unsolicited,
    Reads,
}

/// The parameters of the paper's systems, which it does not print. The data file says where each is from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    pub(super) burst_bytes: u64,
    pub(super) oc3_mb_per_s: f64,
    pub(super) lan_mb_per_s: f64,
    pub(super) one_request_mb_per_s: f64,
    pub(super) crossing_ms: f64,
    pub(super) stream_there_window_bytes: f64,
    pub(super) stream_back_window_bytes: f64,
    pub(super) stream_host_ms: f64,
    pub(super) write_bytes_per_round_trip: f64,
    pub(super) solicited: CommandParameters,
    pub(super) unsolicited: CommandParameters,
    pub(super) reads: CommandParameters,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandParameters {
    pub(super) command_ms: f64,
    pub(super) busy_command_ms: f64,
    pub(super) window: f64,
}

/// One value of the paper, with what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct PaperCell {
    pub(super) table: u8,
    pub(super) link: LinkKind,
    pub(super) load: Load,
    /// Bytes of a request. Zero for TCP alone.
    pub(super) request_len: u64,
    pub(super) window: u32,
    pub(super) round_trip_ms: u32,
    /// The rate that the paper printed.
    pub(super) mb_per_s: f64,
}

impl Paper {
    pub(super) fn load() -> Result<Self> {
        paper::section("wan")
    }

    /// Why a cell is not what a closed form says, if that is known.
    pub(super) fn why(&self, whose: Whose, cell: &PaperCell) -> Option<&str> {
        let found = self.missed.iter().find(|missed| missed.whose == whose && missed.is_about(cell));
        found.map(|missed| missed.why.as_str())
    }

    /// The round trips that tables have, shortest first.
    pub(super) fn round_trips_ms(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.tables.iter().flat_map(|table| &table.round_trips_ms).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// All values, table by table and row by row.
    pub(super) fn cells(&self) -> Vec<PaperCell> {
        self.tables.iter().flat_map(PaperTable::cells).collect()
    }
}

impl PaperTable {
    pub(super) fn cells(&self) -> Vec<PaperCell> {
        self.rows.iter().flat_map(|row| self.row_cells(row)).collect()
    }

    pub(super) fn row_cells(&self, row: &PaperRow) -> Vec<PaperCell> {
        let cell = |(round_trip_ms, mb_per_s): (&u32, &f64)| PaperCell {
            table: self.number,
            link: self.link,
            load: row.load,
            request_len: u64::from(row.request_kb.unwrap_or(0)) << 10,
            window: row.window,
            round_trip_ms: *round_trip_ms,
            mb_per_s: *mb_per_s,
        };
        self.round_trips_ms.iter().zip(&row.cells).map(cell).collect()
    }
}

impl Load {
    pub(super) fn is_stream(self) -> bool {
        matches!(self, Self::StreamThere | Self::StreamBack)
    }

    /// The name in tables and plots.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::StreamThere => "I → T",
            Self::StreamBack => "T → I",
            Self::Solicited => "solicited writes",
            Self::Unsolicited => "unsolicited writes",
            Self::Reads => "reads",
        }
    }
}

impl Parameters {
    /// The parameters of iSCSI commands. `None` for TCP alone.
    pub(super) fn of(&self, load: Load) -> Option<&CommandParameters> {
        match load {
            Load::Solicited => Some(&self.solicited),
            Load::Unsolicited => Some(&self.unsolicited),
            Load::Reads => Some(&self.reads),
            Load::StreamThere | Load::StreamBack => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_complete() {
        let paper = Paper::load().expect("the data file");
        let numbers: Vec<u8> = paper.tables.iter().map(|table| table.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        for table in &paper.tables {
            for row in &table.rows {
                assert_eq!(row.cells.len(), table.round_trips_ms.len(), "table {}", table.number);
                assert_eq!(row.request_kb.is_none(), row.load.is_stream(), "table {}", table.number);
            }
        }
        let sizes = paper.tables.iter().map(|table| table.cells().len()).collect::<Vec<_>>();
        assert_eq!(sizes, [8, 8, 32, 32, 32, 24]);
    }
}
