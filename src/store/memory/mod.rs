//! The memory store: for a single process, and for tests.

mod append;
mod retention;
mod streams;
mod watermark;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

pub use self::retention::MemoryRetention;
use self::streams::{StoredEvent, Streams};
use self::watermark::{StoreId, WatermarkFields};
use super::{
    ChangedStream, Changes, EventId, Heads, Page, RecentRange, Record, Store, StoreError, StreamHead, Watermark,
    is_younger,
};
use crate::event::{FleetEvent, StreamEvent, foreign};

/// A [`Store`] in memory.
///
/// It keeps the last events of each stream (see [`MemoryRetention`]) until the process ends. Clones are handles of the same
/// store.
///
/// The methods whose names end in `_now` are synchronous and require no runtime. The methods of [`Store`] do the same work on
/// their first poll. They block only on a lock that is held for a short time, and never while an event is cloned or dropped.
///
/// # Costs
///
/// An append takes O(1), a replay O(page), and a list of changes O(streams). Every stream that was ever appended to occupies about
/// a hundred bytes until the store is dropped, because its numbering must continue.
///
/// # Examples
///
/// ```
/// use doorbell::bus::FleetEvent;
/// use doorbell::store::MemoryStore;
///
/// let store = MemoryStore::new();
/// let stamped = store.append_now(FleetEvent::custom("agent-1", "note", "hello")).unwrap();
/// assert_eq!(stamped.seq, 1);
/// assert_eq!(store.replay_now("agent-1", 0, 100).records[0].event, Ok(stamped));
/// ```
pub struct MemoryStore<E = FleetEvent> {
    inner: Arc<Inner<E>>,
}

struct Inner<E> {
    id: StoreId,
    streams: Mutex<Streams<E>>,
}

impl<E> Clone for MemoryStore<E> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<E> fmt::Debug for MemoryStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = self.inner.streams.lock();
        f.debug_struct("MemoryStore")
            .field("events", &streams.event_count())
            .field("streams", &streams.stream_count())
            .finish_non_exhaustive()
    }
}

impl<E> Default for MemoryStore<E> {
    /// Creates an empty store with the default retention.
    fn default() -> Self {
        Self::with_retention(MemoryRetention::default())
    }
}

impl MemoryStore {
    /// Creates an empty store of [`FleetEvent`]s with the default retention. For other event types, use
    /// `MemoryStore::<E>::default()` or [`with_retention`](Self::with_retention).
    ///
    /// ```
    /// assert!(doorbell::store::MemoryStore::new().is_empty());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<E> MemoryStore<E> {
    /// Creates an empty store with the given retention.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    ///
    /// use doorbell::bus::FleetEvent;
    /// use doorbell::store::{MemoryRetention, MemoryStore};
    ///
    /// let per_stream = NonZeroUsize::new(2).unwrap();
    /// let store = MemoryStore::<FleetEvent>::with_retention(MemoryRetention { per_stream, ..Default::default() });
    /// for _ in 0..3 {
    ///     store.append_now(FleetEvent::custom("agent-1", "tick", "")).unwrap();
    /// }
    /// let page = store.replay_now("agent-1", 0, 100);
    /// assert_eq!((page.low_water, page.records[0].seq, page.records.len()), (1, 2, 2));
    /// ```
    #[must_use]
    pub fn with_retention(retention: MemoryRetention) -> Self {
        Self {
            inner: Arc::new(Inner {
                id: StoreId::random(),
                streams: Mutex::new(Streams::new(retention)),
            }),
        }
    }

    /// Returns the number of events in the store. Concurrent appends may change it at any time.
    ///
    /// ```
    /// assert_eq!(doorbell::store::MemoryStore::new().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.streams.lock().event_count()
    }

    /// Returns `true` if the store contains no events.
    ///
    /// ```
    /// assert!(doorbell::store::MemoryStore::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of streams that were ever appended to. It never decreases.
    ///
    /// ```
    /// assert_eq!(doorbell::store::MemoryStore::new().stream_count(), 0);
    /// ```
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.inner.streams.lock().stream_count()
    }

    /// Returns the highest sequence number of a stream, counting removed events; 0 for a stream that does not exist.
    ///
    /// ```
    /// assert_eq!(doorbell::store::MemoryStore::new().high_water_now("agent-1"), 0);
    /// ```
    #[must_use]
    pub fn high_water_now(&self, stream_key: &str) -> u64 {
        self.inner.streams.lock().high_water(stream_key)
    }

    /// Removes the events of a stream up to and including number `through`, and returns how many it removed. The stream's numbering
    /// continues.
    ///
    /// ```
    /// use doorbell::bus::FleetEvent;
    ///
    /// let store = doorbell::store::MemoryStore::new();
    /// store.append_now(FleetEvent::custom("agent-1", "note", "hello")).unwrap();
    /// assert_eq!(store.trim_now("agent-1", 5), 1);
    /// assert_eq!((store.len(), store.high_water_now("agent-1")), (0, 1));
    /// ```
    pub fn trim_now(&self, stream_key: &str, through: u64) -> u64 {
        let mut removed = foreign::DropLater::new();
        self.inner.streams.lock().trim(stream_key, through, &mut removed.0)
    }
}

impl<E: StreamEvent> MemoryStore<E> {
    /// Appends an event and returns it with its sequence number, like [`Store::append`].
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::InvalidStreamKey`] if the key is not valid, and [`StoreError::SeqConflict`] if the event has a
    /// number that is not the next of its stream.
    ///
    /// ```
    /// use doorbell::bus::{FleetEvent, StreamEvent};
    /// use doorbell::store::StoreError;
    ///
    /// let store = doorbell::store::MemoryStore::new();
    /// let early = FleetEvent::custom("agent-1", "note", "hello").with_seq(3);
    /// assert!(matches!(store.append_now(early), Err(StoreError::SeqConflict { expected: 1, actual: 3, .. })));
    /// ```
    pub fn append_now(&self, event: E) -> Result<E, StoreError> {
        let metadata = self.append_event(&event)?;
        Ok(metadata.stamp(event))
    }

    /// Appends several events, all or none, like [`Store::append_batch`].
    ///
    /// # Errors
    ///
    /// Returns the error of [`append_now`](Self::append_now) for the first event that is refused.
    ///
    /// ```
    /// use doorbell::bus::FleetEvent;
    ///
    /// let store = doorbell::store::MemoryStore::new();
    /// let tick = |agent| FleetEvent::custom(agent, "tick", "");
    /// let stamped = store.append_batch_now(vec![tick("agent-1"), tick("agent-2"), tick("agent-1")]).unwrap();
    /// assert_eq!(stamped.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 1, 2]);
    /// ```
    pub fn append_batch_now(&self, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        let metadata = self.append_events(&events)?;
        let stamped = events.into_iter().zip(metadata);
        Ok(stamped.map(|(event, metadata)| metadata.stamp(event)).collect())
    }

    /// See [`Store::first_recent`].
    pub(crate) fn first_recent_now(&self, range: &RecentRange) -> Option<u64> {
        let since = range
            .watermark
            .as_ref()
            .and_then(|watermark| self.inner.id.decode(watermark));
        let limit = usize::try_from(range.through.saturating_sub(range.after)).unwrap_or(usize::MAX);
        let slice = self.inner.streams.lock().read(&range.stream_key, range.after, limit);
        let is_recent = |stored: &StoredEvent<E>| match since {
            Some(fields) => stored.position > fields.since,
            None => is_younger(stored.appended_at, range.max_age),
        };
        let index = slice.events.iter().position(is_recent)?;
        Some(slice.first_seq + index as u64).filter(|&seq| seq <= range.through)
    }

    /// Reads at most `limit` events with numbers above `after`, like [`Store::replay`].
    ///
    /// ```
    /// let page = doorbell::store::MemoryStore::new().replay_now("agent-1", 0, 100);
    /// assert!(page.records.is_empty());
    /// ```
    #[must_use]
    pub fn replay_now(&self, stream_key: &str, after: u64, limit: usize) -> Page<E> {
        let slice = self.inner.streams.lock().read(stream_key, after, limit);
        let mut previous_position = slice.previous_position;
        let record = |(stored, seq): (StoredEvent<E>, u64)| Record {
            seq,
            id: Some(self.inner.id.event_id(stored.position)),
            previous_id: previous_position
                .replace(stored.position)
                .map(|position| self.inner.id.event_id(position)),
            appended_at: Some(stored.appended_at),
            event: Ok(E::clone(&stored.event).with_seq(seq)),
        };
        Page {
            records: slice.events.into_iter().zip(slice.first_seq..).map(record).collect(),
            low_water: slice.low_water,
            low_water_id: slice
                .low_water_position
                .filter(|_| slice.low_water > after)
                .map(|position| self.inner.id.event_id(position)),
            more: false,
        }
    }
}

#[async_trait]
impl<E: StreamEvent> Store<E> for MemoryStore<E> {
    async fn append(&self, event: E) -> Result<E, StoreError> {
        self.append_now(event)
    }

    async fn append_record(&self, event: E) -> Result<Record<E>, StoreError> {
        let metadata = self.append_event(&event)?;
        Ok(metadata.into_record(event))
    }

    async fn append_records(&self, events: Vec<E>) -> Result<Vec<Record<E>>, StoreError> {
        let metadata = self.append_events(&events)?;
        let appended = events.into_iter().zip(metadata);
        Ok(appended.map(|(event, metadata)| metadata.into_record(event)).collect())
    }

    async fn replay(&self, stream_key: &str, after: u64, limit: usize) -> Result<Page<E>, StoreError> {
        Ok(self.replay_now(stream_key, after, limit))
    }

    async fn high_water(&self, stream_key: &str) -> Result<u64, StoreError> {
        Ok(self.high_water_now(stream_key))
    }

    async fn append_batch(&self, events: Vec<E>) -> Result<Vec<E>, StoreError> {
        self.append_batch_now(events)
    }

    async fn heads(&self, stream_keys: &[Arc<str>]) -> Result<Heads, StoreError> {
        let streams = self.inner.streams.lock();
        let head = |key: &Arc<str>| {
            let (seq, position) = streams.head(key);
            let id = position.map(|position| self.inner.id.event_id(position));
            StreamHead { seq, id }
        };
        let heads = stream_keys.iter().map(head).collect();
        let since = streams.last_position();
        let fields = WatermarkFields {
            since,
            upto: since,
            next_stream: 0,
            complete: false,
        };
        Ok(Heads {
            watermark: Some(self.inner.id.encode(fields)),
            ..Heads::new(heads)
        })
    }

    async fn first_recent(&self, ranges: &[RecentRange]) -> Result<Vec<Option<u64>>, StoreError> {
        Ok(ranges.iter().map(|range| self.first_recent_now(range)).collect())
    }

    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        let id = self.inner.id;
        let streams = self.inner.streams.lock();
        let since = since.and_then(|watermark| id.decode(watermark));
        let mut fields = since.unwrap_or(WatermarkFields {
            since: 0,
            upto: 0,
            next_stream: 0,
            complete: true,
        });
        if fields.next_stream == 0 {
            fields.upto = streams.last_position();
        }
        let page = streams.changed_since(fields.since, fields.next_stream, limit.max(1));
        drop(streams);
        let next = match page.next_stream {
            Some(next_stream) => WatermarkFields { next_stream, ..fields },
            None => WatermarkFields {
                since: fields.upto,
                upto: fields.upto,
                next_stream: 0,
                complete: false,
            },
        };
        let streams = page.streams.into_iter();
        Ok(Some(Changes {
            streams: streams
                .map(|(stream_key, seq, position)| ChangedStream {
                    stream_key,
                    head: StreamHead {
                        seq,
                        id: Some(id.event_id(position)),
                    },
                })
                .collect(),
            watermark: id.encode(next),
            more: page.next_stream.is_some(),
            complete: fields.complete,
        }))
    }

    async fn event_ids(&self, positions: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        let streams = self.inner.streams.lock();
        let id_of = |(key, seq): &(Arc<str>, u64)| {
            let position = streams.position_of(key, *seq)?;
            Some(self.inner.id.event_id(position))
        };
        Ok(positions.iter().map(id_of).collect())
    }
}
