//! Third-party copy: EXTENDED COPY, the token commands, and the commands that report on copies.

mod copier;
pub(crate) mod extended;
pub(crate) mod results;
mod running;
pub(crate) mod tokens;
