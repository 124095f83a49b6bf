//! Publishing needs the only reference to the only publisher.
//! E0596 cannot borrow `*shared` as mutable, as it is behind a `&` reference
fn main() {
    let (publisher, _subscriber) = doorbell::ring::spmc::<u64>(4);
    let shared = &publisher;
    shared.publish(1);
}
