pub(crate) fn main() {
    let (publisher, _subscriber) = doorbell::ring::channel::<u64>(4);
    let shared = &publisher;
    shared.publish(1);
    let _ = publisher.clone();
    let (mut unique, _subscriber) = doorbell::ring::spmc::<u64>(4);
    unique.publish(1);
}
