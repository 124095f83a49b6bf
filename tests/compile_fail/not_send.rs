//! A value is dropped by whichever thread displaces it.
//! E0277 cannot be sent between threads safely
use std::sync::MutexGuard;

fn main() {
    let _ = doorbell::ring::channel::<MutexGuard<'static, u8>>(4);
}
