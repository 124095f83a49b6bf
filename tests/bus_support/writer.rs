//! Writers that retry through outages and know what they have committed.

use std::time::{Duration, Instant};

use doorbell::bus::{BusError, DistributedBus, StreamEvent as _};
use doorbell::store::StoreError;
use testkit::within::{LIMIT, within};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::note;

/// The only writer of a stream: appends one event after another until it is stopped.
pub(crate) struct Writer {
    committed: watch::Receiver<u64>,
    stop: watch::Sender<bool>,
    task: JoinHandle<u64>,
}

impl Writer {
    /// Starts after event number `after`, the stream's last.
    pub(crate) fn start(bus: DistributedBus, stream: &str, after: u64) -> Self {
        let stream = stream.to_owned();
        let (committing, committed) = watch::channel(after);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut seq = after;
            while !*stopped.borrow() {
                append(&bus, &stream, seq + 1).await;
                seq += 1;
                committing.send_replace(seq);
            }
            seq
        });
        Self { committed, stop, task }
    }

    /// Waits until `more` events have been committed.
    pub(crate) async fn committed(&mut self, more: u64) -> u64 {
        let goal = *self.committed.borrow() + more;
        let committed = self.committed.wait_for(|&seq| seq >= goal);
        *within("the commits", committed).await.expect("the writer runs")
    }

    /// Stops the writer and returns the number of its last event.
    pub(crate) async fn stop(self) -> u64 {
        self.stop.send_replace(true);
        within("the end of the writer", self.task).await.unwrap()
    }
}

/// Appends event number `seq` of a stream with no other writer, retrying while the server is away. Panics after [`LIMIT`].
pub(crate) async fn append(bus: &DistributedBus, stream: &str, seq: u64) {
    let started = Instant::now();
    loop {
        let event = note(stream, "hello").with_seq(seq);
        match bus.append_and_publish(event).await {
            Ok(stamped) => return assert_eq!(stamped.seq, seq),
            // The previous attempt was committed, and only the response was lost.
            Err(BusError::Store(StoreError::SeqConflict { expected, .. })) if expected == seq + 1 => return,
            Err(BusError::Store(error)) if error.is_transient() => {
                assert!(
                    started.elapsed() < LIMIT,
                    "event {seq} of {stream:?} is refused for {LIMIT:?}: {error:?}; the bus: {:?}",
                    bus.health()
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("event {seq} of {stream:?}: {error:?}"),
        }
    }
}
