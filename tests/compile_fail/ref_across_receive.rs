//! The next receive lets go of the reference.
//! E0499 cannot borrow `subscriber` as mutable more than once at a time
fn main() {
    let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    publisher.publish(1);
    let held = subscriber.try_recv_ref().unwrap();
    let _ = subscriber.try_recv();
    println!("{}", *held);
}
