//! CRC32C kernels, and copies that digest on the way
