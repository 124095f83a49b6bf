//! Streams that are read on their own, after a read that included them failed for a reason that may lie in one of them: an event that is
//! too large for the server or the link, for example. Until such a stream has been read, reads of other streams leave it out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::reader::{deliver, range_of};
use super::shared::SharedBus;
use super::store_operation::{OperationReport, StoreOperation};
use crate::bus::StreamEvent;
use crate::bus::hub::PendingRead;
use crate::pg::backoff::Retry;
use crate::store::StoreError;

/// The limits of the delay before a stream is read again, of which not even one event could be read.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// How many times as many events are asked for after each read that succeeds.
const GROWTH: usize = 4;

#[derive(Default)]
pub(super) struct IsolatedReads {
    state: Mutex<State>,
    added: Notify,
}

#[derive(Default)]
struct State {
    streams: HashMap<Arc<str>, Isolated>,
    /// The report of the read that failed, until the task has taken it over.
    failed: Option<OperationReport>,
}

struct Isolated {
    /// When to read it.
    due: Instant,
    /// The number of events to ask for.
    limit: usize,
    backoff: Retry,
    is_failing: bool,
}

/// Whether a read of other streams, or of fewer events, may succeed although this one failed.
pub(super) fn may_concern_one_stream(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Cancelled { .. } | StoreError::Panicked { .. } | StoreError::Other(_)
    )
}

impl IsolatedReads {
    /// Leaves the streams of a failed read to the task. `failed` has reported the failure.
    pub(super) fn add(&self, reads: &[PendingRead], failed: OperationReport) {
        let due = Instant::now();
        let mut state = self.state.lock();
        for read in reads {
            state.streams.entry(Arc::clone(&read.key)).or_insert_with(|| Isolated {
                due,
                limit: 1,
                backoff: Retry::new(FIRST_DELAY, MAX_DELAY),
                is_failing: true,
            });
        }
        let former = state.failed.replace(failed);
        drop(state);
        drop(former); // it logs
        self.added.notify_one();
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.state.lock().streams.contains_key(key)
    }

    /// The stream to read next, when, and how many of its events.
    fn next(&self) -> Option<(Arc<str>, Instant, usize)> {
        let state = self.state.lock();
        let (key, next) = state.streams.iter().min_by_key(|(_, stream)| stream.due)?;
        Some((Arc::clone(key), next.due, next.limit))
    }

    fn is_any_failing(&self) -> bool {
        self.state.lock().streams.values().any(|stream| stream.is_failing)
    }

    fn remove(&self, key: &str) {
        self.state.lock().streams.remove(key);
    }

    /// The stream was read. After a read of a whole page it is read with others again.
    fn succeeded(&self, key: &str, page: usize) {
        let mut state = self.state.lock();
        let Some(stream) = state.streams.get_mut(key) else {
            return;
        };
        if stream.limit >= page {
            state.streams.remove(key);
            return;
        }
        stream.limit = stream.limit.saturating_mul(GROWTH).min(page);
        stream.backoff.reset();
        stream.due = Instant::now(); // after those that are due
        stream.is_failing = false;
    }

    fn failed(&self, key: &str) {
        let mut state = self.state.lock();
        let Some(stream) = state.streams.get_mut(key) else {
            return;
        };
        let asked = std::mem::replace(&mut stream.limit, 1);
        stream.due = Instant::now();
        if asked == 1 {
            stream.due += stream.backoff.next_delay();
        }
        stream.is_failing = true;
    }
}

/// Reads isolated streams, one at a time.
pub(super) async fn run<E: StreamEvent>(shared: Arc<SharedBus<E>>) {
    let isolated = &shared.isolated_reads;
    let mut report = shared.health.report(StoreOperation::Read);
    loop {
        // Its failure is reported by this task from here on.
        let handed_over = isolated.state.lock().failed.take();
        if let Some(failed) = handed_over {
            report = failed;
        }
        let Some((key, due, limit)) = isolated.next() else {
            report.not_due();
            isolated.added.notified().await;
            continue;
        };
        if due > Instant::now() {
            tokio::select! {
                () = sleep_until(due) => {}
                () = isolated.added.notified() => {}
            }
            continue;
        }
        if shared.wakeups.needs_history_check() {
            shared.wakeups.isolated_reader.notified().await;
            continue;
        }
        let Some(read) = shared.hub.take_reads(1, |other| *other == *key).pop() else {
            isolated.remove(&key); // there is nothing to read, or no subscription needs it
            shared.wakeups.reader.notify_one();
            continue;
        };
        shared.counters.reads.add(1);
        let checks_requested = shared.wakeups.checks_requested();
        let page = {
            let _permit = shared.read_permits.retry().await;
            shared.store.replay_many(&[range_of(&read)], limit).await
        };
        match page {
            Ok(pages) => {
                deliver(&shared, vec![read], pages, limit, checks_requested);
                isolated.succeeded(&key, shared.settings.page);
                if !isolated.is_any_failing() {
                    report.succeeded();
                }
                shared.wakeups.reader.notify_one();
            }
            Err(error) => {
                tracing::debug!(stream = &*key, after = read.after, limit, %error, "failed to read a stream");
                report.failed(of_stream(error, &key));
                shared.hub.put_back(vec![read]);
                isolated.failed(&key);
            }
        }
    }
}

/// Adds the stream to the reason.
fn of_stream(error: StoreError, key: &str) -> StoreError {
    match error {
        StoreError::Cancelled { reason } => StoreError::Cancelled {
            reason: format!("stream {key:?}: {reason}"),
        },
        error => error,
    }
}
