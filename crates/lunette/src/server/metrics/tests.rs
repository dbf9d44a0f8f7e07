use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use lunette_api::jobs::{Job, JobKind, JobOrder, Jobs};
use lunette_api::{Cause, Health, Subject};
use lunette_device::{LogicalUnit, LogicalUnitConfig, TargetDevice};
use lunette_scsi::Lun;
use lunette_store::MemoryStore;

use super::snapshot::CoreNumbers;
use super::*;
use crate::server::certificates::{End, Kind, Use};
use crate::server::volumes::{PoolNumbers, VolumeCounts};

const TARGET: &str = "iqn.2026-11.test:disk";

fn lun(number: u16) -> LunNumbers {
    LunNumbers {
        lun: Lun::new(number).unwrap(),
        serial: format!("serial \"{number}\""),
        block_size: 512,
        size_bytes: 1 << 20,
        allocated_bytes: Some(4096),
        free_bytes: None,
        reservation: Some(ReservationType::WriteExclusive),
        access: vec![(1, AccessState::ActiveOptimized), (2, AccessState::Standby)],
        store_failures: std::array::from_fn(|index| index as u64),
        counts: used_unit().counts(),
    }
}

/// A unit that has read 1024 bytes and refused a command.
fn used_unit() -> Arc<LogicalUnit> {
    use lunette_device::{Command, Input, NexusName, Step};
    let store = Arc::new(MemoryStore::new(1 << 20).unwrap());
    let unit = Arc::new(LogicalUnit::new(LogicalUnitConfig::new(store, "s")).unwrap());
    let device = Arc::new(TargetDevice::new(TARGET));
    device.add(Lun::ZERO, Arc::clone(&unit)).unwrap();
    let (initiator, target_port) = ("iqn.2026-11.host:a,i,0x1".into(), "p".into());
    let nexus = device.attach(NexusName { initiator, target_port, relative_port: 1 });
    let attribute = lunette_scsi::TaskAttribute::Simple;
    let cdb = [0; 16].into();
    let mut task = device.start(&nexus, Command { lun: [0; 8], cdb, attribute, data_out_len: 0, data_in_len: 0 });
    assert!(matches!(task.step(Input::Start), Step::Done(_)), "the unit attention");
    task.took(Duration::from_secs(20));
    let (start, mut cdb) = (std::time::Instant::now(), [0; 16]);
    (cdb[0], cdb[8]) = (0x28, 2);
    let calls = std::cell::Cell::new(0);
    let clock = || start + Duration::from_millis(3) * calls.replace(1);
    assert!(nexus.at_once(clock).read([0; 8], cdb, &mut [0; 1024]));
    unit
}

fn session_of(initiator: &str) -> SessionLabels {
    SessionLabels {
        target: TARGET.into(),
        initiator: initiator.into(),
        address: [192, 0, 2, 1].into(),
        header_digest: "None",
        data_digest: "CRC32C",
        level: 0,
    }
}

fn snapshot() -> Snapshot {
    let initiators = [("iqn.2026-11.host:a", 7), ("", 2)];
    let bytes = |read_bytes| InitiatorBytes { read_bytes, written_bytes: 1 };
    let target = TargetNumbers {
        name: TARGET.into(),
        sessions: 3,
        luns: vec![lun(0), lun(1)],
        initiators: initiators.map(|(name, read)| (name.into(), bytes(read))).into(),
    };
    let logins = LoginCounts { accepted: 5, refused: 1, failed: 0 };
    Snapshot {
        targets: vec![target],
        sessions: [(session_of("iqn.2026-11.host:a"), 2)].into(),
        logins: [(TARGET.into(), logins)].into(),
        cores: vec![CoreNumbers { busy: Duration::from_secs(4), ..CoreNumbers::default() }; 2],
        uptime: Duration::from_secs(10),
        reload: Some(Reload { is_successful: false, last_success: UNIX_EPOCH + Duration::from_secs(1_700_000_000) }),
        troubles: health().troubles_now(),
        jobs: jobs(),
        volumes: VolumeCounts {
            pools: [("tank".parse().unwrap(), PoolNumbers::default())].into(),
            ..VolumeCounts::default()
        },
        certificates: certificates(),
        process: process::Process::default(),
    }
}

fn certificates() -> Vec<End> {
    let end = |kind, file: &str, at_seconds| End { of: Use::Portal, kind, file: file.into(), at_seconds };
    vec![end(Kind::Certificate, "/tls/server-cert.pem", 1_900_000_000), end(Kind::List, "/tls/ca-crl.pem", 7)]
}

/// A job that runs, for ever.
fn jobs() -> Vec<Arc<Job>> {
    let jobs = Jobs::default();
    let order = JobOrder {
        kind: JobKind::Scrub,
        object: "targets/iqn.2026-11.test:disk/luns/0".into(),
        target: Some(TARGET.into()),
        started_by: "a test".into(),
        total_bytes: 1,
    };
    jobs.order(order, std::mem::forget).unwrap();
    jobs.list()
}

fn health() -> Health {
    let health = Health::default();
    health.report(Subject::lun(TARGET, 1), Cause::NotOpened, "no such file");
    health.report(Subject::Portal("192.0.2.1:3260".into()), Cause::NotOpened, "in use");
    health
}

/// The value of the line with this name and these labels.
fn value<'a>(text: &'a str, line: &str) -> &'a str {
    let found = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {line} in\n{text}"))
}

#[test]
fn every_number_has_its_line() {
    let text = render(&snapshot());
    let of_lun = "{target=\"iqn.2026-11.test:disk\",lun=\"1\"";
    for (line, expected) in [
        ("lunette_sessions{target=\"iqn.2026-11.test:disk\"}", "3"),
        ("lunette_logins_total{target=\"iqn.2026-11.test:disk\",result=\"accepted\"}", "5"),
        ("lunette_logins_total{target=\"\",result=\"refused\"}", "0"),
        ("lunette_config_last_reload_successful", "0"),
        ("lunette_jobs{kind=\"scrub\",state=\"running\"}", "1"),
        ("lunette_jobs{kind=\"scrub\",state=\"failed\"}", "0"),
        ("lunette_troubles", "2"),
        (&format!("lunette_trouble_info{{kind=\"lun\",name=\"1\",target=\"{TARGET}\",cause=\"not_opened\"}}"), "1"),
        ("lunette_trouble_info{kind=\"portal\",name=\"192.0.2.1:3260\",target=\"\",cause=\"not_opened\"}", "1"),
        ("lunette_config_last_reload_success_timestamp_seconds", "1700000000"),
        ("lunette_initiator_read_bytes_total{target=\"iqn.2026-11.test:disk\",initiator=\"iqn.2026-11.host:a\"}", "7"),
        ("lunette_initiator_read_bytes_total{target=\"iqn.2026-11.test:disk\",initiator=\"other\"}", "2"),
        ("lunette_loop_busy_seconds_total{core=\"1\"}", "4"),
        ("lunette_loop_idle_seconds_total{core=\"1\"}", "6"),
        (&format!("lunette_lun_read_bytes_total{of_lun}}}"), "1024"),
        (&format!("lunette_lun_commands_total{of_lun},op=\"read\"}}"), "1"),
        (&format!("lunette_lun_commands_total{of_lun},op=\"write\"}}"), "0"),
        (&format!("lunette_lun_errors_total{of_lun},sense=\"unit_attention\"}}"), "1"),
        (&format!("lunette_lun_store_failures_total{of_lun},failure=\"no_space\"}}"), "2"),
        (&format!("lunette_lun_access_state{of_lun},group=\"2\",state=\"standby\"}}"), "1"),
        (
            "lunette_session_info{target=\"iqn.2026-11.test:disk\",initiator=\"iqn.2026-11.host:a\",address=\"192.0.2.1\",header_digest=\"None\",data_digest=\"CRC32C\",level=\"0\"}",
            "2",
        ),
        ("lunette_certificate_expiry_timestamp_seconds{use=\"portal\",file=\"/tls/server-cert.pem\"}", "1900000000"),
        ("lunette_revocation_list_next_update_timestamp_seconds{use=\"portal\",file=\"/tls/ca-crl.pem\"}", "7"),
        ("lunette_commands{core=\"0\"}", "0"),
        (&format!("lunette_lun_reserved{of_lun},type=\"write_exclusive\"}}"), "1"),
        (&format!("lunette_lun_info{of_lun},serial=\"serial \\\"1\\\"\",block_size=\"512\"}}"), "1"),
    ] {
        assert_eq!(value(&text, line), expected, "{line}");
    }
    assert!(!text.contains("lunette_lun_free_bytes{"), "the store does not tell it");
}

#[test]
fn buckets_add_up_what_is_below() {
    let text = render(&snapshot());
    let bucket = |op, bound| {
        let labels = format!("{{target=\"{TARGET}\",lun=\"0\",op=\"{op}\",le=\"{bound}\"}}");
        value(&text, &format!("lunette_lun_command_duration_seconds_bucket{labels}")).to_owned()
    };
    assert_eq!(
        ["0.00005", "0.0025", "0.005", "10", "+Inf"].map(|bound| bucket("read", bound)),
        ["0", "0", "1", "1", "1"]
    );
    assert_eq!(["10", "+Inf"].map(|bound| bucket("other", bound)), ["0", "1"]);
    let sum = |op| {
        value(&text, &format!("lunette_lun_command_duration_seconds_sum{{target=\"{TARGET}\",lun=\"0\",op=\"{op}\"}}"))
    };
    assert_eq!(["read", "other"].map(sum), ["0.003", "20"]);
    assert!(!text.contains("seconds_count{target=\"iqn.2026-11.test:disk\",lun=\"0\",op=\"flush\"}"), "there was none");
}

#[test]
fn names_are_bounded_and_sums_are_whole() {
    let mut snapshot = snapshot();
    let mut target = snapshot.targets.remove(0);
    let one = target.luns.remove(0);
    target.luns = vec![one; MAX_LUNS + 5];
    let bytes = InitiatorBytes { read_bytes: 1, written_bytes: 0 };
    target.initiators = (0..MAX_INITIATORS + 3).map(|at| (format!("iqn.{at:04}").into(), bytes)).collect();
    snapshot.targets = vec![target];
    snapshot.sessions = (0..MAX_SESSIONS + 2).map(|at| (session_of(&format!("iqn.{at:04}")), 2)).collect();
    let text = render(&snapshot);
    assert_eq!(value(&text, "lunette_luns_left_out"), "5");
    assert_eq!(text.matches("lunette_lun_info{").count(), MAX_LUNS);
    assert_eq!(value(&text, "lunette_sessions_left_out"), "4");
    assert_eq!(text.matches("lunette_session_info{").count(), MAX_SESSIONS);
    assert_eq!(text.matches("lunette_initiator_read_bytes_total{").count(), MAX_INITIATORS + 1);
    assert_eq!(
        value(&text, &format!("lunette_initiator_read_bytes_total{{target=\"{TARGET}\",initiator=\"other\"}}")),
        "3"
    );
}

#[test]
fn each_metric_begins_once() {
    let text = render(&snapshot());
    let mut names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

/// Needs Debian's package `prometheus`.
#[test]
fn promtool_finds_nothing_to_improve() {
    let promtool =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut promtool = promtool.expect("install Debian's package prometheus: it has promtool");
    promtool.stdin.take().unwrap().write_all(render(&snapshot()).as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
