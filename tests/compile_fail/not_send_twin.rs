use std::sync::Mutex;

pub(crate) fn main() {
    let _ = doorbell::ring::channel::<Mutex<u8>>(4);
}
