#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lunette_fuzz::handover::run(data));
