//! The report for people.

use indicatif::BinaryBytes;

use super::{LoadRow, PathRow, Report, SettingsRow, TargetRow, TrialRow, VerdictRow};
use crate::commands::tune::explain::count;
use crate::commands::tune::paste;
use crate::commands::tune::units::Rate;
use crate::failure::Failure;
use crate::output;

impl Report {
    pub(super) fn print(&self) -> Result<(), Failure> {
        self.print_survey()?;
        for text in &self.limits {
            output::line(text)?;
        }
        if !self.trials.is_empty() {
            output::line("\ntrials:")?;
        }
        for TrialRow { stage, settings, read, write } in &self.trials {
            let rate = |load: &Option<LoadRow>| load.as_ref().map(|load| Rate(load.bytes_per_second).to_string());
            let read = rate(read).unwrap_or("failed".into());
            let write = rate(write).map(|rate| format!("{rate:>10} written")).unwrap_or_default();
            output::line(format_args!("  {stage:<10} {read:>10} read {write}  {}", settings.words()))?;
        }
        if let Some(verdict) = &self.verdict {
            verdict.print()?;
        }
        paste::print(&self.paste)
    }

    fn print_survey(&self) -> Result<(), Failure> {
        let PathRow { round_trip_us, ping_us, loaded_round_trip_us, mtu, tcp_window_bytes, .. } = &self.path;
        let ms = |us: f64| format!("{:.2} ms", us / 1e3);
        let loaded = loaded_round_trip_us.map(|us| format!(", {} under load", ms(us))).unwrap_or_default();
        output::line(format_args!(
            "path: {} round trip ({} of a ping{loaded}), packets of {mtu} bytes, {} of a connection on the way at most",
            ms(*round_trip_us),
            ms(*ping_us),
            BinaryBytes(*tcp_window_bytes),
        ))?;
        let TargetRow { connections, command_window, commands_per_second, commands_in_flight, command_cost_us, .. } =
            &self.target;
        let cost = command_cost_us.map_or("hidden by the distance".into(), |us| format!("{us:.1} us"));
        output::line(format_args!(
            "target: {} and {} at a time; {commands_per_second:.0} short commands a second with {commands_in_flight} in \
             flight, the time per command is {cost}",
            count(*connections, "connection"),
            count(u32::try_from(*command_window).unwrap_or(u32::MAX), "command"),
        ))
    }
}

impl SettingsRow {
    /// The settings in a few words.
    pub(super) fn words(&self) -> String {
        let depth = self.depth.map_or("as many as it finds".into(), |depth| depth.to_string());
        let control = self.congestion_control.map(|name| format!(", {name}")).unwrap_or_default();
        let (len, connections) = (BinaryBytes(self.request_bytes), count(self.connections, "connection"));
        let buffer = |name: &str, bytes: Option<u32>| {
            bytes.map(|bytes| format!(", {name} buffers of {}", BinaryBytes(bytes.into()))).unwrap_or_default()
        };
        let (send, receive) = (buffer("send", self.send_buffer_bytes), buffer("receive", self.receive_buffer_bytes));
        format!("{depth} × {len} over {connections}{control}{send}{receive}")
    }
}

impl VerdictRow {
    fn print(&self) -> Result<(), Failure> {
        if self.defaults_are_best {
            return output::line("\nThe defaults are best: nothing that was measured is faster by more than 3%.");
        }
        let how = if self.proven { "measured in turns" } else { "not proven: there was no time to measure in turns" };
        output::line(format_args!("\n{}, {how}:", self.settings.words()))?;
        let row = |name: &str, before: f64, after: f64| {
            let (before, after, gain) = (Rate(before), Rate(after), after / before.max(1.0));
            output::line(format_args!("  {name} {before:>10} before, {after:>10} after: {gain:.2} times as much"))
        };
        row("reads ", self.before.read_bytes_per_second, self.after.read_bytes_per_second)?;
        match (self.before.write_bytes_per_second, self.after.write_bytes_per_second) {
            (Some(before), Some(after)) => row("writes", before, after),
            _ => output::line("  writes were not measured (--write); their settings are the model's"),
        }
    }
}
