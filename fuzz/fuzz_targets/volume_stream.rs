#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lunette_fuzz::volume_stream::run(data));
