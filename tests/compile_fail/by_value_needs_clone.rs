//! What cannot be copied is received by reference.
//! E0599 the method `try_recv` exists for struct `Subscriber<Unique>`, but its trait bounds were not satisfied
struct Unique;

fn main() {
    let (_publisher, mut subscriber) = doorbell::ring::channel::<Unique>(4);
    let _ = subscriber.try_recv();
}
