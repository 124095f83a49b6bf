//! A subscriber takes its announcement with it.
//! E0505 cannot move out of `subscriber` because it is borrowed
fn main() {
    let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
    publisher.publish(1);
    let items: Vec<&u64> = subscriber.try_recv_batch(1).unwrap().collect();
    drop(subscriber);
    println!("{items:?}");
}
