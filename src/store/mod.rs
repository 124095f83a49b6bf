//! Durable event streams: what the bus stands on.
//!
//! A [`Store`] keeps any number of streams, each named by a key and numbered 1, 2, 3 without a gap. [`MemoryStore`] keeps them in this
//! process; `PostgresStore` (feature `postgres`) keeps them for any number of processes; others need three methods.
//!
//! Where no type is said, events are [`FleetEvent`](crate::event::FleetEvent)s: `MemoryStore::new()`, `PostgresStore::connect(url)`. For
//! those of another type there are `MemoryStore::<Event>::default()` and `PostgresStore::<Event>::builder().connect(url)`.
//!
//! ```
//! use doorbell::bus::FleetEvent;
//! use doorbell::store::{MemoryStore, Store};
//!
//! # futures::executor::block_on(async {
//! let store = MemoryStore::new();
//! store.append(FleetEvent::custom("agent-1", "note", "one")).await?;
//! store.append(FleetEvent::custom("agent-1", "note", "two")).await?;
//! let page = store.replay("agent-1", 1, 100).await?; // what comes after number 1
//! assert_eq!(page.records[0].seq, 2);
//! # Ok::<_, doorbell::store::StoreError>(())
//! # }).unwrap();
//! ```
//!
//! # What is guaranteed
//!
//! | | `MemoryStore` | `PostgresStore` | a store with the three methods only |
//! |---|---|---|---|
//! | numbers are 1, 2, 3, in the order of commit; no reader ever meets a hole | yes | yes, whatever waits, fails or rolls back | its own |
//! | an append that has returned survives | the process's life | what the server's `synchronous_commit` says | its own |
//! | a stamped event is appended at its number or not at all | yes | yes | yes |
//! | a batch is appended as a whole or not at all | yes | yes | no: up to the first error |
//! | several streams are read in one instant | no | yes | no |
//! | an event with business data in one transaction | – | `append_in` | – |
//! | a stream's numbers go on after its events were removed | yes | yes | its own |
//! | a reader below the floor is told: [`Page::low_water`] | yes | yes | its own |
//! | [`changed_since`](Store::changed_since) | yes | yes; on a standby, after a restart and in a restored dump it lists all streams | unknown |
//! | [identities](EventId), never given twice | yes | yes, through failover and restore | unknown |
//! | readers wait for writers | for microseconds | never | its own |
//!
//! Nothing is said about the order between streams: there is none.

mod changes;
mod error;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod record;

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::{FleetEvent, StreamEvent};
pub use crate::event::{InvalidStreamKey, MAX_STREAM_KEY_BYTES, check_stream_key};
pub use changes::{ChangedStream, Changes, Watermark};
pub use error::StoreError;
pub use memory::{MemoryRetention, MemoryStore};
#[cfg(feature = "postgres")]
pub use postgres::{DEFAULT_SCHEMA, InvalidSchemaName, PostgresStore, PostgresStoreBuilder};
pub use record::{EventId, Page, Record, Undecodable};

/// A stretch of a stream to read: the records with numbers above `after`.
///
/// ```
/// let range = doorbell::store::ReplayRange { stream_key: "agent-1".into(), after: 7 };
/// assert_eq!(range.after, 7);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReplayRange {
    /// The stream.
    pub stream_key: Arc<str>,
    /// The number after which to begin; 0 for the start of the stream.
    pub after: u64,
}

/// A durable, append-only store of event streams, each with numbers of its own: 1, 2, 3, without a gap, in the order of commit.
///
/// Only [`append`](Self::append), [`replay`](Self::replay) and [`high_water`](Self::high_water) have to be written; the others
/// have defaults that are right, and slower, or that say that the store does not know. A bus over a store that does not
/// know relies on doorbells alone where it would ask.
///
/// The methods are written with the attribute of the crate `async-trait` 0.1.
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
/// assert_eq!(store.high_waters(&["agent-1".into(), "agent-2".into()]).await.unwrap(), [1, 0]);
/// # });
/// ```
#[async_trait]
pub trait Store<E: StreamEvent = FleetEvent>: Send + Sync + 'static {
    /// Appends an event to its stream, and returns it with its number. An event with number 0 gets the next one of its stream; a
    /// stamped one has to carry it. When this returns the event is durable, and every reader that starts now sees it.
    ///
    /// Dropping the future leaves open whether the event is appended.
    async fn append(&self, event: E) -> Result<E, StoreError>;

    /// Reads a stream: at most `limit` records with numbers above `after`, by ascending number and without a hole. `limit` is at
    /// least 1. A stream that does not exist is an empty one.
    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<E>, StoreError>;

    /// The highest number in a stream, trimmed events included; 0 for a stream without events.
    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError>;

    /// Appends several events, of one or more streams, in their order: all of them or none, where the store can. The default
    /// appends one after another, and stops at the first error: what came before it stays.
    async fn append_batch(&self, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        let mut stamped = Vec::with_capacity(events.len());
        for event in events {
            stamped.push(self.append(event).await?);
        }
        Ok(stamped)
    }

    /// As [`append`](Self::append), and returns the record, with the event's identity where the store keeps one. By it a bus that
    /// delivers the event without reading it back notices later if history is rewritten. The default knows no identity.
    async fn append_record(&self, event: E) -> Result<Record<E>, StoreError> {
        self.append(event).await.map(Record::from_event)
    }

    /// As [`append_batch`](Self::append_batch), and returns the records. The default knows no identities.
    async fn append_records(&self, events: Vec<E>) -> Result<Vec<Record<E>>, StoreError> {
        let events = self.append_batch(events).await?;
        Ok(events.into_iter().map(Record::from_event).collect())
    }

    /// Reads several streams at once, at most `limit` records of each, the pages in the order of `ranges`. The default reads one
    /// after another.
    async fn replay_many(&self, ranges: &[ReplayRange], limit: usize) -> Result<Vec<Page<E>>, StoreError> {
        let mut pages = Vec::with_capacity(ranges.len());
        for range in ranges {
            pages.push(self.replay(&range.stream_key, range.after, limit).await?);
        }
        Ok(pages)
    }

    /// The highest number in each of several streams, in the order of `stream_keys`. The default asks for one after another.
    async fn high_waters(&self, stream_keys: &[Arc<str>]) -> Result<Vec<u64>, StoreError> {
        let mut high_waters = Vec::with_capacity(stream_keys.len());
        for stream_key in stream_keys {
            high_waters.push(self.high_water(stream_key).await?);
        }
        Ok(high_waters)
    }

    /// Which streams have events that became visible after `since`, by page of at most `limit` streams; without `since`, or where
    /// that means nothing here, all streams (then [`Changes::complete`]). An event that was invisible when the watermark was
    /// taken is above it, however old its transaction.
    ///
    /// `None` if the store does not know, which is the default.
    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        let _ = (since, limit);
        Ok(None)
    }

    /// The identities of events, in the order of `places`, each a stream and a number. `None` for a place without an event, and,
    /// by default, for all: the store keeps no identities, and a bus over it cannot tell a history that was rewritten to the
    /// same length.
    async fn identities(&self, places: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        Ok(vec![None; places.len()])
    }

    /// The bus says: the server has been away, and takes connections again. A store whose connections wait longer and longer
    /// between their attempts may try at once. Must not block. The default does nothing.
    fn on_reconnect(&self) {}
}
