//! The measurements of a path.

use std::time::Duration;

use anyhow::{Context, Result};
use lunette_tuning::{Settings, Target, Transfer, predict};
use serde_json::Value;

use super::Size;
use super::route::Route;
use crate::experiment::{Cell, Figures, Results, Spread};

/// The figure of all cells: payload, in 10^6 bytes per second.
pub(super) const MB_PER_S: &str = "mb_per_s";

/// The longest time for which the requests in flight may occupy the path. More in flight than for a second is more than
/// any path of the campaign holds; the closed form for loss may be off by half.
pub(super) const MAX_ROUND: Duration = Duration::from_secs(6);
/// A measurement lasts at least this many rounds of the requests in flight: `lunette bench` counts whole ones after the
/// warm-up.
const ROUNDS: u32 = 3;
/// MaxRecvDataSegmentLength of this project's initiator.
const SEGMENT_LEN: u64 = 256 << 10;

const PORT: u16 = 3260;
const DISK: &str = "mem:256M";

/// The defaults of `lunette cp`.
const DEFAULTS: &str = "--bs 256K";

/// The offer of open-iscsi 2.1 unless it is configured, and the queue depth of its disks. Requests of 64 KiB are what
/// the systems of `wan`'s paper sent at most.
const OPEN_ISCSI_KEYS: &str = "?initial_r2t=no&immediate_data=yes&first_burst_length=262144&max_burst_length=16776192\
                               &max_recv_data_segment_length=262144&max_outstanding_r2t=1&max_connections=1";
const OPEN_ISCSI_LOAD: &str = "--bs 64K --depth 32";

/// A point of the exhaustive search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    connections: u32,
    request_kib: u64,
    depth: u32,
}

impl Point {
    /// The time that the path takes for all requests in flight, by the closed form.
    fn round(&self, route: &Route) -> Duration {
        let request_len = self.request_kib << 10;
        let settings = Settings {
            request_len,
            depth: self.depth,
            connections: self.connections,
            max_data_segment_len: SEGMENT_LEN,
            ..Settings::default()
        };
        let rate = predict(&route.path(), &Target::default(), &settings, Transfer::Read).bytes_per_second;
        #[expect(clippy::cast_precision_loss, reason = "lengths below 2^52")]
        let in_flight = (request_len * u64::from(self.depth)) as f64;
        Duration::try_from_secs_f64(in_flight / rate).unwrap_or(Duration::MAX)
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} × {} KiB over {}", self.depth, self.request_kib, self.connections)
    }
}

/// The settings that are tried exhaustively.
struct Grid {
    connections: &'static [u32],
    requests_kib: &'static [u64],
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
                requests_kib: &[64, 256, 1024],
                depths: &[8, 32, 128],
                times: Times { warm_up: 2.0, measured: 4, tuner: 60 },
            },
            Size::Quick => Self {
                connections: &[1, 4, 8],
                requests_kib: &[64, 1024],
                depths: &[32, 128],
                times: Times { warm_up: 1.5, measured: 3, tuner: 20 },
            },
            Size::Smallest => Self {
                connections: &[1, 8],
                requests_kib: &[1024],
                depths: &[32],
                times: Times { warm_up: 0.5, measured: 1, tuner: 2 },
            },
        }
    }

    fn points(&self) -> impl Iterator<Item = Point> {
        self.connections.iter().flat_map(move |connections| {
            self.requests_kib.iter().flat_map(move |request_kib| {
                self.depths.iter().map(move |depth| Point {
                    connections: *connections,
                    request_kib: *request_kib,
                    depth: *depth,
                })
            })
        })
    }
}

/// All that is measured on one path.
pub(super) struct Contest {
    pub(super) route: Route,
    pub(super) defaults: Cell,
    pub(super) open_iscsi: Cell,
    /// `lunette tune` finds settings on one link, and these are measured on another one, as the settings of all others
    /// are.
    pub(super) tuner: Cell,
    grid: Vec<(Point, Cell)>,
    /// Points of the grid, with those that the path cannot carry in time.
    points: usize,
}

impl Contest {
    pub(super) fn new(route: Route, size: Size) -> Self {
        let grid = Grid::of(size);
        let of = |client: String| Cell {
            link: route.link(),
            serve: format!("RUST_LOG=error lunette serve {DISK} --listen $LAB_ADDRESS:{PORT} >/dev/null"),
            port: PORT,
            find: None,
            prepare: None,
            client,
            read: read_bench,
        };
        let times = grid.times;
        let find = format!("lunette tune {} --time {} --json", url(""), times.tuner);
        let tuned = format!(
            "of() {{ printf %s \"$FOUND\" | sed -n \"s/.*\\\"$1\\\":\\\"\\([^\\\"]*\\)\\\".*/\\1/p\"; }} && \
             keys=$(of url_parameters) && arguments=$(of arguments) && echo \"$keys $arguments\" && {}",
            bench("'${keys:+?$keys}'", "$arguments", times),
        );
        Self {
            route,
            defaults: of(bench("", DEFAULTS, times)),
            open_iscsi: of(bench(OPEN_ISCSI_KEYS, OPEN_ISCSI_LOAD, times)),
            tuner: Cell { find: Some(find), read: read_tuned, ..of(tuned) },
            points: grid.points().count(),
            grid: grid
                .points()
                .filter(|point| point.round(&route) <= MAX_ROUND)
                .map(|point| {
                    let Point { connections, request_kib, depth } = point;
                    let load = format!("--bs {request_kib}K --depth {depth}");
                    let rounds_s = u32::try_from((point.round(&route) * ROUNDS).as_secs()).unwrap_or(u32::MAX - 1) + 1;
                    let times = Times { measured: times.measured.max(rounds_s), ..times };
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

    /// The cells that the verdicts compare: the named ones, and those of the grid that were best in the first round.
    pub(super) fn compared(&self, results: &Results) -> Vec<Cell> {
        const CANDIDATES: usize = 2;
        let mut best: Vec<(f64, &Cell)> =
            self.grid.iter().map(|(_, cell)| (rate(results, cell).map_or(0.0, |rate| rate.median), cell)).collect();
        best.sort_by(|one, other| other.0.total_cmp(&one.0));
        let best = best.into_iter().take(CANDIDATES).map(|(_, cell)| cell);
        [&self.defaults, &self.open_iscsi, &self.tuner].into_iter().chain(best).cloned().collect()
    }

    /// The settings of the grid that were measured, and all that it has.
    pub(super) fn tried(&self, results: &Results) -> (usize, usize) {
        let measured = self.grid.iter().filter(|(_, cell)| rate(results, cell).is_some()).count();
        (measured, self.points)
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

/// The rate, and the settings that it belongs to: connections, and length and number of requests as far as the tuner
/// set them.
fn read_tuned(output: &str) -> Result<Figures> {
    let mut figures = read_bench(output)?;
    let words: Vec<&str> = output.lines().next().unwrap_or_default().split(['&', '=', ' ']).collect();
    for (name, figure) in [("max_connections", "connections"), ("--bs", "request_bytes"), ("--depth", "depth")] {
        let value = words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1));
        figures.extend(value.and_then(|value| value.parse().ok()).map(|value| (figure.to_owned(), value)));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On the link of its search the settings met other losses than the grid's: equal ones seemed to carry .82 to .91
    /// of the best.
    #[test]
    fn the_tuners_settings_are_measured_on_a_link_like_the_others() {
        let contest = Contest::new(Route::FIXED, Size::Full);
        assert!(contest.tuner.find.as_ref().is_some_and(|line| line.starts_with("lunette tune ")));
        assert!(!contest.tuner.client.contains("lunette tune"), "{}", contest.tuner.client);
        assert!(contest.cells().all(|cell| cell.link == contest.tuner.link));
        assert!(contest.grid.iter().all(|(_, cell)| cell.find.is_none()));
    }

    #[test]
    fn the_settings_that_were_found_are_kept_beside_their_rate() {
        let figures = |first: &str| read_tuned(&format!("{first}\n{{\"gb_per_s\":0.5}}\n")).expect("a rate");
        let names = |figures: &Figures| figures.keys().cloned().collect::<Vec<_>>();
        let all = figures("max_connections=8&receive_buffer=4M --bs 262144 --depth 44");
        assert_eq!(names(&all), ["connections", "depth", MB_PER_S, "request_bytes"]);
        assert!((all["depth"] - 44.0).abs() < 1e-9 && (all[MB_PER_S] - 500.0).abs() < 1e-9, "{all:?}");
        assert_eq!(names(&figures(" --bs 262144")), [MB_PER_S, "request_bytes"]);
    }

    /// Over one connection of this path a round of 128 MiB took 34 seconds, and `lunette bench` gave up after 30.
    #[test]
    fn the_grid_has_no_round_that_outlasts_a_request() {
        let round = |connections, request_kib| Point { connections, request_kib, depth: 128 }.round(&Route::FIXED);
        assert!(round(1, 1024) > MAX_ROUND, "{:?}", round(1, 1024));
        assert!(round(8, 1024) <= MAX_ROUND, "{:?}", round(8, 1024));
        assert!(round(1, 64) <= MAX_ROUND, "{:?}", round(1, 64));
        let contest = Contest::new(Route::FIXED, Size::Full);
        assert!(contest.grid.len() < contest.points);
        assert!(
            contest
                .grid
                .iter()
                .all(|(_, cell)| !cell.client.contains("max_connections=1' --rw read --bs 1024K --depth 128"))
        );
    }
}
