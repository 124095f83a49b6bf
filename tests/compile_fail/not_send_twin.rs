use std::sync::Mutex;

pub(crate) fn main() {
    let _ = doorbell::ring::spmc::<Mutex<u8>>(4);
}
