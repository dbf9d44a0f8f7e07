//! What a packet's protection costs.

fn main() {}
