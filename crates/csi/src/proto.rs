//! The messages and services of CSI, as generated from `proto/csi.proto`.

/// Version 1 of the interface.
#[expect(clippy::pedantic, missing_docs, reason = "generated")]
#[allow(unused, unreachable_pub, reason = "generated")]
pub mod v1 {
    include!("proto/csi.v1.rs");
}
