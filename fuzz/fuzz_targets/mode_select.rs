#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lunette_fuzz::lists::mode_select::run(data));
