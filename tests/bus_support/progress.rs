//! Subscribers that check what they get, and tell how far they are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use doorbell::bus::{BusEvent, BusSubscription};
use tokio::sync::watch;

use super::within;

/// A subscription that is read in the background: each stream from its first number on without a hole, or the test fails.
pub(crate) struct Progress {
    reached: watch::Receiver<BTreeMap<String, u64>>,
}

impl Progress {
    /// Reads from now on. A stream starts with number `first`.
    pub(crate) fn of(mut subscription: BusSubscription, first: u64) -> Self {
        let (reaching, reached) = watch::channel(BTreeMap::new());
        tokio::spawn(async move {
            while let Some(item) = subscription.recv().await {
                let BusEvent::Event(event) = item else {
                    panic!("expected events only, got {item:?}")
                };
                reaching.send_modify(|reached| {
                    let last = reached.entry(event.agent_id.clone()).or_insert(first - 1);
                    assert_eq!(event.seq, *last + 1, "of stream {:?}", event.agent_id);
                    *last = event.seq;
                });
            }
        });
        Self { reached }
    }

    /// Returns when the stream is delivered up to `seq`, which nothing may go beyond; says how long that took.
    pub(crate) async fn reaches(&mut self, stream: &str, seq: u64) -> Duration {
        let begun = Instant::now();
        let what = format!("event {seq} of {stream:?}");
        let there = self
            .reached
            .wait_for(|reached| reached.get(stream).is_some_and(|&last| last >= seq));
        within(&what, there)
            .await
            .expect("the subscriber has got what it must not get, or ended");
        begun.elapsed()
    }

    /// How far the stream is delivered.
    pub(crate) fn at(&self, stream: &str) -> u64 {
        self.reached.borrow().get(stream).copied().unwrap_or(0)
    }
}
