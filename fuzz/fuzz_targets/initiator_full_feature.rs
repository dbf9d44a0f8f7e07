#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lunette_fuzz::initiator_full_feature::run(data));
