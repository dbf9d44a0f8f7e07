//! One failure of the unit, for several requests.

use std::io;
use std::sync::Arc;

use lunette_store::StoreError;

/// Copies of one failure for several requests.
pub(crate) fn shared_failure(error: StoreError) -> impl Fn() -> StoreError {
    let copy = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
    move || match &error {
        StoreError::NoSpace => StoreError::NoSpace,
        StoreError::ReadOnly => StoreError::ReadOnly,
        StoreError::FlushFailed(why) => StoreError::FlushFailed(Arc::clone(why)),
        StoreError::ShutOut(why) => StoreError::ShutOut(why.clone()),
        StoreError::Gone(why) => StoreError::Gone(copy(why)),
        StoreError::Io(why) | StoreError::Unreadable { error: why, .. } => StoreError::Io(copy(why)),
        StoreError::OutOfRange { .. } | StoreError::Refused { .. } => {
            StoreError::Io(io::Error::other(error.to_string()))
        }
    }
}
