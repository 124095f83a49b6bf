//! Values may outlive every borrow: they stay until they are overwritten.
//! E0597 `text` does not live long enough
fn main() {
    let text = String::from("short-lived");
    let (publisher, _subscriber) = doorbell::ring::channel::<&str>(4);
    publisher.publish(&text);
}
