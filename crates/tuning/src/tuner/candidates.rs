//! Settings that are worth a trial.

use super::{Candidate, Rates, Survey, Trial};
use crate::search::Bounds;
use crate::settings::Settings;
use crate::tcp;

/// Requests that the wide trial has in flight for each one that the defaults filled.
const WIDE: f64 = 16.0;

/// The least that the wide trial has in flight, in bytes.
const MIN_WIDE_BYTES: u64 = 1 << 20;

/// The longest round trip that the system adds by itself, in seconds: a path without distance has some, too.
const HOST_DELAY_S: f64 = 1e-3;

/// The share of what requests in flight allow that is carried when they are the limit.
const REQUESTS_LIMIT: f64 = 0.6;

/// The share of what buffers allow that is carried when they are the limit. The system's accounts of a buffer vary by a
/// factor of two.
const BUFFER_LIMIT: f64 = 0.4;

/// Lengths of requests that are tried.
const REQUEST_LENS: std::ops::RangeInclusive<u64> = 64 << 10..=4 << 20;

/// All connections that both sides allow, and many times what the defaults had in flight.
///
/// It grows with what the defaults carried, because a slow line would need minutes to send what fills a fast one.
pub(super) fn wide(survey: &Survey, defaults: &Candidate, measured: &Rates) -> Candidate {
    let bounds = &survey.bounds;
    let filled = measured.most() * (survey.path.round_trip.as_secs_f64() + HOST_DELAY_S);
    let bytes = ((WIDE * filled) as u64).clamp(MIN_WIDE_BYTES, bounds.max_in_flight_bytes.max(MIN_WIDE_BYTES));
    let connections = bounds.max_connections.max(1);
    let share = (bytes / (4 * u64::from(connections))).next_power_of_two();
    let share = share.min(1 << 20).clamp(*REQUEST_LENS.start(), longest(bounds));
    let request_len = bounds.request_len.unwrap_or(bounds.whole_blocks(share));
    let depth = u32::try_from(bytes / request_len.max(1)).unwrap_or(u32::MAX).max(2 * connections);
    let settings = Settings {
        request_len,
        depth: depth.clamp(1, survey.target.command_window.max(1)),
        connections,
        ..bounds.keys()
    };
    Candidate { settings, finds_depth: false, ..*defaults }
}

/// The longest request that is tried.
fn longest(bounds: &Bounds) -> u64 {
    bounds.max_request_len.clamp(*REQUEST_LENS.start(), *REQUEST_LENS.end())
}

/// Settings that differ from the best in one respect: first those that may carry more, then those that take less.
pub(super) fn neighbours(survey: &Survey, best: &Trial, with_writes: bool) -> Vec<Candidate> {
    let Survey { target, bounds, congestion, .. } = survey;
    let now = best.candidate.settings;
    let of = |settings: Settings| Candidate { settings, finds_depth: false, ..best.candidate };
    let possible =
        |all: Vec<Settings>| all.into_iter().filter(|settings| is_possible(survey, &now, settings)).map(of).collect();
    let with_depth = |depth: u32| Settings { depth: depth.min(target.command_window), ..now };
    // Each connection needs some requests of its own.
    let connections = now.connections * 2;
    let mut more = vec![
        Settings { connections, ..with_depth(now.depth.max(2 * connections)) },
        with_depth(now.depth.saturating_mul(2)),
        Settings { request_len: bounds.whole_blocks(now.request_len * 2), ..now },
    ];
    if is_limited_by_its_requests(survey, best) {
        let Settings { depth, request_len, .. } = now;
        more.insert(0, Settings { request_len: bounds.whole_blocks(request_len * 4), ..now });
        more.insert(
            0,
            Settings { request_len: bounds.whole_blocks(request_len * 2), ..with_depth(depth.saturating_mul(2)) },
        );
        more.insert(0, with_depth(depth.saturating_mul(4)));
    }
    let less = vec![
        Settings { connections: now.connections / 2, ..now },
        Settings { depth: now.depth / 2, ..now },
        Settings { request_len: bounds.whole_blocks(now.request_len / 2), depth: now.depth.saturating_mul(2), ..now },
    ];
    let others = congestion.iter().filter(|_| with_writes);
    let others = others.map(|control| Candidate { congestion: Some(*control), ..best.candidate }).collect();
    let buffers =
        if is_limited_by_buffers(survey, best) { greater_buffers(survey, best, with_writes) } else { Vec::new() };
    let all: [Vec<Candidate>; 4] = [buffers, possible(more), others, possible(less)];
    all.into_iter().flatten().collect()
}

fn is_possible(survey: &Survey, now: &Settings, settings: &Settings) -> bool {
    let Survey { target, bounds, .. } = survey;
    let in_flight = |settings: &Settings| u64::from(settings.depth) * settings.request_len;
    let len = settings.request_len;
    // Whole blocks may be a little less than the shortest length.
    let least = bounds.whole_blocks(*REQUEST_LENS.start());
    let is_choice = (least..=*REQUEST_LENS.end()).contains(&len) && len.is_multiple_of(bounds.block_len.max(1));
    let may_have_len = bounds.request_len.map_or(is_choice, |given| given == len);
    (1..=bounds.max_connections).contains(&settings.connections)
        && (1..=target.command_window).contains(&settings.depth)
        && in_flight(settings) <= bounds.max_in_flight_bytes.max(in_flight(now))
        && may_have_len
        && len <= bounds.max_request_len
}

/// Whether a trial carried about as much as its requests let be in flight, so that more of them carry more.
fn is_limited_by_its_requests(survey: &Survey, trial: &Trial) -> bool {
    let settings = &trial.candidate.settings;
    let round_trip = survey.path.round_trip.as_secs_f64() + HOST_DELAY_S;
    let at_most = f64::from(settings.depth) * settings.request_len as f64 / round_trip;
    !trial.candidate.finds_depth && trial.rates.is_some_and(|rates| rates.most() > REQUESTS_LIMIT * at_most)
}

/// Whether a trial carried about as much as the system's buffers let be on the way.
fn is_limited_by_buffers(survey: &Survey, trial: &Trial) -> bool {
    let connections = f64::from(trial.candidate.settings.connections.max(1));
    let at_most = connections * tcp::connection_rate(&survey.path);
    trial.rates.is_some_and(|rates| rates.most() > BUFFER_LIMIT * at_most)
}

/// The settings with the buffers that the system does not give by itself.
fn greater_buffers(survey: &Survey, best: &Trial, with_writes: bool) -> Vec<Candidate> {
    let now = best.candidate;
    let send = survey.greater_send_buffer_bytes.filter(|_| with_writes);
    let receive = survey.greater_receive_buffer_bytes;
    let send = send.map(|bytes| Candidate { send_buffer_bytes: Some(bytes), ..now });
    let receive = receive.map(|bytes| Candidate { receive_buffer_bytes: Some(bytes), ..now });
    send.into_iter().chain(receive).collect()
}
