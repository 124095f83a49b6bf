//! A store that the test can look into: it remembers what retention has taken, and can be given another history.

use std::collections::HashMap;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use parking_lot::Mutex;

use crate::bus::history_cache::HistorySource;
use crate::bus::{FleetEvent, StreamEvent as _};
use crate::store::Page;

#[derive(Clone, Default)]
pub(super) struct ModelStore(Arc<Mutex<ModelState>>);

#[derive(Default)]
struct ModelState {
    streams: HashMap<String, ModelStream>,
    /// Events that were ever written; each says which it is.
    written: u64,
}

#[derive(Default)]
struct ModelStream {
    events: Vec<FleetEvent>,
    low_water: u64,
}

impl ModelStream {
    fn head(&self) -> u64 {
        self.events.len() as u64
    }
}

impl ModelStore {
    pub(super) fn append(&self, key: &str) -> FleetEvent {
        let mut shelf = self.0.lock();
        shelf.written += 1;
        let event = FleetEvent::custom(key, "n", shelf.written.to_string());
        let book = shelf.streams.entry(key.to_owned()).or_default();
        let event = event.with_seq(book.head() + 1);
        book.events.push(event.clone());
        event
    }

    pub(super) fn head(&self, key: &str) -> u64 {
        self.0.lock().streams.get(key).map_or(0, ModelStream::head)
    }

    /// The highest number of each stream that there is.
    pub(super) fn heads(&self) -> HashMap<String, u64> {
        let shelf = self.0.lock();
        let heads = shelf.streams.iter().map(|(key, book)| (key.clone(), book.head()));
        heads.filter(|&(_, head)| head > 0).collect()
    }

    /// An event that is there, or that retention has taken.
    pub(super) fn event(&self, key: &str, seq: u64) -> FleetEvent {
        let index = usize::try_from(seq - 1).expect("a small number");
        self.0.lock().streams[key].events[index].clone()
    }

    pub(super) fn page(&self, key: &str, after: u64, limit: usize) -> Page<FleetEvent> {
        let shelf = self.0.lock();
        let Some(book) = shelf.streams.get(key) else {
            return Page::from_events(Vec::new());
        };
        let after = usize::try_from(after.max(book.low_water)).unwrap_or(usize::MAX);
        let events = book.events.iter().skip(after).take(limit).cloned().collect();
        Page {
            low_water: book.low_water,
            ..Page::from_events(events)
        }
    }

    /// Retention takes the events up to `through`, or all that there are.
    pub(super) fn trim(&self, key: &str, through: u64) {
        if let Some(book) = self.0.lock().streams.get_mut(key) {
            book.low_water = through.min(book.head()).max(book.low_water);
        }
    }

    /// From here on there was never anything after `keep`.
    pub(super) fn rewind(&self, key: &str, keep: u64) {
        if let Some(book) = self.0.lock().streams.get_mut(key) {
            book.events.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
            book.low_water = book.low_water.min(book.head());
        }
    }
}

impl HistorySource<FleetEvent> for ModelStore {
    fn read(&self, key: Arc<str>, after: u64, limit: usize) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        Box::pin(std::future::ready(Some(self.page(&key, after, limit))))
    }
}
