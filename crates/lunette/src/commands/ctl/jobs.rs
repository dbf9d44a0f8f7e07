//! `lunette ctl scrub` and `jobs`: actions of the server that take long.

use std::io::{self, IsTerminal};

use clap::Args;
use lunette_api::client::Condition;
use serde_json::Value;

use super::path::ObjectPath;
use super::{Server, print};
use crate::failure::Failure;

/// How long the server keeps a request that waits for the end of a job: the person at a terminal sees the progress as
/// often.
const WAIT_SECONDS: u64 = 30;
const WAIT_SECONDS_AT_A_TERMINAL: u64 = 1;

#[derive(Args)]
pub(super) struct Scrub {
    #[arg(value_name = "targets/IQN/luns/NUMBER")]
    path: ObjectPath,
    /// Wait for the end
    #[arg(long)]
    wait: bool,
}

#[derive(Args)]
pub(super) struct Jobs {
    /// The number of a job; without it all are listed
    #[arg(value_name = "JOB")]
    id: Option<u64>,
    /// Wait for its end
    #[arg(long, requires = "id")]
    wait: bool,
    /// Cancel it: one that runs ends at its next step
    #[arg(long, requires = "id", conflicts_with = "wait")]
    cancel: bool,
}

impl Server {
    pub(super) fn scrub(&self, Scrub { path, wait }: &Scrub) -> Result<(), Failure> {
        if !path.is_lun() {
            return Err(Failure::Usage(format!("{path} has no blocks; write targets/IQN/luns/NUMBER")));
        }
        self.start(&path.action("scrub").url(), *wait)
    }

    /// Starts a job, and perhaps waits for its end.
    pub(in crate::commands) fn start(&self, url: &str, wait: bool) -> Result<(), Failure> {
        let job = self.send("POST", url, None, Condition::Always)?.value;
        match job["id"].as_u64().filter(|_| wait) {
            Some(id) => self.wait(id),
            None => self.print(&job, started),
        }
    }

    pub(super) fn jobs(&self, Jobs { id, wait, cancel }: &Jobs) -> Result<(), Failure> {
        match id {
            None => {
                let jobs = self.get("/v1/jobs")?.value;
                self.print(&jobs, |jobs| print::list("jobs", jobs))
            }
            Some(id) if *wait => self.wait(*id),
            Some(id) => {
                let path = ObjectPath::job(*id);
                let (method, path) = if *cancel { ("POST", path.action("cancel")) } else { ("GET", path) };
                let job = self.send(method, &path.url(), None, Condition::Always)?.value;
                self.print(&job, print::object)
            }
        }
    }

    /// Waits for the end of a job, and fails with it.
    fn wait(&self, id: u64) -> Result<(), Failure> {
        let shows = io::stderr().is_terminal();
        let seconds = if shows { WAIT_SECONDS_AT_A_TERMINAL } else { WAIT_SECONDS };
        let path = format!("{}?wait_seconds={seconds}", ObjectPath::job(id).url());
        let job = loop {
            let job = self.get(&path)?.value;
            if shows {
                eprint!("\r{}", print::percent(&job["progress"]));
            }
            if !matches!(job["state"].as_str(), Some("queued" | "running")) {
                break job;
            }
        };
        if shows {
            eprintln!();
        }
        self.print(&job, print::object)?;
        match job["state"].as_str() {
            Some("succeeded") => Ok(()),
            _ => Err(Failure::Other(print::job(&job))),
        }
    }
}

fn started(job: &Value) -> String {
    format!("{}; lunette ctl jobs {} shows it\n", print::job(job), job["id"])
}
