//! A subscriber can create others on its ring, at any start, even when every publisher is gone.

use doorbell::ring::{Lagged, Start, Subscriber, TryRecvError, channel};

fn check(subscriber: &Subscriber<u64>, end: TryRecvError) {
    let at = |start| subscriber.resubscribe_from(start).try_recv_seq();
    assert_eq!(at(Start::Oldest), Ok((3, 3)));
    assert_eq!(at(Start::After(4)), Ok((5, 5)));
    assert_eq!(at(Start::After(6)), Err(end));
    assert_eq!(at(Start::After(u64::MAX)), Err(end));
    assert_eq!(at(Start::Latest), Err(end));
    let lost = Lagged {
        skipped: 1,
        first_missed: 2,
        resume_at: 3,
    };
    assert_eq!(at(Start::After(1)), Err(TryRecvError::Lagged(lost)));
}

#[test]
fn a_subscriber_can_resubscribe_from_every_start() {
    let (publisher, subscriber) = channel(4);
    publisher.publish_batch([1, 2, 3, 4, 5, 6]);
    check(&subscriber, TryRecvError::Empty);
    drop(publisher);
    check(&subscriber, TryRecvError::Closed);
}
