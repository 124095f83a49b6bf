//! Deliveries on their way into the rings.
//!
//! Publishing wakes subscribers, and a waker may be anybody's code that calls the bus again. So nothing is published under
//! the table's lock: deliveries are queued under it, in order, and published by whoever comes first to the queue; who finds
//! another at it leaves.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use parking_lot::Mutex;

use super::Item;
use crate::ring::Publisher;

/// Some items, and the rings that they go to.
pub(super) struct QueuedItems<E: Send + Sync + 'static> {
    pub(super) feeds: [Option<Publisher<Item<E>>>; 2],
    pub(super) items: Vec<Item<E>>,
}

pub(super) struct PublishQueue<E: Send + Sync + 'static>(Mutex<State<E>>);

struct State<E: Send + Sync + 'static> {
    waiting: VecDeque<QueuedItems<E>>,
    attended: bool,
}

impl<E: Send + Sync + 'static> Default for PublishQueue<E> {
    fn default() -> Self {
        Self(Mutex::new(State {
            waiting: VecDeque::new(),
            attended: false,
        }))
    }
}

impl<E: Send + Sync + 'static> PublishQueue<E> {
    pub(super) fn push(&self, delivery: QueuedItems<E>) {
        if !delivery.items.is_empty() {
            self.0.lock().waiting.push_back(delivery);
        }
    }

    /// Publishes what is queued, until nothing is, or leaves it to the thread that is at it. The caller holds no lock.
    pub(super) fn flush(&self) {
        loop {
            let batch = {
                let mut queue = self.0.lock();
                if queue.attended || queue.waiting.is_empty() {
                    return;
                }
                queue.attended = true;
                std::mem::take(&mut queue.waiting)
            };
            let _leave = Leave(self); // also if a waker panics
            let mut panic = None;
            for QueuedItems { feeds, items } in batch {
                for feed in feeds.iter().flatten() {
                    let publish = || feed.publish_batch(items.to_vec());
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(publish)) {
                        panic = Some(payload); // a waker's: the others are to be served first
                    }
                }
            }
            if let Some(payload) = panic {
                resume_unwind(payload);
            }
        }
    }
}

struct Leave<'a, E: Send + Sync + 'static>(&'a PublishQueue<E>);

impl<E: Send + Sync + 'static> Drop for Leave<'_, E> {
    fn drop(&mut self) {
        self.0.0.lock().attended = false;
    }
}
