//! Runs `doorbell_fuzz::packing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::packing::check(data));
