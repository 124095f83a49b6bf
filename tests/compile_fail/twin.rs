//! Compiled as the cases are, and taken.
fn main() {
    let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    publisher.publish(1);
    let _ = subscriber.try_recv();
}
