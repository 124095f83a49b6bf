pub(crate) fn main() {
    let (_publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    let mut other = subscriber.clone();
    let first = subscriber.recv();
    let second = other.recv();
    drop((first, second));
}
