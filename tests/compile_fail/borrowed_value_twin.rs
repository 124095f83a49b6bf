pub(crate) fn main() {
    let (publisher, _subscriber) = doorbell::ring::channel::<&str>(4);
    publisher.publish("as long as the program");
}
