//! Runs `doorbell_fuzz::connection`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::connection::check(data));
