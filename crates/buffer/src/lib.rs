//! Page-aligned byte buffers from a pool with a budget
