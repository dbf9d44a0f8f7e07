//! Tests over all PDUs.
