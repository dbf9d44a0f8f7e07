//! What is measured on a path.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Size;
use super::route::Route;
use crate::experiment::{Cell, Figures, Results, Spread};

/// The figure of all cells: payload, in 10^6 bytes per second.
pub(super) const MB_PER_S: &str = "mb_per_s";

const PORT: u16 = 3260;
const DISK: &str = "mem:256M";

/// The defaults of `lunette cp`.
const DEFAULTS: &str = "--bs 256K";

/// What open-iscsi 2.1 offers unless it is configured, and the queue depth of its disks. Requests of 64 KiB are what the second paper's
/// systems sent at most.
const OPEN_ISCSI_KEYS: &str = "?initial_r2t=no&immediate_data=yes&first_burst_length=262144&max_burst_length=16776192\
                               &max_recv_data_segment_length=262144&max_outstanding_r2t=1&max_connections=1";
const OPEN_ISCSI_LOAD: &str = "--bs 64K --depth 32";

/// A point of the exhaustive search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    connections: u32,
    request: &'static str,
    depth: u32,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} over {}", self.depth, self.request, self.connections)
    }
}

/// The settings that are tried one and all.
struct Grid {
    connections: &'static [u32],
    requests: &'static [&'static str],
    depths: &'static [u32],
    times: Times,
}

/// Seconds of the parts of a measurement.
#[derive(Clone, Copy)]
struct Times {
    warm_up: f64,
    measured: u32,
    /// For the tuner to find its settings.
    tuner: u32,
}

impl Grid {
    const fn of(size: Size) -> Self {
        match size {
            Size::Full => Self {
                connections: &[1, 2, 4, 8],
                requests: &["64K", "256K", "1M"],
                depths: &[8, 32, 128],
                times: Times { warm_up: 2.0, measured: 4, tuner: 30 },
            },
            Size::Quick => Self {
                connections: &[1, 4, 8],
                requests: &["64K", "1M"],
                depths: &[32, 128],
                times: Times { warm_up: 1.5, measured: 3, tuner: 20 },
            },
            Size::Smallest => Self {
                connections: &[1, 8],
                requests: &["1M"],
                depths: &[32],
                times: Times { warm_up: 0.5, measured: 1, tuner: 2 },
            },
        }
    }

    fn points(&self) -> impl Iterator<Item = Point> {
        self.connections.iter().flat_map(move |connections| {
            self.requests.iter().flat_map(move |request| {
                self.depths.iter().map(move |depth| Point { connections: *connections, request, depth: *depth })
            })
        })
    }
}

/// All that is measured on one path.
pub(super) struct Contest {
    pub(super) route: Route,
    pub(super) defaults: Cell,
    pub(super) open_iscsi: Cell,
    /// `lunette tune` finds settings, and these are measured as the others are.
    pub(super) tuner: Cell,
    grid: Vec<(Point, Cell)>,
}

impl Contest {
    pub(super) fn new(route: Route, size: Size) -> Self {
        let grid = Grid::of(size);
        let of = |client: String| Cell {
            link: route.link(),
            serve: format!("RUST_LOG=error lunette serve {DISK} --listen $LAB_ADDRESS:{PORT} >/dev/null"),
            port: PORT,
            client,
            read: read_bench,
        };
        let times = grid.times;
        let tuned = format!(
            "found=$(lunette tune {} --time {} --json) && \
             of() {{ printf %s \"$found\" | sed -n \"s/.*\\\"$1\\\":\\\"\\([^\\\"]*\\)\\\".*/\\1/p\"; }} && \
             keys=$(of url_parameters) && {}",
            url(""),
            times.tuner,
            bench("'${keys:+?$keys}'", "$(of arguments)", times),
        );
        Self {
            route,
            defaults: of(bench("", DEFAULTS, times)),
            open_iscsi: of(bench(OPEN_ISCSI_KEYS, OPEN_ISCSI_LOAD, times)),
            tuner: of(tuned),
            grid: grid
                .points()
                .map(|point| {
                    let Point { connections, request, depth } = point;
                    let load = format!("--bs {request} --depth {depth}");
                    (point, of(bench(&format!("?max_connections={connections}"), &load, times)))
                })
                .collect(),
        }
    }

    /// Everything, for the first round.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        let named = [&self.defaults, &self.open_iscsi, &self.tuner];
        named.into_iter().chain(self.grid.iter().map(|(_, cell)| cell)).cloned()
    }

    /// What the verdicts compare: the named ones, and those of the grid that were best in the first round.
    pub(super) fn compared(&self, results: &Results) -> Vec<Cell> {
        const CANDIDATES: usize = 2;
        let mut best: Vec<(f64, &Cell)> =
            self.grid.iter().map(|(_, cell)| (rate(results, cell).map_or(0.0, |rate| rate.median), cell)).collect();
        best.sort_by(|one, other| other.0.total_cmp(&one.0));
        let best = best.into_iter().take(CANDIDATES).map(|(_, cell)| cell);
        [&self.defaults, &self.open_iscsi, &self.tuner].into_iter().chain(best).cloned().collect()
    }

    /// The best of the exhaustive search, with its name. Of those that ran more than once if there are any.
    pub(super) fn best(&self, results: &Results) -> Option<(String, Spread)> {
        let runs = |cell: &Cell| results.runs(cell).len();
        let most = self.grid.iter().map(|(_, cell)| runs(cell)).max()?;
        let measured = self.grid.iter().filter(|(_, cell)| runs(cell) == most);
        let rates = measured.filter_map(|(point, cell)| Some((point.to_string(), rate(results, cell)?)));
        rates.max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median))
    }
}

/// The rate of a cell over its runs.
pub(super) fn rate(results: &Results, cell: &Cell) -> Option<Spread> {
    Spread::of_figure(results.runs(cell), MB_PER_S)
}

fn url(parameters: &str) -> String {
    format!("'iscsi://'$LAB_PEER'/iqn.2026-11.lunette:disk/0{parameters}'")
}

fn bench(parameters: &str, load: &str, times: Times) -> String {
    let Times { warm_up, measured, .. } = times;
    format!("lunette bench {} --rw read {load} --warm-up {warm_up} --time {measured} --json", url(parameters))
}

fn read_bench(output: &str) -> Result<Figures> {
    let line = output.lines().last().unwrap_or_default();
    let found: Value = serde_json::from_str(line).with_context(|| format!("the output is no JSON: {output:?}"))?;
    let rate = found.get("gb_per_s").and_then(Value::as_f64).context("the output has no rate")?;
    Ok(Figures::from([(MB_PER_S.into(), rate * 1e3)]))
}
