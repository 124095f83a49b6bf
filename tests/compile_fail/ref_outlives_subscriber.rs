//! A reference cannot be kept longer than its subscriber.
//! E0505 cannot move out of `subscriber` because it is borrowed
fn main() {
    let (publisher, mut subscriber) = doorbell::ring::channel::<String>(4);
    publisher.publish(String::new());
    let text: &String = &subscriber.try_recv_ref().unwrap();
    drop(subscriber);
    println!("{text}");
}
