//! The changes of the configuration, one for each call. Nothing here does I/O.
//!
//! Each returns the message of the answer.

mod clients;
mod disks;
mod groups;
mod targets;

pub(crate) use clients::{auth_client, delete_client, map_client, new_client};
pub(crate) use disks::{add_lun, delete_disk, new_disk, reconfigure_disk, remove_lun};
pub(crate) use groups::{change_group, delete_group};
pub(crate) use targets::{auth_target, delete_gateway, delete_target, new_gateway, put_target};

use crate::refusal::Refusal;

/// The message of a call that is carried out.
pub(crate) type Done = Result<&'static str, Refusal>;

#[cfg(test)]
mod tests;
