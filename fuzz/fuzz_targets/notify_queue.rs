//! Runs `doorbell_fuzz::notify_queue`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::notify_queue::check(data));
