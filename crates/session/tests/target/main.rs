//! The rules of the target's side, told by a scripted initiator under a virtual clock. One file per area.

mod harness;

mod commands;
mod data_in;
mod data_out;
mod discovery;
mod login;
mod ping;
mod task_management;
