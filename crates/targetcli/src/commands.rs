//! The commands of the kinds of nodes.

pub(crate) mod backstores;
pub(crate) mod groups;
pub(crate) mod info;
pub(crate) mod root;
pub(crate) mod targets;
