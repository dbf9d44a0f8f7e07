//! The results of many runs, for people and for programs.

use std::fmt::Write as _;

use lunette_sim::{FaultKind, GatewayTally, Report, Setup, SetupReport, Tally, Transport, run, run_gateways};
use serde_json::{Value, json};

/// Lines of a trace that a report shows. `--trace` shows all.
const TRACE_LINES: usize = 60;

pub(crate) fn text(report: &Report, seconds: f64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, report, seconds);
    text
}

/// The results of gateways.
pub(crate) fn gateways(tally: &GatewayTally, failures: &[(u64, String)], seconds: f64) -> String {
    let GatewayTally { runs, good, other, sent_again, faults, moves, fenced, longest_gap } = tally;
    let mut text = format!(
        "{good} commands good, {other} not, {sent_again} writes sent again; {faults} faults, {moves} times another owner, {fenced} clients fenced, at most {:.1} s without an owner\n\
         {runs} runs of gateways, {} failed, {seconds:.1} s\n",
        longest_gap.as_secs_f64(),
        failures.len(),
    );
    if let Some((seed, why)) = failures.first() {
        let trace = run_gateways(*seed, true).trace;
        let lines: Vec<&str> = trace.lines().collect();
        let _ = writeln!(
            text,
            "\nseed {seed} failed: {why}\n{}",
            lines[lines.len().saturating_sub(TRACE_LINES)..].join("\n")
        );
        let _ = writeln!(text, "all of it: cargo xtask sim --gateways --trace {seed}");
    }
    text
}

fn write_text(text: &mut String, report: &Report, seconds: f64) -> std::fmt::Result {
    let total = report.total();
    for transport in Transport::ALL {
        write_faults(text, report, transport)?;
    }
    writeln!(text, "recoveries")?;
    for (kind, count) in &total.recoveries {
        writeln!(text, "  {kind:26} {count:>10}")?;
    }
    writeln!(text, "commands")?;
    for (end, count) in &total.commands {
        writeln!(text, "  {end:26} {count:>10}")?;
    }
    writeln!(text, "requests and messages")?;
    for (kind, count) in &total.happenings {
        writeln!(text, "  {kind:26} {count:>10}")?;
    }
    writeln!(text, "runs")?;
    for SetupReport { setup, runs, tally, failures } in &report.setups {
        let struck = faults(tally);
        let failed = failures.len();
        writeln!(text, "  {}: {runs} runs, {struck} faults, {failed} failed", name(*setup))?;
    }
    let runs: u64 = report.setups.iter().map(|setup| setup.runs).sum();
    let failed: usize = report.setups.iter().map(|setup| setup.failures.len()).sum();
    let mib = total.bytes >> 20;
    writeln!(text, "{runs} runs, {failed} failed, {mib} MiB, {seconds:.1} s")?;
    if let Some((setup, failure)) = report.first_failure() {
        let Setup { transport, level, connections } = setup;
        let seed = failure.seed;
        writeln!(text, "\nseed {seed} failed: {}", failure.why)?;
        writeln!(text, "{}", last_lines(setup, seed))?;
        let transport = transport.word();
        let words = format!("--transport {transport} --level {level} --connections {connections} --trace {seed}");
        writeln!(text, "all of it: cargo xtask sim {words}")?;
    }
    Ok(())
}

/// The faults of one transport, when there were sessions over it.
fn write_faults(text: &mut String, report: &Report, transport: Transport) -> std::fmt::Result {
    let total = report.total_over(transport);
    if report.setups.iter().all(|setup| setup.setup.transport != transport) {
        return Ok(());
    }
    let title = format!("faults of {}", transport.word());
    writeln!(text, "{title:28} {:>10} {:>12}", "to target", "to initiator")?;
    for kind in FaultKind::of(transport) {
        let [to_target, to_initiator] = total.faults.get(kind.name()).copied().unwrap_or_default();
        writeln!(text, "  {:26} {to_target:>10} {to_initiator:>12}", kind.name())?;
    }
    Ok(())
}

fn name(Setup { transport, level, connections }: Setup) -> String {
    match transport {
        Transport::Tcp => format!("level {level}, {connections} connections"),
        Transport::Tls => format!("TLS, level {level}, {connections} connections"),
        Transport::Ecl => "datagrams".to_owned(),
    }
}

fn faults(tally: &Tally) -> u64 {
    tally.faults.values().flatten().sum()
}

/// The end of a run, done again with a journal. One that panics leaves none.
fn last_lines(setup: Setup, seed: u64) -> String {
    let trace = std::panic::catch_unwind(|| run(setup, seed, true)).ok().and_then(|run| run.trace).unwrap_or_default();
    let lines: Vec<&str> = trace.lines().collect();
    lines[lines.len().saturating_sub(TRACE_LINES)..].join("\n")
}

pub(crate) fn json(report: &Report, seconds: f64) -> Value {
    let setups: Vec<Value> = report.setups.iter().map(setup_json).collect();
    json!({ "seconds": seconds, "total": tally_json(&report.total()), "setups": setups })
}

fn setup_json(report: &SetupReport) -> Value {
    let failures: Vec<Value> =
        report.failures.iter().map(|failure| json!({ "seed": failure.seed, "why": failure.why })).collect();
    json!({
        "transport": report.setup.transport.word(),
        "level": report.setup.level,
        "connections": report.setup.connections,
        "runs": report.runs,
        "counts": tally_json(&report.tally),
        "failures": failures,
    })
}

fn tally_json(tally: &Tally) -> Value {
    let faults: serde_json::Map<String, Value> = tally
        .faults
        .iter()
        .map(|(name, [to_target, to_initiator])| {
            ((*name).to_owned(), json!({ "to_target": to_target, "to_initiator": to_initiator }))
        })
        .collect();
    json!({
        "faults": faults,
        "recoveries": tally.recoveries,
        "commands": tally.commands,
        "happenings": tally.happenings,
        "bytes": tally.bytes,
    })
}
