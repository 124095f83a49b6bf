//! See `names.rs` in `src/`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorbell_fuzz::names::check(data));
