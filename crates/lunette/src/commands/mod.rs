//! The subcommands, a file for each, and what several of them share.

pub(crate) mod activate;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod crc;
pub(crate) mod ctl;
pub(crate) mod depth;
pub(crate) mod gateway;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod io;
pub(crate) mod keys;
pub(crate) mod local_export;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod nbd;
pub(crate) mod ping;
pub(crate) mod quanta;
pub(crate) mod serve;
pub(crate) mod tls;
pub(crate) mod tune;
pub(crate) mod tunnel;
pub(crate) mod upgrade;
pub(crate) mod volume;
