use std::sync::{Arc, atomic::AtomicU8};

pub(crate) fn main() {
    let _ = doorbell::broadcast::channel::<Arc<AtomicU8>>(4);
}
