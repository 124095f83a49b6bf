//! One send to waiting tasks from inside their single-threaded runtime: the cost of waking, without the system calls and the
//! competition for cores of waking a sleeping worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};

use doorbell_perf::channels::settings::{message, sum_of_numbers};
use doorbell_perf::channels::tasks::{Channel, Publisher, Subscriber, Taken};

/// Tasks that wait for single messages.
pub(crate) struct Harness<P> {
    runtime: Runtime,
    publisher: P,
    subscribers: Vec<JoinHandle<Taken>>,
    received: Arc<AtomicU64>,
    published: u64,
}

impl<P: Publisher> Harness<P> {
    pub(crate) fn start<C: Channel<Publisher = P>>(channel: C, tasks: usize) -> Self {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (publisher, subscribers) = channel.open(tasks);
        let received = Arc::new(AtomicU64::new(0));
        let subscribers = subscribers
            .into_iter()
            .map(|subscriber| runtime.spawn(subscribe(subscriber, received.clone())))
            .collect();
        // Poll each task, so that it waits.
        runtime.block_on(run_the_others(tasks));
        Self {
            runtime,
            publisher,
            subscribers,
            received,
            published: 0,
        }
    }

    /// The time of `messages` sends, each with every task waiting.
    pub(crate) fn run(&mut self, messages: u64) -> Duration {
        let tasks = self.subscribers.len();
        let mut elapsed = Duration::ZERO;
        self.runtime.block_on(async {
            for _ in 0..messages {
                let started = Instant::now();
                self.publisher.publish(message(self.published));
                elapsed += started.elapsed();
                self.published += 1;
                while self.received.load(Ordering::Relaxed) < self.published * tasks as u64 {
                    yield_now().await;
                }
                run_the_others(tasks).await;
            }
        });
        elapsed
    }

    /// Ends the tasks and checks that each got every message once.
    pub(crate) fn stop(self) {
        drop(self.publisher);
        for subscriber in self.subscribers {
            let taken = self.runtime.block_on(subscriber).expect("a subscriber's task");
            assert_eq!(taken.count, self.published, "messages that a subscriber got");
            assert_eq!(taken.sum, sum_of_numbers(0, self.published), "sum of their numbers");
        }
    }
}

/// Returns when every other task has been polled.
async fn run_the_others(tasks: usize) {
    // The runtime polls up to 61 other tasks between two polls of this one.
    for _ in 0..tasks / 32 + 2 {
        yield_now().await;
    }
}

async fn subscribe(mut subscriber: impl Subscriber, received: Arc<AtomicU64>) -> Taken {
    let mut all = Taken::default();
    while let Some(taken) = subscriber.take().await {
        received.fetch_add(1, Ordering::Relaxed);
        all.add(taken);
    }
    all
}
