//! The iSCSI protocol as state machines without I/O
