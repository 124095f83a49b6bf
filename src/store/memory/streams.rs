//! The streams of a memory store, as they are kept behind its lock. Nothing here runs code of the event type: events are passed
//! as `Arc`s, and removed events are returned to the caller, which drops them after it has released the lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use super::MemoryRetention;

/// An event as it was appended, without its sequence number.
#[derive(Debug)]
pub(super) struct StoredEvent<E> {
    /// The ordinal of the event among all events that were ever appended to the store.
    pub(super) position: u64,
    pub(super) appended_at: SystemTime,
    pub(super) event: Arc<E>,
}

impl<E> Clone for StoredEvent<E> {
    fn clone(&self) -> Self {
        Self {
            event: Arc::clone(&self.event),
            ..*self
        }
    }
}

#[derive(Debug)]
struct Stream<E> {
    key: Arc<str>,
    /// Events up to this number have been removed; the first of `events` has the next number.
    low_water: u64,
    /// The position of the last removed event; 0 if none was removed.
    low_water_position: u64,
    events: VecDeque<StoredEvent<E>>,
    /// The position of the last event that was ever appended.
    last_position: u64,
}

impl<E> Stream<E> {
    fn high_water(&self) -> u64 {
        self.low_water + self.events.len() as u64
    }
}

/// Consecutive events of a stream.
pub(super) struct StreamSlice<E> {
    /// The sequence number of the first of `events`.
    pub(super) first_seq: u64,
    /// The position of the event before the first; `None` if there was none.
    pub(super) previous_position: Option<u64>,
    pub(super) events: Vec<StoredEvent<E>>,
    pub(super) low_water: u64,
    /// The position of the last removed event, if one was removed.
    pub(super) low_water_position: Option<u64>,
}

/// A page of a list of changed streams.
pub(super) struct ChangedPage {
    /// Keys, high-water marks, and positions of the last events.
    pub(super) streams: Vec<(Arc<str>, u64, u64)>,
    /// The index of the stream at which the next page starts, if there is one.
    pub(super) next_stream: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Streams<E> {
    retention: MemoryRetention,
    /// Streams are never removed, because their numbering must continue; so their indices are stable.
    streams: Vec<Stream<E>>,
    by_key: HashMap<Arc<str>, usize>,
    /// Position and stream index of every event, oldest first. May contain as many stale entries, of events that were removed.
    by_age: VecDeque<(u64, usize)>,
    event_count: usize,
    last_position: u64,
}

impl<E> Streams<E> {
    pub(super) fn new(retention: MemoryRetention) -> Self {
        Self {
            retention,
            streams: Vec::new(),
            by_key: HashMap::new(),
            by_age: VecDeque::new(),
            event_count: 0,
            last_position: 0,
        }
    }

    /// Returns the number of events that were ever appended.
    pub(super) fn last_position(&self) -> u64 {
        self.last_position
    }

    pub(super) fn event_count(&self) -> usize {
        self.event_count
    }

    pub(super) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    fn stream(&self, key: &str) -> Option<&Stream<E>> {
        self.by_key.get(key).map(|&index| &self.streams[index])
    }

    pub(super) fn high_water(&self, key: &str) -> u64 {
        self.stream(key).map_or(0, Stream::high_water)
    }

    /// Returns the high-water mark and the position of the last event; 0 and `None` if there was none.
    pub(super) fn head(&self, key: &str) -> (u64, Option<u64>) {
        self.stream(key)
            .map_or((0, None), |stream| (stream.high_water(), Some(stream.last_position)))
    }

    /// Appends an event and returns its sequence number. Adds the events that retention removes to `removed`.
    pub(super) fn append(
        &mut self,
        key: &str,
        event: Arc<E>,
        appended_at: SystemTime,
        removed: &mut Vec<Arc<E>>,
    ) -> u64 {
        let index = match self.by_key.get(key) {
            Some(&index) => index,
            None => self.create_stream(key),
        };
        self.last_position += 1;
        let position = self.last_position;
        let stream = &mut self.streams[index];
        stream.events.push_back(StoredEvent {
            position,
            appended_at,
            event,
        });
        stream.last_position = position;
        let seq = stream.high_water();
        self.by_age.push_back((position, index));
        self.event_count += 1;
        if self.streams[index].events.len() > self.retention.per_stream.get() {
            self.remove_oldest_of(index, removed);
        }
        while self.event_count > self.retention.total.get() {
            self.remove_oldest(removed);
        }
        self.compact_by_age();
        seq
    }

    fn create_stream(&mut self, key: &str) -> usize {
        let key = Arc::<str>::from(key);
        let index = self.streams.len();
        self.streams.push(Stream {
            key: Arc::clone(&key),
            low_water: 0,
            low_water_position: 0,
            events: VecDeque::new(),
            last_position: 0,
        });
        self.by_key.insert(key, index);
        index
    }

    fn remove_oldest_of(&mut self, index: usize, removed: &mut Vec<Arc<E>>) {
        let stream = &mut self.streams[index];
        if let Some(oldest) = stream.events.pop_front() {
            stream.low_water += 1;
            stream.low_water_position = oldest.position;
            self.event_count -= 1;
            removed.push(oldest.event);
        }
    }

    fn remove_oldest(&mut self, removed: &mut Vec<Arc<E>>) {
        while let Some((position, index)) = self.by_age.pop_front() {
            if self.is_retained(position, index) {
                self.remove_oldest_of(index, removed);
                return;
            }
        }
    }

    /// Returns `true` if an event is still retained. A stream loses its oldest events first, so comparing with its first event
    /// suffices.
    fn is_retained(&self, position: u64, index: usize) -> bool {
        self.streams[index]
            .events
            .front()
            .is_some_and(|oldest| oldest.position <= position)
    }

    /// Keeps the length of `by_age` below about twice the number of events. The amortized cost is O(1), because as many appends
    /// precede each pass.
    fn compact_by_age(&mut self) {
        if self.by_age.len() > 2 * self.event_count + 64 {
            let by_age = std::mem::take(&mut self.by_age);
            self.by_age = by_age
                .into_iter()
                .filter(|&(position, index)| self.is_retained(position, index))
                .collect();
        }
    }

    /// Removes the events of a stream up to number `through`, adds them to `removed`, and returns their count.
    pub(super) fn trim(&mut self, key: &str, through: u64, removed: &mut Vec<Arc<E>>) -> u64 {
        let Some(&index) = self.by_key.get(key) else {
            return 0;
        };
        let stream = &mut self.streams[index];
        let count = through.min(stream.high_water()).saturating_sub(stream.low_water);
        stream.low_water += count;
        // At most `events.len()`, so the cast is lossless.
        for trimmed in stream.events.drain(..count as usize) {
            stream.low_water_position = trimmed.position;
            removed.push(trimmed.event);
        }
        self.event_count -= count as usize;
        self.compact_by_age();
        count
    }

    pub(super) fn read(&self, key: &str, after: u64, limit: usize) -> StreamSlice<E> {
        let Some(stream) = self.stream(key) else {
            return StreamSlice {
                first_seq: 1,
                previous_position: None,
                events: Vec::new(),
                low_water: 0,
                low_water_position: None,
            };
        };
        let skipped = after.saturating_sub(stream.low_water);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(stream.events.len());
        let low_water_position = Some(stream.low_water_position).filter(|&position| position > 0);
        let end = skipped.saturating_add(limit).min(stream.events.len());
        StreamSlice {
            first_seq: stream.low_water + 1 + skipped as u64,
            previous_position: match skipped.checked_sub(1) {
                Some(previous) => stream.events.get(previous).map(|stored| stored.position),
                None => low_water_position,
            },
            events: stream.events.range(skipped..end).cloned().collect(),
            low_water: stream.low_water,
            low_water_position,
        }
    }

    /// Returns the position of an event, unless it has been removed and others after it.
    pub(super) fn position_of(&self, key: &str, seq: u64) -> Option<u64> {
        let stream = self.stream(key)?;
        if seq > 0 && seq == stream.low_water {
            return Some(stream.low_water_position);
        }
        let index = seq.checked_sub(stream.low_water)?.checked_sub(1)?;
        let stored = stream.events.get(usize::try_from(index).ok()?)?;
        Some(stored.position)
    }

    /// Lists at most `limit` streams with events above position `since`, starting with the stream at index `first_stream`.
    pub(super) fn changed_since(&self, since: u64, first_stream: usize, limit: usize) -> ChangedPage {
        let mut streams = Vec::new();
        if since < self.last_position {
            for (index, stream) in self.streams.iter().enumerate().skip(first_stream) {
                if stream.last_position <= since {
                    continue;
                }
                if streams.len() == limit {
                    return ChangedPage {
                        streams,
                        next_stream: Some(index),
                    };
                }
                streams.push((Arc::clone(&stream.key), stream.high_water(), stream.last_position));
            }
        }
        ChangedPage {
            streams,
            next_stream: None,
        }
    }
}
