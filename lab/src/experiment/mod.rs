//! The common part of the experiments: many runs of `lunette-lab link`, and reports of their findings.
//!
//! A [`Cell`] is one command line of `lunette-lab link`: the link, the server at its far end, the client at its near
//! end. So each figure of a report comes with the command that measures it again. [`campaign`] runs cells and keeps
//! their figures in [`Results`], a file with a line for each run, and goes on from there when it was interrupted.
//! [`Spread`], [`Table`] and [`plot`] make the report, which a [`Study`] writes: the options and the course that all
//! experiments have.
//!
//! ```text
//! cells ──> campaign ──> results (a file) ──> spread ──> tables, plots
//! ```

pub(crate) mod campaign;
mod cell;
pub(crate) mod commands;
pub(crate) mod machine;
pub(crate) mod plot;
mod results;
mod spread;
mod study;
mod table;

pub(crate) use cell::{CLIENT_CPU, Cell, Figures, LATE, LOAD, Programs, SERVER_CPU, UNREAD};
pub(crate) use results::{Origin, Results};
pub(crate) use spread::Spread;
pub(crate) use study::{Report, Size, Study};
pub(crate) use table::Table;
