//! One subscriber waits for one thing at a time.
//! E0499 cannot borrow `subscriber` as mutable more than once at a time
fn main() {
    let (_publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    let first = subscriber.recv();
    let second = subscriber.recv();
    drop((first, second));
}
