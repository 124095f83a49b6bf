//! Runs `doorbell_fuzz::payload`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::payload::check(data));
