//! The whole server.

use crate::params;
use crate::wire::Fault;

/// The text of tgtd about itself, with the kinds of disks that this target has.
const SYSTEM: &str = "\
System:
    State: ready
    debug: off
LLDs:
    iscsi: ready
Backing stores:
    rdwr
    aio
    rbd
    longhorn
Device types:
    disk
iSNS:
    iSNS=Off
    iSNSServerIP=
    iSNSServerPort=3205
    iSNSAccessControl=Off
";

pub(super) fn show() -> String {
    SYSTEM.into()
}

/// Takes what is so already.
pub(super) fn update(text: &str) -> Result<(), Fault> {
    match params::one(text)? {
        ("State", "ready") | ("debug", "off") => Ok(()),
        _ => Err(Fault::Invalid),
    }
}
