//! The common part of the experiments: many runs of `lunette-lab link`, and reports of their findings.
//!
//! A [`Cell`] is one command line of `lunette-lab link`: the link, the server at its far end, the client at its near
//! end. So each figure of a report comes with the command that measures it again. [`campaign`] runs cells and keeps
//! their figures in [`Results`], a file with a line for each run, and goes on from there when it was interrupted.
//! [`paper`] has the claims that they judge. [`Spread`], [`Table`] and [`plot`] make the report. A [`Study`] writes it:
//! the options and the course that all experiments have. A [`LinkStudy`] is one over links.
//!
//! ```text
//! cells ──> campaign ──> results (a file) ──> spread ──> tables, plots
//! ```

pub(crate) mod campaign;
mod cell;
#[cfg(test)]
pub(crate) mod checks;
pub(crate) mod commands;
pub(crate) mod machine;
pub(crate) mod paper;
pub(crate) mod plot;
mod results;
mod spread;
mod study;
mod table;

pub(crate) use cell::{CLIENT_CPU, Cell, Figures, LOAD, Programs, SERVER_CPU};
pub(crate) use results::{Origin, Results};
pub(crate) use spread::Spread;
pub(crate) use study::{LinkStudy, Report, Round, Size, Study, filled};
pub(crate) use table::{Table, figure};
