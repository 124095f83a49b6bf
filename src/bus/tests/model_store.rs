//! A store that remembers the events that retention has removed, and whose history can be replaced.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Poll;

use futures_core::future::BoxFuture;
use parking_lot::Mutex;

use crate::bus::history_cache::HistorySource;
use crate::bus::hub::StoredHistory;
use crate::bus::{FleetEvent, StreamEvent as _};
use crate::store::{EventId, Page, RecentRange, Record, StreamHead};

#[derive(Clone, Default)]
pub(super) struct ModelStore(Arc<Mutex<ModelState>>);

#[derive(Default)]
struct ModelState {
    streams: HashMap<String, ModelStream>,
    /// The number of events that were ever appended. Each event contains its ordinal, so events of replaced histories differ.
    appended: u64,
    /// How many of the next history reads another server answers, and how many of a stream's last events it lacks.
    stale: (u32, u64),
}

#[derive(Default)]
struct ModelStream {
    events: Vec<FleetEvent>,
    /// The ordinal of each event.
    ordinals: Vec<u64>,
    low_water: u64,
    /// The ordinal of the last append.
    changed_at: u64,
}

impl ModelStream {
    fn head(&self) -> u64 {
        self.events.len() as u64
    }

    /// The ids of an event and of the one before it, as a store keeps them.
    fn ids(&self, seq: u64) -> (Option<EventId>, Option<EventId>) {
        let id = |seq: u64| {
            let index = usize::try_from(seq.checked_sub(1)?).ok()?;
            Some(EventId(u128::from(*self.ordinals.get(index)?)))
        };
        (id(seq), seq.checked_sub(1).and_then(id))
    }

    fn record(&self, event: FleetEvent) -> Record<FleetEvent> {
        let (id, previous_id) = self.ids(event.seq);
        Record {
            id,
            previous_id,
            ..Record::from_event(event)
        }
    }

    fn stream_head(&self) -> StreamHead {
        let seq = self.head();
        StreamHead {
            seq,
            id: self.ids(seq).0,
        }
    }
}

impl ModelStore {
    /// Appends an event.
    pub(super) fn append(&self, key: &str) -> Record<FleetEvent> {
        let mut state = self.0.lock();
        state.appended += 1;
        let ordinal = state.appended;
        let event = FleetEvent::custom(key, "n", ordinal.to_string());
        let stream = state.streams.entry(key.to_owned()).or_default();
        let event = event.with_seq(stream.head() + 1);
        stream.events.push(event.clone());
        stream.ordinals.push(ordinal);
        stream.changed_at = ordinal;
        stream.record(event)
    }

    pub(super) fn head(&self, key: &str) -> u64 {
        self.0.lock().streams.get(key).map_or(0, ModelStream::head)
    }

    pub(super) fn low_water(&self, key: &str) -> u64 {
        self.0.lock().streams.get(key).map_or(0, |stream| stream.low_water)
    }

    pub(super) fn stream_head(&self, key: &str) -> StreamHead {
        let state = self.0.lock();
        state
            .streams
            .get(key)
            .map_or_else(StreamHead::default, ModelStream::stream_head)
    }

    /// Returns what the store has in the places of delivered events.
    pub(super) fn stored(&self, key: &str, seqs: impl Iterator<Item = u64>) -> StoredHistory {
        let state = self.0.lock();
        let stream = state.streams.get(key);
        let id = |seq| {
            let stream = stream.filter(|stream| seq >= stream.low_water)?;
            stream.ids(seq).0
        };
        StoredHistory {
            ids: seqs.map(id).collect(),
            head: stream.map_or_else(StreamHead::default, ModelStream::stream_head),
            low_water: stream.map_or(0, |stream| stream.low_water),
            is_standby: false,
        }
    }

    /// Returns the head of each stream that has events.
    pub(super) fn heads(&self) -> HashMap<String, u64> {
        let state = self.0.lock();
        let heads = state.streams.iter().map(|(key, stream)| (key.clone(), stream.head()));
        heads.filter(|&(_, head)| head > 0).collect()
    }

    /// Returns the number of events that were ever appended.
    pub(super) fn appended(&self) -> u64 {
        self.0.lock().appended
    }

    /// Returns the heads of the streams with events that were appended after the first `appended` ones.
    pub(super) fn changed_since(&self, appended: u64) -> Vec<(String, StreamHead)> {
        let state = self.0.lock();
        let changed = state.streams.iter().filter(|(_, stream)| stream.changed_at > appended);
        changed
            .map(|(key, stream)| (key.clone(), stream.stream_head()))
            .collect()
    }

    /// Another server, which lacks the last `lacks` events of each stream, answers the next `reads` history reads.
    pub(super) fn answer_stale(&self, reads: u32, lacks: u64) {
        self.0.lock().stale = (reads, lacks);
    }

    /// Returns an event, even if retention has removed it.
    pub(super) fn event(&self, key: &str, seq: u64) -> FleetEvent {
        let index = usize::try_from(seq - 1).expect("test streams are short");
        self.0.lock().streams[key].events[index].clone()
    }

    /// Reads a page from a server that lacks the last `lacks` events of the stream.
    pub(super) fn page(&self, key: &str, after: u64, limit: usize, lacks: u64) -> Page<FleetEvent> {
        let state = self.0.lock();
        let Some(stream) = state.streams.get(key) else {
            return Page::from_events(Vec::new());
        };
        let head = stream.head().saturating_sub(lacks);
        let low_water = stream.low_water.min(head);
        let index = |seq| usize::try_from(seq).expect("test streams are short");
        let events = &stream.events[index(after.max(low_water).min(head))..index(head)];
        let events = events.iter().take(limit).cloned();
        Page {
            records: events.map(|event| stream.record(event)).collect(),
            low_water,
            low_water_id: stream.ids(low_water).0,
            more: false,
        }
    }

    /// Returns the lowest number in a range that retention has not removed: all events are recent.
    pub(super) fn first_retained(&self, range: &RecentRange) -> Option<u64> {
        let low_water = self.0.lock().streams.get(&*range.stream_key)?.low_water;
        Some(range.after.max(low_water) + 1).filter(|&seq| seq <= range.through)
    }

    /// Removes the events up to `through`, or all if there are fewer.
    pub(super) fn trim(&self, key: &str, through: u64) {
        if let Some(stream) = self.0.lock().streams.get_mut(key) {
            stream.low_water = through.min(stream.head()).max(stream.low_water);
        }
    }

    /// Replaces the history by one that ends at `keep`.
    pub(super) fn rewind(&self, key: &str, keep: u64) {
        if let Some(stream) = self.0.lock().streams.get_mut(key) {
            let keep = usize::try_from(keep).unwrap_or(usize::MAX);
            stream.events.truncate(keep);
            stream.ordinals.truncate(keep);
            stream.low_water = stream.low_water.min(stream.head());
        }
    }
}

impl HistorySource<FleetEvent> for ModelStore {
    fn read(
        &self,
        key: Arc<str>,
        after: u64,
        limit: usize,
        empty_reads: u32,
    ) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        let lacks = match &mut self.0.lock().stale {
            (0, _) => 0,
            (reads, lacks) => {
                *reads -= 1;
                *lacks
            }
        };
        if empty_reads == 0 {
            return Box::pin(std::future::ready(Some(self.page(&key, after, limit, lacks))));
        }
        // It waits for the sweep that finds out whether the events are lost.
        let store = self.clone();
        Box::pin(async move {
            let mut has_waited = false;
            std::future::poll_fn(|_| match std::mem::replace(&mut has_waited, true) {
                false => Poll::Pending,
                true => Poll::Ready(()),
            })
            .await;
            Some(store.page(&key, after, limit, lacks))
        })
    }
}
