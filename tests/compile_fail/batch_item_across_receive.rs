//! The next receive lets go of what the batch showed.
//! E0499 cannot borrow `subscriber` as mutable more than once at a time
fn main() {
    let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    publisher.publish(1);
    let first = subscriber.try_recv_batch(1).unwrap().next().unwrap();
    let _ = subscriber.try_recv();
    println!("{first}");
}
