//! Runs `doorbell_fuzz::notifications`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::notifications::check(data));
