//! Items that wait to be published to the rings.
//!
//! Publishing wakes subscribers, and a waker is foreign code that may call the bus. Therefore nothing is published while the
//! table is locked. Items are queued in order under that lock. After it is released, the first thread that finds no other thread
//! publishing publishes the items of all threads.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::RingItem;
use crate::event::foreign;
use crate::ring::Publisher;

/// Items, and the rings to which they are published.
pub(super) struct QueuedItems<E: Send + Sync + 'static> {
    pub(super) feeds: [Option<Publisher<RingItem<E>>>; 2],
    pub(super) items: Vec<RingItem<E>>,
}

pub(super) struct PublishQueue<E: Send + Sync + 'static>(Mutex<State<E>>);

struct State<E: Send + Sync + 'static> {
    queued: VecDeque<QueuedItems<E>>,
    /// Whether a thread is publishing.
    publishing: bool,
}

impl<E: Send + Sync + 'static> Default for PublishQueue<E> {
    fn default() -> Self {
        Self(Mutex::new(State {
            queued: VecDeque::new(),
            publishing: false,
        }))
    }
}

impl<E: Send + Sync + 'static> PublishQueue<E> {
    pub(super) fn push(&self, items: QueuedItems<E>) {
        if !items.items.is_empty() {
            self.0.lock().queued.push_back(items);
        }
    }

    /// Publishes until the queue is empty, unless another thread is publishing. This runs [foreign code](foreign), so the caller must not
    /// hold a lock of the bus.
    pub(super) fn flush(&self) {
        loop {
            let batch = {
                let mut queue = self.0.lock();
                if queue.publishing || queue.queued.is_empty() {
                    return;
                }
                queue.publishing = true;
                std::mem::take(&mut queue.queued)
            };
            for QueuedItems { feeds, items } in batch {
                for feed in feeds.into_iter().flatten() {
                    foreign::run(|| {
                        feed.publish_batch(items.to_vec());
                    });
                    foreign::run(|| drop(feed)); // it may be the last handle of the ring
                }
                drop(foreign::DropLater(items));
            }
            self.0.lock().publishing = false;
        }
    }
}
