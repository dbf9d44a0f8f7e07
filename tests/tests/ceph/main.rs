//! Disks in Ceph, with the cluster that `LUNETTE_CEPH_CONF` names.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod csi;
mod dashboard;
mod gateways;
mod images;
mod pools;
mod volumes_moving;
