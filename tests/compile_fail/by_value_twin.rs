struct Unique;

pub(crate) fn main() {
    let (_publisher, mut subscriber) = doorbell::ring::channel::<Unique>(4);
    let _ = subscriber.try_recv_ref();
    let _ = subscriber.try_recv_batch(1);
}
