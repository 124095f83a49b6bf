pub(crate) fn main() {
    let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    publisher.publish(1);
    let held = subscriber.try_recv_ref().unwrap();
    publisher.publish(2);
    println!("{}", *held);
    let _ = subscriber.try_recv();
}
