//! Tools that people have already, with Lunette in the place of what they drive: one file for each adapter.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod ansible;
mod cinder;
mod contrib;
mod csi;
mod proxmox;
mod targetcli;
mod tgt;
