//! Runs `doorbell_fuzz::names`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::names::check(data));
