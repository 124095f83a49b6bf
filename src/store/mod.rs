//! Durable event streams, on which the [bus](crate::bus) is built.
//!
//! A [`Store`] contains any number of streams. Each stream has a key, and its events are numbered 1, 2, 3, without gaps.
//!
//! - [`MemoryStore`] keeps streams in memory, for a single process.
//! - `PostgresStore` (feature `postgres`) keeps streams in a database, for any number of processes.
//! - Other stores implement three methods of the [`Store`] trait.
//!
//! The default event type is [`FleetEvent`]; `MemoryStore::new()` and `PostgresStore::connect(url)` create a store for it. For
//! other event types, use `MemoryStore::<Event>::default()` and `PostgresStore::<Event>::builder().connect(url)`.
//!
//! ```
//! use doorbell::bus::FleetEvent;
//! use doorbell::store::{MemoryStore, Store};
//!
//! # futures::executor::block_on(async {
//! let store = MemoryStore::new();
//! store.append(FleetEvent::custom("agent-1", "note", "one")).await?;
//! store.append(FleetEvent::custom("agent-1", "note", "two")).await?;
//! let page = store.replay("agent-1", 1, 100).await?; // events after number 1
//! assert_eq!(page.records[0].seq, 2);
//! # Ok::<_, doorbell::store::StoreError>(())
//! # }).unwrap();
//! ```
//!
//! # Guarantees
//!
//! | | `MemoryStore` | `PostgresStore` | a store with the three required methods |
//! |---|---|---|---|
//! | sequence numbers follow the commit order; readers never see a gap | yes | yes, also across lock waits, failures and rollbacks | up to the store |
//! | an event survives, once its append has returned | until the process ends | as configured by the server's `synchronous_commit` | up to the store |
//! | an event that has a number is appended with that number or not at all | yes | yes | yes |
//! | a batch is appended completely or not at all | yes | yes | no: appending stops at the first error |
//! | several streams are read in one snapshot | no | yes | no |
//! | an event and application data can be committed in one transaction | no | `append_in` | no |
//! | a stream's numbering continues after its events were removed | yes | yes | up to the store |
//! | readers learn that events were removed ([`Page::low_water`]) | yes | yes | up to the store |
//! | [`changed_since`](Store::changed_since) | yes | yes; lists all streams on a standby, after a restart, and in a restored dump | not supported |
//! | [event IDs](EventId) are never reused | yes | yes, also across failover and restore | not supported |
//! | readers wait for writers | for microseconds | never | up to the store |
//!
//! Events of different streams are not ordered.

mod changes;
mod error;
mod memory;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod record;
mod record_metadata;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::event::{FleetEvent, StreamEvent};
pub use crate::event::{InvalidStreamKey, MAX_STREAM_KEY_BYTES, check_stream_key};
pub use changes::{ChangedStream, Changes, Heads, StreamHead, Watermark};
pub use error::StoreError;
pub use memory::{MemoryRetention, MemoryStore};
#[cfg(feature = "postgres")]
pub use postgres::{
    DEFAULT_CHANNEL, DEFAULT_SCHEMA, InvalidSchemaName, PostgresStore, PostgresStoreBuilder, migration_sql,
};
pub use record::{EventId, Page, Record, Undecodable};

/// A range of a stream to read: the records with numbers above `after`.
///
/// ```
/// let range = doorbell::store::ReplayRange { stream_key: "agent-1".into(), after: 7 };
/// assert_eq!(range.after, 7);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReplayRange {
    /// The stream.
    pub stream_key: Arc<str>,
    /// The number after which to start; 0 for the beginning of the stream.
    pub after: u64,
}

/// A range of a stream in which to find recent events; see [`Store::first_recent`].
///
/// ```
/// use std::time::Duration;
///
/// use doorbell::store::RecentRange;
///
/// let stream_key = "agent-1".into();
/// let range = RecentRange { stream_key, after: 0, through: 7, watermark: None, max_age: Duration::from_secs(10) };
/// assert_eq!(range.through, 7);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecentRange {
    /// The stream.
    pub stream_key: Arc<str>,
    /// The number after which the range starts.
    pub after: u64,
    /// The last number of the range.
    pub through: u64,
    /// Events that were not yet visible at this watermark are recent. `None` if there is none.
    pub watermark: Option<Watermark>,
    /// Without a watermark, or with one that is meaningless here, events that were appended at most this long ago are recent.
    pub max_age: Duration,
}

/// A durable, append-only store of event streams.
///
/// Each stream numbers its events 1, 2, 3, without gaps, in commit order.
///
/// # Implementing
///
/// Only [`append`](Self::append), [`replay`](Self::replay) and [`high_water`](Self::high_water) are required. The other methods
/// have defaults: some are correct but slower, others report that the store does not support them. Without
/// [`changed_since`](Self::changed_since), a bus relies on notifications alone. Without IDs ([`Record::id`], [`Record::previous_id`],
/// [`heads`](Self::heads), [`event_ids`](Self::event_ids)), it notices only that a stream has become shorter, not that it was
/// replaced by one that is as long or longer.
///
/// Implementations require the attribute macro of the crate `async-trait` 0.1.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Mutex;
///
/// use doorbell::bus::{FleetEvent, StreamEvent};
/// use doorbell::store::{Page, Store, StoreError};
///
/// #[derive(Default)]
/// struct Simple(Mutex<BTreeMap<String, Vec<FleetEvent>>>);
///
/// #[async_trait::async_trait]
/// impl Store for Simple {
///     async fn append(&self, event: FleetEvent) -> Result<FleetEvent, StoreError> {
///         let mut streams = self.0.lock().unwrap();
///         let stream = streams.entry(event.stream_key().to_owned()).or_default();
///         let expected = stream.len() as u64 + 1;
///         if event.seq() != 0 && event.seq() != expected {
///             let stream_key = event.stream_key().to_owned();
///             return Err(StoreError::SeqConflict { stream_key, expected, actual: event.seq() });
///         }
///         stream.push(event.with_seq(expected));
///         Ok(stream.last().unwrap().clone())
///     }
///
///     async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<FleetEvent>, StoreError> {
///         let streams = self.0.lock().unwrap();
///         let stream = streams.get(stream_key).map_or(&[][..], |stream| stream);
///         Ok(Page::from_events(stream.iter().skip(after as usize).take(limit).cloned().collect()))
///     }
///
///     async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
///         Ok(self.0.lock().unwrap().get(stream_key).map_or(0, |stream| stream.len() as u64))
///     }
/// }
///
/// # futures::executor::block_on(async {
/// let store = Simple::default();
/// let stamped = store.append(FleetEvent::custom("agent-1", "note", "hello")).await.unwrap();
/// assert_eq!(stamped.seq(), 1);
/// let heads = store.heads(&["agent-1".into(), "agent-2".into()]).await.unwrap().streams;
/// assert_eq!((heads[0].seq, heads[1].seq), (1, 0));
/// # });
/// ```
#[async_trait]
pub trait Store<E: StreamEvent = FleetEvent>: Send + Sync + 'static {
    /// Appends an event to its stream and returns it with its sequence number.
    ///
    /// An event with number 0 gets the next number of its stream; any other number must be the next one. Once this method
    /// returns, the event is durable, and every read that starts afterwards sees it.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::SeqConflict`] if the event has a number that is not the next of its stream,
    /// [`StoreError::InvalidStreamKey`] if its key is not valid, [`StoreError::Encode`] if it cannot be encoded,
    /// [`StoreError::Unavailable`] if the outcome is unknown, and others that depend on the store.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the event may or may not be appended.
    async fn append(&self, event: E) -> Result<E, StoreError>;

    /// Reads at most `limit` records of a stream with numbers above `after`, in ascending order. A page that leaves out a number
    /// means that the store lacks that event for good, so a page must show one state of the store.
    ///
    /// `limit` is at least 1. A stream that does not exist is empty. A store may return fewer records than there are, if it sets
    /// [`Page::more`]: the one in Postgres ends a page with the event that brings it to 2 MiB.
    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<E>, StoreError>;

    /// Returns the highest sequence number of a stream, counting removed events; 0 for a stream that does not exist.
    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError>;

    /// Appends several events of one or more streams, in order; all or none, if the store supports that.
    ///
    /// The default appends one event after another and stops at the first error. Events before it stay appended.
    async fn append_batch(&self, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        let mut stamped = Vec::with_capacity(events.len());
        for event in events {
            stamped.push(self.append(event).await?);
        }
        Ok(stamped)
    }

    /// Appends an event like [`append`](Self::append), and returns its record, with the event's ID if the store assigns one.
    ///
    /// A bus that delivers the event without reading it back uses the ID to detect a rewritten history.
    ///
    /// The default returns no ID.
    async fn append_record(&self, event: E) -> Result<Record<E>, StoreError> {
        self.append(event).await.map(Record::from_event)
    }

    /// Appends several events like [`append_batch`](Self::append_batch), and returns their records.
    ///
    /// The default returns no IDs.
    async fn append_records(&self, events: Vec<E>) -> Result<Vec<Record<E>>, StoreError> {
        let events = self.append_batch(events).await?;
        Ok(events.into_iter().map(Record::from_event).collect())
    }

    /// Reads several ranges, at most `limit` records of each. Returns the pages in the order of `ranges`.
    ///
    /// The default reads one range after another.
    async fn replay_many(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<E>>, StoreError> {
        let mut pages = Vec::with_capacity(ranges.len());
        for range in ranges {
            pages.push(self.replay(&range.stream_key, range.after, limit).await?);
        }
        Ok(pages)
    }

    /// Returns the last event's number and ID of each of several streams, in the order of `stream_keys`, counting removed events, and a
    /// watermark for [`first_recent`](Self::first_recent).
    ///
    /// The default reads one stream after another, and returns no watermark.
    async fn heads(&self, stream_keys: &[Arc<str>]) -> Result<Heads, StoreError> {
        let mut positions = Vec::with_capacity(stream_keys.len());
        for stream_key in stream_keys {
            positions.push((Arc::clone(stream_key), self.high_water(stream_key).await?));
        }
        let ids = self.event_ids(&positions).await?;
        let heads = positions.into_iter().zip(ids);
        Ok(Heads::new(heads.map(|((_, seq), id)| StreamHead { seq, id }).collect()))
    }

    /// Returns, for each range, the lowest number of its recent events, or `None` if it has none.
    ///
    /// A bus asks this when it is notified of events from before a subscription has started: it delivers recent ones, since their
    /// notification may just be late. A range has at most 256 numbers.
    ///
    /// The default reads the ranges, and decides by [`Record::appended_at`] and this machine's clock. Events without that time are
    /// recent.
    async fn first_recent(&self, ranges: &[RecentRange]) -> Result<Vec<Option<u64>>, StoreError> {
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            let limit = usize::try_from(range.through.saturating_sub(range.after)).unwrap_or(usize::MAX);
            let mut page = self.replay(&range.stream_key, range.after, limit.max(1)).await?;
            while page.more
                && let Some(last) = page.records.last().filter(|last| last.seq < range.through)
            {
                let rest = self.replay(&range.stream_key, last.seq, limit.max(1)).await?;
                page.more = rest.more && !rest.records.is_empty();
                page.records.extend(rest.records);
            }
            let is_recent = |record: &Record<E>| record.appended_at.is_none_or(|at| is_younger(at, range.max_age));
            let in_range = page.records.iter().filter(|record| record.seq <= range.through);
            found.push(
                in_range
                    .clone()
                    .find(|record| is_recent(record))
                    .map(|record| record.seq),
            );
        }
        Ok(found)
    }

    /// Lists the streams with events that became visible after `since`, at most `limit` streams per page.
    ///
    /// Without a watermark, or with one that is meaningless here, lists all streams and sets [`Changes::complete`].
    ///
    /// An event that was not visible when the watermark was taken is always listed later, however old its transaction.
    ///
    /// The default returns `None`, which means that the store does not track changes.
    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        let _ = (since, limit);
        Ok(None)
    }

    /// Returns the IDs of the events at `positions`, in the same order.
    ///
    /// A position is a stream key and a sequence number. If there is no event at it, its ID is `None`. A store that removes events should
    /// still know the ID of the last one that it has removed from a stream.
    ///
    /// The default returns `None` for every position, which means that the store does not assign IDs.
    async fn event_ids(&self, positions: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        Ok(vec![None; positions.len()])
    }

    /// The channel on which buses over this store exchange notifications. Stores whose events are separate have different channels.
    ///
    /// The default returns `None`: the bus uses the channel that is set on its builder, or else `doorbell`.
    fn notification_channel(&self) -> Option<&str> {
        None
    }

    /// Notifies the store that the server accepts connections again after an outage.
    ///
    /// The bus calls this method. A store that retries with increasing delays may retry at once. Must not block.
    ///
    /// The default does nothing.
    fn on_reconnect(&self) {}

    /// Called by a bus when its listening connection reaches a primary: `server` is that server's start time, in UTC, to the
    /// microsecond (`2026-01-31 12:00:00.000000`). From then on the store must neither read nor write on any other server, so that it
    /// follows a switchover even if its connections stay alive. `None` if the bus has no such connection, or has ended. `bus` identifies the
    /// bus within the process. If buses name different servers, the latest call decides; if none names one, any server may answer. Must not
    /// block.
    ///
    /// The default does nothing.
    fn follow_server(&self, bus: u64, server: Option<&str>) {
        let _ = (bus, server);
    }
}

/// Whether a time is less than `max_age` ago, or in the future, by this machine's clock.
fn is_younger(time: SystemTime, max_age: Duration) -> bool {
    SystemTime::now()
        .duration_since(time)
        .map_or(true, |age| age <= max_age)
}
