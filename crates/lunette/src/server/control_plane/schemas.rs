//! The schemas of the documents, from the types that read them.

use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::config::hosts::HostEntry;
use crate::config::{LunEntry, Portal, Target};

/// The schemas of all documents, and those that they refer to.
pub(super) fn all() -> Vec<(String, RefOr<Schema>)> {
    let mut all = Vec::new();
    add::<Target>("Target", &mut all);
    add::<LunEntry>("Lun", &mut all);
    add::<HostEntry>("Host", &mut all);
    add::<Portal>("Portal", &mut all);
    all
}

fn add<T: ToSchema + PartialSchema>(name: &str, all: &mut Vec<(String, RefOr<Schema>)>) {
    T::schemas(all);
    all.push((name.into(), T::schema()));
}
