//! The command with the clients, targets and tools that people use: one file for each behaviour.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod api;
mod bad_peers;
mod capture;
mod chap;
mod cli;
mod client_cli;
mod compare_and_write;
mod console;
mod control_plane;
mod counts;
mod cp;
mod crash;
mod ctl;
mod damage;
mod discovery_and_inquiry;
mod disk_files;
mod ecl;
mod ecl_ethernet;
mod encryption;
mod encryption_crash;
mod encryption_guards;
mod foreign_targets;
mod hosts;
mod import;
mod keys;
mod logging;
mod lying_targets;
mod many_sessions;
mod messages;
mod monitoring;
mod nbd;
mod outages;
mod paths;
mod port_groups;
mod qemu_convert;
mod quanta;
mod recovery;
mod reload;
mod remote_copy;
mod restart;
mod service;
mod shutdown;
mod survival;
mod tune;
