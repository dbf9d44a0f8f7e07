//! `lunette-csi`: the driver as a process.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use lunette_csi::{Driver, Options, Programs, serve};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_env("LUNETTE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    let system = Programs::new(options.host_root.clone());
    match Driver::new(&options, system).and_then(|driver| serve(&options.endpoint, driver)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lunette-csi: {error}");
            ExitCode::FAILURE
        }
    }
}
