//! Several subscribers read the same value at the same time.
//! E0277 `Cell<u8>` cannot be shared between threads safely
use std::cell::Cell;

fn main() {
    let _ = doorbell::ring::channel::<Cell<u8>>(4);
}
