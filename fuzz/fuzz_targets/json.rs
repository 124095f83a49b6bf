//! Runs `doorbell_fuzz::json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::json::check(data));
