//! `lunette volume create --take-over`: a volume that is served at once, and gets its content in the background.

use std::io::{IsTerminal, stderr};
use std::path::absolute;
use std::thread;
use std::time::Duration;

use lunette_api::client::Condition;
use lunette_api::volumes::NewVolume;
use serde_json::Value;

use super::super::ctl::Server;
use super::super::ctl::print::percent;
use super::names::VolumePath;
use super::{json, print};
use crate::disks::DiskName;
use crate::failure::Failure;

/// The interval at which the server is asked how far it is.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn run(
    server: &Server,
    volume: &VolumePath,
    source: &str,
    wanted: NewVolume,
    wait: bool,
) -> Result<(), Failure> {
    let wanted = NewVolume { source: Some(as_server_names(source)?), ..wanted };
    let mut shown = server.send("POST", &volume.url(&[]), Some(&json(&wanted)?), Condition::Always)?.value;
    if wait {
        shown = wait_for(server, volume, shown)?;
    }
    server.print(&shown, print::object)
}

/// The disk as the server finds it, wherever its own folder is.
fn as_server_names(source: &str) -> Result<String, Failure> {
    let name: DiskName = source.parse().map_err(|error| Failure::Usage(format!("--take-over: {error}")))?;
    match name.place.path() {
        Some(path) => Ok(absolute(path).map_err(Failure::other)?.display().to_string()),
        None => Ok(source.to_owned()),
    }
}

/// Waits until all is copied, and shows how much is.
fn wait_for(server: &Server, volume: &VolumePath, mut shown: Value) -> Result<Value, Failure> {
    let is_terminal = stderr().is_terminal();
    while let Some(copy) = shown.get("taking_over").filter(|copy| !copy.is_null()) {
        if is_terminal {
            eprint!("\r{}", percent(copy));
        }
        thread::sleep(INTERVAL);
        shown = server.get(&volume.url(&[]))?.value;
    }
    if is_terminal {
        eprintln!();
    }
    Ok(shown)
}
