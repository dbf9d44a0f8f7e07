//! Where blocks live: memory, files, block devices, and filters over them
