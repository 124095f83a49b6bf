//! Background subscribers that check every item and report their progress.

use std::time::{Duration, Instant};

use doorbell::bus::{BusEvent, BusSubscription};
use testkit::account::{Account, Sequence};
use testkit::within::within;
use tokio::sync::watch;

/// A subscription that is read in the background: each stream from its first number on without a hole, or the test fails.
pub(crate) struct Progress {
    reached: watch::Receiver<Account<String>>,
}

impl Progress {
    /// Reads from now on. A stream starts with number `first`.
    pub(crate) fn of(mut subscription: BusSubscription, first: u64) -> Self {
        let (reaching, reached) = watch::channel(Account::new(Sequence::at(first)));
        tokio::spawn(async move {
            while let Some(item) = subscription.recv().await {
                let BusEvent::Event(event) = item else {
                    panic!("expected events only, got {item:?}")
                };
                reaching.send_modify(|reached| {
                    let numbers = reached.stream(&event.agent_id);
                    numbers.received(event.seq);
                    numbers.assert_sound(format_args!("stream {:?}", event.agent_id));
                });
            }
        });
        Self { reached }
    }

    /// Waits until the stream is delivered up to `seq`, and returns how long that took.
    pub(crate) async fn reaches(&mut self, stream: &str, seq: u64) -> Duration {
        let begun = Instant::now();
        let what = format!("event {seq} of {stream:?}");
        let there = self.reached.wait_for(|reached| reached.last(stream) >= seq);
        within(&what, there)
            .await
            .expect("the subscriber has got what it must not get, or ended");
        begun.elapsed()
    }

    /// The number of the stream's last delivered event.
    pub(crate) fn at(&self, stream: &str) -> u64 {
        self.reached.borrow().last(stream)
    }
}
