//! There is one publisher, or its seqs would not be its own.
//! E0599 no method named `clone` found for struct `UniquePublisher<T>`
fn main() {
    let (publisher, _subscriber) = doorbell::ring::spmc::<u64>(4);
    let _ = publisher.clone();
}
