//! The numbers of a server in the text format of Prometheus. docs/monitoring.md has the list of metrics.
//!
//! [`Snapshot::take`] reads the counters that log pages and SIGUSR1 read too, [`render`] is a pure function of it. The
//! format is written here and not by a library: prometheus-client writes OpenMetrics, which the checks of promtool do
//! not read.

mod certificates;
mod process;
mod reload;
mod snapshot;
mod text;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lunette_api::jobs::{JobKind, JobState};
use lunette_device::{CommandKind, InitiatorBytes, LATENCY_BOUNDS, STORE_FAILURES, UnitCounts};
use lunette_scsi::SenseKey;
use lunette_scsi::persistent::ReservationType;
use lunette_scsi::port_groups::AccessState;
use lunette_target::{LoginCounts, Statistics};

pub(crate) use reload::{Reload, note_reload};
use snapshot::SessionLabels;
pub(crate) use snapshot::{LunNumbers, Snapshot, TargetNumbers};
use text::{Label, Text, Type};

/// Logical units that have metrics of their own. One has some 15 lines, and 17 more for each kind of command that it
/// has seen.
const MAX_LUNS: usize = 4096;

/// Sessions that metrics tell about, when all differ.
const MAX_SESSIONS: usize = 1024;

/// Initiators that have metrics of their own; the others of a target are one, `other`.
const MAX_INITIATORS: usize = 256;

/// Troubles that metrics tell one by one. Their number counts all.
const MAX_TROUBLES: usize = 1024;

/// The metrics as text.
pub(crate) fn render(snapshot: &Snapshot) -> String {
    let mut text = Text::default();
    server(&mut text, snapshot);
    sessions(&mut text, snapshot);
    luns(&mut text, snapshot);
    initiators(&mut text, &snapshot.targets);
    event_loops(&mut text, snapshot);
    process(&mut text, snapshot);
    text.into_string()
}

/// A metric with one value and no label.
fn single(text: &mut Text, name: &str, kind: Type, help: &str, value: impl std::fmt::Display) {
    text.begin(name, kind, help);
    text.sample(name, &[], value);
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn server(text: &mut Text, snapshot: &Snapshot) {
    let name = "lunette_build_info";
    text.begin(name, Type::Gauge, "The version of this program. The value is 1.");
    text.sample(name, &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    if let Some(Reload { is_successful, last_success }) = snapshot.reload {
        let (name, help) =
            ("lunette_config_last_reload_successful", "Whether the configuration was applied when it was read last.");
        single(text, name, Type::Gauge, help, u8::from(is_successful));
        let help = "When the configuration was read and applied last, in seconds since 1970.";
        let name = "lunette_config_last_reload_success_timestamp_seconds";
        single(text, name, Type::Gauge, help, seconds(last_success));
    }
    troubles(text, snapshot);
    jobs(text, snapshot);
    certificates::certificates(text, &snapshot.certificates);
    volumes::volumes(text, &snapshot.volumes);
}

fn troubles(text: &mut Text, snapshot: &Snapshot) {
    let help = "Objects that are not served as the configuration says.";
    single(text, "lunette_troubles", Type::Gauge, help, snapshot.troubles.len());
    let name = "lunette_trouble_info";
    text.begin(name, Type::Gauge, "An object that is not served as the configuration says. The value is 1.");
    for trouble in snapshot.troubles.iter().take(MAX_TROUBLES) {
        let target = trouble.target.as_deref().unwrap_or_default();
        let labels: [Label<'_>; 4] =
            [("kind", &trouble.kind), ("name", &trouble.name), ("target", &target), ("cause", &trouble.cause.code())];
        text.sample(name, &labels, 1);
    }
}

fn jobs(text: &mut Text, snapshot: &Snapshot) {
    let name = "lunette_jobs";
    text.begin(name, Type::Gauge, "Jobs that the server keeps, by their states.");
    for (kind, state) in JobKind::ALL.into_iter().flat_map(|kind| JobState::ALL.map(|state| (kind, state))) {
        let count = snapshot.jobs.iter().filter(|job| (job.kind, job.state) == (kind, state)).count();
        text.sample(name, &[("kind", &kind), ("state", &state)], count);
    }
}

fn sessions(text: &mut Text, snapshot: &Snapshot) {
    let name = "lunette_sessions";
    text.begin(name, Type::Gauge, "Sessions of a target.");
    for target in &snapshot.targets {
        text.sample(name, &[("target", &target.name)], target.sessions);
    }
    session_infos(text, snapshot);
    let total =
        |number: fn(&Statistics) -> u64| snapshot.cores.iter().map(|core| number(&core.statistics)).sum::<u64>();
    let help = "Connections of all targets, with those that log in.";
    single(text, "lunette_connections", Type::Gauge, help, total(|s| s.connections as u64));
    let name = "lunette_logins_total";
    text.begin(name, Type::Counter, "Logins by how they ended. The target is empty where it is not known.");
    let unknown = LoginCounts::default();
    let of_unknown = (!snapshot.logins.contains_key("")).then_some(("", &unknown));
    for (target, logins) in of_unknown.into_iter().chain(snapshot.logins.iter().map(|(name, logins)| (&**name, logins)))
    {
        for LoginResult(result, count) in LOGIN_RESULTS {
            text.sample(name, &[("target", &target), ("result", &result)], count(logins));
        }
    }
    let name = "lunette_digest_errors_total";
    text.begin(name, Type::Counter, "Received PDUs with a wrong digest, by the part that it covers.");
    text.sample(name, &[("part", &"header")], total(|s| s.traffic.header_digest_errors));
    text.sample(name, &[("part", &"data")], total(|s| s.traffic.data_digest_errors));
    let name = "lunette_task_management_total";
    text.begin(name, Type::Counter, "Requests for task management functions.");
    for (number, function) in FUNCTIONS {
        let count: u64 = snapshot.cores.iter().map(|core| core.statistics.task_management[number]).sum();
        text.sample(name, &[("function", &function)], count);
    }
}

fn session_infos(text: &mut Text, snapshot: &Snapshot) {
    let name = "lunette_session_info";
    text.begin(
        name,
        Type::Gauge,
        "What was negotiated, of a session of a target. The value is the number of such sessions.",
    );
    for (of, count) in snapshot.sessions.iter().take(MAX_SESSIONS) {
        let SessionLabels { target, initiator, address, header_digest, data_digest, level } = of;
        let labels: [Label<'_>; 6] = [
            ("target", target),
            ("initiator", initiator),
            ("address", address),
            ("header_digest", header_digest),
            ("data_digest", data_digest),
            ("level", level),
        ];
        text.sample(name, &labels, count);
    }
    let left_out: usize = snapshot.sessions.values().skip(MAX_SESSIONS).sum();
    let help = "Sessions that lunette_session_info leaves out, because there are too many.";
    single(text, "lunette_sessions_left_out", Type::Gauge, help, left_out);
}

/// An end of logins, and how many there were.
struct LoginResult(&'static str, fn(&LoginCounts) -> u64);

const LOGIN_RESULTS: [LoginResult; 3] = [
    LoginResult("accepted", |logins| logins.accepted),
    LoginResult("refused", |logins| logins.refused),
    LoginResult("failed", |logins| logins.failed),
];

/// Task management functions by their number (RFC 7143 section 11.5.1, RFC 7144).
const FUNCTIONS: [(usize, &str); 12] = [
    (1, "abort_task"),
    (2, "abort_task_set"),
    (3, "clear_aca"),
    (4, "clear_task_set"),
    (5, "logical_unit_reset"),
    (6, "target_warm_reset"),
    (7, "target_cold_reset"),
    (8, "task_reassign"),
    (9, "query_task"),
    (10, "query_task_set"),
    (11, "i_t_nexus_reset"),
    (12, "query_asynchronous_event"),
];

const KINDS: [(CommandKind, &str); 5] = [
    (CommandKind::Read, "read"),
    (CommandKind::Write, "write"),
    (CommandKind::Unmap, "unmap"),
    (CommandKind::Flush, "flush"),
    (CommandKind::Other, "other"),
];

/// Sense keys (SPC-5 table 48) that this target sends.
const SENSE_KEYS: [(SenseKey, &str); 9] = [
    (SenseKey::NOT_READY, "not_ready"),
    (SenseKey::MEDIUM_ERROR, "medium_error"),
    (SenseKey::HARDWARE_ERROR, "hardware_error"),
    (SenseKey::ILLEGAL_REQUEST, "illegal_request"),
    (SenseKey::UNIT_ATTENTION, "unit_attention"),
    (SenseKey::DATA_PROTECT, "data_protect"),
    (SenseKey::COPY_ABORTED, "copy_aborted"),
    (SenseKey::ABORTED_COMMAND, "aborted_command"),
    (SenseKey::MISCOMPARE, "miscompare"),
];

/// A metric with one value for each logical unit.
struct OfLun(&'static str, Type, &'static str, fn(&LunNumbers) -> Option<u64>);

const OF_LUN: [OfLun; 7] = [
    OfLun("lunette_lun_size_bytes", Type::Gauge, "Capacity.", |lun| Some(lun.size_bytes)),
    OfLun("lunette_lun_allocated_bytes", Type::Gauge, "Space that the blocks occupy.", |lun| lun.allocated_bytes),
    OfLun("lunette_lun_free_bytes", Type::Gauge, "Space that is left below the store, for all that use it.", |lun| {
        lun.free_bytes
    }),
    OfLun("lunette_lun_read_bytes_total", Type::Counter, "Bytes that commands returned to initiators.", |lun| {
        Some(lun.counts.read_bytes())
    }),
    OfLun("lunette_lun_written_bytes_total", Type::Counter, "Bytes that commands took from initiators.", |lun| {
        Some(lun.counts.written_bytes())
    }),
    OfLun("lunette_lun_in_flight", Type::Gauge, "Commands that have begun and not ended.", |lun| {
        Some(lun.counts.in_flight())
    }),
    OfLun("lunette_lun_aborted_commands_total", Type::Counter, "Commands that ended without a response.", |lun| {
        Some(lun.counts.aborted())
    }),
];

fn luns(text: &mut Text, snapshot: &Snapshot) {
    let all = || snapshot.targets.iter().flat_map(|target| target.luns.iter().map(move |lun| (&target.name, lun)));
    let luns: Vec<_> = all().take(MAX_LUNS).collect();
    let help = "Logical units without metrics of their own, because there are too many.";
    single(text, "lunette_luns_left_out", Type::Gauge, help, all().count() - luns.len());
    let name = "lunette_lun_info";
    text.begin(name, Type::Gauge, "What a logical unit is. The value is 1.");
    for (target, lun) in &luns {
        let of_lun: [Label<'_>; 4] =
            [("target", target), ("lun", &lun.lun), ("serial", &lun.serial), ("block_size", &lun.block_size)];
        text.sample(name, &of_lun, 1);
    }
    for OfLun(name, kind, help, value) in OF_LUN {
        text.begin(name, kind, help);
        for (target, lun) in &luns {
            if let Some(value) = value(lun) {
                text.sample(name, &[("target", target), ("lun", &lun.lun)], value);
            }
        }
    }
    let name = "lunette_lun_reserved";
    text.begin(name, Type::Gauge, "A persistent reservation that is held. The value is 1.");
    for (target, lun) in &luns {
        if let Some(reservation) = lun.reservation {
            text.sample(name, &[("target", target), ("lun", &lun.lun), ("type", &reservation_name(reservation))], 1);
        }
    }
    access_states(text, &luns);
    let name = "lunette_lun_commands_total";
    text.begin(name, Type::Counter, "Commands that ended with a response.");
    for (target, lun) in &luns {
        for (kind, op) in KINDS {
            text.sample(name, &[("target", target), ("lun", &lun.lun), ("op", &op)], lun.counts.commands(kind));
        }
    }
    let name = "lunette_lun_errors_total";
    let help = "Commands that ended with an error, by sense key or, where there is none, by status.";
    text.begin(name, Type::Counter, help);
    for (target, lun) in &luns {
        for (sense, count) in errors(&lun.counts) {
            text.sample(name, &[("target", target), ("lun", &lun.lun), ("sense", &sense)], count);
        }
    }
    let name = "lunette_lun_store_failures_total";
    text.begin(name, Type::Counter, "Requests that a file, device or other store has failed, by the kind of failure.");
    for (target, lun) in &luns {
        for (failure, count) in STORE_FAILURES.iter().zip(lun.store_failures).filter(|(_, count)| *count > 0) {
            text.sample(name, &[("target", target), ("lun", &lun.lun), ("failure", failure)], count);
        }
    }
    let name = "lunette_lun_command_duration_seconds";
    text.begin(
        name,
        Type::Histogram,
        "The time from the moment at which a command was decoded until its answer was queued.",
    );
    for (target, lun) in &luns {
        for (kind, op) in KINDS {
            histogram(text, name, &[("target", target), ("lun", &lun.lun), ("op", &op)], &lun.counts, kind);
        }
    }
}

fn access_states(text: &mut Text, luns: &[(&Arc<str>, &LunNumbers)]) {
    let name = "lunette_lun_access_state";
    text.begin(name, Type::Gauge, "The access state of a logical unit through a target port group. The value is 1.");
    for (target, lun) in luns {
        for (group, state) in &lun.access {
            let labels: [Label<'_>; 4] =
                [("target", target), ("lun", &lun.lun), ("group", group), ("state", &access_name(*state))];
            text.sample(name, &labels, 1);
        }
    }
}

fn access_name(state: AccessState) -> &'static str {
    match state {
        AccessState::ActiveOptimized => "active_optimized",
        AccessState::ActiveNonOptimized => "active_non_optimized",
        AccessState::Standby => "standby",
        AccessState::Unavailable => "unavailable",
        AccessState::Offline => "offline",
        AccessState::Transitioning => "transitioning",
    }
}

fn errors(counts: &UnitCounts) -> impl Iterator<Item = (&'static str, u64)> {
    let of_keys = SENSE_KEYS.into_iter().map(|(key, name)| (name, counts.errors(key)));
    let of_statuses =
        [("reservation_conflict", counts.reservation_conflicts()), ("task_set_full", counts.task_set_full())];
    of_keys.chain(of_statuses).filter(|(_, count)| *count > 0)
}

/// A histogram, unless nothing is in it.
fn histogram(text: &mut Text, name: &str, labels: &[Label<'_>], counts: &UnitCounts, kind: CommandKind) {
    let latencies = counts.latencies(kind);
    if latencies.iter().all(|count| *count == 0) {
        return;
    }
    let (bucket, mut below) = (format!("{name}_bucket"), 0);
    let bounds = LATENCY_BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string());
    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(latencies) {
        below += count;
        text.sample(&bucket, &[labels, &[("le", &bound)]].concat(), below);
    }
    text.sample(&format!("{name}_sum"), labels, counts.total_latency(kind).as_secs_f64());
    text.sample(&format!("{name}_count"), labels, below);
}

fn reservation_name(reservation: ReservationType) -> &'static str {
    match reservation {
        ReservationType::WriteExclusive => "write_exclusive",
        ReservationType::ExclusiveAccess => "exclusive_access",
        ReservationType::WriteExclusiveRegistrantsOnly => "write_exclusive_registrants_only",
        ReservationType::ExclusiveAccessRegistrantsOnly => "exclusive_access_registrants_only",
        ReservationType::WriteExclusiveAllRegistrants => "write_exclusive_all_registrants",
        ReservationType::ExclusiveAccessAllRegistrants => "exclusive_access_all_registrants",
    }
}

/// A metric with one value for each initiator of a target.
struct OfInitiator(&'static str, &'static str, fn(&InitiatorBytes) -> u64);

const OF_INITIATOR: [OfInitiator; 2] = [
    OfInitiator("lunette_initiator_read_bytes_total", "Bytes that an initiator has read.", |bytes| bytes.read_bytes),
    OfInitiator("lunette_initiator_written_bytes_total", "Bytes that an initiator has written.", |bytes| {
        bytes.written_bytes
    }),
];

fn initiators(text: &mut Text, targets: &[TargetNumbers]) {
    let mut left = MAX_INITIATORS;
    let bounded: Vec<_> = targets.iter().map(|target| (&target.name, bound(&target.initiators, &mut left))).collect();
    if bounded.iter().all(|(_, initiators)| initiators.is_empty()) {
        return;
    }
    for OfInitiator(name, help, value) in OF_INITIATOR {
        text.begin(name, Type::Counter, help);
        for (target, initiators) in &bounded {
            for (initiator, bytes) in initiators {
                text.sample(name, &[("target", target), ("initiator", initiator)], value(bytes));
            }
        }
    }
}

/// The initiators of a target under their names, as long as names are `left`, and all others as one.
fn bound(all: &BTreeMap<Arc<str>, InitiatorBytes>, left: &mut usize) -> BTreeMap<Arc<str>, InitiatorBytes> {
    let mut bounded = BTreeMap::<Arc<str>, InitiatorBytes>::new();
    for (initiator, bytes) in all {
        let has_name = !initiator.is_empty() && *left > 0;
        *left -= usize::from(has_name);
        let sum = bounded.entry(if has_name { Arc::clone(initiator) } else { "other".into() }).or_default();
        sum.read_bytes += bytes.read_bytes;
        sum.written_bytes += bytes.written_bytes;
    }
    bounded
}

/// A metric with one value for each core.
struct OfCore(&'static str, Type, &'static str, fn(&Statistics) -> u64);

const OF_CORE: [OfCore; 9] = [
    OfCore("lunette_commands", Type::Gauge, "Commands under way.", |s| s.tasks as u64),
    OfCore("lunette_buffer_bytes", Type::Gauge, "Bytes of buffers that hold data in flight.", |s| {
        s.buffer_bytes as u64
    }),
    OfCore("lunette_buffer_limit_bytes", Type::Gauge, "The most bytes of such buffers.", |s| {
        s.buffer_limit_bytes as u64
    }),
    OfCore("lunette_buffer_waits_total", Type::Counter, "How often a command had to wait for a buffer.", |s| {
        s.buffer_waits
    }),
    OfCore("lunette_received_bytes_total", Type::Counter, "Bytes from sockets.", |s| s.event_loop.received_bytes),
    OfCore("lunette_sent_bytes_total", Type::Counter, "Bytes that sockets took.", |s| s.event_loop.sent_bytes),
    OfCore("lunette_received_pdus_total", Type::Counter, "PDUs received.", |s| s.traffic.received_pdus),
    OfCore("lunette_sent_pdus_total", Type::Counter, "PDUs sent.", |s| s.traffic.sent_pdus),
    OfCore("lunette_loop_batches_total", Type::Counter, "Turns of the event loop.", |s| s.event_loop.batches),
];

fn event_loops(text: &mut Text, snapshot: &Snapshot) {
    for OfCore(name, kind, help, value) in OF_CORE {
        text.begin(name, kind, help);
        for (core, numbers) in snapshot.cores.iter().enumerate() {
            text.sample(name, &[("core", &core)], value(&numbers.statistics));
        }
    }
    let (busy, idle) = ("lunette_loop_busy_seconds_total", "lunette_loop_idle_seconds_total");
    text.begin(busy, Type::Counter, "CPU time of the thread of a core.");
    for (core, numbers) in snapshot.cores.iter().enumerate() {
        text.sample(busy, &[("core", &core)], numbers.busy.as_secs_f64());
    }
    text.begin(idle, Type::Counter, "The time in which the thread of a core used no CPU.");
    for (core, numbers) in snapshot.cores.iter().enumerate() {
        text.sample(idle, &[("core", &core)], snapshot.uptime.saturating_sub(numbers.busy).as_secs_f64());
    }
}

fn process(text: &mut Text, snapshot: &Snapshot) {
    let process = &snapshot.process;
    let help = "CPU time of the process.";
    single(text, "process_cpu_seconds_total", Type::Counter, help, process.cpu_time.as_secs_f64());
    let help = "Memory of the process that is in RAM.";
    single(text, "process_resident_memory_bytes", Type::Gauge, help, process.resident_bytes);
    let help = "Address space of the process.";
    single(text, "process_virtual_memory_bytes", Type::Gauge, help, process.virtual_bytes);
    single(text, "process_open_fds", Type::Gauge, "Open file descriptors.", process.open_descriptors);
    if let Some(most) = process.max_descriptors {
        single(text, "process_max_fds", Type::Gauge, "The most file descriptors that may be open.", most);
    }
    let help = "When the process started, in seconds since 1970.";
    single(text, "process_start_time_seconds", Type::Gauge, help, process.start_time.as_secs_f64());
}

#[cfg(test)]
mod tests;
