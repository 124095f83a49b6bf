//! A listed difference of the drop-in: its receivers clone a value while others read it.
//! E0277 `Cell<u8>` cannot be shared between threads safely
use std::cell::Cell;

fn main() {
    let _ = doorbell::broadcast::channel::<Cell<u8>>(4);
}
