//! A store that the test can look into: it remembers what retention has taken, and can be given another history.

use std::collections::HashMap;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use parking_lot::Mutex;

use crate::bus::pages::Source;
use crate::bus::{FleetEvent, StreamEvent as _};
use crate::store::Page;

#[derive(Clone, Default)]
pub(super) struct Books(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    books: HashMap<String, Book>,
    /// Events that were ever written; each says which it is.
    written: u64,
}

#[derive(Default)]
struct Book {
    events: Vec<FleetEvent>,
    trimmed_through: u64,
}

impl Book {
    fn head(&self) -> u64 {
        self.events.len() as u64
    }
}

impl Books {
    pub(super) fn append(&self, key: &str) -> FleetEvent {
        let mut shelf = self.0.lock();
        shelf.written += 1;
        let event = FleetEvent::custom(key, "n", shelf.written.to_string());
        let book = shelf.books.entry(key.to_owned()).or_default();
        let event = event.with_seq(book.head() + 1);
        book.events.push(event.clone());
        event
    }

    pub(super) fn head(&self, key: &str) -> u64 {
        self.0.lock().books.get(key).map_or(0, Book::head)
    }

    /// The highest number of each stream that there is.
    pub(super) fn heads(&self) -> HashMap<String, u64> {
        let shelf = self.0.lock();
        let heads = shelf.books.iter().map(|(key, book)| (key.clone(), book.head()));
        heads.filter(|&(_, head)| head > 0).collect()
    }

    /// An event that is there, or that retention has taken.
    pub(super) fn event(&self, key: &str, seq: u64) -> FleetEvent {
        let index = usize::try_from(seq - 1).expect("a small number");
        self.0.lock().books[key].events[index].clone()
    }

    pub(super) fn page(&self, key: &str, after: u64, limit: usize) -> Page<FleetEvent> {
        let shelf = self.0.lock();
        let Some(book) = shelf.books.get(key) else {
            return Page::from_events(Vec::new());
        };
        let after = usize::try_from(after.max(book.trimmed_through)).unwrap_or(usize::MAX);
        let events = book.events.iter().skip(after).take(limit).cloned().collect();
        Page {
            trimmed_through: book.trimmed_through,
            ..Page::from_events(events)
        }
    }

    /// Retention takes the events up to `through`, or all that there are.
    pub(super) fn trim(&self, key: &str, through: u64) {
        if let Some(book) = self.0.lock().books.get_mut(key) {
            book.trimmed_through = through.min(book.head()).max(book.trimmed_through);
        }
    }

    /// From here on there was never anything after `keep`.
    pub(super) fn rewind(&self, key: &str, keep: u64) {
        if let Some(book) = self.0.lock().books.get_mut(key) {
            book.events.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
            book.trimmed_through = book.trimmed_through.min(book.head());
        }
    }
}

impl Source<FleetEvent> for Books {
    fn read(&self, key: Arc<str>, after: u64, limit: usize) -> BoxFuture<'static, Option<Page<FleetEvent>>> {
        Box::pin(std::future::ready(Some(self.page(&key, after, limit))))
    }
}
