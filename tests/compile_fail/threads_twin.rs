//! Handles go to other threads, and references to the values too.
pub(crate) fn main() {
    fn sends<T: Send>(_: &T) {}
    fn shares<T: Sync>(_: &T) {}
    let (publisher, mut subscriber) = doorbell::ring::channel::<String>(4);
    publisher.publish(String::new());
    sends(&publisher);
    shares(&publisher);
    sends(&publisher.downgrade());
    sends(&subscriber);
    sends(&subscriber.recv());
    sends(&subscriber.recv_batch(1));
    let held = subscriber.try_recv_ref().unwrap();
    sends(&held);
    shares(&held);
    sends(&subscriber.into_stream());
}
