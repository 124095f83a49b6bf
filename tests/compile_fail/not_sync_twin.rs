use std::sync::atomic::AtomicU8;

pub(crate) fn main() {
    let _ = doorbell::ring::channel::<AtomicU8>(4);
}
