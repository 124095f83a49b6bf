//! The store in memory: for one process, and for tests.

mod history;
mod retention;
mod streams;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use parking_lot::Mutex;

use self::history::{History, Point};
pub use self::retention::MemoryRetention;
use self::streams::Streams;
use super::{ChangedStream, Changes, EventId, Page, Record, Store, StoreError, Watermark, check_stream_key};
use crate::event::{FleetEvent, StreamEvent};

/// A [`Store`] in memory: the embedded default. It keeps the last events of each stream ([`MemoryRetention`]), and nothing beyond
/// the life of the process. Clones are handles of the same store.
///
/// An append costs O(1), a replay O(page), a list of changes O(streams). For every stream that was ever appended to, about a
/// hundred bytes stay, since its numbers must go on.
///
/// [`append_now`](Self::append_now), [`replay_now`](Self::replay_now) and their like need neither a runtime nor an executor; the
/// methods of [`Store`] do the same at their first poll. The lock inside is held for a few pointers' worth of work, never while
/// an event is cloned or dropped.
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
    shared: Arc<SharedStreams<E>>,
}

struct SharedStreams<E> {
    history: History,
    streams: Mutex<Streams<E>>,
}

impl<E> Clone for MemoryStore<E> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<E> fmt::Debug for MemoryStore<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = self.shared.streams.lock();
        f.debug_struct("MemoryStore")
            .field("events", &streams.retained())
            .field("streams", &streams.stream_count())
            .finish_non_exhaustive()
    }
}

impl<E> Default for MemoryStore<E> {
    /// An empty store with the default retention.
    fn default() -> Self {
        Self::with_retention(MemoryRetention::default())
    }
}

impl MemoryStore {
    /// An empty store of [`FleetEvent`]s with the default retention. For events of another type there is
    /// [`with_retention`](Self::with_retention), and `MemoryStore::<E>::default()`.
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
    /// An empty store that keeps as much as `retention` says.
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
            shared: Arc::new(SharedStreams {
                history: History::new(),
                streams: Mutex::new(Streams::new(retention)),
            }),
        }
    }

    /// How many events are retained. Appends of other threads change it at any time.
    ///
    /// ```
    /// assert_eq!(doorbell::store::MemoryStore::new().len(), 0);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.streams.lock().retained()
    }

    /// Whether no event is retained.
    ///
    /// ```
    /// assert!(doorbell::store::MemoryStore::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many streams have ever been appended to. It never falls.
    ///
    /// ```
    /// assert_eq!(doorbell::store::MemoryStore::new().stream_count(), 0);
    /// ```
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.shared.streams.lock().stream_count()
    }

    /// The highest number in a stream, removed events included; 0 for a stream without events.
    ///
    /// ```
    /// assert_eq!(doorbell::store::MemoryStore::new().high_water_now("agent-1"), 0);
    /// ```
    #[must_use]
    pub fn high_water_now(&self, stream_key: &str) -> u64 {
        self.shared.streams.lock().high_water(stream_key)
    }

    /// Removes the events of a stream up to number `through`, and gives how many that were. The stream's numbers go on.
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
        let mut removed = Vec::new();
        // The guard goes at the end of the statement, before what was removed.
        self.shared.streams.lock().trim(stream_key, through, &mut removed)
    }
}

impl<E: StreamEvent> MemoryStore<E> {
    /// [`Store::append`], at once. It waits for nobody but, briefly, other callers of this store.
    ///
    /// # Errors
    ///
    /// [`StoreError::InvalidStreamKey`], or [`StoreError::SeqConflict`] if the event carries a number that is not the next.
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
        self.append_with(event, |event, _| event)
    }

    /// [`Store::append_batch`], at once: all of the events or none.
    ///
    /// # Errors
    ///
    /// As [`append_now`](Self::append_now), for the first event that does not fit.
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
        self.append_batch_with(events, |event, _| event)
    }

    /// [`Store::replay`], at once.
    ///
    /// ```
    /// let page = doorbell::store::MemoryStore::new().replay_now("agent-1", 0, 100);
    /// assert!(page.records.is_empty());
    /// ```
    #[must_use]
    pub fn replay_now(&self, stream_key: &str, after: u64, limit: usize) -> Page<E> {
        let stretch = self.shared.streams.lock().read(stream_key, after, limit);
        let records = stretch.stored.into_iter().zip(stretch.first..);
        Page {
            records: records
                .map(|(stored, seq)| Record {
                    seq,
                    id: Some(self.shared.history.event_id(stored.version)),
                    appended_at: Some(stored.appended_at),
                    event: Ok(E::clone(&stored.event).with_seq(seq)),
                })
                .collect(),
            low_water: stretch.low_water,
        }
    }
}

/// What the store knows of an event that it has appended.
struct Stamp {
    seq: u64,
    id: EventId,
    appended_at: SystemTime,
}

impl Stamp {
    fn record<E>(event: E, stamp: Self) -> Record<E> {
        Record {
            seq: stamp.seq,
            id: Some(stamp.id),
            appended_at: Some(stamp.appended_at),
            event: Ok(event),
        }
    }
}

impl<E: StreamEvent> MemoryStore<E> {
    /// Appends, and makes something of the event with its number.
    fn append_with<R>(&self, event: E, make: impl FnOnce(E, Stamp) -> R) -> Result<R, StoreError> {
        // The event is asked before the lock, not under it.
        let (stream_key, given, kept) = (event.stream_key(), event.seq(), Arc::new(event.clone()));
        check_stream_key(stream_key)?;
        let appended_at = SystemTime::now();
        let mut removed = Vec::new();
        let (seq, version) = {
            let mut streams = self.shared.streams.lock();
            check_next(stream_key, streams.high_water(stream_key), given)?;
            let seq = streams.append(stream_key, kept, appended_at, &mut removed);
            (seq, streams.version())
        };
        let id = self.shared.history.event_id(version);
        Ok(make(event.with_seq(seq), Stamp { seq, id, appended_at }))
    }

    /// The same for several events: all or none.
    fn append_batch_with<R>(&self, events: Vec<E>, make: impl Fn(E, Stamp) -> R) -> Result<Vec<R>, StoreError> {
        let mut batch = Vec::with_capacity(events.len());
        for event in &events {
            let stream_key = event.stream_key();
            check_stream_key(stream_key)?;
            batch.push((stream_key, event.seq(), Arc::new(event.clone())));
        }
        let appended_at = SystemTime::now();
        let mut removed = Vec::new();
        let mut stamps = Vec::with_capacity(batch.len());
        {
            let mut streams = self.shared.streams.lock();
            let mut high_waters = HashMap::new();
            for &(stream_key, given, _) in &batch {
                let high_water = high_waters
                    .entry(stream_key)
                    .or_insert_with(|| streams.high_water(stream_key));
                check_next(stream_key, *high_water, given)?;
                *high_water += 1;
            }
            for (stream_key, _, kept) in batch {
                let seq = streams.append(stream_key, kept, appended_at, &mut removed);
                let id = self.shared.history.event_id(streams.version());
                stamps.push(Stamp { seq, id, appended_at });
            }
        }
        drop(removed);
        let events = events.into_iter().zip(stamps);
        Ok(events
            .map(|(event, stamp)| make(event.with_seq(stamp.seq), stamp))
            .collect())
    }
}

/// Whether an event that carries `given` may come after `high_water`.
fn check_next(stream_key: &str, high_water: u64, given: u64) -> Result<(), StoreError> {
    let expected = high_water + 1;
    if given == 0 || given == expected {
        return Ok(());
    }
    Err(StoreError::SeqConflict {
        stream_key: stream_key.to_owned(),
        expected,
        actual: given,
    })
}

#[async_trait]
impl<E: StreamEvent> Store<E> for MemoryStore<E> {
    async fn append(&self, event: E) -> Result<E, StoreError> {
        self.append_now(event)
    }

    async fn append_record(&self, event: E) -> Result<Record<E>, StoreError> {
        self.append_with(event, Stamp::record)
    }

    async fn append_records(&self, events: Vec<E>) -> Result<Vec<Record<E>>, StoreError> {
        self.append_batch_with(events, Stamp::record)
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

    async fn high_waters(&self, stream_keys: &[Arc<str>]) -> Result<Vec<u64>, StoreError> {
        let streams = self.shared.streams.lock();
        Ok(stream_keys.iter().map(|key| streams.high_water(key)).collect())
    }

    async fn changed_since(&self, since: Option<&Watermark>, limit: usize) -> Result<Option<Changes>, StoreError> {
        let history = self.shared.history;
        let streams = self.shared.streams.lock();
        let mut point = since.and_then(|watermark| history.point(watermark)).unwrap_or(Point {
            since: 0,
            upto: 0,
            from: 0,
            complete: true,
        });
        if point.from == 0 {
            point.upto = streams.version();
        }
        let listing = streams.changed_since(point.since, point.from, limit.max(1));
        drop(streams);
        let next = match listing.next {
            Some(from) => Point { from, ..point },
            None => Point {
                since: point.upto,
                upto: point.upto,
                from: 0,
                complete: false,
            },
        };
        let streams = listing.streams.into_iter();
        Ok(Some(Changes {
            streams: streams
                .map(|(stream_key, high_water)| ChangedStream { stream_key, high_water })
                .collect(),
            watermark: history.watermark(next),
            more: listing.next.is_some(),
            complete: point.complete,
        }))
    }

    async fn identities(&self, places: &[(Arc<str>, u64)]) -> Result<Vec<Option<EventId>>, StoreError> {
        let streams = self.shared.streams.lock();
        let version = |(key, seq): &(Arc<str>, u64)| streams.version_of(key, *seq);
        Ok(places
            .iter()
            .map(|place| version(place).map(|version| self.shared.history.event_id(version)))
            .collect())
    }
}
