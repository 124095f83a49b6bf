pub(crate) fn main() {
    let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    publisher.publish(1);
    // The item outlives the batch itself, but not the next receive.
    let first = subscriber.try_recv_batch(1).unwrap().next().unwrap();
    publisher.publish(2);
    println!("{first}");
    let _ = subscriber.try_recv();
}
