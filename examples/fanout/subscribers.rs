//! The subscribers: three loops, one for each way to receive.
//!
//! They have the same shape, and it is the one to copy: an event, a lag and the end of the channel are three different
//! things, and a lag is not the end. `while let Ok(event) = events.recv().await` would stop at the first lag.

use std::time::{Duration, Instant};

use doorbell::ring::{RecvError, Subscriber};

use crate::account::{Account, Outcome};
use crate::event::Event;
use crate::interrupt::Interrupt;

/// Events taken at a time by those who receive in batches.
const BATCH: usize = 64;

/// A tokio task that receives by reference, in batches: the fastest way, with no clone and one wait per batch.
pub(crate) async fn task(mut events: Subscriber<Event>) -> Outcome {
    let mut account = Account::default();
    loop {
        match events.recv_batch(BATCH).await {
            Ok(batch) => {
                let now = Instant::now();
                for event in batch {
                    account.received(event, now);
                }
            }
            Err(RecvError::Lagged(lagged)) => account.lagged(lagged),
            Err(RecvError::Closed) => break,
        }
        // Under a flood every receive is ready at once: be fair to the other tasks of this worker. With the feature `tokio`
        // the ring does this by itself.
        tokio::task::consume_budget().await;
    }
    account.close(events.stats())
}

/// A plain thread that iterates. The iterator waits for the next event and ends when the channel is closed and drained.
pub(crate) fn thread(mut events: Subscriber<Event>) -> Outcome {
    let mut account = Account::default();
    for event in events.iter() {
        match event {
            Ok(event) => account.received(&event, Instant::now()),
            Err(lagged) => account.lagged(lagged),
        }
    }
    account.close(events.stats())
}

/// A tokio task that receives one event at a time and takes far too long over each.
///
/// It slows nobody down: it is told what it missed, and goes on from there.
pub(crate) async fn slow(mut events: Subscriber<Event>, delay: Duration, mut interrupt: Interrupt) -> Outcome {
    let mut account = Account::default();
    loop {
        match events.recv().await {
            Ok(event) => {
                account.received(&event, Instant::now());
                // What is left when the input has ended is drained without dawdling.
                if !events.is_closed() {
                    interrupt.sleep(delay).await;
                }
            }
            Err(RecvError::Lagged(lagged)) => account.lagged(lagged),
            Err(RecvError::Closed) => break,
        }
    }
    account.close(events.stats())
}
