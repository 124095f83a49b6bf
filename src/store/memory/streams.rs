//! The streams themselves, as they lie under the store's lock. Nothing here runs the event type's code: events come and go as
//! `Arc`s, and what is removed is handed out to be dropped outside.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use super::MemoryRetention;

/// An event as it was given, its number not yet written into it.
#[derive(Debug)]
pub(super) struct Stored<E> {
    /// The event's place among all events of the store.
    pub(super) version: u64,
    pub(super) appended_at: SystemTime,
    pub(super) event: Arc<E>,
}

impl<E> Clone for Stored<E> {
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
    /// Events up to this number have been removed; the first of `retained` has the next.
    low_water: u64,
    retained: VecDeque<Stored<E>>,
    /// The version of the last event ever appended.
    changed: u64,
}

impl<E> Stream<E> {
    fn high_water(&self) -> u64 {
        self.low_water + self.retained.len() as u64
    }
}

/// A stretch of a stream.
pub(super) struct Stretch<E> {
    /// The number of the first of `stored`.
    pub(super) first: u64,
    pub(super) stored: Vec<Stored<E>>,
    pub(super) low_water: u64,
}

/// A page of a list of streams.
pub(super) struct Listing {
    /// Keys with their highest numbers.
    pub(super) streams: Vec<(Arc<str>, u64)>,
    /// Where the next page begins, if there is one.
    pub(super) next: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Streams<E> {
    retention: MemoryRetention,
    /// Never removed, since a stream's numbers must go on; the index of a stream is its place here.
    streams: Vec<Stream<E>>,
    by_key: HashMap<Arc<str>, usize>,
    /// Every retained event by age, as its version and its stream; and entries of events that are gone, at most as many again.
    by_age: VecDeque<(u64, usize)>,
    retained: usize,
    version: u64,
}

impl<E> Streams<E> {
    pub(super) fn new(retention: MemoryRetention) -> Self {
        Self {
            retention,
            streams: Vec::new(),
            by_key: HashMap::new(),
            by_age: VecDeque::new(),
            retained: 0,
            version: 0,
        }
    }

    /// How many events have ever been appended.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn retained(&self) -> usize {
        self.retained
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

    /// Appends, and gives the number. What retention removes for it goes to `removed`.
    pub(super) fn append(
        &mut self,
        key: &str,
        event: Arc<E>,
        appended_at: SystemTime,
        removed: &mut Vec<Arc<E>>,
    ) -> u64 {
        let index = match self.by_key.get(key) {
            Some(&index) => index,
            None => self.open(key),
        };
        self.version += 1;
        let version = self.version;
        let stream = &mut self.streams[index];
        stream.retained.push_back(Stored {
            version,
            appended_at,
            event,
        });
        stream.changed = version;
        let seq = stream.high_water();
        self.by_age.push_back((version, index));
        self.retained += 1;
        if self.streams[index].retained.len() > self.retention.per_stream.get() {
            self.remove_oldest_of(index, removed);
        }
        while self.retained > self.retention.total.get() {
            self.remove_oldest(removed);
        }
        self.forget_the_gone();
        seq
    }

    fn open(&mut self, key: &str) -> usize {
        let key = Arc::<str>::from(key);
        let index = self.streams.len();
        self.streams.push(Stream {
            key: Arc::clone(&key),
            low_water: 0,
            retained: VecDeque::new(),
            changed: 0,
        });
        self.by_key.insert(key, index);
        index
    }

    fn remove_oldest_of(&mut self, index: usize, removed: &mut Vec<Arc<E>>) {
        let stream = &mut self.streams[index];
        if let Some(oldest) = stream.retained.pop_front() {
            stream.low_water += 1;
            self.retained -= 1;
            removed.push(oldest.event);
        }
    }

    fn remove_oldest(&mut self, removed: &mut Vec<Arc<E>>) {
        while let Some((version, index)) = self.by_age.pop_front() {
            if self.is_retained(version, index) {
                self.remove_oldest_of(index, removed);
                return;
            }
        }
    }

    /// A stream loses its oldest events first, so one comparison tells.
    fn is_retained(&self, version: u64, index: usize) -> bool {
        self.streams[index]
            .retained
            .front()
            .is_some_and(|oldest| oldest.version <= version)
    }

    /// Keeps `by_age` within twice what is retained. It pays for a pass over it with as many appends before.
    fn forget_the_gone(&mut self) {
        if self.by_age.len() > 2 * self.retained + 64 {
            let by_age = std::mem::take(&mut self.by_age);
            self.by_age = by_age
                .into_iter()
                .filter(|&(version, index)| self.is_retained(version, index))
                .collect();
        }
    }

    /// Removes the events of a stream up to `through`, and gives how many they were.
    pub(super) fn trim(&mut self, key: &str, through: u64, removed: &mut Vec<Arc<E>>) -> u64 {
        let Some(&index) = self.by_key.get(key) else {
            return 0;
        };
        let stream = &mut self.streams[index];
        let count = through.min(stream.high_water()).saturating_sub(stream.low_water);
        stream.low_water += count;
        // At most as many as are retained, so it fits.
        let gone = stream.retained.drain(..count as usize);
        removed.extend(gone.map(|stored| stored.event));
        self.retained -= count as usize;
        self.forget_the_gone();
        count
    }

    pub(super) fn read(&self, key: &str, after: u64, limit: usize) -> Stretch<E> {
        let Some(stream) = self.stream(key) else {
            return Stretch {
                first: 1,
                stored: Vec::new(),
                low_water: 0,
            };
        };
        let skipped = after.saturating_sub(stream.low_water);
        let skipped = usize::try_from(skipped)
            .unwrap_or(usize::MAX)
            .min(stream.retained.len());
        let end = skipped.saturating_add(limit).min(stream.retained.len());
        Stretch {
            first: stream.low_water + 1 + skipped as u64,
            stored: stream.retained.range(skipped..end).cloned().collect(),
            low_water: stream.low_water,
        }
    }

    /// The version of an event, if it is retained.
    pub(super) fn version_of(&self, key: &str, seq: u64) -> Option<u64> {
        let stream = self.stream(key)?;
        let place = seq.checked_sub(stream.low_water)?.checked_sub(1)?;
        let stored = stream.retained.get(usize::try_from(place).ok()?)?;
        Some(stored.version)
    }

    /// The streams, from the one at index `from` on, with events above `version`: at most `limit`.
    pub(super) fn changed_since(&self, version: u64, from: usize, limit: usize) -> Listing {
        let mut streams = Vec::new();
        if version < self.version {
            for (index, stream) in self.streams.iter().enumerate().skip(from) {
                if stream.changed <= version {
                    continue;
                }
                if streams.len() == limit {
                    return Listing {
                        streams,
                        next: Some(index),
                    };
                }
                streams.push((Arc::clone(&stream.key), stream.high_water()));
            }
        }
        Listing { streams, next: None }
    }
}
